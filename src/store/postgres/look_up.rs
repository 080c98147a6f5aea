//! Looking one item up by the digest of its canonical bytes.
//!
//! Invariant: one statement, and so one snapshot, tells what the rows that are there revoke, up to where
//! that is true, and whether a row that is not found is not there: every row of the filter must have been
//! digested as this process digests, no other process may have declared the filter otherwise, and a
//! standby may lag.

use jiff::SignedDuration;
use sqlx::PgConnection;

use super::errors::within;
use super::server::{SEGMENT, TIMELINE, cursor};
use super::session::STEP_LIMIT;
use super::time::PgTime;
use crate::service::ports::{FilterId, LookUp, Presence, StoreError};
use crate::service::terms::Revoked;
use crate::store::record::Settling;
use crate::store::rows::{Digest, leeway_us};

/// Timeline, segment, snapshot, whether what is not found is not there, and the latest time of the rows.
type LookedUp = (Option<String>, Option<i64>, String, bool, Option<PgTime>);

/// Looks for the rows with this canonical digest that have not expired longer ago than `leeway`. The time
/// of one that revokes all tokens is `infinity`: it has none, or not one that holds (`revoke_xid` is not
/// `xid`).
///
/// # Errors
/// When the statement fails.
pub(super) async fn look_up(
    connection: &mut PgConnection,
    what: &str,
    filter: FilterId,
    settling: &Settling,
    canonical_digest: &Digest,
    leeway: SignedDuration,
) -> Result<LookUp, StoreError> {
    let statement = format!(
        "SELECT {TIMELINE}, {SEGMENT}, pg_catalog.pg_current_snapshot()::text,
                NOT pg_catalog.pg_is_in_recovery() AND EXISTS (
                    SELECT FROM bloomgate.filter
                     WHERE id = $1 AND canonical_forms = ARRAY[$2::text]
                       AND sources = $3 AND source_digests = $4),
                (SELECT max(CASE WHEN revoke_xid = xid AND revoke_issued_until IS NOT NULL
                                 THEN revoke_issued_until ELSE 'infinity' END)
                      FROM bloomgate.item
                     WHERE filter_id = $1 AND canonical_digest = $5
                       AND (expires_at IS NULL OR expires_at
                            >= statement_timestamp() - $6::bigint * interval '1 microsecond'))"
    );
    let question = sqlx::query_as(sqlx::AssertSqlSafe(statement))
        .bind(filter.0)
        .bind(&settling.canonical_form)
        .bind(&settling.sources)
        .bind(&settling.source_digests)
        .bind(&canonical_digest[..])
        .bind(leeway_us(leeway));
    let (told, segment, snapshot, is_all, until): LookedUp =
        within(STEP_LIMIT, what, question.fetch_one(connection)).await?;
    Ok(LookUp {
        presence: Presence {
            found: until.map(|until| Revoked::until(until.moment())),
            is_all,
        },
        as_of: cursor(told.as_deref(), segment, &snapshot, what)?,
    })
}

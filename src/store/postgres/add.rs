//! Rows into the table `item`, in one statement and so in one commit and one round trip.
//!
//! Invariants: no row is written for a filter that is not there when the statement commits; every
//! row that is written bears the transaction that wrote it last; two statements never deadlock.

use sqlx::PgConnection;
use uuid::Uuid;

use super::WRITE_LIMIT;
use super::errors::{Fault, within};
use super::server::{TIMELINE, timeline, void};
use super::time::PgTime;
use crate::service::ports::{AddReceipt, FilterId, Place, StoreError};
use crate::store::rows::{DigestedRow, filters_named};

/// How it holds, under READ COMMITTED:
///
/// * `live` locks the rows that it gives, and a common table expression that locks is never merged
///   into what reads it: it has run to its locks before the first row is written, because the insert
///   joins it.
/// * Where another transaction has deleted such a row and not yet committed, the lock waits, and
///   then finds the filter gone.
/// * From then on deleting the filter waits for this commit. Whoever purges looks at the items only
///   afterwards, and so sees these.
/// * The commit reaches the disk before the answer, whatever the session's own setting is: a
///   pooler may have put the statement on a session that was never set up.
/// * Rows are locked in the order of their key, and filters before rows, by every writer.
/// * A time of revocation is joined only with one that held (`revoke_xid` is `xid`): a process that knows
///   of no times may have added the item since, for all of its tokens.
/// * The place is the transaction's id, which other processes find in the rows as soon as they see
///   them; the notice wakes them, and without it they look a little later.
fn add_statement() -> String {
    format!("{ADD}, {TIMELINE}")
}

const ADD: &str = "
WITH live AS MATERIALIZED (
    SELECT id FROM bloomgate.filter WHERE id = ANY ($1) ORDER BY id FOR KEY SHARE
), written AS (
    INSERT INTO bloomgate.item AS kept
           (filter_id, item, item_digest, canonical_digest, profile_version, expires_at,
            revoke_issued_until, revoke_xid)
    SELECT new.filter_id, new.item, new.item_digest, new.canonical_digest, new.profile_version,
           new.expires_at, new.revoke_issued_until,
           CASE WHEN new.revoke_issued_until IS NOT NULL THEN pg_current_xact_id() END
      FROM unnest($2::uuid[], $3::bytea[], $4::bytea[], $5::bytea[], $6::int[], $7::timestamptz[],
                  $8::timestamptz[])
        AS new (filter_id, item, item_digest, canonical_digest, profile_version, expires_at,
                revoke_issued_until)
      JOIN live ON live.id = new.filter_id
     ORDER BY new.filter_id, new.item_digest
    ON CONFLICT (filter_id, item_digest) DO UPDATE
       SET expires_at = CASE WHEN kept.expires_at IS NULL OR excluded.expires_at IS NULL THEN NULL
                             ELSE greatest(kept.expires_at, excluded.expires_at) END,
           canonical_digest = excluded.canonical_digest,
           profile_version = excluded.profile_version,
           revoke_issued_until =
               CASE WHEN kept.revoke_xid = kept.xid AND kept.revoke_issued_until IS NOT NULL
                         AND excluded.revoke_issued_until IS NOT NULL
                    THEN greatest(kept.revoke_issued_until, excluded.revoke_issued_until) END,
           revoke_xid = excluded.revoke_xid,
           xid = pg_current_xact_id()
    RETURNING 1
)
SELECT pg_current_xact_id()::text, ARRAY(SELECT id FROM live), (SELECT count(*) FROM written),
       pg_catalog.set_config('synchronous_commit', 'on', true),
       pg_catalog.pg_notify('bloomgate', '')::text";

/// The place, the filters that are there, the rows written, how the commit is made durable, the
/// notice, and the timeline.
type Answer = (String, Vec<Uuid>, i64, String, String, Option<String>);

/// Adds `rows`, which are merged and in order.
///
/// # Errors
/// When the statement fails; nothing was acknowledged then.
pub(super) async fn add(
    connection: &mut PgConnection,
    what: &str,
    rows: &[DigestedRow<'_>],
) -> Result<AddReceipt, StoreError> {
    let named = filters_named(rows);
    let answer = within(
        WRITE_LIMIT,
        what,
        statement(&named, rows).fetch_one(connection),
    );
    let (place, live, written, _durable, _noticed, told) = answer.await?;
    // The rows are durable and nobody can say where: the session is given up with the answer, and
    // the next one puts the marker back.
    let told = told.ok_or_else(|| void(what, "its marker is gone"))?;
    let deleted: Vec<_> = named
        .into_iter()
        .filter(|filter| !live.contains(&filter.0))
        .collect();
    let expected = rows
        .iter()
        .filter(|row| !deleted.contains(&row.filter))
        .count();
    if u64::try_from(written) != Ok(expected as u64) {
        let detail = format!("expected {expected} rows to be written, found {written}");
        return Err(Fault::Failed(detail).of(what));
    }
    Ok(AddReceipt {
        timeline: timeline(&told),
        // What others have written before it, a poll brings.
        cursor: None,
        place: place_of(&place, what)?,
        deleted,
    })
}

/// A transaction id as text: `xid8` has no cast to a number.
pub(super) fn place_of(xid: &str, what: &str) -> Result<Place, StoreError> {
    xid.parse().map(Place).map_err(|_| {
        let detail = "expected a transaction id, found something else".to_owned();
        Fault::Failed(detail).of(what)
    })
}

fn statement<'q>(
    named: &[FilterId],
    rows: &'q [DigestedRow<'q>],
) -> sqlx::query::QueryAs<'q, sqlx::Postgres, Answer, sqlx::postgres::PgArguments> {
    let each = |of: fn(&'q DigestedRow<'q>) -> &'q [u8]| rows.iter().map(of).collect::<Vec<_>>();
    sqlx::query_as(sqlx::AssertSqlSafe(add_statement()))
        .bind(named.iter().map(|filter| filter.0).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.filter.0).collect::<Vec<_>>())
        .bind(each(|row| row.item))
        .bind(each(|row| &row.item_digest))
        .bind(each(|row| &row.canonical_digest))
        .bind(
            rows.iter()
                .map(|row| row.profile_version)
                .collect::<Vec<_>>(),
        )
        .bind(
            rows.iter()
                .map(|row| row.terms.expires_at.map(PgTime::rounded_up))
                .collect::<Vec<_>>(),
        )
        .bind(
            rows.iter()
                .map(|row| row.terms.revoke_issued_until.map(PgTime::rounded_up))
                .collect::<Vec<_>>(),
        )
}

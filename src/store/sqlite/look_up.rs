//! Looking one item up by the digest of its canonical bytes.

use jiff::{SignedDuration, Timestamp};
use sqlx::sqlite::SqliteConnection;

use super::filters::json;
use super::forget::forget_before_us;
use crate::service::ports::{FilterId, Presence};
use crate::service::terms::Revoked;
use crate::store::record::Settling;
use crate::store::rows::Digest;

/// A time later than any that a row has.
const FOR_ALL_US: i64 = i64::MAX;

/// Looks for the rows with this canonical digest that have not expired longer ago than `leeway`, and gives
/// the last commit that was seen. One that is not found is not there only where every row of the
/// filter was digested as this process digests.
pub(super) async fn look_up(
    connection: &mut SqliteConnection,
    filter: FilterId,
    settling: &Settling,
    canonical_digest: &Digest,
    leeway: SignedDuration,
) -> Result<(Presence, i64), sqlx::Error> {
    let (last_commit, is_all, until_us): (i64, bool, Option<i64>) = sqlx::query_as(
        "SELECT last_commit,
                EXISTS (SELECT 1 FROM filter
                         WHERE id = ?1 AND canonical_forms = json_array(?2)
                           AND sources = ?3 AND source_digests = ?4),
                (SELECT max(coalesce(revoke_issued_until, ?7)) FROM item
                  WHERE filter_id = ?1 AND canonical_digest = ?5
                    AND (expires_at IS NULL OR expires_at >= ?6))
           FROM store",
    )
    .bind(filter.0)
    .bind(&settling.canonical_form)
    .bind(json(&settling.sources)?)
    .bind(json(&settling.source_digests)?)
    .bind(&canonical_digest[..])
    .bind(forget_before_us(leeway))
    .bind(FOR_ALL_US)
    .fetch_one(connection)
    .await?;
    // What is later than any Timestamp is for all tokens, as what was rounded past the last one is.
    let until = |us| Timestamp::from_microsecond(us).ok();
    let presence = Presence {
        found: until_us.map(|us| Revoked::until(until(us))),
        is_all,
    };
    Ok((presence, last_commit))
}

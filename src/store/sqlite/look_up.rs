//! Looking one item up by the digest of its canonical bytes.

use jiff::SignedDuration;
use sqlx::sqlite::SqliteConnection;

use super::filters::json;
use super::forget::forget_before_us;
use crate::service::ports::{FilterId, Presence};
use crate::store::record::Settling;
use crate::store::rows::Digest;

/// Looks for a row with this canonical digest that has not expired longer ago than `leeway`, and gives
/// the last commit that was seen. One that is not found is not there only where every row of the
/// filter was digested as this process digests.
pub(super) async fn look_up(
    connection: &mut SqliteConnection,
    filter: FilterId,
    settling: &Settling,
    canonical_digest: &Digest,
    leeway: SignedDuration,
) -> Result<(Presence, i64), sqlx::Error> {
    let (last_commit, settles, is_there): (i64, bool, bool) = sqlx::query_as(
        "SELECT last_commit,
                EXISTS (SELECT 1 FROM filter
                         WHERE id = ?1 AND canonical_forms = json_array(?2)
                           AND sources = ?3 AND source_digests = ?4),
                EXISTS (SELECT 1 FROM item
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
    .fetch_one(connection)
    .await?;
    let presence = match (is_there, settles) {
        (true, _) => Presence::Present,
        (false, true) => Presence::Absent,
        (false, false) => Presence::Unsettled,
    };
    Ok((presence, last_commit))
}

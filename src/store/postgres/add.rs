//! Rows into the table `item`, in one statement and so in one commit and one round trip.
//!
//! Invariants: nothing is written when the store is held by another; no row is written for a
//! filter that is not there when the statement commits; two statements never deadlock.

use sqlx::PgConnection;
use uuid::Uuid;

use super::WRITE_LIMIT;
use super::errors::{Fault, within};
use super::hold::{Hold, lost};
use super::time::PgTime;
use crate::service::ports::{AddReceipt, FilterId, Place, StoreError};
use crate::store::rows::{DigestedRow, filters_named};

/// How it holds, under READ COMMITTED:
///
/// * `fence` and `live` lock the rows that they give, and a common table expression that locks is
///   never merged into what reads it: both have run to their locks before the first row is
///   written, because the insert joins them.
/// * Where another transaction has changed such a row and not yet committed, the lock waits, and
///   then looks at the row anew: an epoch that was raised no longer matches, a filter that was
///   deleted is gone.
/// * From then on raising the epoch and deleting the filter wait for this commit. Both look at
///   the items only afterwards, and so see these.
/// * The commit reaches the disk before the answer, whatever the session's own setting is: a
///   pooler may have put the statement on a session that was never set up.
/// * Rows are locked in the order of their key, and filters before rows, by every writer.
const ADD: &str = "
WITH fence AS MATERIALIZED (
    SELECT holder_epoch FROM bloomgate.store WHERE holder_epoch = $1 FOR SHARE
), live AS MATERIALIZED (
    SELECT id FROM bloomgate.filter
     WHERE id = ANY ($2) AND EXISTS (SELECT FROM fence)
     ORDER BY id FOR KEY SHARE
), written AS (
    INSERT INTO bloomgate.item AS kept
           (filter_id, item, item_digest, canonical_digest, profile_version, expires_at)
    SELECT new.filter_id, new.item, new.item_digest, new.canonical_digest, new.profile_version,
           new.expires_at
      FROM unnest($3::uuid[], $4::bytea[], $5::bytea[], $6::bytea[], $7::int[], $8::timestamptz[])
        AS new (filter_id, item, item_digest, canonical_digest, profile_version, expires_at)
      JOIN live ON live.id = new.filter_id
     ORDER BY new.filter_id, new.item_digest
    ON CONFLICT (filter_id, item_digest) DO UPDATE
       SET expires_at = CASE WHEN kept.expires_at IS NULL OR excluded.expires_at IS NULL THEN NULL
                             ELSE greatest(kept.expires_at, excluded.expires_at) END,
           canonical_digest = excluded.canonical_digest,
           profile_version = excluded.profile_version,
           xid = pg_current_xact_id()
    RETURNING 1
)
SELECT pg_current_xact_id()::text, EXISTS (SELECT FROM fence), ARRAY(SELECT id FROM live),
       (SELECT count(*) FROM written),
       pg_catalog.set_config('synchronous_commit', 'on', true)";

/// The place, whether the store was still held, the filters that are there, the rows written, and
/// how the commit is made durable.
type Answer = (String, bool, Vec<Uuid>, i64, String);

/// Adds `rows`, which are merged and in order.
///
/// # Errors
/// [`StoreError::HoldLost`] when another process has taken the store; else when the statement
/// fails. In either case nothing was acknowledged.
pub(super) async fn add(
    connection: &mut PgConnection,
    what: &str,
    hold: &Hold,
    rows: &[DigestedRow<'_>],
) -> Result<AddReceipt, StoreError> {
    let named = filters_named(rows);
    let answer = within(
        WRITE_LIMIT,
        what,
        statement(hold, &named, rows).fetch_one(connection),
    );
    let (place, is_held, live, written, _durable) = answer.await?;
    if !is_held {
        return Err(lost(what, "another process has taken it"));
    }
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
    hold: &Hold,
    named: &[FilterId],
    rows: &'q [DigestedRow<'q>],
) -> sqlx::query::QueryAs<'q, sqlx::Postgres, Answer, sqlx::postgres::PgArguments> {
    let each = |of: fn(&'q DigestedRow<'q>) -> &'q [u8]| rows.iter().map(of).collect::<Vec<_>>();
    sqlx::query_as(ADD)
        .bind(hold.epoch)
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
                .map(|row| row.expires_at.map(PgTime::rounded_up))
                .collect::<Vec<_>>(),
        )
}

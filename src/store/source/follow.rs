//! How a source's changes are read back, as triggers recorded them
//! ([`follow_sql`](super::follow_sql) makes these).
//!
//! Invariants: the standing, the picture of the moment and the changes are of one snapshot; a
//! cursor that may no longer hold is void, never patched up; nothing is set on the session, for a
//! pooler may give another to each transaction.
//!
//! It must not know what is done with the changes.

use std::time::Duration;

use jiff::Timestamp;
use sha2::{Digest as _, Sha256};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Postgres, Transaction};
use uuid::Uuid;

use super::sql_text::literal;
use crate::service::cursor::{Cursor, Timeline};
use crate::service::ports::{Place, StoreError};
use crate::store::postgres::errors::{Fault, within};
use crate::store::postgres::session::{self, STEP_LIMIT, Scope, Settings};
use crate::store::postgres::time::PgTime;

const WRITE_SETTINGS: Settings = &[
    ("statement_timeout", "0"),
    ("lock_timeout", "0"),
    ("idle_in_transaction_session_timeout", "0"),
    ("client_min_messages", "error"),
];

/// Whether the changes of a source are recorded, as of one snapshot.
pub(super) enum Standing {
    /// They are: a digest of every trigger that does it and of its function, row versions included.
    Followed([u8; 32]),
    /// They are not, or not surely, and why.
    NotFollowed(&'static str),
}

/// The moment that a snapshot shows.
pub(super) struct Picture {
    cursor: Cursor,
    /// Below this changes may be gone.
    horizon: Place,
    /// Whether the segment of the cursor that was given is on record.
    is_continued: bool,
    /// The database's clock.
    pub(super) now: Timestamp,
    /// How many changes there are since the cursor that was given.
    pub(super) changes: u64,
}

/// The filter and the source, as triggers and changes name them.
pub(super) struct Subject {
    pub(super) filter: String,
    pub(super) source: String,
}

impl Subject {
    /// Whether its changes are recorded. `transaction` may be of any kind.
    pub(super) async fn standing(
        &self,
        transaction: &mut PgConnection,
        what: &str,
    ) -> Result<Standing, StoreError> {
        // A partition has a trigger of its own, copied from its table's: one that is attached
        // brings another, and rows that no trigger has seen.
        let question = sqlx::query_as(
            "SELECT pg_catalog.pg_is_in_recovery(), pg_catalog.count(*),
                    COALESCE(pg_catalog.bool_and(trigger.tgenabled = 'A'), false),
                    pg_catalog.sha256(pg_catalog.convert_to(COALESCE(pg_catalog.string_agg(
                        pg_catalog.concat_ws(' ', trigger.oid, trigger.xmin, trigger.tgenabled,
                            function.oid, function.xmin),
                        ',' ORDER BY trigger.oid), ''), 'UTF8'))
               FROM pg_catalog.pg_trigger AS trigger
               JOIN pg_catalog.pg_proc AS function ON function.oid = trigger.tgfoid
               JOIN pg_catalog.pg_namespace AS space ON space.oid = function.pronamespace
              WHERE space.nspname = 'bloomgate_follow' AND trigger.tgargs = $1",
        )
        .bind(self.trigger_arguments())
        .persistent(false);
        let answer = within(STEP_LIMIT, what, question.fetch_one(transaction));
        let (is_standby, triggers, are_always, digest): (bool, i64, bool, Vec<u8>) = answer.await?;
        // A standby's snapshot leaves out transactions that are in progress.
        if is_standby {
            return Ok(Standing::NotFollowed("the server is a standby"));
        }
        if triggers == 0 {
            return Ok(Standing::NotFollowed("its trigger is not there"));
        }
        if !are_always {
            let detail = "a trigger of it is not enabled always";
            return Ok(Standing::NotFollowed(detail));
        }
        match digest.try_into() {
            Ok(digest) => Ok(Standing::Followed(digest)),
            Err(_) => Err(Fault::Failed("its digest is not one of 32 bytes".to_owned()).of(what)),
        }
    }

    /// The picture of the moment; none where the marker is gone. `triggers` must come from
    /// [`Subject::standing`] in the same transaction, which must be of one snapshot.
    pub(super) async fn picture(
        &self,
        transaction: &mut PgConnection,
        what: &str,
        triggers: &[u8; 32],
        after: Option<&Cursor>,
    ) -> Result<Option<Picture>, StoreError> {
        let (changes, segment) = match after {
            Some(after) => (
                format!("SELECT pg_catalog.count(*) {}", self.changes_since(after)),
                after.segment.cast_signed().to_string(),
            ),
            None => ("SELECT 0::pg_catalog.int8".to_owned(), "NULL".to_owned()),
        };
        let question = format!(
            "SELECT control.system_identifier, own.oid::pg_catalog.int8,
                    changes.oid::pg_catalog.int8,
                    pg_catalog.pg_relation_filenode(changes.oid)::pg_catalog.int8,
                    (SELECT id FROM bloomgate_follow.marker),
                    (SELECT xid::pg_catalog.text::pg_catalog.int8 FROM bloomgate_follow.horizon),
                    pg_catalog.pg_snapshot_xmax(moment)::pg_catalog.text::pg_catalog.int8,
                    ARRAY(SELECT xip::pg_catalog.text::pg_catalog.int8
                            FROM pg_catalog.pg_snapshot_xip(moment) AS xip ORDER BY 1),
                    pg_catalog.transaction_timestamp(), ({changes}),
                    (SELECT segment FROM bloomgate_follow.server_start
                      WHERE started_at = pg_catalog.pg_postmaster_start_time()),
                    EXISTS (SELECT FROM bloomgate_follow.server_start WHERE segment = {segment})
               FROM pg_catalog.pg_current_snapshot() AS moment,
                    pg_catalog.pg_control_system() AS control,
                    pg_catalog.pg_database AS own, pg_catalog.pg_class AS changes
              WHERE own.datname = pg_catalog.current_database()
                AND changes.oid = 'bloomgate_follow.change'::pg_catalog.regclass"
        );
        let question = sqlx::query_as(AssertSqlSafe(question)).persistent(false);
        let answer = within(STEP_LIMIT, what, question.fetch_one(transaction)).await?;
        self.read_picture(what, triggers, answer)
    }

    fn read_picture(
        &self,
        what: &str,
        triggers: &[u8; 32],
        answer: PictureRow,
    ) -> Result<Option<Picture>, StoreError> {
        let (
            cluster,
            database,
            table,
            file,
            marker,
            horizon,
            next,
            in_progress,
            now,
            changes,
            segment,
            is_continued,
        ) = answer;
        let (Some(marker), Some(horizon), Some(segment)) = (marker, horizon, segment) else {
            return Ok(None);
        };
        let odd = |part: &str| Fault::Failed(format!("its {part} cannot be")).of(what);
        let place = |id: i64| match u64::try_from(id) {
            Ok(id) => Ok(Place(id)),
            Err(_) => Err(odd("transaction id")),
        };
        let mut hash = Sha256::new();
        for number in [cluster, database, table, file.unwrap_or(0)] {
            hash.update(number.to_be_bytes());
        }
        hash.update(marker.as_bytes());
        hash.update(triggers);
        hash.update(self.trigger_arguments());
        let mut timeline = Timeline([0; 16]);
        timeline.0.copy_from_slice(&hash.finalize()[..16]);
        Ok(Some(Picture {
            cursor: Cursor {
                timeline,
                segment: segment.cast_unsigned(),
                next: place(next)?,
                in_progress: in_progress
                    .into_iter()
                    .map(place)
                    .collect::<Result<_, _>>()?,
            },
            horizon: place(horizon)?,
            now: now.moment().ok_or_else(|| odd("clock"))?,
            is_continued,
            changes: u64::try_from(changes).map_err(|_| odd("number of changes"))?,
        }))
    }

    /// The changes since a cursor, as item and expiry.
    pub(super) fn changes(&self, after: &Cursor) -> String {
        format!("SELECT item, expires_at {}", self.changes_since(after))
    }

    /// Ids at or above the snapshot's end are another cluster's, which a dump brought along.
    fn changes_since(&self, after: &Cursor) -> String {
        let in_progress: Vec<_> = after
            .in_progress
            .iter()
            .map(|place| place.0.to_string())
            .collect();
        format!(
            "FROM bloomgate_follow.change
              WHERE filter = {} AND source = {}
                AND (xid >= '{}' OR xid = ANY ('{{{}}}'::pg_catalog.xid8[]))
                AND xid < pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())",
            literal(&self.filter),
            literal(&self.source),
            after.next.0,
            in_progress.join(",")
        )
    }

    /// The arguments as `pg_trigger` keeps them: a zero byte behind each.
    fn trigger_arguments(&self) -> Vec<u8> {
        format!("{}\0{}\0", self.filter, self.source).into_bytes()
    }
}

type PictureRow = (
    i64,
    i64,
    i64,
    Option<i64>,
    Option<Uuid>,
    Option<i64>,
    i64,
    Vec<i64>,
    PgTime,
    i64,
    Option<i64>,
    bool,
);

impl Picture {
    /// The cursor of this moment.
    pub(super) fn into_cursor(self) -> Cursor {
        self.cursor
    }

    /// Why what was committed since `after` cannot be told from what is there now; none when it
    /// can.
    pub(super) fn void(&self, after: &Cursor) -> Option<&'static str> {
        let now = &self.cursor;
        if now.timeline != after.timeline {
            return Some(
                "a trigger was changed, or the server has crashed, or is another than before",
            );
        }
        if !self.is_continued {
            return Some(
                "it was restored from a copy, or follows a start of the server that is not on record",
            );
        }
        if now.next < after.next || oldest(now) < oldest(after) {
            return Some("its transaction ids have gone back");
        }
        if oldest(after) < self.horizon {
            return Some(
                "changes since then were pruned; raise change_retention if it is too short",
            );
        }
        None
    }
}

/// The first place that a cursor does not reach.
fn oldest(cursor: &Cursor) -> Place {
    cursor.in_progress.first().copied().unwrap_or(cursor.next)
}

/// Makes sure that there is a marker, and that this start of the server is on record.
pub(super) async fn renew_marker(session: &mut PgConnection, what: &str) -> Result<(), StoreError> {
    let mut transaction = begin_write(session, what).await?;
    let renew = sqlx::query("SELECT bloomgate_follow.renew_marker()").persistent(false);
    within(STEP_LIMIT, what, renew.execute(&mut *transaction)).await?;
    within(STEP_LIMIT, what, transaction.commit()).await
}

/// Deletes one part of the changes that are older than the retention; whether it deleted any.
pub(super) async fn prune(
    session: &mut PgConnection,
    what: &str,
    retention: Duration,
) -> Result<bool, StoreError> {
    let mut transaction = begin_write(session, what).await?;
    let prune =
        sqlx::query_scalar("SELECT bloomgate_follow.prune(pg_catalog.make_interval(secs => $1))")
            .bind(retention.as_secs_f64())
            .persistent(false);
    let pruned: i64 = within(STEP_LIMIT, what, prune.fetch_one(&mut *transaction)).await?;
    within(STEP_LIMIT, what, transaction.commit()).await?;
    Ok(pruned > 0)
}

async fn begin_write<'c>(
    session: &'c mut PgConnection,
    what: &str,
) -> Result<Transaction<'c, Postgres>, StoreError> {
    // As said here, whatever the role has by default.
    let begin = session.begin_with("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE");
    let mut transaction = within(STEP_LIMIT, what, begin).await?;
    session::set(&mut transaction, what, WRITE_SETTINGS, Scope::Transaction).await?;
    Ok(transaction)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cursor(next: u64, in_progress: &[u64]) -> Cursor {
        Cursor {
            timeline: Timeline([1; 16]),
            segment: 0,
            next: Place(next),
            in_progress: in_progress.iter().copied().map(Place).collect(),
        }
    }

    fn picture(cursor: Cursor, horizon: u64) -> Picture {
        Picture {
            cursor,
            horizon: Place(horizon),
            is_continued: true,
            now: Timestamp::UNIX_EPOCH,
            changes: 0,
        }
    }

    #[test]
    fn a_cursor_holds_while_nothing_that_it_lacks_can_be_gone() {
        let after = cursor(104, &[100]);
        for now in [cursor(104, &[100]), cursor(104, &[]), cursor(110, &[107])] {
            assert_eq!(picture(now, 100).void(&after), None);
        }
    }

    #[test]
    fn a_cursor_is_void_where_ids_went_back_or_changes_may_be_gone() {
        let after = cursor(104, &[100]);
        assert!(picture(cursor(103, &[100]), 0).void(&after).is_some());
        assert!(picture(cursor(104, &[99]), 0).void(&after).is_some());
        assert!(picture(cursor(104, &[100]), 101).void(&after).is_some());
        let mut elsewhere = cursor(104, &[100]);
        elsewhere.timeline = Timeline([2; 16]);
        assert!(picture(elsewhere, 0).void(&after).is_some());
    }
}

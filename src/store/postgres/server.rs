//! What a server must be to hold the store, and what tells one state of it from another.
//!
//! A *timeline* ends where transaction ids may come again that were handed out before: after a
//! crash (ids that were used and not logged), a promotion, or a restore. An UNLOGGED row is gone
//! after each of these, and stays over a clean restart; beside it count the system identifier and
//! the ids of database and table, which tell a dump that was restored elsewhere.
//!
//! A *segment* of it begins with each start of the server, and is on record. A copy of the data folder
//! that was made while the server was stopped has all of the above; but whatever was followed after the
//! copy was followed in a segment that the copy does not know.

use sha2::{Digest as _, Sha256};
use sqlx::PgConnection;

use super::errors::{Fault, within};
use super::session::{STANDBY, STEP_LIMIT};
use crate::service::cursor::{Cursor, Timeline};
use crate::service::ports::{Place, StoreError};

/// First server with `xid8` and `pg_current_snapshot`.
const OLDEST_SERVER: i32 = 13_00_00;

/// What the timeline is made of, as an expression for a statement; null where the marker is gone.
pub(super) const TIMELINE: &str = "
(SELECT concat_ws('/', known.identity, marker.nonce, control.system_identifier,
                  (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database()),
                  'bloomgate.item'::pg_catalog.regclass::pg_catalog.oid)
   FROM bloomgate.store AS known, bloomgate.marker AS marker,
        pg_catalog.pg_control_system() AS control)";

/// The segment, as an expression for a statement; null where this start of the server is not on record.
pub(super) const SEGMENT: &str = "
(SELECT segment FROM bloomgate.server_start
  WHERE started_at = pg_catalog.pg_postmaster_start_time())";

/// The timeline that such an expression has told.
pub(super) fn timeline(told: &str) -> Timeline {
    let digest: [u8; 32] = Sha256::digest(told).into();
    let [timeline, _] = *digest.as_chunks::<16>().0 else {
        unreachable!("32 bytes are twice 16")
    };
    Timeline(timeline)
}

/// That places may have come again.
pub(super) fn void(what: &str, detail: &str) -> StoreError {
    StoreError::CursorVoid {
        what: what.to_owned(),
        detail: detail.to_owned(),
    }
}

/// The cursor that a server has told: a timeline, a segment, and a `pg_snapshot` as text.
///
/// # Errors
/// [`StoreError::CursorVoid`] when the marker is gone; [`StoreError::Unreachable`] when the start of
/// the server is not on record yet; else when the text is no snapshot.
pub(super) fn cursor(
    told_timeline: Option<&str>,
    told_segment: Option<i64>,
    snapshot: &str,
    what: &str,
) -> Result<Cursor, StoreError> {
    let told = told_timeline.ok_or_else(|| {
        void(
            what,
            "its marker is gone: the server has crashed, was promoted or restored",
        )
    })?;
    // A new session sees to it.
    let segment = told_segment.ok_or_else(|| {
        let detail = "its last start is not on record yet; trying again".to_owned();
        Fault::Unreachable(detail).of(what)
    })?;
    let odd = || Fault::Failed("expected a snapshot, found something else".to_owned()).of(what);
    let mut parts = snapshot.split(':').skip(1);
    let next = parts.next().and_then(|next| next.parse().ok());
    let in_progress = parts.next().ok_or_else(odd)?;
    let in_progress = in_progress
        .split(',')
        .filter(|xid| !xid.is_empty())
        .map(|xid| xid.parse().map(Place).map_err(|_| odd()))
        .collect::<Result<_, StoreError>>()?;
    Ok(Cursor {
        timeline: timeline(told),
        segment: segment.cast_unsigned(),
        next: Place(next.ok_or_else(odd)?),
        in_progress,
    })
}

/// Whether what was followed up to `before` can be followed on to `now`; `is_known` says whether the
/// segment of `before` is on record.
///
/// # Errors
/// [`StoreError::CursorVoid`] when it cannot.
pub(super) fn continues(
    before: &Cursor,
    is_known: bool,
    now: &Cursor,
    what: &str,
) -> Result<(), StoreError> {
    if before.timeline != now.timeline {
        return Err(void(
            what,
            "it is another server or database, or has crashed, was promoted or restored",
        ));
    }
    if !is_known {
        return Err(void(
            what,
            "it was restored from a copy, or follows a start of the server that is not on record",
        ));
    }
    let oldest = |cursor: &Cursor| *cursor.in_progress.first().unwrap_or(&cursor.next);
    if now.next < before.next || oldest(now) < oldest(before) {
        return Err(void(what, "its transaction ids have gone back"));
    }
    Ok(())
}

/// Puts the marker where it is missing, so that a timeline begins, and this start of the server on
/// record, so that a segment does.
///
/// # Errors
/// When the statement fails.
pub(super) async fn renew_marker(
    connection: &mut PgConnection,
    what: &str,
) -> Result<(), StoreError> {
    // Asked first, for every session asks and the insert alone would take a transaction id.
    let renew = sqlx::query(
        "INSERT INTO bloomgate.marker (only_row)
         SELECT true WHERE NOT EXISTS (SELECT FROM bloomgate.marker)
         ON CONFLICT DO NOTHING",
    );
    within(STEP_LIMIT, what, renew.execute(&mut *connection)).await?;
    let record = sqlx::query(
        "INSERT INTO bloomgate.server_start (started_at)
         SELECT pg_postmaster_start_time()
          WHERE NOT EXISTS (SELECT FROM bloomgate.server_start
                             WHERE started_at = pg_postmaster_start_time())
         ON CONFLICT DO NOTHING",
    );
    within(STEP_LIMIT, what, record.execute(connection)).await?;
    Ok(())
}

/// Refuses a server that is too old, or a standby.
///
/// # Errors
/// [`StoreError::Refused`]; else when it does not answer.
pub(super) async fn refuse_unfit(
    connection: &mut PgConnection,
    what: &str,
) -> Result<(), StoreError> {
    let question =
        sqlx::query_as("SELECT current_setting('server_version_num')::int, pg_is_in_recovery()")
            .persistent(false);
    let (version, is_standby): (i32, bool) =
        within(STEP_LIMIT, what, question.fetch_one(connection)).await?;
    if version < OLDEST_SERVER {
        let detail = format!(
            "expected PostgreSQL 13 or newer, found {}; use a newer server",
            version / 10_000
        );
        return Err(Fault::Refused(detail).of(what));
    }
    if is_standby {
        return Err(Fault::Refused(STANDBY.to_owned()).of(what));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(snapshot: &str) -> Cursor {
        cursor(Some("here"), Some(7), snapshot, "the store").unwrap()
    }

    #[test]
    fn a_snapshot_is_read_with_what_was_in_progress() {
        let read = told("726:731:726,728");
        assert_eq!(read.next, Place(731));
        assert_eq!(*read.in_progress, [Place(726), Place(728)]);
        assert!(told("731:731:").in_progress.is_empty());
        for odd in ["", "731", "731:x:", "1:2:x"] {
            assert!(cursor(Some("here"), Some(7), odd, "").is_err(), "{odd}");
        }
    }

    #[test]
    fn without_the_marker_there_is_no_cursor() {
        let error = cursor(None, Some(7), "731:731:", "the store").unwrap_err();
        assert!(matches!(error, StoreError::CursorVoid { .. }));
    }

    #[test]
    fn before_the_start_of_the_server_is_on_record_nothing_is_known_and_nothing_lost() {
        let error = cursor(Some("here"), None, "731:731:", "the store").unwrap_err();
        assert!(matches!(error, StoreError::Unreachable { .. }));
    }

    #[test]
    fn what_has_gone_back_or_is_elsewhere_cannot_be_followed_on() {
        let before = told("726:731:726");
        assert!(continues(&before, true, &told("726:731:726"), "").is_ok());
        assert!(continues(&before, true, &told("731:740:"), "").is_ok());
        assert!(continues(&before, true, &told("730:730:"), "").is_err());
        assert!(continues(&before, true, &told("700:731:700"), "").is_err());
        let elsewhere = cursor(Some("elsewhere"), Some(7), "731:740:", "").unwrap();
        assert!(continues(&before, true, &elsewhere, "").is_err());
        assert!(continues(&before, false, &told("731:740:"), "").is_err());
    }
}

//! Whether every process on the store that could still say `definitely-not` has an add.
//!
//! Each process reports with every poll what it has followed, in the statement that follows on. So a
//! process whose reports have not changed for longer than it may answer after its last poll says
//! `maybe` by itself. How long that is ago is measured here, from when the report was first seen until
//! it was asked for last, by this machine's clock that never runs backwards: nobody else's clock
//! counts, nor does the time that an answer was on its way.
//!
//! A store that has crashed may have lost every report and still knows its processes: each of them is
//! waited for until it has reported again, or was silent for long enough.
//!
//! Invariant: a process is passed over only when it has reported a cursor that reaches the add, has
//! been silent for long enough, or has taken its report back at its end.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use uuid::Uuid;

use super::Service;
use super::admin::milliseconds;
use super::ingest::Position;
use super::ports::{Moment, Replica};

/// Added to the bound of a process, for clocks that run at slightly different speeds.
const MARGIN: Duration = Duration::from_secs(1);

/// A process that was silent for so many times its bound is forgotten.
const FORGOTTEN_AFTER: u64 = 20;

/// The waits between two looks at the reports.
const FIRST_WAIT: Duration = Duration::from_millis(2);
const LONGEST_WAIT: Duration = Duration::from_millis(50);

/// What was seen of the reports of other processes.
#[derive(Debug, Default)]
pub struct Visibility {
    seen: Mutex<HashMap<Uuid, Seen>>,
}

#[derive(Debug, Clone, Copy)]
struct Seen {
    reports: i64,
    /// When that number was seen first.
    since: Moment,
}

impl Visibility {
    /// Takes note of the reports, which were asked for and answered at these moments, and gives for
    /// each process how long it has been silent, in milliseconds. Linear in the number of processes.
    fn observe(&self, replicas: &[Replica], asked: Moment, answered: Moment) -> HashMap<Uuid, u64> {
        // Nothing in here can leave the map half changed.
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.retain(|id, _| replicas.iter().any(|replica| replica.id == *id));
        let silent_ms = |replica: &Replica| {
            let known = seen.entry(replica.id).or_insert(Seen {
                reports: replica.reports,
                since: answered,
            });
            if known.reports != replica.reports {
                *known = Seen {
                    reports: replica.reports,
                    since: answered,
                };
            }
            // As of the question: the answer may show a report that was made at any time after it.
            let silent_ms = asked.monotonic_ms.saturating_sub(known.since.monotonic_ms);
            (replica.id, silent_ms)
        };
        replicas.iter().map(silent_ms).collect()
    }
}

fn bound_ms(replica: &Replica) -> u64 {
    milliseconds(replica.max_staleness.saturating_add(MARGIN))
}

fn has(replica: &Replica, position: Position) -> bool {
    replica
        .cursor
        .as_ref()
        .is_some_and(|cursor| cursor.reaches(position.timeline, position.place))
}

impl Service {
    /// Waits until every process that could still say `definitely-not` has what was committed at
    /// `position`; false when that takes longer than `wait_timeout`.
    pub(super) async fn visible_everywhere(&self, position: Position) -> bool {
        let wait = async {
            let mut wait = FIRST_WAIT;
            while !self.is_visible_everywhere(position).await {
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(LONGEST_WAIT);
            }
        };
        let waited = tokio::time::timeout(self.settings.wait_timeout, wait).await;
        waited.is_ok()
    }

    async fn is_visible_everywhere(&self, position: Position) -> bool {
        let asked = self.clock.now();
        let Ok(replicas) = self.store.replicas().await else {
            return false;
        };
        let answered = self.clock.now();
        let silent_ms = self.visibility.observe(&replicas, asked, answered);
        replicas.iter().all(|replica| {
            has(replica, position)
                || silent_ms
                    .get(&replica.id)
                    .is_some_and(|silent_ms| *silent_ms > bound_ms(replica))
        })
    }

    /// Looks at the reports, so that it is known for how long a process was silent when an add has to
    /// wait for it, and forgets those that are long gone.
    pub(super) async fn observe_replicas(&self) {
        let asked = self.clock.now();
        let Ok(replicas) = self.store.replicas().await else {
            return;
        };
        let answered = self.clock.now();
        let silent_ms = self.visibility.observe(&replicas, asked, answered);
        for replica in &replicas {
            let silent_ms = silent_ms.get(&replica.id).copied().unwrap_or(0);
            if silent_ms > bound_ms(replica).saturating_mul(FORGOTTEN_AFTER)
                && let Err(error) = self.store.forget_replica(replica.id).await
            {
                tracing::warn!(%error, "a process that is gone was not forgotten; trying again");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::cursor::{Cursor, Timeline};
    use crate::service::ports::Place;

    const HERE: Timeline = Timeline([1; 16]);

    fn at(monotonic_ms: u64) -> Moment {
        Moment {
            monotonic_ms,
            wall_ms: 0,
        }
    }

    fn replica(id: u128, reports: i64, next: Option<u64>) -> Replica {
        Replica {
            id: Uuid::from_u128(id),
            reports,
            max_staleness: Duration::from_secs(30),
            cursor: next.map(|next| Cursor {
                timeline: HERE,
                segment: 0,
                next: Place(next),
                in_progress: Box::default(),
            }),
        }
    }

    #[test]
    fn silence_counts_from_when_a_report_was_first_seen() {
        let visibility = Visibility::default();
        let silent_ms = |reports, now| {
            let replicas = [replica(1, reports, None)];
            visibility.observe(&replicas, at(now), at(now))[&replicas[0].id]
        };
        assert_eq!(silent_ms(7, 1_000), 0);
        assert_eq!(silent_ms(7, 5_000), 4_000);
        assert_eq!(silent_ms(8, 6_000), 0);
        assert_eq!(silent_ms(8, 6_500), 500);
    }

    #[test]
    fn the_time_that_an_answer_was_on_its_way_makes_nobody_silent() {
        let visibility = Visibility::default();
        let replicas = [replica(1, 7, None)];
        let silent_ms = |asked, answered| {
            visibility.observe(&replicas, at(asked), at(answered))[&replicas[0].id]
        };
        // The report may have been made a moment before the answer came.
        assert_eq!(silent_ms(1_000, 60_000), 0);
        assert_eq!(silent_ms(60_002, 60_003), 2);
        // And another a moment after the question was sent.
        assert_eq!(silent_ms(60_010, 90_000), 10);
    }

    #[test]
    fn a_process_that_is_gone_is_not_remembered() {
        let visibility = Visibility::default();
        visibility.observe(&[replica(1, 7, None)], at(1_000), at(1_000));
        assert!(visibility.observe(&[], at(2_000), at(2_000)).is_empty());
        let again = visibility.observe(&[replica(1, 7, None)], at(9_000), at(9_000));
        assert_eq!(again[&Uuid::from_u128(1)], 0);
    }

    #[test]
    fn a_process_has_an_add_when_its_cursor_reaches_it() {
        let position = Position {
            timeline: HERE,
            place: Place(9),
        };
        assert!(!has(&replica(1, 1, None), position));
        assert!(!has(&replica(1, 1, Some(9)), position));
        assert!(has(&replica(1, 1, Some(10)), position));
    }
}

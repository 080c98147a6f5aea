//! Checks: of what is owed, which must never be `definitely-not`, and of what was never added.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Storm;
use super::ledger::Lot;
use crate::support::Random;

/// Between two checks of one checker.
const PAUSE: Duration = Duration::from_millis(25);

/// Absent items of one check.
const ABSENT_ITEMS: u64 = 200;

/// The wire's word for what must not be said.
const MISS: &str = "\"definitely-not\"";

/// What came back.
enum Answered {
    /// 200, and the body.
    Verdicts(String),
    /// 404.
    Unknown,
    /// 503, or no answer.
    Nothing,
}

impl Storm {
    /// Asks a replica for lots of one filter, all of which it owes to a check with this watermark.
    pub(crate) async fn check(&self, replica: usize, lots: &[Arc<Lot>], watermark: Option<&str>) {
        let Some(first) = lots.first() else { return };
        let (filter, sent) = (first.filter, Instant::now());
        let numbers = || lots.iter().flat_map(|lot| lot.numbers.clone());
        let items = lots.iter().map(|lot| lot.items() as u64).sum::<u64>();
        let answered = self.ask(replica, filter, numbers(), items, watermark).await;
        // What has gone meanwhile is not owed any more.
        let is_owed = |lot: &Lot| self.ledger.is_owed(lot, sent);
        match answered {
            Answered::Nothing => self.report.count("answer: none, or 503", items),
            Answered::Unknown => {
                if is_owed(first) {
                    let name = self.ledger.name(filter);
                    let failure = format!("replica {replica} does not know {name}: {first:?}");
                    self.report.failure(failure);
                }
            }
            Answered::Verdicts(body) => {
                for reason in ["loading", "stale", "behind"] {
                    if body.contains(&format!("\"reason\":\"{reason}\"")) {
                        self.report.count(&format!("answer: {reason}"), items);
                    }
                }
                self.report.kept(items);
                if body.contains(MISS) {
                    self.missed(replica, lots, watermark, sent, &body);
                }
            }
        }
    }

    /// Tells which items were missed.
    fn missed(
        &self,
        replica: usize,
        lots: &[Arc<Lot>],
        watermark: Option<&str>,
        sent: Instant,
        body: &str,
    ) {
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        let verdicts = match body["verdicts"].as_array() {
            Some(verdicts) => verdicts.clone(),
            None => vec![body["verdict"].clone()],
        };
        let all = lots
            .iter()
            .flat_map(|lot| lot.numbers.clone().map(move |number| (lot, number)));
        for ((lot, number), verdict) in all.zip(verdicts) {
            if verdict != "maybe" && self.ledger.is_owed(lot, sent) {
                let name = self.ledger.name(lot.filter);
                let (acknowledged, asked) = (sent - lot.at, sent.elapsed());
                self.report.failure(format!(
                    "item {number} of {name} is {verdict} on replica {replica}: acknowledged by \
                     replica {:?} {acknowledged:?} before the check was sent, which was {asked:?} \
                     ago, with watermark {watermark:?}; {lot:?}",
                    lot.by,
                ));
                return;
            }
        }
    }

    async fn ask(
        &self,
        replica: usize,
        filter: usize,
        numbers: impl Iterator<Item = u64>,
        items: u64,
        watermark: Option<&str>,
    ) -> Answered {
        let quoted = numbers.map(|number| format!("\"{}\"", self.ledger.item(number)));
        let quoted = quoted.collect::<Vec<_>>().join(",");
        let watermark = watermark
            .map(|watermark| format!(",\"min_watermark\":\"{watermark}\""))
            .unwrap_or_default();
        let (verb, body) = if items == 1 {
            ("check", format!("{{\"item\":{quoted}{watermark}}}"))
        } else {
            (
                "check-batch",
                format!("{{\"items\":[{quoted}]{watermark}}}"),
            )
        };
        let url = self.url(replica, filter, verb);
        let request = self.checking.post(url).body(body);
        let request = request.header("content-type", "application/json");
        let Ok(answer) = request.send().await else {
            return Answered::Nothing;
        };
        let status = answer.status().as_u16();
        match (status, answer.text().await) {
            (200, Ok(body)) => Answered::Verdicts(body),
            (404, Ok(_)) => Answered::Unknown,
            (200 | 404, Err(_)) | (503, _) => Answered::Nothing,
            (status, body) => {
                let failure = format!("a check on replica {replica} gives {status}: {body:?}");
                self.report.failure(failure);
                Answered::Nothing
            }
        }
    }

    /// Asks every replica for a lot that was acknowledged just now.
    pub(crate) async fn check_everywhere(&self, lot: &Arc<Lot>) {
        let checks = (0..self.replicas()).map(|replica| async move {
            let now = Instant::now();
            if self.ledger.is_owed(lot, now) {
                let needs_none = lot.is_owed_by(replica, now);
                let watermark = lot.watermark.as_deref().filter(|_| !needs_none);
                if needs_none || watermark.is_some() {
                    self.check(replica, std::slice::from_ref(lot), watermark)
                        .await;
                }
            }
        });
        futures_util::future::join_all(checks).await;
    }

    /// Asks one replica for what it owes: at random, in order, and what came last.
    pub(crate) async fn keep_checking(&self, replica: usize, mut random: Random) {
        let mut places = vec![0; self.ledger.filters()];
        while self.goes_on() {
            for (filter, place) in places.iter_mut().enumerate() {
                if random.percent(50) {
                    let lots = self.ledger.sample(filter, replica, &mut random);
                    self.check(replica, &lots, None).await;
                } else {
                    let (lots, next) = self.ledger.sweep(filter, replica, *place);
                    *place = next;
                    self.check(replica, &lots, None).await;
                }
                let due = self.ledger.just_due(filter, replica);
                self.check(replica, &due, None).await;
                for lot in self.ledger.latest(filter, 4) {
                    if random.percent(30) {
                        self.check_everywhere(&lot).await;
                    }
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Asks one replica for what was never added, and counts while nothing is broken.
    pub(crate) async fn keep_asking_for_absent(&self, replica: usize) {
        while self.goes_on() {
            // Numbers at the far end, where no writer comes.
            let first = u64::MAX - self.ledger.fresh_numbers(1).start * ABSENT_ITEMS - ABSENT_ITEMS;
            let (sent, numbers) = (Instant::now(), first..first + ABSENT_ITEMS);
            let answered = self.ask(replica, 0, numbers, ABSENT_ITEMS, None).await;
            if let Answered::Verdicts(body) = answered
                && self.report.was_calm_since(sent)
            {
                let said_so = body.matches(MISS).count() as u64;
                self.report.absent(ABSENT_ITEMS, said_so);
                if said_so == 0 {
                    let reason = serde_json::from_str::<serde_json::Value>(&body).unwrap();
                    let kind = format!(
                        "absent items, while nothing is broken: {}",
                        reason["reason"]
                    );
                    self.report.count(&kind, ABSENT_ITEMS);
                }
            }
            tokio::time::sleep(Duration::from_millis(150)).await;
        }
    }
}

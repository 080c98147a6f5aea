//! What the storm asks for: adds by every road, and what moves the bits meanwhile.
//!
//! A further operation is one more line in [`OPERATIONS`] and one more arm in [`Storm::operate`].

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use reqwest::RequestBuilder;
use serde_json::{Value, json};

use super::ledger::Lot;
use super::tables::Write;
use super::{MAX_STALENESS, PASSING, SOURCE_MAX_STALENESS, Storm};
use crate::support::Random;

/// What a writer does next, by weight.
const OPERATIONS: [(u64, Operation); 6] = [
    (56, Operation::Add),
    (18, Operation::AddBatch),
    (2, Operation::BulkLoad),
    (8, Operation::AddAgain),
    (8, Operation::Remove),
    (8, Operation::Commit),
];

/// Which filter is added to, by weight.
const FILTERS: [(u64, usize); 3] = [(5, 0), (2, 1), (3, PASSING)];

/// Past what the contract allows, for what clocks round off.
const ROUNDING: Duration = Duration::from_millis(10);

/// The most items of a lot that is removed.
const REMOVED_AT_ONCE: usize = 8;

#[derive(Debug, Clone, Copy)]
enum Operation {
    Add,
    AddBatch,
    BulkLoad,
    /// Adds what was added before, which then has a new place in the store.
    AddAgain,
    /// Removes what was added before, and mostly adds it again.
    Remove,
    /// Writes to a table that is followed, past all replicas.
    Commit,
}

/// How an add goes: drawn before it is sent.
struct Plan {
    filter: usize,
    replica: usize,
    waits_for_all: bool,
    lives_for: Option<Duration>,
}

impl Plan {
    fn draw(storm: &Storm, random: &mut Random) -> Self {
        Self {
            filter: random.weighted(&FILTERS),
            replica: random.index(storm.replicas()),
            waits_for_all: random.percent(30),
            lives_for: random
                .percent(15)
                .then(|| Duration::from_secs(random.within(&(6..25)))),
        }
    }

    fn expires_at(&self) -> Option<String> {
        let lives_for = SignedDuration::try_from(self.lives_for?).unwrap();
        Some((Timestamp::now() + lives_for).to_string())
    }

    fn item(&self, item: String, expires_at: Option<&String>) -> Value {
        match expires_at {
            Some(expires_at) => json!({ "item": item, "expires_at": expires_at }),
            None => json!({ "item": item }),
        }
    }
}

impl Storm {
    /// Adds until the storm is over, and asks for each lot as soon as it is acknowledged.
    pub(crate) async fn keep_writing(&self, mut random: Random) {
        while self.goes_on() {
            let operation = random.weighted(&OPERATIONS);
            if let Some(lot) = self.operate(operation, &mut random).await {
                self.check_everywhere(&lot).await;
            }
            let pause = Duration::from_millis(random.within(&(5..150)));
            tokio::time::sleep(pause).await;
        }
    }

    async fn operate(&self, operation: Operation, random: &mut Random) -> Option<Arc<Lot>> {
        let plan = Plan::draw(self, random);
        let batch = random.within(&(2..60));
        let load = random.within(&(100..600));
        match operation {
            Operation::Add => self.add(plan, self.ledger.fresh_numbers(1)).await,
            Operation::AddBatch => self.add(plan, self.ledger.fresh_numbers(batch)).await,
            Operation::BulkLoad => self.bulk_load(plan, load).await,
            Operation::AddAgain => {
                let in_hand = self.ledger.take_in_hand(plan.filter, random)?;
                self.add(plan, in_hand.lot.numbers.clone()).await
            }
            Operation::Remove => self.remove(plan, random).await,
            Operation::Commit => self.commit(plan, random, batch).await,
        }
    }

    async fn add(&self, plan: Plan, numbers: std::ops::Range<u64>) -> Option<Arc<Lot>> {
        let expires_at = plan.expires_at();
        let items: Vec<_> = numbers
            .clone()
            .map(|number| plan.item(self.ledger.item(number), expires_at.as_ref()))
            .collect();
        let (verb, mut body) = match <[Value; 1]>::try_from(items) {
            Ok([item]) => ("add", item),
            Err(items) => ("add-batch", json!({ "items": items })),
        };
        if plan.waits_for_all {
            body["wait"] = json!("all");
        }
        let url = self.url(plan.replica, plan.filter, verb);
        let request = self.adding.post(url).json(&body);
        self.acknowledged(plan, numbers, request).await
    }

    async fn bulk_load(&self, plan: Plan, items: u64) -> Option<Arc<Lot>> {
        // It cannot wait: its answer says how far it came.
        let plan = Plan {
            waits_for_all: false,
            ..plan
        };
        let numbers = self.ledger.fresh_numbers(items);
        let expires_at = plan.expires_at();
        let lines = numbers.clone().map(|number| {
            plan.item(self.ledger.item(number), expires_at.as_ref())
                .to_string()
        });
        let url = self.url(plan.replica, plan.filter, "bulk-load");
        let request = self
            .adding
            .post(url)
            .body(lines.collect::<Vec<_>>().join("\n"));
        let request = request.header("content-type", "application/x-ndjson");
        self.acknowledged(plan, numbers, request).await
    }

    /// Sends an add, and enters what it acknowledges.
    async fn acknowledged(
        &self,
        plan: Plan,
        numbers: std::ops::Range<u64>,
        request: RequestBuilder,
    ) -> Option<Arc<Lot>> {
        let incarnation = self.ledger.incarnation(plan.filter);
        // The leeway is longer than the moments between both clocks.
        let until = plan.lives_for.map(|lives_for| Instant::now() + lives_for);
        let Ok(answer) = request.send().await else {
            self.report.count("add without an answer", 1);
            return None;
        };
        let status = answer.status().as_u16();
        let Ok(text) = answer.text().await else {
            self.report.count("add without an answer", 1);
            return None;
        };
        match status {
            200 => {}
            404 if plan.filter == PASSING => {
                self.report.count("late add to a deleted filter: 404", 1);
                return None;
            }
            429 | 503 => {
                self.report.count("add refused", 1);
                return None;
            }
            status => {
                self.report.failure(format!(
                    "an add through replica {} gives {status}: {text}",
                    plan.replica
                ));
                return None;
            }
        }
        let at = Instant::now();
        let body: Value = serde_json::from_str(&text).unwrap();
        let is_visible = body["visible"] == true;
        if plan.waits_for_all {
            let kind = if is_visible {
                "visible"
            } else {
                "not visible in time"
            };
            self.report.count(&format!("add for all: {kind}"), 1);
        }
        let delay = if is_visible {
            Duration::ZERO
        } else {
            MAX_STALENESS + ROUNDING
        };
        self.ledger.enter(Lot {
            filter: plan.filter,
            incarnation,
            numbers,
            by: Some(plan.replica),
            at,
            watermark: Some(body["watermark"].as_str().unwrap().to_owned()),
            owed_everywhere_from: at + delay,
            until,
            retired: false.into(),
        })
    }

    /// Removes a small lot, and mostly adds it again, through other replicas.
    async fn remove(&self, plan: Plan, random: &mut Random) -> Option<Arc<Lot>> {
        let replica = random.index(self.replicas());
        let is_added_again = random.percent(80);
        let between = Duration::from_millis(random.weighted(&[(2, 0), (1, 50), (1, 700)]));
        let in_hand = self.ledger.take_in_hand(plan.filter, random)?;
        if in_hand.lot.items() > REMOVED_AT_ONCE {
            return None;
        }
        self.ledger.retire(&in_hand);
        let numbers = in_hand.lot.numbers.clone();
        let url = self.url(replica, plan.filter, "remove");
        let removals = numbers.clone().map(|number| {
            let body = json!({ "item": self.ledger.item(number) });
            self.adding.post(&url).json(&body).send()
        });
        for removal in futures_util::future::join_all(removals).await {
            let status = removal.ok().map(|answer| answer.status().as_u16());
            match status {
                Some(200) => self.report.count("item removed", 1),
                // A removal that was not confirmed may come yet, and take what is added meanwhile:
                // the item is not added again.
                None | Some(429 | 503) => {
                    self.report.count("removal not confirmed", 1);
                    return None;
                }
                Some(404) if plan.filter == PASSING => return None,
                Some(status) => {
                    let failure = format!("a removal through replica {replica} gives {status}");
                    self.report.failure(failure);
                    return None;
                }
            }
        }
        if !is_added_again {
            return None;
        }
        tokio::time::sleep(between).await;
        let lot = self.add(plan, numbers).await?;
        self.report.count("lot added again after its removal", 1);
        Some(lot)
    }

    /// Commits rows in a table that is followed.
    async fn commit(&self, plan: Plan, random: &mut Random, batch: u64) -> Option<Arc<Lot>> {
        let tables = self.tables.as_ref()?;
        let (filter, write) = (random.index(PASSING), Write::draw(random));
        let incarnation = self.ledger.incarnation(filter);
        let numbers = self.ledger.fresh_numbers(batch);
        let items: Vec<_> = numbers
            .clone()
            .map(|number| self.ledger.item(number))
            .collect();
        let until = plan.lives_for.map(|lives_for| Instant::now() + lives_for);
        let (table, expires_at) = (self.ledger.name(filter), plan.expires_at());
        let commit = tables.commit(table, &items, expires_at.as_deref(), &write);
        if !commit.await {
            self.report.count("commit in a table not confirmed", 1);
            return None;
        }
        let at = Instant::now();
        let kind = format!("commit in a table: {:?}", write.writing);
        self.report.count(&kind, 1);
        self.ledger.enter(Lot {
            filter,
            incarnation,
            numbers,
            by: None,
            at,
            watermark: None,
            owed_everywhere_from: at + SOURCE_MAX_STALENESS + ROUNDING,
            until,
            retired: false.into(),
        })
    }

    /// Rebuilds, and deletes and makes a filter again, until the storm is over.
    pub(crate) async fn keep_moving(&self, mut random: Random) {
        while self.goes_on() {
            let pause = Duration::from_millis(random.within(&(300..2_500)));
            tokio::time::sleep(pause).await;
            let (filter, replica) = (random.weighted(&FILTERS), random.index(self.replicas()));
            let is_renewed = random.percent(40);
            if is_renewed {
                self.renew(replica, random.index(self.replicas())).await;
            } else {
                let url = self.url(replica, filter, "rebuild");
                let answer = self.adding.post(url).send().await;
                if answer.is_ok_and(|answer| answer.status() == 202) {
                    self.report.count("rebuild asked for", 1);
                    let name = self.ledger.name(filter);
                    self.report
                        .note(format!("rebuild of {name} on replica {replica}"));
                }
            }
            self.ledger.forget_expired();
        }
    }

    /// Deletes a filter and makes it again under its name, through two replicas.
    pub(crate) async fn renew(&self, deleted_on: usize, made_on: usize) {
        let note = |what: &str| {
            let name = self.ledger.name(PASSING);
            self.report.note(format!(
                "{name} {what} ({deleted_on} deletes, {made_on} makes)"
            ));
        };
        self.ledger.filter_goes(PASSING);
        note("goes");
        let url = self.url(deleted_on, PASSING, "");
        // A replica that dies has deleted it or not; a deletion goes by the identity that it found.
        self.until_status(&[204, 404], || self.patient.delete(&url))
            .await;
        let declaration = json!({
            "profile": "text", "capacity": 20_000, "false_positive_rate": 1e-6
        });
        let url = self.url(made_on, PASSING, "");
        // 200 while that replica does not know of the deletion yet, 409 while another makes it.
        self.until_status(&[201], || self.patient.put(&url).json(&declaration))
            .await;
        self.report.count("filter deleted and made again", 1);
        self.ledger.filter_is_made_again(PASSING);
        note("is made again");
    }

    /// Asks until a status comes, but not for ever: an answer may have been lost.
    async fn until_status(&self, statuses: &[u16], request: impl Fn() -> RequestBuilder) {
        for _ in 0..60 {
            if let Ok(answer) = request().send().await
                && statuses.contains(&answer.status().as_u16())
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(250)).await;
            if !self.goes_on() {
                return;
            }
        }
    }
}

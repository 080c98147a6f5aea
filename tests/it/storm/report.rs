//! What the storm has seen: counts, the faults of the last seconds, and what must not be.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::ledger::Ledger;

/// How far back the faults and operations are told beside a failure.
const TOLD: Duration = Duration::from_secs(20);

/// Past the end of the last fault, while nothing can be said of absent items yet.
const MARGIN: Duration = Duration::from_secs(1);

/// The share of absent items that must be `definitely-not` while nothing is broken.
const ABSENT_SHARE: f64 = 0.99;

/// What was seen.
pub(crate) struct Report {
    begun: Instant,
    happened: Mutex<Vec<(Instant, String)>>,
    counts: Mutex<BTreeMap<String, u64>>,
    failures: Mutex<Vec<String>>,
    failed: AtomicBool,
    /// Checks of acknowledged items that were answered.
    checks: AtomicU64,
    absent: AtomicU64,
    absent_and_said_so: AtomicU64,
    /// The end of the last fault; none during one.
    calm_since: Mutex<Option<Instant>>,
    /// How long it took until all was live, from the mending of each fault.
    live_after: Mutex<Vec<Duration>>,
}

impl Report {
    pub(crate) fn new() -> Self {
        Self {
            begun: Instant::now(),
            happened: Mutex::default(),
            counts: Mutex::default(),
            failures: Mutex::default(),
            failed: AtomicBool::new(false),
            checks: AtomicU64::new(0),
            absent: AtomicU64::new(0),
            absent_and_said_so: AtomicU64::new(0),
            calm_since: Mutex::new(Some(Instant::now())),
            live_after: Mutex::default(),
        }
    }

    /// Counts something of a kind.
    pub(crate) fn count(&self, kind: &str, times: u64) {
        let mut counts = self.counts.lock().unwrap();
        match counts.get_mut(kind) {
            Some(counted) => *counted += times,
            None => drop(counts.insert(kind.to_owned(), times)),
        }
    }

    /// Notes what may help to understand a failure that comes soon after.
    pub(crate) fn note(&self, what: String) {
        let now = Instant::now();
        let mut happened = self.happened.lock().unwrap();
        happened.retain(|(at, _)| now - *at < TOLD);
        happened.push((now, what));
    }

    /// Counts checks of acknowledged items that were answered as they must be.
    pub(crate) fn kept(&self, items: u64) {
        self.checks.fetch_add(items, Ordering::Relaxed);
    }

    /// Counts checks of absent items, and those that were answered `definitely-not`.
    pub(crate) fn absent(&self, items: u64, said_so: u64) {
        self.absent.fetch_add(items, Ordering::Relaxed);
        self.absent_and_said_so
            .fetch_add(said_so, Ordering::Relaxed);
    }

    /// What must not be.
    pub(crate) fn failure(&self, what: String) {
        self.note(what.clone());
        self.failures.lock().unwrap().push(what);
        self.failed.store(true, Ordering::SeqCst);
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::SeqCst)
    }

    pub(crate) fn fault_begins(&self) {
        *self.calm_since.lock().unwrap() = None;
    }

    pub(crate) fn fault_is_over(&self) {
        *self.calm_since.lock().unwrap() = Some(Instant::now());
    }

    /// Notes how long it took until all was live.
    pub(crate) fn was_live_after(&self, elapsed: Duration) {
        self.live_after.lock().unwrap().push(elapsed);
    }

    /// Whether nothing has been broken since the margin before `since`, nor is now.
    pub(crate) fn was_calm_since(&self, since: Instant) -> bool {
        let calm_since = *self.calm_since.lock().unwrap();
        calm_since.is_some_and(|calm_since| calm_since + MARGIN < since)
    }

    /// Prints what was seen, and panics where the promise was broken or too little was asked.
    pub(crate) fn conclude(&self, name: &str, seed: u64, ledger: &Ledger, least_checks: u64) {
        let seconds = self.begun.elapsed().as_secs_f64();
        let checks = self.checks.load(Ordering::Relaxed);
        let absent = self.absent.load(Ordering::Relaxed);
        let said_so = self.absent_and_said_so.load(Ordering::Relaxed);
        let failures = self.failures.lock().unwrap();
        eprintln!("--- {name}: STORM_SEED={seed}, {seconds:.0} s");
        eprintln!(
            "{checks} checks of acknowledged items, {} false negatives; {} items acknowledged, \
             owed at the end: {:?}",
            failures.len(),
            ledger.acknowledged(),
            ledger.owed()
        );
        for (kind, times) in self.counts.lock().unwrap().iter() {
            let share = 100.0 * *times as f64 / checks.max(1) as f64;
            let share = if kind.starts_with("answer: ") {
                format!(" ({share:.2} %)")
            } else {
                String::new()
            };
            eprintln!("{times:>10}  {kind}{share}");
        }
        let mut live_after = self.live_after.lock().unwrap();
        live_after.sort();
        if let (Some(median), Some(longest)) =
            (live_after.get(live_after.len() / 2), live_after.last())
        {
            let faults = live_after.len();
            eprintln!(
                "{faults} times all was live again, {median:.1?} after the mending in the median, \
                 {longest:.1?} at most"
            );
        }
        let share = said_so as f64 / absent.max(1) as f64;
        eprintln!("{absent} absent items asked for outside of faults, {share:.5} definitely-not");
        if !failures.is_empty() {
            for (at, what) in self.happened.lock().unwrap().iter() {
                eprintln!("{:>9.3} s  {what}", (*at - self.begun).as_secs_f64());
            }
        }
        assert!(failures.is_empty(), "STORM_SEED={seed}: {}", failures[0]);
        assert!(
            checks >= least_checks,
            "{checks} checks say too little, expected {least_checks}"
        );
        assert!(
            absent >= 1_000 && share > ABSENT_SHARE,
            "{absent} absent items, {share} of them definitely-not"
        );
    }
}

//! What bloomgate owes: the items that it has acknowledged, and from when on who has to know them.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};

use crate::support::Random;

/// The most items that one check-batch of the storm asks for.
pub(crate) const ITEMS_A_CHECK: usize = 1_000;

/// What came longer ago than this was due before [`JUST_DUE`].
const RECENT: Duration = Duration::from_secs(5);

/// How long what everybody owes from now on is asked for more often.
const JUST_DUE: Duration = Duration::from_millis(500);

/// Items that were acknowledged by one answer.
#[derive(Debug)]
pub(crate) struct Lot {
    /// The filter, by its place in the ledger.
    pub(crate) filter: usize,
    /// The making of the filter that they were added to.
    pub(crate) incarnation: u64,
    /// The items' numbers.
    pub(crate) numbers: Range<u64>,
    /// The replica that acknowledged; none where they came through a table.
    pub(crate) by: Option<usize>,
    /// When the answer came.
    pub(crate) at: Instant,
    /// The answer's watermark; a table gives none.
    pub(crate) watermark: Option<String>,
    /// From when on every replica owes them without a watermark.
    pub(crate) owed_everywhere_from: Instant,
    /// Until when they are owed.
    pub(crate) until: Option<Instant>,
    /// Set before they are removed; what has come through a table stays owed.
    pub(crate) retired: AtomicBool,
}

impl Lot {
    pub(crate) fn items(&self) -> usize {
        usize::try_from(self.numbers.end - self.numbers.start).unwrap()
    }

    /// Whether a replica owes them to a check that is sent now without a watermark.
    pub(crate) fn is_owed_by(&self, replica: usize, now: Instant) -> bool {
        self.by == Some(replica) || now >= self.owed_everywhere_from
    }
}

/// A lot that nobody else adds again or removes, until this is dropped.
pub(crate) struct InHand<'l> {
    ledger: &'l Ledger,
    pub(crate) lot: Arc<Lot>,
}

impl Drop for InHand<'_> {
    fn drop(&mut self) {
        let mut in_hand = self.ledger.in_hand.lock().unwrap();
        in_hand.remove(&self.lot.numbers.start);
    }
}

struct Filter {
    name: &'static str,
    /// Odd while it is being deleted and made again.
    incarnation: AtomicU64,
    lots: RwLock<Vec<Arc<Lot>>>,
}

/// The items that are owed.
pub(crate) struct Ledger {
    /// In front of every item's number.
    prefix: String,
    filters: Vec<Filter>,
    next_number: AtomicU64,
    acknowledged: AtomicU64,
    /// The first numbers of the lots that are being added again or removed.
    in_hand: Mutex<HashSet<u64>>,
    /// A check that is sent has ended after so long.
    check_limit: Duration,
}

impl Ledger {
    pub(crate) fn new(seed: u64, filters: &[&'static str], check_limit: Duration) -> Self {
        let filter = |name: &&'static str| Filter {
            name,
            incarnation: AtomicU64::new(0),
            lots: RwLock::default(),
        };
        Self {
            prefix: format!("{seed:x}"),
            filters: filters.iter().map(filter).collect(),
            next_number: AtomicU64::new(0),
            acknowledged: AtomicU64::new(0),
            in_hand: Mutex::default(),
            check_limit,
        }
    }

    pub(crate) fn filters(&self) -> usize {
        self.filters.len()
    }

    pub(crate) fn name(&self, filter: usize) -> &'static str {
        self.filters[filter].name
    }

    /// The item of a number.
    pub(crate) fn item(&self, number: u64) -> String {
        format!("{}-{number}", self.prefix)
    }

    /// Numbers that were never used.
    pub(crate) fn fresh_numbers(&self, items: u64) -> Range<u64> {
        let first = self.next_number.fetch_add(items, Ordering::Relaxed);
        first..first + items
    }

    pub(crate) fn incarnation(&self, filter: usize) -> u64 {
        self.filters[filter].incarnation.load(Ordering::SeqCst)
    }

    /// How many items were acknowledged, those that came again counted again.
    pub(crate) fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Relaxed)
    }

    /// Enters what was acknowledged, unless its filter was on its way out meanwhile.
    pub(crate) fn enter(&self, lot: Lot) -> Option<Arc<Lot>> {
        let filter = &self.filters[lot.filter];
        let lot = Arc::new(lot);
        let mut lots = filter.lots.write().unwrap();
        if !lot.incarnation.is_multiple_of(2) || lot.incarnation != self.incarnation(lot.filter) {
            return None;
        }
        self.acknowledged
            .fetch_add(lot.items() as u64, Ordering::Relaxed);
        lots.push(Arc::clone(&lot));
        Some(lot)
    }

    /// Nothing that a filter has is owed any more, and nothing that is added until
    /// [`Ledger::filter_is_made_again`].
    pub(crate) fn filter_goes(&self, filter: usize) {
        let filter = &self.filters[filter];
        let mut lots = filter.lots.write().unwrap();
        filter.incarnation.fetch_add(1, Ordering::SeqCst);
        lots.clear();
    }

    pub(crate) fn filter_is_made_again(&self, filter: usize) {
        self.filters[filter]
            .incarnation
            .fetch_add(1, Ordering::SeqCst);
    }

    /// Whether it is owed to a check that is sent now, by whomever.
    pub(crate) fn is_owed(&self, lot: &Lot, now: Instant) -> bool {
        lot.incarnation == self.incarnation(lot.filter)
            && !lot.retired.load(Ordering::SeqCst)
            && lot.until.is_none_or(|until| now + self.check_limit < until)
    }

    /// Any lot of a filter, for one who adds it again or removes it: nobody else gets its numbers
    /// meanwhile. None where somebody has them, or they were removed.
    pub(crate) fn take_in_hand(&self, filter: usize, random: &mut Random) -> Option<InHand<'_>> {
        let lots = self.filters[filter].lots.read().unwrap();
        let lot = (!lots.is_empty()).then(|| Arc::clone(&lots[random.index(lots.len())]))?;
        let first = lot.numbers.start;
        let is_mine = self.in_hand.lock().unwrap().insert(first);
        let in_hand = is_mine.then_some(InHand { ledger: self, lot })?;
        // Whoever had it before may have removed it.
        let is_removed = in_hand.lot.retired.load(Ordering::SeqCst);
        (!is_removed).then_some(in_hand)
    }

    /// Nothing that was added of these items is owed any more. What a table holds is owed still.
    pub(crate) fn retire(&self, in_hand: &InHand<'_>) {
        let lots = self.filters[in_hand.lot.filter].lots.read().unwrap();
        let of_them = lots
            .iter()
            .filter(|lot| lot.by.is_some() && lot.numbers == in_hand.lot.numbers);
        of_them.for_each(|lot| lot.retired.store(true, Ordering::SeqCst));
    }

    /// Lots that a replica owes since a moment ago, for one check that needs no watermark.
    pub(crate) fn just_due(&self, filter: usize, replica: usize) -> Vec<Arc<Lot>> {
        let now = Instant::now();
        let lots = self.filters[filter].lots.read().unwrap();
        let recent = lots.iter().rev().take_while(|lot| now - lot.at < RECENT);
        let due = recent.filter(|lot| {
            lot.owed_everywhere_from <= now && now - lot.owed_everywhere_from < JUST_DUE
        });
        self.fit_for_one_check(due, replica).0
    }

    /// The lots that came last.
    pub(crate) fn latest(&self, filter: usize, lots: usize) -> Vec<Arc<Lot>> {
        let all = self.filters[filter].lots.read().unwrap();
        all[all.len().saturating_sub(lots)..].to_vec()
    }

    /// Lots for one check that needs no watermark, at random.
    pub(crate) fn sample(
        &self,
        filter: usize,
        replica: usize,
        random: &mut Random,
    ) -> Vec<Arc<Lot>> {
        let lots = self.filters[filter].lots.read().unwrap();
        if lots.is_empty() {
            return Vec::new();
        }
        let drawn = (0..ITEMS_A_CHECK).map(|_| &lots[random.index(lots.len())]);
        self.fit_for_one_check(drawn, replica).0
    }

    /// Lots for one check that needs no watermark, from a place on; gives the next place.
    pub(crate) fn sweep(
        &self,
        filter: usize,
        replica: usize,
        from: usize,
    ) -> (Vec<Arc<Lot>>, usize) {
        let lots = self.filters[filter].lots.read().unwrap();
        let from = if from < lots.len() { from } else { 0 };
        let (swept, passed) = self.fit_for_one_check(lots[from..].iter(), replica);
        (swept, from + passed)
    }

    fn fit_for_one_check<'l>(
        &self,
        lots: impl Iterator<Item = &'l Arc<Lot>>,
        replica: usize,
    ) -> (Vec<Arc<Lot>>, usize) {
        let now = Instant::now();
        let (mut chosen, mut items, mut passed) = (Vec::new(), 0, 0);
        for lot in lots {
            if items + lot.items() > ITEMS_A_CHECK {
                break;
            }
            passed += 1;
            if self.is_owed(lot, now) && lot.is_owed_by(replica, now) {
                items += lot.items();
                chosen.push(Arc::clone(lot));
            }
        }
        (chosen, passed)
    }

    /// Drops what is owed no more.
    pub(crate) fn forget_expired(&self) {
        let now = Instant::now();
        for filter in &self.filters {
            let mut lots = filter.lots.write().unwrap();
            lots.retain(|lot| self.is_owed(lot, now));
        }
    }

    /// How many items of each filter are owed.
    pub(crate) fn owed(&self) -> HashMap<&'static str, usize> {
        let items = |filter: &Filter| {
            let lots = filter.lots.read().unwrap();
            (filter.name, lots.iter().map(|lot| lot.items()).sum())
        };
        self.filters.iter().map(items).collect()
    }
}

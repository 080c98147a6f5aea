//! Whether a source can be asked for one item: whether a question that finds nothing means that
//! nothing is there.
//!
//! A source is asked in SQL, which compares less than canonical bytes do. Two things guard against
//! a row that is there and is not found:
//!
//! * a sample of its rows is asked for, in other cases too, and each must be found
//!   ([`super::probe`]);
//! * every row that was loaded and whose canonical bytes are more than another case of it (white
//!   space around it, another Unicode form, a provider's rule) is remembered by its hash: of such an
//!   item nothing is settled.
//!
//! Invariant: [`Askable::settles`] is true of an item only where SQL that finds each ASCII case of it
//! finds every row that was loaded for it, and so not before the source was loaded in full by this
//! process. What it remembers only grows, and is bounded.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Rows that are remembered; past this nothing is settled any more. 10,000 hashes take 160 KB.
const REMEMBERED: usize = 10_000;

/// What came of trying a source's `confirm_query`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Probe {
    /// It was not tried yet, or could not be: there was no row to try it on, or no answer.
    #[default]
    Untried,
    /// It found every row of the sample.
    Finds,
    /// It did not find a row that is there.
    Misses,
}

/// What is said of a source whose query does not find its own rows.
const MISSES: &str = "confirm_query does not find rows that query gives, asked for as they are, in \
                      lower and in upper case; no maybe is settled by it: compare without regard to \
                      case, as in WHERE lower(email) = lower($1)";

/// Whether a source can be asked for one item.
#[derive(Debug, Default)]
pub struct Askable {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    probe: Probe,
    /// Whether every row was taken note of once.
    all_rows: bool,
    /// Hashes of the canonical bytes of rows that are more than another case of them.
    beyond_case: HashSet<u64>,
    /// Whether there were too many to be remembered.
    too_many: bool,
}

impl Askable {
    /// Takes note of a row that was loaded.
    pub fn took(&self, row: &[u8], canonical: &[u8]) {
        if canonical.eq_ignore_ascii_case(row) {
            return;
        }
        let mut known = self.known();
        if known.too_many {
            return;
        }
        known.beyond_case.insert(hash(canonical));
        if known.beyond_case.len() > REMEMBERED {
            known.too_many = true;
            known.beyond_case = HashSet::new();
        }
    }

    /// Takes note that every row of the source was taken.
    pub fn took_all(&self) {
        self.known().all_rows = true;
    }

    /// Takes note of what came of a probe, and gives what was known before.
    pub fn was_probed(&self, probe: Probe) -> Probe {
        std::mem::replace(&mut self.known().probe, probe)
    }

    /// Whether an item with these canonical bytes is not there when the source finds nothing.
    #[must_use]
    pub fn settles(&self, canonical: &[u8]) -> bool {
        let known = self.known();
        known.probe == Probe::Finds
            && known.all_rows
            && !known.too_many
            && !known.beyond_case.contains(&hash(canonical))
    }

    /// What an operator should know.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        match self.known().probe {
            Probe::Untried | Probe::Finds => None,
            Probe::Misses => Some(MISSES.to_owned()),
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // Nothing in here can leave it half changed.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whoever makes two items collide gets a look-up more.
fn hash(canonical: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    canonical.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_settled_before_all_rows_were_taken_and_a_probe_has_found_its_own() {
        let askable = Askable::default();
        assert!(!askable.settles(b"ann@example.com"));
        askable.was_probed(Probe::Misses);
        assert!(!askable.settles(b"ann@example.com"));
        assert!(askable.problem().is_some());
        assert_eq!(askable.was_probed(Probe::Finds), Probe::Misses);
        assert!(!askable.settles(b"ann@example.com"));
        askable.took_all();
        assert!(askable.settles(b"ann@example.com"));
        assert_eq!(askable.problem(), None);
    }

    #[test]
    fn an_item_whose_row_is_more_than_another_case_of_it_is_never_settled() {
        let askable = Askable::default();
        askable.was_probed(Probe::Finds);
        askable.took_all();
        askable.took(b"Ann@Example.COM", b"ann@example.com");
        assert!(askable.settles(b"ann@example.com"));
        askable.took(b" Ann@Example.COM", b"ann@example.com");
        assert!(!askable.settles(b"ann@example.com"));
        assert!(askable.settles(b"ben@example.com"));
    }

    #[test]
    fn past_the_bound_nothing_is_settled() {
        let askable = Askable::default();
        askable.was_probed(Probe::Finds);
        askable.took_all();
        for number in 0..=REMEMBERED {
            let canonical = format!("{number}@example.com");
            askable.took(format!(" {canonical}").as_bytes(), canonical.as_bytes());
        }
        assert!(!askable.settles(b"ben@example.com"));
    }
}

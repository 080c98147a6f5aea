//! Random numbers that a printed seed gives again (splitmix64).

use std::ops::Range;

/// A stream of random numbers.
pub(crate) struct Random(u64);

impl Random {
    /// Seeded by the variable where it is set, to see a failure again; the seed is printed.
    pub(crate) fn seeded(variable: &str) -> Self {
        let given = std::env::var(variable).ok();
        let seed = given.filter(|seed| !seed.is_empty()).map_or_else(
            || uuid::Uuid::new_v4().as_u64_pair().0,
            |seed| seed.parse().unwrap(),
        );
        eprintln!("{variable}={seed}");
        Self(seed)
    }

    /// What it was seeded with, before the first number was drawn.
    pub(crate) fn seed(&self) -> u64 {
        self.0
    }

    /// Another stream, for one who draws at a pace of its own.
    pub(crate) fn fork(&mut self) -> Self {
        Self(self.next())
    }

    /// Any number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number of the range.
    pub(crate) fn within(&mut self, range: &Range<u64>) -> u64 {
        range.start + self.next() % (range.end - range.start)
    }

    /// An index of something with so many elements.
    pub(crate) fn index(&mut self, elements: usize) -> usize {
        usize::try_from(self.within(&(0..elements as u64))).unwrap()
    }

    /// True in so many of a hundred cases.
    pub(crate) fn percent(&mut self, percent: u64) -> bool {
        self.within(&(0..100)) < percent
    }

    /// One of several, each as often as its weight says.
    pub(crate) fn weighted<T: Copy>(&mut self, choices: &[(u64, T)]) -> T {
        let mut drawn = self.within(&(0..choices.iter().map(|(weight, _)| weight).sum()));
        for (weight, choice) in choices {
            if drawn < *weight {
                return *choice;
            }
            drawn -= weight;
        }
        unreachable!("what is drawn is below the sum of the weights")
    }
}

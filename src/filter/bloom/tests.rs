//! What the filter promises. Keys are fixed, so that every figure is the same in every run.

use std::collections::HashSet;
use std::sync::Barrier;
use std::thread;

use proptest::prelude::*;

use super::*;

const PROBES: u64 = 20_000_000;
const THREADS: usize = 4;

fn filter(capacity: u64, false_positive_rate: f64) -> BloomFilter {
    let sizing = Sizing::new(capacity, false_positive_rate).unwrap();
    BloomFilter::new(sizing, HashKey::from_bytes(*b"a fixed test key")).unwrap()
}

fn present(number: u64) -> [u8; 9] {
    item(b'+', number)
}

fn absent(number: u64) -> [u8; 9] {
    item(b'-', number)
}

fn item(kind: u8, number: u64) -> [u8; 9] {
    let mut item = [kind; 9];
    item[1..].copy_from_slice(&number.to_le_bytes());
    item
}

fn filled(capacity: u64, false_positive_rate: f64, items: u64) -> BloomFilter {
    let filter = filter(capacity, false_positive_rate);
    filter.add_batch((0..items).map(present));
    filter
}

fn count_matches(filter: &BloomFilter, probes: u64) -> u64 {
    let matches = (0..probes).filter(|&number| filter.check(&absent(number)));
    matches.count() as u64
}

/// Runs `work` in [`THREADS`] threads that start together, each with its number.
fn at_once(work: impl Fn(u64) + Sync) {
    let start = Barrier::new(THREADS);
    thread::scope(|scope| {
        for number in 0..THREADS as u64 {
            let (start, work) = (&start, &work);
            scope.spawn(move || {
                start.wait();
                work(number);
            });
        }
    });
}

fn assert_within(found: f64, expected: f64, share: f64) {
    assert!(
        (found - expected).abs() <= expected * share,
        "expected {expected} within {share}, found {found}"
    );
}

fn assert_exactly(found: f64, expected: f64) {
    assert!((found - expected).abs() < f64::EPSILON, "{found}");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_was_added_by_any_road_is_matched_by_any_road(
        items in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..80), 1..150),
        added_singly in 0..150_usize,
        capacity in 1..300_u64,
        rate in prop::sample::select(vec![0.5, 0.1, 0.01, 1e-6, 1e-10]),
    ) {
        let filter = filter(capacity, rate);
        let (singly, in_batch) = items.split_at(added_singly.min(items.len()));
        for item in singly {
            filter.add(item);
            prop_assert!(filter.check(item));
        }
        filter.add_batch(in_batch);

        prop_assert!(items.iter().all(|item| filter.check(item)));
        let mut matches = Vec::new();
        filter.check_batch(&items, &mut matches);
        prop_assert_eq!(matches, vec![true; items.len()]);
        prop_assert_eq!(filter.statistics().ones, filter.bits.recount());
    }
}

#[test]
fn a_batch_of_any_length_says_what_its_items_say_one_by_one_and_in_order() {
    let filter = filled(1_000, 0.1, 1_000);
    for length in [0, 1, 31, 32, 33, 64, 65, 1_000] {
        let items = (0..length).map(|number| match number % 3 {
            0 => absent(number),
            _ => present(number),
        });
        let one_by_one = items.clone().map(|item| filter.check(&item));
        let expected: Vec<_> = [false].into_iter().chain(one_by_one).collect();

        let mut matches = vec![false];
        filter.check_batch(items, &mut matches);

        assert_eq!(matches, expected, "{length} items");
    }
}

#[test]
fn a_batch_sets_the_bits_that_its_items_set_one_by_one() {
    let batch = filled(5_000, 0.01, 5_000);
    let one_by_one = filter(5_000, 0.01);
    for number in 0..5_000 {
        one_by_one.add(&present(number));
    }
    assert_eq!(batch.statistics(), one_by_one.statistics());
    let matched = (0..20_000).filter(|&number| one_by_one.check(&absent(number)));
    assert!(matched.map(absent).all(|item| batch.check(&item)));
}

#[test]
fn an_item_is_matched_as_soon_as_its_add_returned_however_many_threads_add() {
    const ITEMS_A_THREAD: u64 = 100_000;
    const ITEMS: u64 = THREADS as u64 * ITEMS_A_THREAD;
    let filter = filter(ITEMS, 0.01);
    at_once(|thread| {
        let first = thread * ITEMS_A_THREAD;
        for number in first..first + ITEMS_A_THREAD {
            let item = present(number);
            if number % 2 == 0 {
                filter.add(&item);
            } else {
                filter.add_batch([item]);
            }
            assert!(filter.check(&item));
        }
    });
    assert!((0..ITEMS).all(|number| filter.check(&present(number))));
    assert_eq!(filter.statistics().ones, filter.bits.recount());
}

#[test]
fn of_threads_that_set_the_same_bits_each_bit_is_counted_once() {
    const ITEMS: u64 = 2_000_000;
    // Whoever lags finds its bits set and catches up, so the threads meet again and again.
    let filter = filter(ITEMS, 0.5);
    at_once(|_| {
        for number in 0..ITEMS {
            filter.add(&present(number));
        }
    });
    assert_eq!(filter.statistics().ones, filter.bits.recount());
}

#[test]
fn no_count_is_lost_when_threads_add_at_once() {
    const ITEMS_A_THREAD: u64 = 2_000_000;
    // One probe an item, so that the threads do little but count.
    let filter = filter(THREADS as u64 * ITEMS_A_THREAD, 0.5);
    at_once(|thread| {
        let first = thread * ITEMS_A_THREAD;
        for number in first..first + ITEMS_A_THREAD {
            filter.add(&present(number));
        }
    });
    assert_eq!(filter.statistics().ones, filter.bits.recount());
}

#[test]
fn an_item_that_is_added_a_thousand_times_moves_nothing() {
    let filter = filled(1_000, 0.01, 500);
    let before = filter.statistics();
    for _ in 0..1_000 {
        filter.add_batch((0..500).map(present));
        assert!(!filter.add(&present(7)));
    }
    assert_eq!(filter.statistics(), before);
}

#[test]
fn add_tells_a_new_item_from_one_that_was_added() {
    let filter = filter(1_000, 0.01);
    assert!(filter.add(b"first"));
    assert!(!filter.add(b"first"));
    assert!(filter.add(b"second"));
}

#[test]
fn the_statistics_agree_with_the_truth_at_half_full_and_double_capacity() {
    const CAPACITY: u64 = 1_000_000;
    thread::scope(|scope| {
        for items in [CAPACITY / 2, CAPACITY, CAPACITY * 2] {
            scope.spawn(move || {
                let filter = filled(CAPACITY, 0.01, items);
                let statistics = filter.statistics();
                let measured_fp_rate = count_matches(&filter, PROBES) as f64 / PROBES as f64;
                assert_within(statistics.estimated_fp_rate, measured_fp_rate, 0.05);
                assert_within(statistics.estimated_cardinality as f64, items as f64, 0.01);
                assert_exactly(filter.estimated_fp_rate(), statistics.estimated_fp_rate);
                assert_within(filter.sizing.fp_rate_at(items), measured_fp_rate, 0.05);
            });
        }
    });
}

#[test]
fn a_small_filter_keeps_a_very_low_rate() {
    let filter = filled(1_000, 1e-9, 1_000);
    assert_eq!(count_matches(&filter, PROBES), 0);
}

#[test]
fn twenty_times_its_capacity_is_told_honestly() {
    let filter = filled(5_000, 0.01, 100_000);
    assert!(filter.estimated_fp_rate() >= 0.99);
    assert!((0..100_000).all(|number| filter.check(&present(number))));
}

#[test]
fn an_empty_filter_matches_nothing_and_its_figures_are_zero() {
    let filter = filter(1_000, 0.01);
    assert_eq!(count_matches(&filter, 1_000), 0);
    let statistics = filter.statistics();
    assert_exactly(statistics.fill_ratio, 0.0);
    assert_exactly(statistics.estimated_fp_rate, 0.0);
    assert_eq!((statistics.ones, statistics.estimated_cardinality), (0, 0));
    assert_eq!(filter.memory_bytes(), 1_200);
}

#[test]
fn a_saturated_filter_matches_everything_and_its_figures_are_finite() {
    let filter = filled(1, 0.01, 1_000);
    let statistics = filter.statistics();
    assert_eq!(statistics.ones, statistics.bit_count);
    assert_exactly(statistics.fill_ratio, 1.0);
    assert_exactly(statistics.estimated_fp_rate, 1.0);
    assert!((1..10).contains(&statistics.estimated_cardinality));
    assert_eq!(count_matches(&filter, 1_000), 1_000);
}

#[test]
fn filters_with_different_keys_err_on_different_items() {
    let wrong_matches = |key: &[u8; 16]| -> HashSet<u64> {
        let sizing = Sizing::new(1_000, 0.01).unwrap();
        let filter = BloomFilter::new(sizing, HashKey::from_bytes(*key)).unwrap();
        filter.add_batch((0..1_000).map(present));
        (0..100_000)
            .filter(|&number| filter.check(&absent(number)))
            .collect()
    };
    let (one, other) = (
        wrong_matches(b"a fixed test key"),
        wrong_matches(b"another test key"),
    );
    assert!(one.len() > 500 && other.len() > 500);
    assert!(one.intersection(&other).count() < 50);
}

/// A change of these figures means that hashing or sizing has changed, and with it the meaning of
/// every filter that was written down. They were found likewise by an implementation of the whole
/// path in another language.
#[test]
fn the_number_of_wrong_matches_under_a_fixed_key_does_not_change() {
    for (capacity, rate, expected) in [
        (1_000, 0.01, 1_026),
        (1_000, 0.001, 98),
        (100_000, 0.01, 968),
        (100_000, 0.5, 50_088),
    ] {
        let filter = filled(capacity, rate, capacity);
        let found = count_matches(&filter, 100_000);
        assert_eq!(found, expected, "capacity {capacity} at {rate}");
    }
}

#[test]
fn debug_output_shows_neither_key_nor_bits() {
    let filter = filled(1_000, 0.01, 1_000);
    let output = format!("{filter:?}");
    assert!(output.contains("HashKey(redacted)"), "{output}");
    assert!(output.contains("SharedBits(..)"), "{output}");
    assert!(output.len() < 300, "{output}");
}

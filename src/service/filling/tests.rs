//! What a filling promises, over more rows than one core takes at a time.

use std::time::Duration;

use super::*;
use crate::filter::bloom::BloomFilter;
use crate::filter::hashing::MasterKey;
use crate::filter::profile::Profile;
use crate::service::budget::MemoryBudget;
use crate::service::declaration::Declaration;
use crate::service::generation::Parts;
use crate::service::ports::FilterId;

/// More than can be on their way at once.
const ROWS: u64 = (2 * BATCHES_AT_ONCE * ROWS_A_BATCH + 1) as u64;

fn generation() -> Arc<Generation> {
    let id = uuid::Uuid::from_u128(1);
    let key = MasterKey::from_bytes([7; MasterKey::BYTES]).filter_key(id.as_bytes());
    let declaration = Declaration::new(Profile::Text, ROWS, 1e-6).unwrap();
    Arc::new(Generation::new(Parts {
        filter: FilterId(id),
        number: 1,
        bloom: BloomFilter::new(declaration.sizing, key).unwrap(),
        reservation: MemoryBudget::new(1 << 20).reserve(1).unwrap(),
        declaration,
        store_max_staleness_ms: 500,
        sources: Vec::new(),
        forgotten_before: 0,
    }))
}

fn filling(generations: &[Arc<Generation>]) -> Filling {
    let leeway = SignedDuration::try_from(Duration::from_secs(120)).unwrap();
    let mut filling = Filling::new(generations.to_vec(), FeedOf::Store, leeway, true);
    filling.begin(ROWS, Timestamp::from_second(1_000).unwrap());
    filling
}

fn item(number: u64) -> Vec<u8> {
    format!("item {number}").into_bytes()
}

fn is_in(generation: &Generation, row: &[u8]) -> bool {
    let canonical = Profile::Text.canonicalize(row).unwrap();
    generation.bloom.check(&canonical.bytes)
}

fn at(second: i64) -> Option<Timestamp> {
    Some(Timestamp::from_second(second).unwrap())
}

#[tokio::test]
async fn every_row_is_in_every_generation_when_it_has_ended() {
    let generations = [generation(), generation()];
    let mut filling = filling(&generations);
    for number in 0..ROWS {
        filling.row(Some(&item(number)), None);
    }
    let (filled, rows) = filling.finish().await;
    assert_eq!((filled.len(), rows), (2, ROWS));
    for generation in &generations {
        let is_missed = |number: &u64| !generation.bloom.check(&item(*number));
        assert_eq!((0..ROWS).find(is_missed), None);
        // The ones of all batches are counted, and none twice.
        let estimate = generation.bloom.statistics().estimated_cardinality;
        assert!(estimate.abs_diff(ROWS) < ROWS / 100, "{estimate}");
        assert_eq!(generation.store.rows.done.load(Ordering::Relaxed), ROWS);
    }
}

#[tokio::test]
async fn blank_odd_and_expired_rows_of_all_batches_are_counted() {
    let generation = generation();
    let mut filling = filling(&[Arc::clone(&generation)]);
    for number in 0..ROWS {
        match number % 5 {
            0 => filling.row(None, None),
            1 => filling.row(Some(b"  "), None),
            // Past its expiry, and past the leeway or not.
            2 => filling.row(Some(&item(number)), at(879)),
            3 => filling.row(Some(&item(number)), at(881)),
            _ => filling.row(Some(b"no \xff text"), at(2_000)),
        }
    }
    filling.finish().await;
    let rows = &generation.store.rows;
    let of = |remainder| (0..ROWS).filter(|number| number % 5 == remainder).count() as u64;
    assert_eq!(rows.blank.load(Ordering::Relaxed), of(0) + of(1));
    assert_eq!(rows.expired.load(Ordering::Relaxed), of(2));
    assert_eq!(rows.odd.load(Ordering::Relaxed), of(4));
    let kept = (0..ROWS).filter(|number| number % 5 == 3);
    assert!(kept.map(item).all(|item| generation.bloom.check(&item)));
    assert!(is_in(&generation, b"no \xff text"));
}

#[tokio::test]
async fn a_row_longer_than_a_batch_and_rows_beside_it_are_taken() {
    let generation = generation();
    let mut filling = filling(&[Arc::clone(&generation)]);
    let long = vec![b'a'; 3 * BYTES_A_BATCH];
    let rows = [item(1), long, item(2), vec![b'b'; BYTES_A_BATCH], item(3)];
    for row in &rows {
        filling.row(Some(row), None);
    }
    filling.finish().await;
    for row in &rows {
        assert!(is_in(&generation, row), "{}", row.len());
    }
}

//! What the core costs: hashing, one check, one add, and the batch forms against one by one.
//!
//! The filters hold their capacity. 200,000,000 items (240 MB of bits) are measured as well when
//! `BLOOMGATE_BENCH_LARGE` is set.

#![allow(missing_docs, reason = "criterion's macros make public items")]

use std::hint::black_box;
use std::time::Duration;

use bloomgate::filter::bloom::BloomFilter;
use bloomgate::filter::hashing::HashKey;
use bloomgate::filter::sizing::Sizing;
use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

/// Rotating items: one fixed batch would stay in the cache and measure nothing.
const BATCH_ITEMS: u64 = 1_000;
const BATCHES: u64 = 1_000;

/// An item of a UUID's length as text, different for each `(present, number)`.
fn item(present: bool, number: u64) -> [u8; 36] {
    let mut item = *b"00000000-0000-4000-8000-000000000000";
    item[0] = if present { b'a' } else { b'b' };
    item[28..].copy_from_slice(&number.to_le_bytes());
    item
}

fn filled(capacity: u64) -> BloomFilter {
    let sizing = Sizing::new(capacity, 0.01).expect("within bounds");
    let filter = BloomFilter::new(sizing, HashKey::from_bytes([7; 16])).expect("enough memory");
    filter.add_batch((0..capacity).map(|number| item(true, number)));
    filter
}

/// Spreads consecutive numbers over the whole capacity.
fn scatter(number: u64, capacity: u64) -> u64 {
    number.wrapping_mul(0x9E37_79B9_7F4A_7C15) % capacity
}

fn hash(criterion: &mut Criterion) {
    let key = HashKey::from_bytes([7; 16]);
    let item = item(true, 1);
    criterion.bench_function("hash 36 bytes", |bencher| {
        bencher.iter(|| key.hash(black_box(&item)));
    });
}

fn estimate(criterion: &mut Criterion) {
    let filter = filled(10_000);
    criterion.bench_function("estimated_fp_rate", |bencher| {
        bencher.iter(|| black_box(&filter).estimated_fp_rate());
    });
}

fn check_and_add(criterion: &mut Criterion) {
    let mut capacities = vec![1_000_000, 20_000_000];
    if std::env::var_os("BLOOMGATE_BENCH_LARGE").is_some() {
        capacities.push(200_000_000);
    }
    for capacity in capacities {
        let filter = filled(capacity);
        for (name, present) in [("hit", true), ("miss", false)] {
            one_by_one(criterion, &filter, name, present);
            in_batches(criterion, &filter, name, present);
        }
        add_in_batches(criterion, capacity);
    }
}

fn one_by_one(criterion: &mut Criterion, filter: &BloomFilter, name: &str, present: bool) {
    let capacity = filter.sizing().capacity();
    let mut number = 0;
    let mut group = criterion.benchmark_group(format!("check {name}"));
    group.throughput(Throughput::Elements(1));
    group.bench_function(BenchmarkId::new("one by one", capacity), |bencher| {
        bencher.iter(|| {
            number += 1;
            filter.check(&item(present, scatter(number, capacity)))
        });
    });
}

fn in_batches(criterion: &mut Criterion, filter: &BloomFilter, name: &str, present: bool) {
    let batches = batches(present, filter.sizing().capacity());
    let mut matches = Vec::new();
    let mut next = batches.iter().cycle();
    let mut group = criterion.benchmark_group(format!("check {name}"));
    group.throughput(Throughput::Elements(BATCH_ITEMS));
    let id = BenchmarkId::new("batch of 1000", filter.sizing().capacity());
    group.bench_function(id, |bencher| {
        bencher.iter(|| {
            matches.clear();
            filter.check_batch(next.next().expect("a cycle has no end"), &mut matches);
            matches.len()
        });
    });
}

fn add_in_batches(criterion: &mut Criterion, capacity: u64) {
    let sizing = Sizing::new(capacity, 0.01).expect("within bounds");
    let batches = batches(true, capacity);
    let mut group = criterion.benchmark_group("add to an empty filter");
    group.sample_size(10);
    group.throughput(Throughput::Elements(BATCH_ITEMS * BATCHES));
    let empty = || BloomFilter::new(sizing, HashKey::from_bytes([7; 16])).expect("enough memory");
    group.bench_function(BenchmarkId::new("one by one", capacity), |bencher| {
        let add_all = |filter: BloomFilter| {
            for item in batches.iter().flatten() {
                filter.add(item);
            }
            filter
        };
        bencher.iter_batched(empty, add_all, BatchSize::PerIteration);
    });
    group.bench_function(BenchmarkId::new("batch of 1000", capacity), |bencher| {
        let add_all = |filter: BloomFilter| {
            for batch in &batches {
                filter.add_batch(batch);
            }
            filter
        };
        bencher.iter_batched(empty, add_all, BatchSize::PerIteration);
    });
}

fn batches(present: bool, capacity: u64) -> Vec<Vec<[u8; 36]>> {
    let batch = |first: u64| {
        (first..first + BATCH_ITEMS)
            .map(|number| item(present, scatter(number, capacity)))
            .collect()
    };
    (0..BATCHES)
        .map(|index| batch(index * BATCH_ITEMS))
        .collect()
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .sample_size(20)
        .without_plots();
    targets = hash, estimate, check_and_add
}
criterion_main!(benches);

//! The core: a check beside fastbloom's, and in batches beside one by one.

use std::hint::black_box;
use std::thread;
use std::time::Instant;

use bloomgate::filter::bloom::BloomFilter;
use bloomgate::filter::hashing::HashKey;
use bloomgate::filter::sizing::Sizing;
use fastbloom::AtomicBloomFilter;

use crate::rounds::medians;
use crate::stage::Stage;
use crate::table::{Line, Table, Target};

const RATE: f64 = 0.01;
const BATCH_ITEMS: usize = 1_000;
/// Items of one round.
const ROUND_ITEMS: u64 = 1_000_000;
const ROUNDS: usize = 7;

type Key = [u8; 36];

/// As long as a UUID as text, different for each `(present, number)`.
fn key(present: bool, number: u64) -> Key {
    let mut key = *b"00000000-0000-4000-8000-000000000000";
    key[0] = if present { b'a' } else { b'b' };
    key[28..].copy_from_slice(&number.to_le_bytes());
    key
}

/// Keys of numbers below the capacity in random order, others each round.
fn keys(present: bool, round: u64, capacity: u64) -> Vec<Key> {
    let scattered = |number: u64| number.wrapping_mul(0x9E37_79B9_7F4A_7C15) % capacity;
    let first = round * ROUND_ITEMS;
    (first..first + ROUND_ITEMS)
        .map(|number| key(present, scattered(number)))
        .collect()
}

pub(crate) fn measure(_: &Stage, table: &mut Table) -> anyhow::Result<()> {
    for (capacity, batches) in [(1_000_000, false), (20_000_000, false), (200_000_000, true)] {
        let sizing = Sizing::new(capacity, RATE)?;
        let ours = BloomFilter::new(sizing, HashKey::from_bytes([7; 16]))?;
        let theirs =
            AtomicBloomFilter::with_false_pos(RATE).expected_items(usize::try_from(capacity)?);
        thread::scope(|scope| {
            scope.spawn(|| ours.add_batch((0..capacity).map(|number| key(true, number))));
            (0..capacity).for_each(|number| {
                theirs.insert(&key(true, number)[..]);
            });
        });
        for present in [true, false] {
            checks(&ours, &theirs, present, batches, table)?;
        }
    }
    Ok(())
}

/// Times of a check, each a median, and what they give; `batches` adds the line of the batch form.
fn checks(
    ours: &BloomFilter,
    theirs: &AtomicBloomFilter,
    present: bool,
    batches: bool,
    table: &mut Table,
) -> anyhow::Result<()> {
    let capacity = ours.sizing().capacity();
    let mut round = 0;
    let mut matches = Vec::with_capacity(BATCH_ITEMS);
    let [one, other, batch] = medians(ROUNDS, |rival| {
        round += 1;
        let keys = keys(present, round, capacity);
        let begun = Instant::now();
        let found = match rival {
            0 => keys.iter().filter(|key| ours.check(&key[..])).count(),
            1 => keys.iter().filter(|key| theirs.contains(&key[..])).count(),
            _ => keys.chunks(BATCH_ITEMS).fold(0, |found, batch| {
                matches.clear();
                ours.check_batch(batch, &mut matches);
                found + matches.iter().filter(|&&matched| matched).count()
            }),
        };
        let nanoseconds = begun.elapsed().as_secs_f64() * 1e9 / ROUND_ITEMS as f64;
        let plausible = if present {
            found == keys.len()
        } else {
            found < keys.len() / 50
        };
        anyhow::ensure!(plausible, "{found} of {} matched", keys.len());
        Ok(black_box(nanoseconds))
    })?;
    let millions = capacity / 1_000_000;
    let (name, names) = if present {
        ("hit", "hits")
    } else {
        ("miss", "misses")
    };
    table.add(Line::ratio(
        format!("core: a {name} among {millions} M items, of fastbloom's time"),
        one / other,
        Target::AtMost(1.15),
        format!("{one:.0} of {other:.0} ns"),
    ));
    if batches {
        table.add(Line::ratio(
            format!("core: {names} one by one among {millions} M, of the time in batches of 1,000"),
            one / batch,
            Target::AtLeast(1.6),
            format!("{one:.0} of {batch:.0} ns"),
        ));
    }
    Ok(())
}

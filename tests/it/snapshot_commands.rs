//! `snapshot inspect` and `snapshot verify`.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bloomgate::disk::Snapshots;
use bloomgate::filter::bloom::BloomFilter;
use bloomgate::filter::hashing::MasterKey;
use bloomgate::filter::profile::Profile;
use bloomgate::filter::sizing::Sizing;
use bloomgate::service::cursor::{Cursor, Timeline};
use bloomgate::service::declaration::FilterName;
use bloomgate::service::ports::{FilterId, Place, StoreIdentity};
use bloomgate::service::snapshot_store::{Snapshot, SnapshotSource, SnapshotStore};
use uuid::Uuid;

use crate::support::{Finished, Launch, eventually};

const DEADLINE: Duration = Duration::from_secs(30);

const FILTER: FilterId = FilterId(Uuid::from_u128(0xf1));

/// Saves 10,000 items in the data directory of `launch` under a hash key that lies there too.
fn save(launch: &Launch) -> PathBuf {
    let data_dir = launch.data_dir();
    fs::create_dir_all(&data_dir).unwrap();
    fs::write(data_dir.join("hash.key"), "ab".repeat(32)).unwrap();
    save_in(&data_dir, MasterKey::from_bytes([0xab; 32]))
}

fn save_in(data_dir: &Path, master_key: MasterKey) -> PathBuf {
    let sizing = Sizing::new(100_000, 0.001).unwrap();
    let bloom = BloomFilter::new(sizing, master_key.filter_key(FILTER.0.as_bytes())).unwrap();
    for number in 0..10_000_u32 {
        bloom.add(&number.to_le_bytes());
    }
    let cursor = Cursor {
        timeline: Timeline([0xcd; 16]),
        segment: 0,
        next: Place(730),
        in_progress: [Place(728)].into(),
    };
    let snapshot = Snapshot {
        filter: FILTER,
        name: FilterName::parse("revoked-jti").unwrap(),
        profile: Profile::Jti,
        declared: Sizing::new(50_000, 0.001).unwrap(),
        store: StoreIdentity(Uuid::from_u128(0x5e)),
        cursor,
        sources: vec![SnapshotSource {
            name: "legacy".to_owned(),
            cursor: None,
        }],
        keeps_unaccounted_bits: false,
        taken_at: "2026-03-01T12:00:00.5Z".parse().unwrap(),
        forgotten: 10_000,
    };
    let snapshots = Snapshots::open(data_dir).unwrap();
    snapshots.save(&snapshot, &bloom).unwrap();
    snapshots.path(FILTER)
}

async fn snapshot(launch: &Launch, command: &str, path: &Path, more: &[&str]) -> Finished {
    let arguments = ["snapshot", command, path.to_str().unwrap()];
    let arguments = [&arguments, more].concat();
    launch.clone().run(&arguments).await
}

/// Fails with one line that says so, and nothing on the way there.
#[track_caller]
fn assert_refused(finished: &Finished, why: &str) {
    assert_eq!(finished.exit_code, Some(1), "{finished:?}");
    assert!(finished.stdout.is_empty(), "{finished:?}");
    assert_eq!(finished.stderr.lines().count(), 1, "{finished:?}");
    assert!(finished.stderr.contains(why), "no {why}: {finished:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_verifies_while_the_service_has_its_data_directory() {
    let launch = Launch::new();
    let config = "[filters.revoked-jti]\nprofile = \"jti\"\ncapacity = 1000\n\
                  false_positive_rate = 0.01\n";
    let service = launch.clone().config(config).start().await;
    service.wait_live("revoked-jti").await;
    let folder = launch.data_dir().join("snapshots");
    let path = eventually("the filter is saved after its load", DEADLINE, async || {
        let mut files = fs::read_dir(&folder)
            .unwrap()
            .map(|file| file.unwrap().path());
        files.find(|path| {
            path.extension()
                .is_some_and(|extension| extension == "bloom")
        })
    })
    .await;
    let verified = snapshot(&launch, "verify", &path, &[]).await;
    assert_eq!(verified.exit_code, Some(0), "{verified:?}");
    for word in ["verifies", "revoked-jti"] {
        assert!(verified.stdout.contains(word), "no {word}: {verified:?}");
    }
    assert_eq!(verified.stdout.lines().count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_verifies_under_its_own_key_only() {
    let launch = Launch::new();
    let path = save(&launch);
    let keys = ["ab", "12"].map(|digits| {
        let file = launch.folder().join(format!("{digits}.key"));
        fs::write(&file, digits.repeat(32)).unwrap();
        file.to_str().unwrap().to_owned()
    });
    fs::remove_file(launch.data_dir().join("hash.key")).unwrap();
    // A key that is not there is made by nobody who only looks.
    assert_refused(&snapshot(&launch, "verify", &path, &[]).await, "hash.key");
    assert!(!launch.data_dir().join("hash.key").exists());
    let with = |key: &str| launch.clone().env("BLOOMGATE_HASH_KEY_FILE", key);
    let right = snapshot(&with(&keys[0]), "verify", &path, &[]).await;
    assert_eq!(right.exit_code, Some(0), "{right:?}");
    let wrong = snapshot(&with(&keys[1]), "verify", &path, &[]).await;
    assert_refused(&wrong, "does not verify");
    assert_refused(&wrong, "hash key");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_damaged_cut_or_is_no_snapshot_does_not_verify() {
    let launch = Launch::new();
    let path = save(&launch);
    let whole = fs::read(&path).unwrap();
    let middle = whole.len() / 2;
    let mut flipped = whole.clone();
    flipped[middle] ^= 1;
    let mut longer = whole.clone();
    longer.push(0);
    let cut = &whole[..whole.len() - 1_024];
    for (bytes, why) in [
        (
            &flipped[..],
            "does not verify: expected a snapshot that its hash key authenticates",
        ),
        (&longer, "expected the end"),
        (cut, "cut short"),
        (b"", "does not verify"),
        (b"0123456789abcdef", "expected a snapshot of a filter"),
    ] {
        let changed = launch.folder().join("changed.bloom");
        fs::write(&changed, bytes).unwrap();
        assert_refused(&snapshot(&launch, "verify", &changed, &[]).await, why);
    }
    let nowhere = launch.folder().join("nowhere.bloom");
    for command in ["inspect", "verify"] {
        let missing = snapshot(&launch, command, &nowhere, &[]).await;
        assert_refused(&missing, "nowhere.bloom");
    }
    assert!(
        fs::read(&path).unwrap() == whole,
        "verifying changes nothing"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn inspect_shows_the_head_without_a_key_and_whether_the_length_fits() {
    let launch = Launch::new();
    let path = save(&launch);
    fs::remove_file(launch.data_dir().join("hash.key")).unwrap();
    let shown = snapshot(&launch, "inspect", &path, &[]).await;
    assert_eq!(shown.exit_code, Some(0), "{shown:?}");
    let length = fs::metadata(&path).unwrap().len();
    for (name, value) in [
        (
            "filter",
            "revoked-jti (00000000-0000-0000-0000-0000000000f1)",
        ),
        ("profile", "jti version 1"),
        ("declared", "50000 items at 0.001"),
        ("sized_for", "100000 items at 0.001"),
        ("bit_count", "1437759"),
        ("hash_count", "10"),
        ("memory_bytes", "179720 (175.51 KiB)"),
        ("store", "00000000-0000-0000-0000-00000000005e"),
        ("forgotten", "10000"),
        (
            "cursor",
            "before 730, 1 in progress, segment 0, timeline cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd",
        ),
        ("source", "legacy: none"),
        ("keeps_unaccounted_bits", "false"),
        ("taken_at", "2026-03-01T12:00:00.5Z"),
        ("file_bytes", &format!("{length} (fits)")),
    ] {
        let line = format!("{name:<23} {value}\n");
        assert!(shown.stdout.contains(&line), "no {line}: {}", shown.stdout);
    }
    let whole = fs::read(&path).unwrap();
    for (bytes, fit) in [
        (&whole[..whole.len() - 1_024], "cut short: expected"),
        (&[&whole[..], b"more"].concat(), "more behind it: expected"),
    ] {
        fs::write(&path, bytes).unwrap();
        let shown = snapshot(&launch, "inspect", &path, &[]).await;
        assert_eq!(shown.exit_code, Some(0), "{shown:?}");
        assert!(shown.stdout.contains(fit), "no {fit}: {}", shown.stdout);
    }
    fs::write(&path, &whole[..100]).unwrap();
    let beheaded = snapshot(&launch, "inspect", &path, &[]).await;
    assert_refused(&beheaded, "cannot be read");
}

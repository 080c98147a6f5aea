//! Snapshots on disk are given whole or not at all.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use tempfile::TempDir;

use super::*;
use crate::filter::hashing::MasterKey;
use crate::filter::profile::Profile;
use crate::filter::sizing::Sizing;
use crate::service::cursor::{Cursor, Timeline};
use crate::service::declaration::FilterName;
use crate::service::ports::{Place, StoreIdentity};

const FILTER: FilterId = FilterId(Uuid::from_u128(1));
const OTHER: FilterId = FilterId(Uuid::from_u128(2));
const FOLDER_VARIABLE: &str = "BLOOMGATE_TEST_SNAPSHOTS";

fn key(filter: FilterId) -> HashKey {
    MasterKey::from_bytes([1; MasterKey::BYTES]).filter_key(filter.0.as_bytes())
}

fn snapshot(filter: FilterId) -> Snapshot {
    Snapshot {
        filter,
        name: FilterName::parse("revoked-jti").unwrap(),
        profile: Profile::Jti,
        declared: sizing(),
        store: StoreIdentity(Uuid::from_u128(3)),
        cursor: Cursor {
            timeline: Timeline([4; 16]),
            segment: 5,
            next: Place(60),
            in_progress: [Place(7)].into(),
        },
        sources: Vec::new(),
        keeps_unaccounted_bits: false,
        taken_at: jiff::Timestamp::from_millisecond(1_700_000_000_123).unwrap(),
        forgotten: 10_000,
    }
}

fn sizing() -> Sizing {
    Sizing::new(10_000, 0.001).unwrap()
}

/// A filter with so many items.
fn bloom(filter: FilterId, items: u32) -> BloomFilter {
    let bloom = BloomFilter::new(sizing(), key(filter)).unwrap();
    (0..items).for_each(|number| {
        bloom.add(&number.to_le_bytes());
    });
    bloom
}

fn has(bloom: &BloomFilter, items: u32) -> bool {
    (0..items).all(|number| bloom.check(&number.to_le_bytes()))
}

/// A folder with a snapshot of 100 items.
fn saved() -> (TempDir, Snapshots) {
    let folder = tempfile::tempdir().unwrap();
    let snapshots = Snapshots::open(folder.path()).unwrap();
    let bytes = snapshots
        .save(&snapshot(FILTER), &bloom(FILTER, 100))
        .unwrap();
    assert_eq!(fs::metadata(snapshots.path(FILTER)).unwrap().len(), bytes);
    (folder, snapshots)
}

fn restore(snapshots: &Snapshots, filter: FilterId) -> Result<BloomFilter, SnapshotError> {
    let saved = snapshots.head(filter)?;
    snapshots.restore(&saved, key(filter))
}

fn names(snapshots: &Snapshots) -> Vec<String> {
    let mut names: Vec<String> = files(&snapshots.folder)
        .unwrap()
        .iter()
        .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
        .collect();
    names.sort();
    names
}

fn name(filter: FilterId, extension: &str) -> String {
    format!("{}.{extension}", filter.0)
}

#[test]
fn what_was_saved_is_restored_and_only_its_owner_may_read_it() {
    let (_folder, snapshots) = saved();
    let head = snapshots.head(FILTER).unwrap();
    assert_eq!(head.snapshot, snapshot(FILTER));
    assert_eq!((head.sizing, head.key_id), (sizing(), key(FILTER).id()));
    assert!(has(&restore(&snapshots, FILTER).unwrap(), 100));
    let mode = fs::metadata(snapshots.path(FILTER))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    snapshots
        .save(&snapshot(FILTER), &bloom(FILTER, 200))
        .unwrap();
    assert!(has(&restore(&snapshots, FILTER).unwrap(), 200));
    assert_eq!(names(&snapshots), [name(FILTER, "bloom")]);
}

#[test]
fn what_one_process_saved_another_restores_with_every_item() {
    let folder = tempfile::tempdir().unwrap();
    let status = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "disk::snapshots::tests::saves_for_another_process",
        ])
        .arg("--ignored")
        .env(FOLDER_VARIABLE, folder.path())
        .output()
        .unwrap();
    assert!(status.status.success(), "{status:?}");
    let snapshots = Snapshots::open(folder.path()).unwrap();
    assert!(has(&restore(&snapshots, FILTER).unwrap(), 10_000));
}

#[test]
#[ignore = "the other process of the test before"]
fn saves_for_another_process() {
    if let Some(folder) = std::env::var_os(FOLDER_VARIABLE) {
        let snapshots = Snapshots::open(Path::new(&folder)).unwrap();
        let bloom = bloom(FILTER, 10_000);
        snapshots.save(&snapshot(FILTER), &bloom).unwrap();
    }
}

#[test]
fn where_none_was_saved_there_is_none() {
    let (_folder, snapshots) = saved();
    let nothing = restore(&snapshots, OTHER).unwrap_err();
    assert!(matches!(nothing, SnapshotError::NotThere(_)), "{nothing}");
    snapshots.set_aside(OTHER, "nothing is there").unwrap();
}

/// Takes a file of some length and fails past it, as a full disk does.
struct Full<'a> {
    file: &'a mut File,
    room_bytes: usize,
}

impl Write for Full<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.room_bytes == 0 {
            return Err(ErrorKind::StorageFull.into());
        }
        let taken = bytes.len().min(self.room_bytes);
        self.file.write_all(&bytes[..taken])?;
        self.room_bytes -= taken;
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[test]
fn a_save_that_fails_at_any_byte_leaves_the_one_before_and_nothing_else() {
    let (_folder, snapshots) = saved();
    let path = snapshots.path(FILTER);
    let before = fs::read(&path).unwrap();
    let small = BloomFilter::new(Sizing::new(10, 0.01).unwrap(), key(FILTER)).unwrap();
    let label = snapshot(FILTER).to_label();
    let mut whole = Vec::new();
    codec::write(&label, &small, &mut whole).unwrap();
    for room_bytes in 0..whole.len() {
        let failed = atomic_file::write_with(&path, |file| {
            let mut full = Full { file, room_bytes };
            codec::write(&label, &small, &mut full).map_err(io::Error::from)
        });
        let failed = failed.unwrap_err();
        assert!(
            matches!(&failed, DiskError::Io { source, .. } if source.kind() == ErrorKind::StorageFull),
            "{failed}"
        );
        assert_eq!(names(&snapshots), [name(FILTER, "bloom")]);
        assert!(fs::read(&path).unwrap() == before);
    }
    assert!(has(&restore(&snapshots, FILTER).unwrap(), 100));
}

#[test]
fn a_save_that_cannot_take_its_place_leaves_no_temporary_file() {
    let (_folder, snapshots) = saved();
    fs::create_dir(snapshots.path(OTHER)).unwrap();
    let failed = snapshots
        .save(&snapshot(OTHER), &bloom(OTHER, 1))
        .unwrap_err();
    assert!(matches!(
        failed,
        SnapshotError::Failed {
            action: "written",
            ..
        }
    ));
    assert_eq!(
        names(&snapshots),
        [name(FILTER, "bloom"), name(OTHER, "bloom")]
    );
}

#[test]
fn what_a_crash_left_is_removed_and_what_is_not_ours_is_not() {
    let (folder, snapshots) = saved();
    let leftover = snapshots.path(OTHER).with_extension("tmp");
    fs::write(&leftover, "half of a snapsh").unwrap();
    for foreign in ["notes.tmp", "notes.bloom"] {
        fs::write(snapshots.folder.join(foreign), "kept").unwrap();
    }
    let snapshots = Snapshots::open(folder.path()).unwrap();
    assert_eq!(
        names(&snapshots),
        [&name(FILTER, "bloom"), "notes.bloom", "notes.tmp"]
    );
    // One that is in the way of a save is no hindrance either.
    fs::write(&leftover, "half of a snapsh").unwrap();
    snapshots.save(&snapshot(OTHER), &bloom(OTHER, 5)).unwrap();
    assert!(has(&restore(&snapshots, OTHER).unwrap(), 5));
    assert!(has(&restore(&snapshots, FILTER).unwrap(), 100));
    snapshots.retain(&[]).unwrap();
    assert_eq!(names(&snapshots), ["notes.bloom", "notes.tmp"]);
}

/// Whatever is wrong with the file it is set aside, and said so.
#[track_caller]
fn assert_set_aside(snapshots: &Snapshots, refused: SnapshotError) {
    assert!(
        matches!(refused, SnapshotError::DoesNotFit { .. }),
        "{refused}"
    );
    assert!(!snapshots.path(FILTER).exists());
    assert!(names(snapshots).contains(&name(FILTER, "bloom.rejected")));
    let nothing = snapshots.head(FILTER).unwrap_err();
    assert!(matches!(nothing, SnapshotError::NotThere(_)));
}

#[test]
fn a_file_that_was_damaged_is_set_aside() {
    let changes: [fn(&mut Vec<u8>); 7] = [
        |bytes| bytes.clear(),
        |bytes| bytes.truncate(bytes.len() - 1_024),
        |bytes| bytes.push(0),
        |bytes| bytes.extend_from_slice(b"garbage"),
        |bytes| bytes[0] ^= 1,
        |bytes| bytes[40] ^= 1,
        |bytes| {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 16;
        },
    ];
    for change in changes {
        let (_folder, snapshots) = saved();
        let mut bytes = fs::read(snapshots.path(FILTER)).unwrap();
        change(&mut bytes);
        fs::write(snapshots.path(FILTER), bytes).unwrap();
        let refused = restore(&snapshots, FILTER).unwrap_err();
        assert_set_aside(&snapshots, refused);
        // The place is free for the next.
        snapshots
            .save(&snapshot(FILTER), &bloom(FILTER, 3))
            .unwrap();
        assert!(has(&restore(&snapshots, FILTER).unwrap(), 3));
    }
}

#[test]
fn a_snapshot_of_another_filter_or_under_another_key_is_set_aside_and_the_others_load() {
    let (_folder, snapshots) = saved();
    snapshots.save(&snapshot(OTHER), &bloom(OTHER, 50)).unwrap();
    fs::copy(snapshots.path(OTHER), snapshots.path(FILTER)).unwrap();
    let refused = snapshots.head(FILTER).unwrap_err();
    assert_set_aside(&snapshots, refused);
    assert!(has(&restore(&snapshots, OTHER).unwrap(), 50));
    snapshots
        .save(&snapshot(FILTER), &bloom(FILTER, 3))
        .unwrap();
    let head = snapshots.head(FILTER).unwrap();
    let refused = snapshots.restore(&head, key(OTHER)).unwrap_err();
    assert_set_aside(&snapshots, refused);
}

#[test]
fn a_snapshot_that_took_the_place_of_the_one_judged_is_not_given_and_stays() {
    let (_folder, snapshots) = saved();
    let judged = snapshots.head(FILTER).unwrap();
    let newer = Snapshot {
        forgotten: 10_001,
        ..snapshot(FILTER)
    };
    snapshots.save(&newer, &bloom(FILTER, 200)).unwrap();
    let refused = snapshots.restore(&judged, key(FILTER)).unwrap_err();
    assert!(matches!(refused, SnapshotError::Failed { .. }), "{refused}");
    assert!(has(&restore(&snapshots, FILTER).unwrap(), 200));
}

#[test]
fn what_cannot_be_read_at_the_moment_stays() {
    let (_folder, snapshots) = saved();
    fs::create_dir(snapshots.path(OTHER)).unwrap();
    let failed = snapshots.head(OTHER).unwrap_err();
    assert!(
        matches!(failed, SnapshotError::Failed { action: "read", .. }),
        "{failed}"
    );
    assert!(snapshots.path(OTHER).exists());
}

#[test]
fn one_is_kept_aside_for_each_filter_that_is_hosted() {
    let (_folder, snapshots) = saved();
    for filter in [FILTER, OTHER] {
        for items in [1, 2] {
            snapshots
                .save(&snapshot(filter), &bloom(filter, items))
                .unwrap();
            snapshots
                .set_aside(filter, "it was made for another store")
                .unwrap();
        }
    }
    snapshots.save(&snapshot(OTHER), &bloom(OTHER, 1)).unwrap();
    let aside = [FILTER, OTHER].map(|filter| name(filter, "bloom.rejected"));
    assert_eq!(
        names(&snapshots),
        [&*aside[0], &*name(OTHER, "bloom"), &*aside[1]]
    );
    snapshots.retain(&[FILTER]).unwrap();
    assert_eq!(names(&snapshots), [&*aside[0]]);
}

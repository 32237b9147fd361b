//! The tier against a naive model, under damage, and at its limits.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

const DIGEST: Digest = Digest(0xfeed_beef);

fn content(id: u32, length: u64) -> Bytes {
    (0..length)
        .map(|i| (i.wrapping_mul(31) ^ u64::from(id).wrapping_mul(0x9e37)) as u8)
        .collect::<Vec<u8>>()
        .into()
}

/// Sizes from nothing to some thousand bytes.
fn size(id: SampleId) -> u64 {
    u64::from(id.0) * 37 % 5_000
}

fn options(folder: &Path, bytes_max: u64) -> DiskOptions {
    DiskOptions { folder: folder.into(), bytes_max, queue_bytes_max: 1 << 20 }
}

fn open(folder: &Path, bytes_max: u64) -> Disk {
    Disk::open(&options(folder, bytes_max), DIGEST, 1_000, size).unwrap()
}

fn put(disk: &Disk, id: u32) -> bool {
    disk.put(SampleId(id), content(id, size(SampleId(id))))
}

fn segments(folder: &Path) -> Vec<PathBuf> {
    let own = folder.join(format!("{DIGEST}.v1"));
    let mut found: Vec<PathBuf> = fs::read_dir(own).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.sort();
    found
}

fn folder_bytes(folder: &Path) -> u64 {
    // A segment may be deleted between listing and asking.
    segments(folder).iter().filter_map(|path| fs::metadata(path).ok()).map(|meta| meta.len()).sum()
}

#[derive(Debug, Clone)]
enum Step {
    Put(u32),
    Remove(u32),
    Get(u32),
    Flush,
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let id = 0_u32..120;
    prop_oneof![
        8 => id.clone().prop_map(Step::Put),
        4 => id.clone().prop_map(Step::Remove),
        4 => id.prop_map(Step::Get),
        1 => Just(Step::Flush),
        1 => Just(Step::Reopen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// What the tier has is what the model has, except that removed samples may be back after a restart. The limit is
    /// small enough that segments are reclaimed all the time; nothing is lost by that.
    #[test]
    fn it_is_a_map_that_forgets_nothing(steps in proptest::collection::vec(step(), 1..400)) {
        let folder = tempfile::tempdir().unwrap();
        let bytes_max = 150_000;
        let mut disk = open(folder.path(), bytes_max);
        // True: must be there. False: was removed before the last restart and may be there.
        let mut model: BTreeMap<u32, bool> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Put(id) => {
                    let held: u64 = disk.ids().iter().map(|id| size(*id)).sum();
                    if held + size(SampleId(id)) <= disk.usable_bytes() && put(&disk, id) {
                        model.insert(id, true);
                    }
                }
                Step::Remove(id) => {
                    disk.remove(SampleId(id));
                    prop_assert_eq!(disk.get(SampleId(id)), None);
                    model.insert(id, false);
                }
                Step::Get(id) => {
                    let found = disk.get(SampleId(id));
                    prop_assert_eq!(found.is_some(), disk.ids().contains(&SampleId(id)));
                    match found {
                        Some(bytes) => {
                            prop_assert!(model.contains_key(&id));
                            prop_assert_eq!(bytes, content(id, size(SampleId(id))));
                        }
                        None => prop_assert!(model.get(&id) != Some(&true), "{} is missing", id),
                    }
                }
                Step::Flush => disk.flush(),
                Step::Reopen => {
                    let expect = disk.ids();
                    drop(disk);
                    disk = open(folder.path(), bytes_max);
                    let found = disk.ids();
                    let held: u64 = found.iter().map(|id| size(*id)).sum();
                    prop_assert!(held <= disk.usable_bytes());
                    // Room that removed samples took is missing for the oldest of the others; nothing else is.
                    let back = found.iter().any(|id| !expect.contains(id));
                    prop_assert!(back || expect == found, "{:?} became {:?}", expect, found);
                    for (id, there) in &mut model {
                        *there &= found.contains(&SampleId(*id));
                    }
                }
            }
            let lost = disk.take_lost();
            prop_assert!(lost.is_empty(), "lost {:?}", lost);
            prop_assert!(folder_bytes(folder.path()) <= bytes_max);
        }
        let counts = disk.counts();
        prop_assert!(counts.damaged == 0 && counts.off.is_none(), "{:?}", counts);
    }

    /// The parts of the limit are in order, and what a policy may keep fits with its heads.
    #[test]
    fn limits_are_in_order(bytes_max in 0_u64..1 << 50, mean in 0_u64..1 << 30) {
        let limits = Limits::new(bytes_max);
        prop_assert!(limits.live_bytes <= limits.write_bytes && limits.write_bytes <= bytes_max);
        prop_assert!(limits.usable_bytes(mean) <= limits.live_bytes);
        prop_assert!(limits.write_bytes == 0 || limits.write_bytes + limits.segment_bytes < bytes_max);
    }
}

#[test]
fn flipped_and_cut_files_are_misses_and_never_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let ids = [3_u32, 140, 1, 7];
    let disk = open(folder.path(), 1 << 20);
    assert!(ids.iter().all(|id| put(&disk, *id)));
    drop(disk);
    let path = segments(folder.path()).pop().unwrap();
    let whole = fs::read(&path).unwrap();
    let check = |what: String| {
        let disk = open(folder.path(), 1 << 20);
        let there = disk.ids();
        let good = there.iter().filter(|id| {
            let found = disk.get(**id);
            assert!(found.as_ref().is_none_or(|bytes| *bytes == content(id.0, size(**id))), "{what}");
            found.is_some()
        });
        let good = good.count();
        // Whoever was told that it is there is told that it is not.
        assert_eq!(disk.take_lost().len(), there.len() - good, "{what}");
        assert_eq!(disk.counts().damaged as usize, there.len() - good, "{what}");
        assert_eq!(disk.ids().len(), good, "{what}");
        good
    };
    assert_eq!(check("whole".into()), 4);
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x20;
        fs::write(&path, &bytes).unwrap();
        let good = check(format!("byte {at}"));
        // The head of the file is needed for all of it; damage in one record costs one; the foot can be missed.
        let expect = if at < 24 { 0..=0 } else { 3..=4 };
        assert!(expect.contains(&good), "byte {at}: {good}");
        fs::write(&path, &whole[..at]).unwrap();
        check(format!("cut at {at}"));
    }
}

#[test]
fn the_limit_is_held_at_every_moment_and_what_is_wanted_survives() {
    let folder = tempfile::tempdir().unwrap();
    let bytes_max = 2 << 20;
    let disk = Arc::new(open(folder.path(), bytes_max));
    let done = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let watcher = std::thread::spawn({
        let (done, disk, path) = (Arc::clone(&done), Arc::clone(&disk), folder.path().to_path_buf());
        move || {
            let (mut most, mut looks) = (0, 0);
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                most = folder_bytes(&path).max(most);
                looks += 1;
                // Read while its segment may be reclaimed.
                let id = SampleId(looks * 4 % 1_000);
                assert!(disk.get(id).is_none_or(|bytes| bytes == content(id.0, size(id))), "{id}");
            }
            (most, looks)
        }
    });
    // A third is kept for good; the others come and go, thirty times the limit in all.
    let kept: Vec<u32> = (0..1_000).filter(|id| id % 4 == 0).collect();
    assert!(kept.iter().all(|id| put(&disk, *id)));
    let (mut held, mut put_bytes) = (std::collections::VecDeque::new(), 0);
    let mut id = 0;
    while put_bytes < 30 * bytes_max {
        id = (id + 1) % 1_000;
        if id % 4 == 0 {
            continue;
        }
        held.push_back(id);
        assert!(put(&disk, id));
        put_bytes += size(SampleId(id));
        if held.len() > 300 {
            disk.remove(SampleId(held.pop_front().unwrap()));
        }
        if disk.counts().queued_bytes > 200_000 {
            disk.flush();
        }
    }
    disk.flush();
    done.store(true, std::sync::atomic::Ordering::Relaxed);
    let (most, looks) = watcher.join().unwrap();
    assert!(most <= bytes_max, "{most} bytes in {looks} looks");
    let counts = disk.counts();
    assert!(counts.file_bytes <= bytes_max && counts.reclaimed_bytes > 10 * bytes_max, "{counts:?}");
    assert!(disk.take_lost().is_empty() && counts.dropped_puts == 0, "{counts:?}");
    for id in kept.iter().chain(&held) {
        assert_eq!(disk.get(SampleId(*id)), Some(content(*id, size(SampleId(*id)))), "{id}");
    }
}

#[test]
fn puts_beyond_the_limits_are_refused_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = options(folder.path(), 1 << 20);
    options.queue_bytes_max = 100_000;
    let sizes = |id: SampleId| if id.0 == 9 { 200_000 } else { 50_000 };
    let disk = Disk::open(&options, DIGEST, 100, sizes).unwrap();
    assert!(!disk.put(SampleId(9), content(9, 200_000)), "longer than the queue");
    assert!(!disk.put(SampleId(100), content(1, 50_000)), "not in the catalog");
    let mut taken = 0;
    for id in 10..60 {
        taken += u64::from(disk.put(SampleId(id), content(id, 50_000)));
        disk.flush();
    }
    let counts = disk.counts();
    assert!(taken >= disk.usable_bytes() / 50_000 && taken < 21, "{taken} of 50,000 bytes in 1 MiB");
    assert_eq!((counts.entries, counts.dropped_puts), (taken, 2 + 50 - taken));
    assert!(counts.file_bytes <= 1 << 20);
}

#[test]
fn a_smaller_limit_and_another_catalog_are_obeyed_at_opening() {
    let folder = tempfile::tempdir().unwrap();
    let disk = open(folder.path(), 4 << 20);
    for id in 0..600 {
        assert!(put(&disk, id));
        disk.flush();
    }
    drop(disk);
    let disk = open(folder.path(), 1 << 20);
    let held: u64 = disk.ids().iter().map(|id| size(*id)).sum();
    assert!(
        held <= disk.usable_bytes() && held > disk.usable_bytes() / 2,
        "{held} of {}",
        disk.usable_bytes()
    );
    assert!(folder_bytes(folder.path()) <= 1 << 20);
    drop(disk);
    // Fewer samples and one of another size than before: whatever does not fit is not there.
    let sizes = |id: SampleId| if id.0 == 90 { 5 } else { size(id) };
    let disk = Disk::open(&options(folder.path(), 1 << 20), DIGEST, 450, sizes).unwrap();
    assert!(disk.ids().iter().all(|id| id.0 < 450 && id.0 != 90));
}

#[test]
fn other_data_sets_are_left_alone_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let disk = open(folder.path(), 1 << 20);
    assert!((100..200).all(|id| put(&disk, id)));
    drop(disk);
    let others = [folder.path().join(format!("{DIGEST}.v2")), folder.path().join("photos")];
    for other in &others {
        fs::create_dir(other).unwrap();
        fs::write(other.join("000001.seg"), vec![7; 5_000]).unwrap();
    }
    let note = folder.path().join(format!("{DIGEST}.v1/notes.txt"));
    fs::write(&note, "mine").unwrap();
    let before = folder_bytes(folder.path());
    let second = Disk::open(&options(folder.path(), 2 << 20), Digest(1), 1_000, size).unwrap();
    assert_eq!(second.counts().other_bytes, before + 5_000);
    assert!(second.usable_bytes() < (2 << 20) - before);
    assert!(second.ids().is_empty());
    drop(second);
    let error = Disk::open(&options(folder.path(), before), Digest(1), 1_000, |_| 3_000).unwrap_err();
    assert!(error.to_string().contains("other data sets take"), "{error}");
    let disk = open(folder.path(), 1 << 20);
    assert_eq!(disk.ids().len(), 100);
    assert!(note.exists() && others.iter().all(|other| other.join("000001.seg").exists()));
}

#[test]
fn restarts_do_not_pile_up_files() {
    let folder = tempfile::tempdir().unwrap();
    for id in 0..400 {
        let disk = open(folder.path(), 8 << 20);
        assert!(put(&disk, id));
    }
    let files = segments(folder.path()).len();
    assert!((300..=325).contains(&files), "{files}");
    assert_eq!(open(folder.path(), 8 << 20).ids().len(), 400);
}

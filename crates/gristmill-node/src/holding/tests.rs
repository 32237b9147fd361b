//! Slices against a plain map: in memory and in a folder, whole and damaged.

use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

fn file(folder: &Path, id: u32) -> std::path::PathBuf {
    folder.join(format!("{:02x}/{id:08x}", id & 0xff))
}

#[test]
fn what_is_in_a_folder_is_there_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("slice/rank-0");
    let held = Holding::open(&path).unwrap();
    for id in [0, 255, 256, 70_000] {
        held.put(id, format!("sample {id}").as_bytes()).unwrap();
    }
    held.remove([255, 9]).unwrap();
    held.sync().unwrap();
    fs::write(path.join("07/00000007.part"), "half").unwrap();
    fs::write(path.join("07/00000008"), "of another folder").unwrap();
    fs::write(path.join("07/notes.txt"), "not ours").unwrap();
    let error = Holding::open(&path).unwrap_err();
    assert!(error.to_string().contains("in use"), "{error}");
    drop(held);
    let again = Holding::open(&path).unwrap();
    assert_eq!(again.ids(), [0, 256, 70_000]);
    assert_eq!(&again.get(70_000).unwrap()[..], b"sample 70000");
    assert_eq!((again.get(255), again.missed()), (None, 1));
    assert!(!path.join("07/00000007.part").exists() && path.join("07/notes.txt").exists());
}

#[test]
fn a_damaged_sample_is_a_miss() {
    let folder = tempfile::tempdir().unwrap();
    let held = Holding::open(folder.path()).unwrap();
    let whole = |id| {
        held.put(id, b"twelve bytes").unwrap();
        fs::read(file(folder.path(), id)).unwrap()
    };
    for at in 0..whole(3).len() {
        let mut bytes = whole(3);
        bytes[at] ^= 4;
        fs::write(file(folder.path(), 3), bytes).unwrap();
        assert_eq!(held.get(3), None, "a flipped bit in byte {at}");
        assert!(!held.contains(3), "it is filled in again");
    }
    for cut in 0..whole(3).len() {
        let bytes = whole(3);
        fs::write(file(folder.path(), 3), &bytes[..cut]).unwrap();
        assert_eq!(held.get(3), None, "cut to {cut} bytes");
    }
    let other = whole(4);
    whole(3);
    fs::write(file(folder.path(), 3), other).unwrap();
    assert_eq!(held.get(3), None, "another sample under its name");
    whole(3);
    fs::remove_file(file(folder.path(), 3)).unwrap();
    assert_eq!(held.get(3), None);
    let empty = |held: &Holding| {
        held.put(5, b"").unwrap();
        held.get(5).unwrap().is_empty()
    };
    assert!(empty(&held) && empty(&Holding::in_memory()));
}

#[test]
fn a_sample_that_cannot_be_written_is_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let held = Holding::open(folder.path()).unwrap();
    fs::remove_dir(folder.path().join("05")).unwrap();
    fs::write(folder.path().join("05"), "").unwrap();
    let error = held.put(5, b"x").unwrap_err();
    assert!(error.to_string().contains("sample 5"), "{error}");
    assert!(!held.contains(5) && held.get(5).is_none());
    held.put(6, b"x").unwrap();
}

#[test]
fn a_journal_is_read_back_and_nonsense_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let held = Holding::open(folder.path()).unwrap();
    assert_eq!((held.journal(), held.owners_newest()), (None, None));
    let journal = Journal {
        version: Journal::VERSION,
        digest: "d".into(),
        run: "seed 1".into(),
        rank: 2,
        epoch: 7,
        fraction: 0.3,
        owners: "0f".into(),
    };
    held.write_journal(&journal).unwrap();
    held.keep_owners(7, b"seven").unwrap();
    held.keep_owners(8, b"eight").unwrap();
    assert_eq!(held.journal(), Some(journal.clone()));
    assert_eq!((held.owners(7), held.owners_newest()), (Some(b"seven".to_vec()), Some(8)));
    held.forget_owners(8);
    assert_eq!((held.owners(7), held.owners(8)), (None, Some(b"eight".to_vec())));
    let path = folder.path().join("owners-000008");
    let mut bytes = fs::read(&path).unwrap();
    bytes[9] ^= 1;
    fs::write(&path, bytes).unwrap();
    assert_eq!(held.owners(8), None);
    for text in ["", "{}", "[1", "{\"version\": 9}"] {
        fs::write(folder.path().join("slice.json"), text).unwrap();
        assert_eq!(held.journal(), None, "{text:?}");
    }
}

/// A sample that comes back while what was let go is deleted is there afterwards, always.
#[test]
fn what_comes_back_during_a_sweep_stays() {
    let folder = tempfile::tempdir().unwrap();
    let held = Holding::open(folder.path()).unwrap();
    for round in 0..20_u8 {
        (0..64).for_each(|id| held.put(id, &[round]).unwrap());
        held.let_go(0..64);
        std::thread::scope(|scope| {
            scope.spawn(|| held.sweep().unwrap());
            // From the other end, so that the two meet.
            for id in (0..64).rev().step_by(2) {
                held.put(id, &[round, id as u8]).unwrap();
            }
        });
        for id in 0..64 {
            let expect = (id % 2 == 1).then(|| Bytes::from(vec![round, id as u8]));
            assert_eq!(held.get(id), expect, "sample {id} in round {round}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]
    /// Any sequence of puts, removes, lettings go and sweeps leaves what a map would, and never more files than the
    /// limit, counting those that are let go until they are deleted.
    #[test]
    fn a_slice_is_a_map(
        steps in proptest::collection::vec((0_u32..60, 0_u8..12), 1..200), max in 1_u32..40,
    ) {
        let folder = tempfile::tempdir().unwrap();
        for held in [Holding::in_memory(), Holding::open(folder.path()).unwrap()] {
            held.limit(max);
            let mut model: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
            let mut gone = BTreeSet::new();
            for &(id, what) in &steps {
                match what {
                    9 => {
                        held.remove([id]).unwrap();
                        model.remove(&id);
                    }
                    10 => {
                        held.let_go([id]);
                        if model.remove(&id).is_some() && held.is_durable() {
                            gone.insert(id);
                        }
                    }
                    11 => {
                        held.sweep().unwrap();
                        gone.clear();
                    }
                    byte => {
                        let bytes = vec![byte; byte as usize * 7];
                        let room = model.len() + gone.len() < max as usize;
                        prop_assert_eq!(held.is_full(), !room);
                        let fits = model.contains_key(&id) || gone.contains(&id) || room;
                        prop_assert_eq!(held.put(id, &bytes).is_ok(), fits);
                        if fits {
                            gone.remove(&id);
                            model.insert(id, bytes);
                        }
                    }
                }
                let there = |id: &u32| file(folder.path(), *id).exists();
                prop_assert!(!held.is_durable() || gone.iter().chain(model.keys()).all(there));
            }
            prop_assert_eq!(held.ids(), model.keys().copied().collect::<Vec<_>>());
            prop_assert!(held.peak() <= max && held.len() as usize == model.len());
            for (id, bytes) in &model {
                prop_assert_eq!(&held.get(*id).unwrap()[..], &bytes[..]);
            }
            held.sweep().unwrap();
            let files = (0..60).filter(|id| file(folder.path(), *id).exists()).count();
            prop_assert!(!held.is_durable() || files == model.len());
        }
    }
}

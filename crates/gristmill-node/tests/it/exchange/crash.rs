//! Restarts: slices on disk, ranks that died at the worst moments, and disks that lost something.

use super::*;
use gristmill_node::holding::Holding;
use std::fs;

/// Copies a folder as it is: what a disk has after a kill.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let place = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &place);
        } else {
            fs::copy(entry.path(), place).unwrap();
        }
    }
}

/// What all slices on disk have.
fn on_disk(folder: &Path, world: u32) -> Vec<Vec<u32>> {
    let one = |rank: u32| Holding::open(&folder.join(format!("rank-{rank:05}"))).unwrap().ids();
    (0..world).map(one).collect()
}

#[test]
fn a_restart_goes_on_with_what_is_on_disk() {
    let (set, folder) = (set(60), tempfile::tempdir().unwrap());
    let whole = trained(&set, &options(3, 4, settings(0.4)), 0..5);
    let options = options(3, 4, in_folder(0.4, folder.path()));
    trained(&set, &options, 0..3);
    assert_eq!(sorted(&on_disk(folder.path(), 3).concat()), (0..60).collect::<Vec<_>>());
    let rest = ranks(&set, &options, |_, loader| {
        let loader = loader.unwrap();
        assert_eq!(loader.exchanger().unwrap().resumes_at(), 3);
        (3..5).map(|epoch| train(&loader, epoch, usize::MAX).unwrap()).collect::<Vec<_>>()
    });
    for (whole, rest) in whole.iter().zip(&rest) {
        for (whole, rest) in whole[3..].iter().zip(rest) {
            assert_eq!((&whole.batches, &whole.held), (&rest.batches, &rest.held));
            assert_eq!(rest.report.exchange.as_ref().unwrap().refilled, 0);
        }
    }
    // An older checkpoint: what was sent since then comes from the store.
    let older = ranks(&set, &options, |_, loader| train(&loader.unwrap(), 2, usize::MAX).unwrap());
    for (whole, older) in whole.iter().zip(&older) {
        assert_eq!((&whole[2].batches, &whole[2].held), (&older.batches, &older.held));
        assert!(older.report.exchange.as_ref().unwrap().refilled > 0);
    }
    // Other ranks than before: what fits is kept, the rest is read, nothing else stays.
    let two = LoaderOptions { shape: Shape { world: 2, ..options.shape }, ..options.clone() };
    let seen = trained(&set, &two, 0..1);
    assert!(seen.iter().all(|seen| seen[0].report.exchange.as_ref().unwrap().refilled < 30));
    assert_eq!(sorted(&on_disk(folder.path(), 2).concat()), (0..60).collect::<Vec<_>>());
}

#[test]
fn a_rank_that_died_before_its_commit_follows_the_others() {
    for selects in [false, true] {
        let (set, folder) = (set(60), tempfile::tempdir().unwrap());
        let mut options = options(3, 4, in_folder(0.4, folder.path()));
        if selects {
            options.selection.families = FamilyUse::Remove;
        }
        let slice = folder.path().join("rank-00001");
        let saved = folder.path().join("saved");
        let before = ranks(&set, &options, |_, loader| {
            let loader = loader.unwrap();
            train(&loader, 0, usize::MAX).unwrap();
            train(&loader, 1, usize::MAX).unwrap().held
        });
        // Rank 1 as if it had died when the others committed epoch 2: its journal is that of before, but what came and
        // the next owners are there.
        let journal = fs::read(slice.join("slice.json")).unwrap();
        let after = ranks(&set, &options, |rank, loader| {
            let loader = loader.unwrap();
            if selects {
                // Nobody restored a selection here, so the epochs go on from the state of the slices.
                assert_eq!(loader.exchanger().unwrap().resumes_at(), 2);
            }
            let held = train(&loader, 2, usize::MAX).unwrap().held;
            if rank == 1 {
                copy(&slice, &saved);
            }
            held
        });
        fs::remove_dir_all(&slice).unwrap();
        fs::rename(&saved, &slice).unwrap();
        fs::write(slice.join("slice.json"), journal).unwrap();
        let crashed = Holding::open(&slice).unwrap();
        for id in before[1].iter().filter(|id| !after[1].contains(id)) {
            crashed.put(*id, &content(*id)).unwrap();
        }
        drop(crashed);
        let seen = ranks(&set, &options, |_, loader| {
            let loader = loader.unwrap();
            assert_eq!(loader.exchanger().unwrap().resumes_at(), 3);
            train(&loader, 3, usize::MAX).unwrap()
        });
        assert!(seen.iter().all(|seen| seen.report.exchange.as_ref().unwrap().refilled == 0));
        assert_eq!(sorted(&on_disk(folder.path(), 3).concat()), (0..60).collect::<Vec<_>>());
    }
}

#[test]
fn what_a_disk_lost_comes_from_the_store() {
    let (set, folder) = (set(60), tempfile::tempdir().unwrap());
    let whole = trained(&set, &options(3, 4, settings(0.4)), 0..3);
    let options = options(3, 4, in_folder(0.4, folder.path()));
    trained(&set, &options, 0..1);
    let slices = on_disk(folder.path(), 3);
    let file =
        |rank: usize, id: u32| folder.path().join(format!("rank-{rank:05}/{:02x}/{id:08x}", id & 0xff));
    for id in &slices[0][..3] {
        fs::remove_file(file(0, *id)).unwrap();
    }
    for id in &slices[1] {
        // Every one of rank 1 is cut short: found out when it is read, or sent.
        let bytes = fs::read(file(1, *id)).unwrap();
        fs::write(file(1, *id), &bytes[..bytes.len() - 1]).unwrap();
    }
    fs::remove_dir_all(folder.path().join("rank-00002")).unwrap();
    let seen = trained(&set, &options, 1..3);
    for (rank, (whole, seen)) in whole.iter().zip(&seen).enumerate() {
        assert_eq!((&whole[1].batches, &whole[2].batches), (&seen[0].batches, &seen[1].batches));
        assert_eq!(whole[2].held, seen[1].held, "the slices are whole again");
        let first = seen[0].report.exchange.as_ref().unwrap();
        let expected = [(3, 0), (0, 20), (20, 0)][rank];
        assert_eq!((first.refilled, first.missed.min(20)), expected, "rank {rank}: {first:?}");
    }
}

#[test]
fn a_stopped_fill_goes_on_where_it_was() {
    let (set, folder) = (set(60), tempfile::tempdir().unwrap());
    let options = options(3, 4, in_folder(0.4, folder.path()));
    let stopped = ranks(&set, &options, |_, loader| {
        let loader = loader.unwrap();
        loader.exchanger().unwrap().fill(0, &mut |at| at.done < 7).unwrap_err().to_string()
    });
    assert!(stopped.iter().all(|error| error.contains("stopped while filling")), "{stopped:?}");
    let filled = ranks(&set, &options, |_, loader| {
        let loader = loader.unwrap();
        let filled = loader.exchanger().unwrap().fill(0, &mut |_| true).unwrap();
        train(&loader, 0, usize::MAX).unwrap();
        filled
    });
    assert!(filled.iter().all(|filled| filled.kept >= 7 && filled.kept + filled.read == 20), "{filled:?}");
}

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
                loader.exchanger().unwrap().sweep();
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

/// Ranks whose messages are moved by hand, so that they can be stopped anywhere.
fn by_hand(set: &DataSet, options: &LoaderOptions) -> Vec<Loader> {
    let loader = |rank| {
        let options = LoaderOptions { shape: Shape { rank, ..options.shape }, ..options.clone() };
        Loader::new(Arc::new(set.beside()), None, options).unwrap()
    };
    let loaders: Vec<Loader> = (0..options.shape.world).map(loader).collect();
    let said: Vec<Vec<u8>> = loaders.iter().map(|loader| loader.exchanger().unwrap().pledge()).collect();
    loaders.iter().for_each(|loader| loader.exchanger().unwrap().agree(&said).unwrap());
    loaders
}

/// Begins an epoch on all ranks, and trains it.
fn begin(loaders: &[Loader], epoch: u64) {
    for loader in loaders {
        let mut running = loader.epoch(epoch, 0).unwrap();
        while running.next_batch().unwrap().is_some() {}
    }
}

/// Moves all messages of an epoch.
fn exchange(loaders: &[Loader]) {
    let ranks: Vec<_> = loaders.iter().map(|loader| loader.exchanger().unwrap()).collect();
    let due: Vec<_> = ranks.iter().map(|rank| rank.due(u32::MAX).unwrap()).collect();
    for (from, due) in due.iter().enumerate() {
        due.sends.iter().for_each(|one| ranks[one.peer as usize].take(from as u32, one.tag, &one.bytes));
    }
}

/// Commits an epoch on all ranks, without tidying up after it.
fn conclude(loaders: &[Loader]) {
    let ranks: Vec<_> = loaders.iter().map(|loader| loader.exchanger().unwrap()).collect();
    let said: Vec<Vec<u8>> = ranks.iter().map(|rank| rank.settle()).collect();
    ranks.iter().for_each(|rank| assert!(rank.conclude(&said).unwrap().committed));
}

#[test]
fn a_kill_between_the_commit_and_the_sweep_loses_and_doubles_nothing() {
    let (set, folder) = (set(60), tempfile::tempdir().unwrap());
    let whole = trained(&set, &options(3, 4, settings(0.4)), 0..5);
    let place = |name: &str| folder.path().join(name);
    let held = |name: &str| on_disk(&place(name), 3);
    let slices = place("slices");
    let loaders = by_hand(&set, &options(3, 4, in_folder(0.4, &slices)));
    for epoch in 0..2 {
        begin(&loaders, epoch);
        exchange(&loaders);
        conclude(&loaders);
        if epoch == 0 {
            loaders.iter().for_each(|loader| loader.exchanger().unwrap().sweep());
        }
    }
    // All have committed epoch 1, and nobody has written it down or deleted anything; nor does the next epoch wait for it.
    copy(&slices, &place("committed"));
    begin(&loaders, 2);
    copy(&slices, &place("begun"));
    loaders[1].exchanger().unwrap().sweep();
    copy(&slices, &place("one swept"));
    // There is no room for what comes until what was sent is gone, so that waits.
    exchange(&loaders);
    copy(&slices, &place("exchanged"));
    conclude(&loaders);
    copy(&slices, &place("committed again"));
    drop(loaders);
    for (name, resumes_at, files) in [
        ("committed", 1, [28, 28, 28]),
        ("begun", 1, [28, 28, 28]),
        ("one swept", 2, [28, 20, 28]),
        ("exchanged", 2, [28, 28, 28]),
        ("committed again", 2, [28, 28, 28]),
    ] {
        let there = held(name);
        assert_eq!(there.iter().map(Vec::len).collect::<Vec<_>>(), files, "{name}");
        let mut all = sorted(&there.concat());
        all.dedup();
        assert_eq!(all, (0..60).collect::<Vec<_>>(), "{name}: some rank has each");
        let options = options(3, 4, in_folder(0.4, &place(name)));
        let seen = ranks(&set, &options, |_, loader| {
            let loader = loader.unwrap();
            assert_eq!(loader.exchanger().unwrap().resumes_at(), resumes_at, "{name}");
            (resumes_at..5).map(|epoch| train(&loader, epoch, usize::MAX).unwrap()).collect::<Vec<_>>()
        });
        for (whole, seen) in whole.iter().zip(&seen) {
            for (whole, seen) in whole[resumes_at as usize..].iter().zip(seen) {
                assert_eq!((&whole.batches, &whole.held), (&seen.batches, &seen.held), "{name}");
                let swap = seen.report.exchange.as_ref().unwrap();
                assert_eq!((swap.refilled, swap.missed), (0, 0), "{name}");
                assert!(seen.peak <= 28, "{name}");
            }
        }
        assert_eq!(sorted(&held(name).concat()), (0..60).collect::<Vec<_>>(), "{name}: each once");
    }
}

#[test]
fn a_journal_that_cannot_be_written_is_every_ranks_error_and_nothing_is_deleted() {
    let (set, folder) = (set(60), tempfile::tempdir().unwrap());
    let loaders = by_hand(&set, &options(3, 4, in_folder(0.4, folder.path())));
    begin(&loaders, 0);
    exchange(&loaders);
    conclude(&loaders);
    // A folder in the place of the file that would become the journal.
    fs::create_dir(folder.path().join("rank-00002/slice.part")).unwrap();
    begin(&loaders, 1);
    exchange(&loaders);
    let ranks: Vec<_> = loaders.iter().map(|loader| loader.exchanger().unwrap()).collect();
    let said: Vec<Vec<u8>> = ranks.iter().map(|rank| rank.settle()).collect();
    let errors: Vec<String> =
        ranks.iter().map(|rank| rank.conclude(&said).unwrap_err().to_string()).collect();
    assert!(
        errors.iter().all(|error| error.contains("failed on rank 2: cannot write the journal")),
        "{errors:?}"
    );
    drop(loaders);
    assert_eq!(on_disk(folder.path(), 3)[2].len(), 28);
    fs::remove_dir(folder.path().join("rank-00002/slice.part")).unwrap();
    let seen = trained(&set, &options(3, 4, in_folder(0.4, folder.path())), 1..2);
    assert!(seen.iter().all(|seen| seen[0].report.exchange.as_ref().unwrap().refilled == 0));
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
fn a_run_that_cannot_go_on_says_so() {
    let (set, folder) = (set(60), tempfile::tempdir().unwrap());
    let options = options(3, 4, in_folder(0.4, folder.path()));
    let notes = |options: &LoaderOptions, epoch: u64| -> Vec<Vec<String>> {
        let seen = trained(&set, options, epoch..epoch + 1);
        seen.iter().map(|seen| seen[0].report.exchange.as_ref().unwrap().notes.clone()).collect()
    };
    let none = vec![Vec::<String>::new(); 3];
    let all = |notes: &[Vec<String>], words: &str| {
        let fits = |notes: &Vec<String>| notes.len() == 1 && notes[0].contains(words);
        assert!(notes.iter().all(fits), "{words}: {notes:?}");
    };
    assert_eq!(notes(&options, 0), none);
    assert_eq!(notes(&options, 1), none);
    // The slices of two ranks, dealt out anew to three from a state that is lost: one that has no slice cannot follow.
    let two = LoaderOptions { shape: Shape { world: 2, ..options.shape }, ..options.clone() };
    all(
        &notes(&two, 0),
        "those of a run with another seed, number of ranks or exchange, ready for its epoch 2",
    );
    let saved = ranks(&set, &two, |_, loader| loader.unwrap().exchanger().unwrap().state());
    ranks(&set, &options, |_, loader| {
        let loader = loader.unwrap();
        loader.exchanger().unwrap().restore(&saved[0]).unwrap();
        train(&loader, 1, usize::MAX).unwrap();
    });
    fs::remove_dir_all(folder.path().join("rank-00001")).unwrap();
    ranks(&set, &options, |_, loader| assert_eq!(loader.unwrap().exchanger().unwrap().resumes_at(), 0));
    all(&notes(&options, 0), "ready for epoch 2, but rank 1 cannot get there without a saved state");
    // A share of less than one sample.
    let little = super::options(3, 4, settings(0.01));
    all(&notes(&little, 0), "a fraction of 0.01 of 20 samples is less than one");
    assert_eq!(notes(&super::options(3, 4, settings(0.0)), 0), none, "who wants nothing swapped knows");
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

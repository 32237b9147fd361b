//! What goes wrong: every rank gets the same clear error, in bounded time.

use super::*;
use gristmill_node::Kind;
use gristmill_node::store::{ThrottleOptions, Throttled};
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

/// The errors of all ranks, which must be the same.
fn same(errors: &[String]) -> &str {
    assert!(errors.iter().all(|error| *error == errors[0]), "{errors:#?}");
    &errors[0]
}

/// What one rank has otherwise.
type Change = fn(u32, &mut LoaderOptions);

#[test]
fn ranks_that_differ_are_told() {
    let set = set(40);
    let other = super::set(44);
    let changes: [(&str, Change); 4] = [
        ("loader.seed is 11 on rank 0 but 12 on rank 2", |rank, options| {
            options.seed += u64::from(rank == 2);
        }),
        ("exchange.fraction is Fixed(0.3) on rank 0 but Fixed(0.4) on ranks 1 and 2", |rank, options| {
            options.exchange = Some(settings(if rank == 0 { 0.3 } else { 0.4 }));
        }),
        ("loader.batch is 5 on rank 0 but 6 on rank 1", |rank, options| {
            options.shape.batch += u32::from(rank == 1);
        }),
        ("the number of samples is 40 on rank 0 but 44 on rank 1", |_, _| {}),
    ];
    for (at, (expect, change)) in changes.into_iter().enumerate() {
        let ends = Local::ranks(3, None);
        let errors: Vec<String> = std::thread::scope(|scope| {
            let threads: Vec<_> = ends
                .into_iter()
                .map(|end| {
                    let rank = end.rank();
                    let mut options = options(3, 5, settings(0.3));
                    options.shape.rank = rank;
                    change(rank, &mut options);
                    let set = Arc::new(if at == 3 && rank == 1 { other.beside() } else { set.beside() });
                    scope.spawn(move || {
                        let loader = Loader::new(set, None, options).unwrap();
                        loader.with_transport(Box::new(end)).unwrap_err().to_string()
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(same(&errors).contains(expect), "{}", errors[0]);
    }
}

#[test]
fn what_cannot_be_is_said_at_once() {
    let set = set(6);
    let error = |options: LoaderOptions| Loader::new(Arc::new(set.beside()), None, options).unwrap_err();
    let limited = ExchangeSettings { message_bytes_max: 100, ..settings(0.3) };
    let scored = ExchangeSettings { choose: Choose::Importance, ..settings(0.3) };
    for (options, expect) in [
        (options(1, 4, settings(0.3)), "an exchange needs at least 2 ranks"),
        (options(7, 4, settings(0.3)), "7 ranks cannot each hold a slice of 6 samples"),
        (options(2, 4, settings(1.5)), "fraction is 1.5"),
        (options(2, 4, settings(f64::NAN)), "fraction is NaN"),
        (options(2, 4, limited), "over exchange.message_bytes_max = 100"),
        (options(2, 4, scored), "needs scores"),
    ] {
        let error = error(options);
        assert!(error.to_string().contains(expect), "{error}");
        assert!(error.kind() == Kind::Config && !error.to_string().is_empty());
    }
    let loader = Loader::new(Arc::new(set.beside()), None, options(2, 4, settings(0.3))).unwrap();
    let error = loader.epoch(0, 0).unwrap_err();
    assert!(error.to_string().contains("the ranks have not agreed"), "{error}");
    let again = Loader::new(loader.shared_set(), None, options(2, 4, settings(0.3))).unwrap_err();
    assert!(again.to_string().contains("another loader exchanges"), "{again}");
    let end = Local::ranks(3, None).remove(1);
    let error = loader.with_transport(Box::new(end)).unwrap_err();
    assert!(error.to_string().contains("rank 0 of 2, but local says that this is rank 1 of 3"), "{error}");
}

#[test]
fn a_second_process_on_a_slice_is_refused_on_every_rank() {
    let (set, folder) = (set(40), tempfile::tempdir().unwrap());
    let options = options(3, 5, in_folder(0.3, folder.path()));
    let taken = gristmill_node::holding::Holding::open(&folder.path().join("rank-00001")).unwrap();
    let errors = ranks(&set, &options, |_, loader| loader.unwrap_err().to_string());
    let error = same(&errors);
    assert!(
        error.contains("rank 1 cannot take part") && error.contains("in use by another process"),
        "{error}"
    );
    drop(taken);
    trained(&set, &options, 0..1);
    // The slices of another data set are not touched.
    let errors = ranks(&super::set(44), &options, |_, loader| loader.unwrap_err().to_string());
    assert!(same(&errors).contains("has the slice of another data set"), "{}", errors[0]);
}

#[test]
fn a_rank_that_leaves_is_named_soon() {
    let set = set(60);
    let start = Instant::now();
    let errors = ranks(&set, &options(3, 2, settings(0.5)), |rank, loader| {
        let loader = loader.unwrap();
        let mut running = loader.epoch(0, 0).unwrap();
        for batch in 0..100 {
            if rank == 1 && batch == 3 {
                return None;
            }
            match running.next_batch() {
                Ok(Some(_)) => std::thread::sleep(Duration::from_millis(5)),
                Ok(None) => return Some("no error".into()),
                Err(error) => return Some(error.to_string()),
            }
        }
        Some("no end".into())
    });
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
    let errors: Vec<String> = errors.into_iter().flatten().collect();
    assert!(errors.len() == 2 && errors.iter().all(|error| error.contains("rank 1 left")), "{errors:?}");
}

#[test]
fn a_rank_that_hangs_is_named_after_the_patience() {
    let set = set(60);
    let patience = Duration::from_secs(2);
    let exchange = ExchangeSettings { patience_ms: 2_000, ..settings(0.5) };
    let errors = ranks(&set, &options(3, 30, exchange), |rank, loader| {
        let loader = loader.unwrap();
        let mut running = loader.epoch(0, 0).unwrap();
        if rank == 2 {
            // It never asks for its batches, so it never sends.
            std::thread::sleep(3 * patience);
            return None;
        }
        let start = Instant::now();
        loop {
            match running.next_batch() {
                Ok(Some(_)) => {}
                Ok(None) => return Some(("no error".to_string(), start.elapsed())),
                Err(error) => return Some((error.to_string(), start.elapsed())),
            }
        }
    });
    let errors: Vec<(String, Duration)> = errors.into_iter().flatten().collect();
    let named = |error: &str| error.contains("messages of rank 2 did not arrive");
    assert!(errors.len() == 2 && errors.iter().all(|(error, _)| named(error)), "{errors:?}");
    // Nobody waits for it twice: for its messages, and again to hear what it says. The rest is for a busy machine.
    let soon = |waited: &Duration| (patience * 3 / 4..patience * 3 / 2).contains(waited);
    assert!(errors.iter().all(|(_, waited)| soon(waited)), "{errors:?}");
}

#[test]
fn ranks_in_different_epochs_are_told() {
    let set = set(40);
    let errors = ranks(&set, &options(3, 5, settings(0.3)), |rank, loader| {
        let loader = loader.unwrap();
        loader.epoch(u64::from(rank == 1), 0).unwrap_err().to_string()
    });
    assert!(same(&errors).contains("rank 0 is at the begin of epoch 0, but rank 1"), "{}", errors[0]);
}

/// A small disk, if this may be mounted here.
struct Disk(std::path::PathBuf);

impl Disk {
    fn mount(at: &Path, bytes: u64) -> Option<Disk> {
        fs::create_dir_all(at).ok()?;
        let size = format!("size={bytes},nr_inodes=2000");
        let done = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(at).output().ok()?;
        done.status.success().then(|| Disk(at.to_path_buf()))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).output();
    }
}

#[test]
fn a_full_disk_is_every_ranks_error() {
    // Samples of 100 KB, so that a disk can be filled to the point between a rank's share and what comes in.
    let (catalog, store) = large(24, 100_000);
    let set = DataSet::new(catalog, store, 0, &|| false).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let slice = folder.path().join("rank-00001");
    let disk = Disk::mount(&slice, 1_050_000);
    let options = options(3, 4, in_folder(1.0, folder.path()));
    let start = Instant::now();
    let errors = ranks(&set, &options, |rank, loader| {
        let loader = loader.unwrap();
        if disk.is_none() && rank == 1 {
            // No disk of its own to fill: places that cannot be written to are as good.
            loader.exchanger().unwrap().fill(0, &mut |_| true).unwrap();
            for low in 0..24 {
                let place = slice.join(format!("{low:02x}"));
                if fs::remove_dir(&place).is_ok() {
                    fs::write(place, "").unwrap();
                }
            }
        }
        let mut running = loader.epoch(0, 0).unwrap();
        loop {
            match running.next_batch() {
                Ok(Some(_)) => {}
                Ok(None) => return "no error".to_string(),
                Err(error) => return error.to_string(),
            }
        }
    });
    assert!(start.elapsed() < Duration::from_secs(15));
    let error = same(&errors);
    assert!(
        error.contains("failed on rank 1: cannot write sample") && error.contains("rank-00001"),
        "{error}"
    );
    assert!(disk.is_none() || error.contains("no space left"), "{error}");
}

#[test]
fn a_disk_that_is_too_small_for_the_slice_is_every_ranks_error() {
    let (catalog, store) = large(24, 100_000);
    let set = DataSet::new(catalog, store, 0, &|| false).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let slice = folder.path().join("rank-00001");
    let Some(_disk) = Disk::mount(&slice, 500_000) else { return };
    let start = Instant::now();
    let options = options(3, 4, in_folder(0.5, folder.path()));
    let errors = ranks(&set, &options, |_, loader| loader.unwrap().epoch(0, 0).unwrap_err().to_string());
    assert!(start.elapsed() < Duration::from_secs(15));
    let error = same(&errors);
    assert!(
        error.contains("failed on rank 1: cannot write sample") && error.contains("no space left"),
        "{error}"
    );
}

/// A data set of samples that are all this large.
fn large(samples: u32, bytes: u64) -> (Arc<Catalog>, Arc<dyn Store>) {
    let mut draft = Draft::of_files("memory:", SourceKind::Folder, Encoding::Sniffed);
    draft.set_classes(vec!["all".into()]);
    let mut objects = Vec::new();
    for id in 0..samples {
        let path = format!("all/{id:05}");
        draft.push_file(&ObjectInfo { path: path.clone(), bytes, version: 1 }, 0).unwrap();
        objects.push((path, Bytes::from(vec![id as u8; bytes as usize])));
    }
    (Arc::new(draft.into_catalog().unwrap()), Arc::new(MemoryStore::new(objects)))
}

#[test]
fn a_rank_that_has_more_to_read_is_waited_for() {
    let (catalog, store) = catalog(40);
    let fast = DataSet::new(Arc::clone(&catalog), Arc::clone(&store), 0, &|| false).unwrap();
    // 20 samples at 8 reads per second take some three times the patience.
    let throttle = ThrottleOptions { requests_per_s: Some(8), ..ThrottleOptions::default() };
    let store = Arc::new(Throttled::new(store, throttle).unwrap());
    let slow = DataSet::new(catalog, store, 0, &|| false).unwrap();
    let began = Instant::now();
    let trained: Vec<usize> = std::thread::scope(|scope| {
        let threads: Vec<_> = Local::ranks(2, None)
            .into_iter()
            .map(|end| {
                let rank = end.rank();
                let patient = ExchangeSettings { patience_ms: 800, ..settings(0.3) };
                let mut options = options(2, 5, patient);
                options.shape.rank = rank;
                let set = Arc::new(if rank == 1 { slow.beside() } else { fast.beside() });
                scope.spawn(move || {
                    let loader =
                        Loader::new(set, None, options).unwrap().with_transport(Box::new(end)).unwrap();
                    train(&loader, 0, usize::MAX).unwrap().ids().len()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(trained, [20, 20]);
    assert!(
        began.elapsed() > Duration::from_millis(1_600),
        "{:?}: it was no longer than the patience",
        began.elapsed()
    );
}

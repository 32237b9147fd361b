//! Ranks as processes under a real `mpirun`, against ranks as threads.

use crate::{Place, Ran, text};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const RANKS: u32 = 4;

/// The command under `mpirun`. Each rank notes its process in `pid.RANK`.
fn mpirun(place: &Place, ranks: u32, args: &[&str]) -> Command {
    let mut command = Command::new("mpirun");
    command
        .args(["-n", &ranks.to_string(), "--oversubscribe", "--bind-to", "none", "sh", "-c"])
        .arg("echo $$ >pid.$OMPI_COMM_WORLD_RANK; exec \"$0\" \"$@\"")
        .arg(env!("CARGO_BIN_EXE_gristmill"))
        .args(args)
        .current_dir(place.folder.path())
        .env("GRISTMILL_CATALOG_FOLDER", place.path("catalogs"))
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command
}

/// A trace as the epochs and their lines.
fn epochs(path: &Path) -> BTreeMap<u64, Vec<String>> {
    let whole = fs::read_to_string(path).unwrap_or_default();
    let mut epochs: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    // A line that a kill cut off has not been handed over.
    for line in whole.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
        let value: serde_json::Value = serde_json::from_str(line).unwrap();
        epochs.entry(value["epoch"].as_u64().unwrap()).or_default().push(line.to_string());
    }
    epochs
}

/// Every sample once in each epoch, over all ranks.
fn check_complete(traces: &[BTreeMap<u64, Vec<String>>], samples: u64) {
    for epoch in traces[0].keys() {
        let mut ids: Vec<u64> = Vec::new();
        for line in traces.iter().flat_map(|trace| &trace[epoch]) {
            let value: serde_json::Value = serde_json::from_str(line).unwrap();
            ids.extend(value["ids"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap()));
        }
        ids.sort_unstable();
        assert!(ids.into_iter().eq(0..samples), "epoch {epoch}");
    }
}

fn of_ranks(place: &Place, name: &str) -> Vec<PathBuf> {
    (0..RANKS).map(|rank| place.path(&format!("{name}.{rank}"))).collect()
}

#[test]
fn ranks_under_mpirun_read_what_threads_read() {
    let place = Place::new();
    let photos = place.photos(120);
    for part in ["images-idx3", "labels-idx1"] {
        // Unpacked: a slice is filled sample by sample.
        let name = format!("fashion-mnist-1000-test-{part}-ubyte");
        let packed = fs::File::open(gristmill_testdata::shippable().join(format!("{name}.gz"))).unwrap();
        let mut out = fs::File::create(place.path(&name)).unwrap();
        std::io::copy(&mut flate2::read::GzDecoder::new(packed), &mut out).unwrap();
    }
    let idx = place.path("fashion-mnist-1000-test-images-idx3-ubyte");
    for (data, recipe, samples) in [(&photos, "imagenet-train", 120), (&idx, "mnist", 1_000)] {
        let base = [
            "bench",
            "load",
            text(data),
            "--recipe",
            recipe,
            "--batch",
            "7",
            "--seed",
            "5",
            "--epochs",
            "3",
            "--threads",
            "1",
            "--exchange",
            "0.3",
            "--json",
        ];
        place.run(&[&base[..], &["--ranks", "4", "--batches-out", "threads"]].concat()).good();
        let hold = place.path("slices");
        let more = ["--hold", text(&hold), "--batches-out", "processes"];
        let ran = Ran::of(&mpirun(&place, RANKS, &[&base[..], &more].concat()).output().unwrap()).good();
        // Only the first rank prints.
        for (word, count) in [("\"total\":true", 3), ("\"rank\":", 3 * RANKS as usize)] {
            assert_eq!(ran.out.matches(word).count(), count, "{}", ran.out);
        }
        let mut traces = Vec::new();
        for (threads, processes) in of_ranks(&place, "threads").iter().zip(of_ranks(&place, "processes")) {
            assert_eq!(fs::read(threads).unwrap(), fs::read(&processes).unwrap(), "{}", processes.display());
            traces.push(epochs(&processes));
        }
        check_complete(&traces, samples);
        fs::remove_dir_all(hold).unwrap();
    }
}

#[test]
fn a_rank_that_is_killed_costs_no_sample() {
    let place = Place::new();
    let photos = place.photos(120);
    let base = [
        "bench",
        "load",
        text(&photos),
        "--recipe",
        "imagenet-train",
        "--batch",
        "3",
        "--epochs",
        "4",
        "--threads",
        "1",
        "--exchange",
        "0.3",
        "--json",
    ];
    place.run(&[&base[..], &["--ranks", "4", "--batches-out", "whole"]].concat()).good();
    let whole: Vec<_> = of_ranks(&place, "whole").iter().map(|path| epochs(path)).collect();
    let hold = place.path("slices");
    let on_disk = ["--hold", text(&hold), "--step-ms", "20"];

    // Until the middle of epoch 1: its exchange is under way, and that of epoch 0 is over.
    let mut command = mpirun(&place, RANKS, &[&base[..], &on_disk, &["--batches-out", "killed"]].concat());
    let mut job = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let give_up = Instant::now() + Duration::from_mins(1);
    let killed = of_ranks(&place, "killed");
    while epochs(&killed[2]).get(&1).is_none_or(|lines| lines.len() < 4) {
        assert!(Instant::now() < give_up && job.try_wait().unwrap().is_none(), "it did not come so far");
        std::thread::sleep(Duration::from_millis(2));
    }
    let process = fs::read_to_string(place.path("pid.2")).unwrap();
    assert!(Command::new("kill").args(["-9", process.trim()]).status().unwrap().success());
    assert!(!job.wait().unwrap().success(), "mpirun ends the others when one dies");

    let from = ["--from-epoch", "1", "--epochs", "3"];
    let again: Vec<&str> = base.iter().copied().filter(|word| !["--epochs", "4"].contains(word)).collect();
    let args = [&again[..], &from, &on_disk, &["--batches-out", "restarted"]].concat();
    Ran::of(&mpirun(&place, RANKS, &args).output().unwrap()).good();
    let mut traces = Vec::new();
    for (rank, path) in of_ranks(&place, "restarted").iter().enumerate() {
        let (before, after) = (epochs(&killed[rank]), epochs(path));
        assert_eq!(after.keys().copied().collect::<Vec<_>>(), [1, 2, 3]);
        assert!(!before[&1].is_empty() && before[&1] == after[&1][..before[&1].len()], "rank {rank}");
        let mut together = after;
        together.insert(0, before[&0].clone());
        assert_eq!(together, whole[rank], "rank {rank}");
        traces.push(together);
    }
    check_complete(&traces, 120);
}

#[test]
fn what_ranks_differ_in_is_told_to_all() {
    let place = Place::new();
    let photos = place.photos(40);
    let args = ["bench", "load", text(&photos), "--recipe", "imagenet-train", "--exchange", "0.3", "--json"];
    let mut command = mpirun(&place, RANKS, &args);
    // The third rank has another seed.
    let program = "seed=1; [ $OMPI_COMM_WORLD_RANK = 2 ] && seed=2; exec \"$0\" \"$@\" --seed $seed";
    let words: Vec<_> = command.get_args().map(std::ffi::OsStr::to_os_string).collect();
    let mut other = Command::new("mpirun");
    other.current_dir(place.folder.path()).env("GRISTMILL_CATALOG_FOLDER", place.path("catalogs"));
    other.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    other.args(
        words.iter().map(|word| {
            if word.to_string_lossy().starts_with("echo") { program.into() } else { word.clone() }
        }),
    );
    let ran = Ran::of(&other.output().unwrap());
    assert_ne!(ran.code, Some(0));
    let told = ran.err.matches("loader.seed is 1 on rank 0 but 2 on rank 2").count();
    assert_eq!(told, RANKS as usize, "{}", ran.err);
    // One alone has nobody to exchange with.
    command = mpirun(&place, 1, &args);
    let ran = Ran::of(&command.output().unwrap());
    assert!(ran.err.contains("at least 2 ranks"), "{}", ran.err);
}

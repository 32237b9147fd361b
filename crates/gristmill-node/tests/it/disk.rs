//! The disk tier as a process meets it: killed while writing, a full, read-only or vanished disk, a folder in use.
//!
//! The test binary starts itself again as the process that is killed or limited; `writes_until_it_is_killed` and
//! `writes_under_a_limit` do nothing unless they are asked to by the environment.

use bytes::Bytes;
use gristmill_core::SampleId;
use gristmill_node::catalog::Digest;
use gristmill_node::disk::{Disk, DiskOptions};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const FOLDER: &str = "GRISTMILL_TEST_DISK_FOLDER";
const BYTES_MAX: u64 = 8 << 20;
const SAMPLES: u32 = 4_000;

fn size(id: SampleId) -> u64 {
    1_000 + u64::from(id.0) % 5_000
}

fn content(id: SampleId) -> Bytes {
    let seed = u64::from(id.0).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (0..size(id)).map(|i| (seed.rotate_left(i as u32 % 64) ^ i) as u8).collect::<Vec<u8>>().into()
}

fn open(folder: &Path, bytes_max: u64) -> gristmill_node::Result<Disk> {
    let options = DiskOptions { folder: folder.into(), bytes_max, queue_bytes_max: 1 << 20 };
    Disk::open(&options, Digest(99), SAMPLES, size)
}

fn again(test: &str, folder: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]).env(FOLDER, folder);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Keeps the samples that it took in last, as many as fit; each turn removes the oldest.
fn churn(disk: &Disk, from: u32, turns: u32) {
    let mut held: std::collections::VecDeque<SampleId> = disk.ids().into();
    let mut bytes: u64 = held.iter().map(|id| size(*id)).sum();
    for turn in 0..turns {
        let id = SampleId((from + turn * 7) % SAMPLES);
        if held.contains(&id) {
            continue;
        }
        while bytes + size(id) > disk.usable_bytes() {
            let oldest = held.pop_front().unwrap();
            bytes -= size(oldest);
            disk.remove(oldest);
        }
        while !disk.put(id, content(id)) {
            disk.flush();
        }
        held.push_back(id);
        bytes += size(id);
    }
}

#[test]
fn writes_until_it_is_killed() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let disk = open(&folder, BYTES_MAX).unwrap();
    fs::write(folder.join("started"), "").unwrap();
    // Far more than a minute: a child whose parent died ends by itself.
    let end = Instant::now() + Duration::from_mins(1);
    let mut from = 0;
    while Instant::now() < end {
        churn(&disk, from, 1_000);
        from += 1_013;
    }
}

fn killed_after(folder: &Path, wait: Duration) {
    let mut child: Child = again("disk::writes_until_it_is_killed", folder).spawn().unwrap();
    let give_up = Instant::now() + Duration::from_secs(30);
    while !folder.join("started").exists() {
        assert!(Instant::now() < give_up && child.try_wait().unwrap().is_none(), "it does not start");
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(wait);
    child.kill().unwrap();
    child.wait().unwrap();
    fs::remove_file(folder.join("started")).unwrap();
}

#[test]
fn killed_at_any_moment_it_comes_back_warm_and_right() {
    let folder = tempfile::tempdir().unwrap();
    let mut wait_ms = 1;
    for turn in 0..20 {
        // Odd lengths, so that the kills fall into writing, ending, copying and deleting.
        wait_ms = (wait_ms * 17 + 5) % 83;
        killed_after(folder.path(), Duration::from_millis(wait_ms));
        let disk = open(folder.path(), BYTES_MAX).unwrap();
        let ids = disk.ids();
        let right = ids.iter().filter(|id| {
            let found = disk.get(**id);
            assert!(found.as_ref().is_none_or(|bytes| *bytes == content(**id)), "wrong bytes for {id}");
            found.is_some()
        });
        let right_bytes: u64 = right.map(|id| size(*id)).sum();
        assert_eq!(disk.counts().damaged, 0, "a kill loses what is not written and damages nothing");
        assert!(disk.counts().file_bytes <= BYTES_MAX);
        // Once it has been full, it comes back nearly full.
        let warm = turn < 10 || right_bytes * 5 > disk.usable_bytes() * 4;
        assert!(warm, "turn {turn}: {right_bytes} of {} bytes", disk.usable_bytes());
        drop(disk);
    }
}

#[test]
fn a_folder_in_use_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let first = open(folder.path(), BYTES_MAX).unwrap();
    let error = open(folder.path(), BYTES_MAX).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("in use") && text.contains(folder.path().to_str().unwrap()), "{text}");
    drop(first);
    open(folder.path(), BYTES_MAX).unwrap();
}

#[test]
fn what_cannot_be_a_cache_folder_is_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let check = |path: PathBuf, bytes_max: u64, expect: &[&str]| {
        let error = open(&path, bytes_max).unwrap_err();
        let text = format!("{error}; {}", error.remedy().unwrap_or_default());
        expect.iter().for_each(|part| assert!(text.contains(part), "{part:?} in {text}"));
    };
    check(folder.path().join("a/b"), BYTES_MAX, &["a/b", "no such file", "mounted"]);
    fs::write(folder.path().join("file"), "").unwrap();
    check(folder.path().join("file"), BYTES_MAX, &["is a file, not a folder"]);
    check(folder.path().join("small"), 900, &["900 bytes", "smallest sample of 1000 bytes"]);
    check(folder.path().join("large"), 1 << 60, &["bytes free", "at most"]);
    // Nobody may make files here, not even the superuser.
    check("/proc/self".into(), BYTES_MAX, &["write to the cache folder /proc/self"]);
    assert!(open(&folder.path().join("new"), BYTES_MAX).is_ok(), "the last part is made");
}

/// After the disk failed: one reason, no more writing, and everything that was written is served.
fn check_read_only(disk: &Disk, expect: &str) {
    let counts = disk.counts();
    let reason = counts.off.clone().unwrap_or_default();
    assert!(reason.contains(expect), "{counts:?}");
    assert!(!disk.put(SampleId(SAMPLES - 1), content(SampleId(SAMPLES - 1))));
    let (ids, lost) = (disk.ids(), disk.take_lost());
    assert!(!ids.is_empty() && !lost.is_empty(), "{} there, {} lost", ids.len(), lost.len());
    assert!(lost.iter().all(|id| !ids.contains(id) && disk.get(*id).is_none()));
    for id in ids {
        assert_eq!(disk.get(id), Some(content(id)), "{id}");
    }
    assert_eq!(disk.counts().damaged, 0);
}

fn fill(disk: &Disk) {
    for id in (0..SAMPLES).map(SampleId).take_while(|_| disk.counts().off.is_none()) {
        if !disk.put(id, content(id)) {
            disk.flush();
        }
    }
    disk.flush();
}

#[test]
fn a_folder_that_vanishes_ends_the_writing_only() {
    let folder = tempfile::tempdir().unwrap();
    let disk = open(folder.path(), BYTES_MAX).unwrap();
    (0..100).map(SampleId).for_each(|id| assert!(disk.put(id, content(id))));
    disk.flush();
    fs::remove_dir_all(folder.path()).unwrap();
    fill(&disk);
    check_read_only(&disk, "no such file");
}

#[test]
fn writes_under_a_limit() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let disk = open(&folder, BYTES_MAX).unwrap();
    // Some are written before the write that fails.
    (0..5).map(SampleId).for_each(|id| assert!(disk.put(id, content(id))));
    disk.flush();
    fill(&disk);
    check_read_only(&disk, "too large");
    drop(disk);
    assert!(!open(&folder, BYTES_MAX).unwrap().ids().is_empty());
    fs::write(folder.join("passed"), "").unwrap();
}

#[test]
fn a_write_that_fails_ends_the_writing_only() {
    // A limit of 48 KiB per file makes writes fail in the middle of a record, below the size of a segment.
    let folder = tempfile::tempdir().unwrap();
    let exe = std::env::current_exe().unwrap();
    let script = "trap '' XFSZ; ulimit -f 96; exec \"$0\" disk::writes_under_a_limit --exact --nocapture";
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).arg(exe).env(FOLDER, folder.path());
    let out = shell.output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success() && folder.path().join("passed").exists(), "{text}");
}

#[test]
fn a_full_disk_ends_the_writing_only() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=12m", "tmpfs"]).arg(path).output();
    if !mounted.is_ok_and(|out| out.status.success()) {
        println!("not checked: mounting a small file system needs the superuser");
        return;
    }
    let done = std::panic::catch_unwind(|| {
        let cache = path.join("cache");
        let disk = open(&cache, BYTES_MAX).unwrap();
        // Somebody else fills the disk.
        fs::write(path.join("other"), vec![1; 8 << 20]).unwrap();
        fill(&disk);
        check_read_only(&disk, "no space left");
        drop(disk);
        let error = open(&cache, BYTES_MAX).unwrap_err();
        assert!(error.to_string().contains("no space left"), "{error}");
        fs::remove_file(path.join("other")).unwrap();
        let disk = open(&cache, BYTES_MAX).unwrap();
        disk.ids().iter().for_each(|id| assert_eq!(disk.get(*id), Some(content(*id))));
        assert!(!disk.ids().is_empty() && disk.counts().off.is_none());
        drop(disk);
        let remount = Command::new("mount").args(["-o", "remount,ro"]).arg(path).output().unwrap();
        assert!(remount.status.success());
        let error = open(&cache, BYTES_MAX).unwrap_err();
        assert!(error.to_string().contains("read-only"), "{error}");
    });
    let gone = Command::new("umount").arg(path).output().unwrap();
    assert!(gone.status.success());
    done.unwrap();
}

//! The folder of the disk tier: who may use it, what lies in it, and how much of the limit is left.
//!
//! `FOLDER/gristmill.lock` keeps a second process out. `FOLDER/DIGEST.v1/000001.seg` and so on are the segments of one
//! data set in this version's format. Folders of other data sets or versions are never touched, but they count: the
//! limit is for all that the cache has put below the folder. Files that the cache did not make are neither touched nor
//! counted.
//!
//! Only the last part of the path is made if it is missing: a disk that is not mounted should be noticed, and not
//! replaced by the disk below it.

use super::segment;
use crate::catalog::Digest;
use crate::{Error, Result};
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const LOCK: &str = "gristmill.lock";
/// What the folder is called in messages.
const NOUN: &str = "cache folder";
/// Ends the name of a data set's folder; another format has another ending.
const VERSION: &str = ".v1";
/// What is left for the file system's own needs when the free space is compared with the limit.
const SLACK_BYTES: u64 = 1 << 20;

/// A folder that this process alone uses.
#[derive(Debug)]
pub(super) struct Folder {
    /// Where the segments of the data set are.
    pub(super) path: PathBuf,
    /// Held as long as the folder is used.
    _lock: File,
    /// What other data sets and versions take.
    pub(super) other_bytes: u64,
}

impl Folder {
    /// Takes the folder `root` for the data set `digest`.
    pub(super) fn open(root: &Path, digest: Digest) -> Result<Folder> {
        make_folder(root, NOUN)?;
        let lock = lock_folder(root, NOUN)?;
        let path = root.join(format!("{digest}{VERSION}"));
        make_folder(&path, NOUN)?;
        // Asked now: a folder on a read-only disk is a sentence at the start, not a surprise at the first write.
        // The file has no name, so nothing is overwritten and nothing is left behind.
        let probe = tempfile::tempfile_in(&path).and_then(|mut file| file.write_all(b"gristmill"));
        probe.map_err(|e| Error::io("write to the cache folder", root.display(), e))?;
        let other_bytes = other_bytes(root, &path)?;
        Ok(Folder { path, _lock: lock, other_bytes })
    }

    /// The segments that are there, oldest first: number and size. Their names are ours alone; links are not.
    pub(super) fn segments(&self) -> Result<Vec<(u32, u64)>> {
        let mut found: Vec<(u32, u64)> = files(&self.path)?
            .into_iter()
            .filter_map(|(name, bytes)| Some((number(&name)?, bytes)))
            .collect();
        found.sort_unstable();
        Ok(found)
    }

    /// The first number that no name in the folder has, whatever it is a name of, and none after it.
    pub(super) fn number_next(&self) -> Result<u32> {
        let names = fs::read_dir(&self.path).map_err(|e| Error::io("list", self.path.display(), e))?;
        let names = names.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        Ok(names.filter_map(|name| number(&name)).max().map_or(1, |number| number + 1))
    }

    /// The file of a segment.
    pub(super) fn segment(&self, number: u32) -> PathBuf {
        self.path.join(format!("{number:06}.seg"))
    }

    /// Opens a segment that is there.
    pub(super) fn open_segment(&self, number: u32) -> Result<File> {
        let path = self.segment(number);
        let no_link = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
        let opened = OpenOptions::new().read(true).custom_flags(no_link).open(&path);
        opened.map_err(|e| Error::io("open", path.display(), e))
    }

    /// Makes a new segment with its head.
    pub(super) fn create_segment(&self, number: u32, digest: Digest) -> Result<File> {
        let path = self.segment(number);
        let failed = |e| Error::io("make", path.display(), e);
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).mode(0o600).open(&path).map_err(failed)?;
        let mut head = Vec::new();
        segment::push_head(&mut head, digest);
        segment::write(&file, &head, 0).map_err(failed)?;
        Ok(file)
    }

    /// Deletes a segment; that it is gone already is as good.
    pub(super) fn delete_segment(&self, number: u32) -> Result<()> {
        let path = self.segment(number);
        match fs::remove_file(&path) {
            Err(e) if e.kind() != ErrorKind::NotFound => Err(Error::io("delete", path.display(), e)),
            _ => Ok(()),
        }
    }

    /// Refuses a limit that the disk cannot hold; `own_bytes` are there already.
    pub(super) fn check_free(&self, bytes_max: u64, own_bytes: u64) -> Result<()> {
        let at = self.path.display();
        let stat = rustix::fs::statvfs(&self.path)
            .map_err(|e| Error::io("ask for the free space of", &at, e.into()))?;
        let free = stat.f_bavail.saturating_mul(stat.f_frsize);
        let room = free.saturating_add(own_bytes).saturating_add(self.other_bytes);
        // Some file systems have no size of their own and say nothing.
        if stat.f_blocks == 0 || bytes_max.saturating_add(SLACK_BYTES) <= room {
            return Ok(());
        }
        let most = room.saturating_sub(SLACK_BYTES);
        Err(Error::config(format!(
            "the disk cache may take {bytes_max} bytes, but the disk of {at} has {free} bytes free"
        ))
        .hint(format!("give it at most {most} bytes, free some space, or choose another disk")))
    }
}

/// Makes a folder that is called `noun` in messages, unless it is there; not those that it lies in.
pub(crate) fn make_folder(folder: &Path, noun: &str) -> Result<()> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Ok(()) => Ok(()),
        Err(e) if e.kind() == ErrorKind::AlreadyExists => {
            let is_folder = fs::metadata(folder).is_ok_and(|meta| meta.is_dir());
            let wrong = || Error::config(format!("the {noun} {} is a file, not a folder", folder.display()));
            if is_folder { Ok(()) } else { Err(wrong()) }
        }
        Err(e) if e.kind() == ErrorKind::NotFound => {
            Err(Error::io(&format!("make the {noun}"), folder.display(), e)
                .hint("make the folder that it is to lie in, or check that its disk is mounted"))
        }
        Err(e) => Err(Error::io(&format!("make the {noun}"), folder.display(), e)),
    }
}

/// Keeps other processes out of a folder as long as the file that is returned lives.
pub(crate) fn lock_folder(root: &Path, noun: &str) -> Result<File> {
    let path = root.join(LOCK);
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
    let file = file.map_err(|e| Error::io(&format!("write to the {noun}"), root.display(), e))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Error::config(format!(
            "the {noun} {} is in use by another process (it holds {LOCK})",
            root.display()
        ))
        .hint("stop that process, or give each its own folder")),
        Err(TryLockError::Error(e)) => Err(Error::io("lock", path.display(), e)),
    }
}

/// What folders with names like ours take, ours excepted.
fn other_bytes(root: &Path, own: &Path) -> Result<u64> {
    let failed = |e| Error::io("list the cache folder", root.display(), e);
    let mut bytes = 0;
    for entry in fs::read_dir(root).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let (name, path) = (entry.file_name(), entry.path());
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_folder && path != own && name.to_str().is_some_and(is_data_set) {
            bytes += files(&path)?.iter().map(|(_, bytes)| bytes).sum::<u64>();
        }
    }
    // What in our own folder has other names is not ours to delete, but it takes room.
    bytes +=
        files(own)?.iter().filter(|(name, _)| number(name).is_none()).map(|(_, bytes)| bytes).sum::<u64>();
    Ok(bytes)
}

fn is_data_set(name: &str) -> bool {
    name.split_once(".v").is_some_and(|(digest, version)| {
        digest.len() == 32
            && digest.bytes().all(|c| c.is_ascii_hexdigit())
            && !version.is_empty()
            && version.bytes().all(|c| c.is_ascii_digit())
    })
}

/// Names and sizes of the regular files of a folder.
fn files(folder: &Path) -> Result<Vec<(String, u64)>> {
    let failed = |e| Error::io("list the cache folder", folder.display(), e);
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let meta = match entry.metadata() {
            Err(e) if e.kind() == ErrorKind::NotFound => continue,
            meta => meta.map_err(failed)?,
        };
        if meta.is_file() {
            files.push((entry.file_name().to_string_lossy().into_owned(), meta.len()));
        }
    }
    Ok(files)
}

fn number(name: &str) -> Option<u32> {
    let digits = name.strip_suffix(".seg")?;
    let plain = (6..10).contains(&digits.len()) && digits.bytes().all(|c| c.is_ascii_digit());
    digits.parse().ok().filter(|number| plain && format!("{number:06}") == digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_exact_names_are_ours() {
        let ours = [("000001.seg", 1), ("123456.seg", 123_456), ("1234567.seg", 1_234_567)];
        ours.iter().for_each(|(name, expect)| assert_eq!(number(name), Some(*expect), "{name}"));
        for other in
            ["1.seg", "0000001.seg", "00000a.seg", "+00001.seg", "000001.seg~", "notes.txt", "9999999999.seg"]
        {
            assert_eq!(number(other), None, "{other}");
        }
        assert!(is_data_set(&format!("{}.v12", Digest(7))));
        for other in ["photos.v1", "0123.v1", &format!("{}", Digest(7)), &format!("{}.v", Digest(7))] {
            assert!(!is_data_set(other), "{other}");
        }
    }
}

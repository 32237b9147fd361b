//! Files below a folder.
//!
//! A read opens, reads at an offset and closes: no descriptor is kept, so a data set of ten million files costs
//! none. Reads finish on the calling thread. Deliberately not here: memory-mapping the user's files, because a
//! file that shrinks while it is mapped kills the process instead of giving an error.

use super::{ObjectInfo, Store, check_folder, check_name, read_outside};
use crate::{Error, Kind, Result};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Files below one folder.
#[derive(Debug, Clone)]
pub struct LocalStore {
    root: PathBuf,
}

impl LocalStore {
    /// The files below `root`, which must be a folder.
    pub fn new(root: impl Into<PathBuf>) -> Result<LocalStore> {
        let root = root.into();
        let meta = fs::metadata(&root).map_err(|e| Error::io("open", root.display(), e))?;
        if !meta.is_dir() {
            return Err(Error::config(format!("{} is a file, not a folder", root.display())));
        }
        let root = fs::canonicalize(&root).map_err(|e| Error::io("resolve", root.display(), e))?;
        Ok(LocalStore { root })
    }

    /// The folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    fn path(&self, object: &str) -> Result<PathBuf> {
        check_name(self, object)?;
        Ok(self.root.join(object))
    }

    fn read_now(&self, object: &str, range: Range<u64>) -> Result<Bytes> {
        let path = self.path(object)?;
        let failed = |e| Error::io("read", path.display(), e);
        // Without the flag, opening a named pipe would wait for a writer for ever; files do not know it.
        let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(&path).map_err(failed)?;
        let meta = file.metadata().map_err(failed)?;
        must_be_file(&path, &meta)?;
        // The size first: a damaged catalog must not make us allocate more than the file can fill.
        let size = meta.len();
        if range.end > size || range.start > range.end {
            return Err(read_outside(self, object, &range, size));
        }
        self.fill(&file, object, range)
    }

    /// Reads a range that was inside of the file a moment ago.
    fn fill(&self, file: &File, object: &str, range: Range<u64>) -> Result<Bytes> {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        match file.read_exact_at(&mut bytes, range.start) {
            Ok(()) => Ok(bytes.into()),
            Err(e) if e.kind() == ErrorKind::UnexpectedEof => {
                let size = file.metadata().map_or(range.start, |meta| meta.len());
                Err(read_outside(self, object, &range, size))
            }
            Err(e) => Err(Error::io("read", self.root.join(object).display(), e)),
        }
    }

    fn stat_now(&self, object: &str) -> Result<ObjectInfo> {
        let path = self.path(object)?;
        let meta = fs::metadata(&path).map_err(|e| Error::io("read", path.display(), e))?;
        must_be_file(&path, &meta)?;
        Ok(info(object.to_string(), &meta))
    }

    /// The folder of a listing with all folders above it up to the root; none when there is no such folder.
    fn folder(&self, prefix: &str) -> Result<Option<Folder>> {
        let mut folder: Option<Folder> = None;
        for part in std::iter::once("").chain(prefix.split('/').filter(|part| !part.is_empty())) {
            let parent = folder.map(Rc::new);
            let path = parent.as_ref().map_or_else(|| self.root.clone(), |parent| parent.path.join(part));
            let name = parent.as_ref().map_or_else(String::new, |parent| parent.below(part));
            let meta = match fs::metadata(&path) {
                Ok(meta) if meta.is_dir() => meta,
                Ok(_) => return Ok(None),
                Err(e) if gone(&e) => return Ok(None),
                Err(e) => return Err(Error::io("list", path.display(), e)),
            };
            folder = Some(Folder::new(path, name, &meta, parent));
        }
        Ok(folder)
    }

    fn list_now(&self, prefix: &str, visit: &mut dyn FnMut(ObjectInfo) -> Result<()>) -> Result<()> {
        check_folder(self, prefix)?;
        let Some(start) = self.folder(prefix)? else { return Ok(()) };
        let mut folders = vec![Rc::new(start)];
        while let Some(folder) = folders.pop() {
            let failed = |e| Error::io("list", folder.path.display(), e);
            for entry in fs::read_dir(&folder.path).map_err(failed)? {
                let entry = entry.map_err(failed)?;
                let name = folder.below(&utf8(&entry.file_name(), &folder.path)?);
                // Links are followed, as users lay out data sets with them; one that leads nowhere is skipped.
                let meta = match fs::metadata(entry.path()) {
                    Ok(meta) => meta,
                    Err(e) if gone(&e) => continue,
                    Err(e) => return Err(Error::io("list", entry.path().display(), e)),
                };
                if meta.is_file() {
                    visit(info(name, &meta))?;
                } else if meta.is_dir() && !folder.lies_in(&meta) {
                    folders.push(Rc::new(Folder::new(entry.path(), name, &meta, Some(folder.clone()))));
                }
            }
        }
        Ok(())
    }
}

/// A folder still to be listed, with the folders it was reached through.
struct Folder {
    path: PathBuf,
    name: String,
    device: u64,
    inode: u64,
    parent: Option<Rc<Folder>>,
}

impl Folder {
    fn new(path: PathBuf, name: String, meta: &Metadata, parent: Option<Rc<Folder>>) -> Folder {
        Folder { path, name, device: meta.dev(), inode: meta.ino(), parent }
    }

    /// The object name of `entry` in this folder.
    fn below(&self, entry: &str) -> String {
        if self.name.is_empty() { entry.to_string() } else { format!("{}/{entry}", self.name) }
    }

    /// Whether this folder is, or lies in, the folder of `meta`: a link back to it adds no file, only a loop.
    fn lies_in(&self, meta: &Metadata) -> bool {
        let mut folder = Some(self);
        while let Some(this) = folder {
            if this.inode == meta.ino() && this.device == meta.dev() {
                return true;
            }
            folder = this.parent.as_deref();
        }
        false
    }
}

/// Whether there is nothing at the end of a path: no such file, or a link to itself.
fn gone(error: &io::Error) -> bool {
    let looped = rustix::io::Errno::LOOP.raw_os_error();
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
        || error.raw_os_error() == Some(looped)
}

fn must_be_file(path: &Path, meta: &Metadata) -> Result<()> {
    if meta.is_file() {
        return Ok(());
    }
    let what = if meta.is_dir() { "a folder" } else { "a pipe, socket or device" };
    Err(Error::new(Kind::NotFound, format!("cannot read {}: it is {what}, not a file", path.display())))
}

fn utf8(name: &OsStr, folder: &Path) -> Result<String> {
    name.to_str().map(Into::into).ok_or_else(|| {
        let shown = name.to_string_lossy();
        Error::config(format!("the file name {shown:?} in {} is not valid UTF-8", folder.display()))
            .hint("rename it")
    })
}

fn info(path: String, meta: &Metadata) -> ObjectInfo {
    let version = (meta.mtime() as u64).wrapping_mul(1_000_000_000).wrapping_add(meta.mtime_nsec() as u64);
    ObjectInfo { path, bytes: meta.len(), version }
}

impl Store for LocalStore {
    fn url(&self) -> String {
        self.root.display().to_string()
    }

    fn read<'a>(&'a self, object: &'a str, range: Range<u64>) -> BoxFuture<'a, Result<Bytes>> {
        std::future::ready(self.read_now(object, range)).boxed()
    }

    fn stat<'a>(&'a self, object: &'a str) -> BoxFuture<'a, Result<ObjectInfo>> {
        std::future::ready(self.stat_now(object)).boxed()
    }

    fn list<'a>(
        &'a self,
        prefix: &'a str,
        visit: &'a mut (dyn FnMut(ObjectInfo) -> Result<()> + Send),
    ) -> BoxFuture<'a, Result<()>> {
        std::future::ready(self.list_now(prefix, visit)).boxed()
    }

    fn immediate(&self) -> bool {
        true
    }

    fn retries(&self) -> u64 {
        0
    }

    fn faults(&self) -> u64 {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::executor::block_on;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn store() -> (tempfile::TempDir, LocalStore) {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("sub")).unwrap();
        fs::write(dir.path().join("sub/x"), b"0123456789").unwrap();
        let store = LocalStore::new(dir.path()).unwrap();
        (dir, store)
    }

    fn names(store: &LocalStore, prefix: &str) -> Result<Vec<String>> {
        let mut names = Vec::new();
        block_on(store.list(prefix, &mut |info| {
            names.push(info.path);
            Ok(())
        }))?;
        names.sort();
        Ok(names)
    }

    #[test]
    fn a_file_that_shrinks_after_its_size_was_read_is_corrupt() {
        let (dir, store) = store();
        let file = OpenOptions::new().write(true).read(true).open(dir.path().join("sub/x")).unwrap();
        file.set_len(4).unwrap();
        let error = store.fill(&file, "sub/x", 2..8).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt);
        assert!(error.to_string().contains("has 4 bytes, but bytes 2 to 8"), "{error}");
    }

    #[test]
    fn only_files_are_read() {
        let (dir, store) = store();
        rustix::fs::mkfifoat(rustix::fs::CWD, dir.path().join("pipe"), rustix::fs::Mode::RWXU).unwrap();
        for (name, words) in [("sub", "it is a folder"), ("pipe", "it is a pipe")] {
            for error in
                [block_on(store.read(name, 0..0)).unwrap_err(), block_on(store.stat(name)).unwrap_err()]
            {
                assert_eq!(error.kind(), Kind::NotFound, "{error}");
                assert!(error.to_string().contains(words), "{error}");
            }
        }
        assert_eq!(names(&store, "").unwrap(), ["sub/x"]);
        assert!(LocalStore::new(dir.path().join("sub/x")).is_err(), "a file is no root");
    }

    #[test]
    fn an_unreadable_file_says_why() {
        let (dir, store) = store();
        fs::set_permissions(dir.path().join("sub/x"), fs::Permissions::from_mode(0o0)).unwrap();
        if File::open(dir.path().join("sub/x")).is_ok() {
            return; // The superuser may read everything, so there is nothing to see.
        }
        let error = block_on(store.read("sub/x", 0..1)).unwrap_err();
        assert_eq!(error.kind(), Kind::Io);
        assert_eq!(error.remedy(), Some("check the owner and permissions"));
    }

    #[test]
    fn links_are_followed_once() {
        let (dir, store) = store();
        let link = |to: &str, from: &str| symlink(to, dir.path().join(from)).unwrap();
        link("..", "sub/up");
        link("sub", "twin");
        link("self", "self");
        link("nowhere", "dangling");
        link("sub/x", "y");
        assert_eq!(names(&store, "").unwrap(), ["sub/x", "twin/x", "y"]);
        assert_eq!(names(&store, "sub").unwrap(), ["sub/x"]);
        assert_eq!(block_on(store.read("self", 0..1)).unwrap_err().kind(), Kind::Io);
    }
}

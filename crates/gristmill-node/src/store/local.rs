//! Files below a folder.
//!
//! A read opens, reads at an offset and closes: no descriptor is kept, so a data set of ten million files costs
//! none. Reads finish on the calling thread. Deliberately not here: memory-mapping the user's files, because a
//! file that shrinks while it is mapped kills the process instead of giving an error.

use super::{ObjectInfo, Store, read_outside, wrong_name};
use crate::{Error, Result};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

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
        if object.split('/').any(|part| part.is_empty() || part == "." || part == "..") {
            return Err(wrong_name(self, object));
        }
        Ok(self.root.join(object))
    }

    fn read_now(&self, object: &str, range: Range<u64>) -> Result<Bytes> {
        let path = self.path(object)?;
        let failed = |e| Error::io("read", path.display(), e);
        let file = File::open(&path).map_err(failed)?;
        // The size first: a damaged catalog must not make us allocate more than the file can fill.
        let size = file.metadata().map_err(failed)?.len();
        if range.end > size || range.start > range.end {
            return Err(read_outside(self, object, &range, size));
        }
        let mut bytes = vec![0; (range.end - range.start) as usize];
        file.read_exact_at(&mut bytes, range.start).map_err(failed)?;
        Ok(bytes.into())
    }

    fn stat_now(&self, object: &str) -> Result<ObjectInfo> {
        let path = self.path(object)?;
        let meta = fs::metadata(&path).map_err(|e| Error::io("read", path.display(), e))?;
        Ok(info(object.to_string(), &meta))
    }

    fn list_now(&self, prefix: &str, visit: &mut dyn FnMut(ObjectInfo) -> Result<()>) -> Result<()> {
        let start = if prefix.is_empty() { self.root.clone() } else { self.path(prefix)? };
        let mut folders = vec![(start, prefix.to_string())];
        while let Some((folder, name)) = folders.pop() {
            let entries = match fs::read_dir(&folder) {
                Ok(entries) => entries,
                Err(e) if e.kind() == std::io::ErrorKind::NotFound && name == prefix => return Ok(()),
                Err(e) => return Err(Error::io("list", folder.display(), e)),
            };
            for entry in entries {
                let entry = entry.map_err(|e| Error::io("list", folder.display(), e))?;
                let path = if name.is_empty() {
                    utf8(&entry.file_name(), &folder)?
                } else {
                    format!("{name}/{}", utf8(&entry.file_name(), &folder)?)
                };
                // Links are followed, as users lay out data sets with them; a dangling one is skipped.
                let Ok(meta) = fs::metadata(entry.path()) else { continue };
                if meta.is_dir() {
                    if folders.len() > 1_000_000 || path.len() > 4_096 {
                        let error = Error::config(format!("{} nests too deeply", folder.display()));
                        return Err(error.hint("a link that leads back to its own folder does that"));
                    }
                    folders.push((entry.path(), path));
                } else if meta.is_file() {
                    visit(info(path, &meta))?;
                }
            }
        }
        Ok(())
    }
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
}

//! Writing a catalog: all of it or nothing.
//!
//! The columns are streamed first while their blocks are hashed, then the front is written, so writing needs no
//! second copy of the data. A file is made under a temporary name in the same folder, synced and renamed: other
//! processes see the old catalog or the new one, and those that have the old one mapped keep it.

use super::SourceKind;
use super::draft::{Draft, SideFile};
use super::file::Catalog;
use super::layout::{BLOCK_BYTES, Column};
use crate::{Error, Result};
use gristmill_ops::Encoding;
use std::borrow::Cow;
use std::fs::{self, File, Permissions};
use std::io::{self, BufWriter, Cursor, Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use xxhash_rust::xxh3::xxh3_64;

/// What the catalog says about itself in words.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(super) struct Head {
    pub(super) gristmill: String,
    pub(super) built_unix_s: u64,
    pub(super) source: String,
    pub(super) object: Option<String>,
    pub(super) kind: SourceKind,
    pub(super) encoding: Encoding,
    pub(super) digest: String,
    pub(super) notes: Vec<String>,
    pub(super) side: Vec<SideFile>,
    pub(super) classes: Vec<String>,
}

impl Draft {
    /// Writes the catalog file `path`, replacing one that is there.
    pub fn write(&self, path: &Path) -> Result<()> {
        self.validate()?;
        replace(path, "catalog", |file| self.encode(&mut BufWriter::with_capacity(1 << 20, file)))
    }

    /// The same catalog without a file, for tests and for data that a program makes itself.
    pub fn into_catalog(self) -> Result<Catalog> {
        self.validate()?;
        let mut bytes = Cursor::new(Vec::new());
        self.encode(&mut bytes).map_err(|e| Error::io("make", "a catalog in memory", e))?;
        Catalog::from_bytes(&bytes.into_inner())
    }

    fn head(&self) -> Head {
        Head {
            gristmill: env!("CARGO_PKG_VERSION").to_string(),
            built_unix_s: self.built_unix_s,
            source: self.source.clone(),
            object: self.object.clone(),
            kind: self.kind,
            encoding: self.encoding,
            digest: self.digest().to_string(),
            notes: self.notes.clone(),
            side: self.side.clone(),
            classes: self.classes.clone(),
        }
    }

    fn encode<W: Write + Seek>(&self, out: &mut W) -> io::Result<()> {
        let head = serde_json::to_vec(&self.head()).map_err(io::Error::other)?;
        let layout = self.counts(head.len() as u64).layout().ok_or_else(|| {
            io::Error::other("the class names or the file names are longer than a catalog can hold")
        })?;
        out.seek(SeekFrom::Start(layout.columns_at()))?;
        let mut blocks = Blocks { out, block: Vec::with_capacity(BLOCK_BYTES as usize), sums: Vec::new() };
        for column in Column::ALL {
            let bytes = self.column(column);
            blocks.push(bytes)?;
            blocks.push(&[0; 8][..bytes.len().next_multiple_of(8) - bytes.len()])?;
        }
        let sums = blocks.finish()?;
        let mut front = head;
        front.resize((layout.table.start - layout.head.start) as usize, 0);
        front.extend_from_slice(bytemuck::cast_slice(&sums));
        out.seek(SeekFrom::Start(0))?;
        out.write_all(&layout.header(&front))?;
        out.write_all(&front)?;
        out.flush()
    }

    fn column(&self, column: Column) -> &[u8] {
        match column {
            Column::Label => bytemuck::cast_slice(&self.labels),
            Column::Bytes => bytemuck::cast_slice(&self.sizes),
            Column::Object => bytemuck::cast_slice(&self.object_of),
            Column::Offset => bytemuck::cast_slice(&self.offsets),
            Column::ObjectBytes => bytemuck::cast_slice(&self.object_bytes),
            Column::Version => bytemuck::cast_slice(&self.versions),
            Column::Content => bytemuck::cast_slice(&self.contents),
            Column::Inflated => bytemuck::cast_slice(&self.inflated),
            Column::NameEnd => bytemuck::cast_slice(&self.name_ends),
            Column::Names => self.names.as_bytes(),
        }
    }
}

/// Cuts what is pushed into blocks, hashes each and passes it on.
struct Blocks<'a, W> {
    out: &'a mut W,
    block: Vec<u8>,
    sums: Vec<u64>,
}

impl<W: Write> Blocks<'_, W> {
    fn push(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(BLOCK_BYTES as usize - self.block.len()));
            self.block.extend_from_slice(now);
            bytes = later;
            if self.block.len() == BLOCK_BYTES as usize {
                self.pass_on()?;
            }
        }
        Ok(())
    }

    fn pass_on(&mut self) -> io::Result<()> {
        self.sums.push(xxh3_64(&self.block));
        self.out.write_all(&self.block)?;
        self.block.clear();
        Ok(())
    }

    fn finish(mut self) -> io::Result<Vec<u64>> {
        if !self.block.is_empty() {
            self.pass_on()?;
        }
        Ok(self.sums)
    }
}

/// Where the file really lies, or will: renaming onto a link would cut it, and onto a device replace it.
fn place<'a>(path: &'a Path, what: &str) -> Result<Cow<'a, Path>> {
    let refused = |why: &str| {
        Error::config(format!("cannot write the {what} {}: it is {why}", path.display()))
            .hint("name a new file")
    };
    let Ok(meta) = fs::symlink_metadata(path) else { return Ok(Cow::Borrowed(path)) };
    if meta.is_symlink() {
        let target = fs::canonicalize(path).map_err(|_| refused("a link to nothing"))?;
        if !target.is_file() {
            return Err(refused("a link to something that is not a regular file"));
        }
        return Ok(Cow::Owned(target));
    }
    if meta.is_file() || meta.is_dir() { Ok(Cow::Borrowed(path)) } else { Err(refused("not a regular file")) }
}

/// Makes the file `path`, a `what`, with what `fill` writes. On an error nothing is left behind and an old file stays.
pub(crate) fn replace(path: &Path, what: &str, fill: impl FnOnce(&mut File) -> io::Result<()>) -> Result<()> {
    let failed = |e| Error::io(&format!("write the {what}"), path.display(), e);
    let path = &*place(path, what)?;
    let Some(name) = path.file_name().filter(|_| !path.is_dir()) else {
        return Err(Error::config(format!("cannot write the {what} {}: it is a folder", path.display()))
            .hint("name a file in it"));
    };
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let mut prefix = std::ffi::OsString::from(".");
    prefix.push(name);
    let mut part = tempfile::Builder::new()
        .prefix(&prefix)
        .suffix(".part")
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(folder)
        .map_err(failed)?;
    fill(part.as_file_mut()).and_then(|()| part.as_file().sync_all()).map_err(failed)?;
    part.persist(path).map_err(|e| failed(e.error))?;
    // The rename itself must outlive a power cut. Some file systems cannot sync a folder: then it is as it is.
    if let Ok(folder) = fs::File::open(folder) {
        let _ = folder.sync_all();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_leaves_nothing_behind_and_keeps_the_old_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.grist");
        fs::write(&path, "old").unwrap();
        let error = replace(&path, "catalog", |file| {
            file.write_all(b"half of it")?;
            Err(io::ErrorKind::StorageFull.into())
        })
        .unwrap_err();
        assert!(error.to_string().contains("a.grist: no storage space"), "{error}");
        assert_eq!(error.remedy(), Some("free some space or choose another place"));
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn special_files_are_never_replaced_and_links_are_followed() {
        use std::os::unix::fs::{FileTypeExt, symlink};
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        rustix::fs::mkfifoat(rustix::fs::CWD, path("pipe"), rustix::fs::Mode::RUSR).unwrap();
        symlink("pipe", path("to-pipe")).unwrap();
        symlink("nothing", path("to-nothing")).unwrap();
        for (name, words) in [
            ("pipe", "pipe: it is not a regular file"),
            ("to-pipe", "to-pipe: it is a link to something that is not a regular file"),
            ("to-nothing", "to-nothing: it is a link to nothing"),
            ("/dev/null", "/dev/null: it is not a regular file"),
        ] {
            let error = replace(&path(name), "catalog", |_| Ok(())).unwrap_err();
            assert!(error.to_string().contains(words), "{error}");
            assert_eq!(error.kind(), crate::Kind::Config);
        }
        assert!(fs::symlink_metadata(path("pipe")).unwrap().file_type().is_fifo());

        fs::create_dir(path("other")).unwrap();
        fs::write(path("other/real"), "old").unwrap();
        symlink("other/real", path("link")).unwrap();
        replace(&path("link"), "catalog", |file| file.write_all(b"new")).unwrap();
        assert_eq!(fs::read(path("other/real")).unwrap(), b"new");
        assert!(path("link").is_symlink());
    }

    #[test]
    fn places_that_cannot_hold_a_file_are_named() {
        let folder = tempfile::tempdir().unwrap();
        for (path, words) in [
            (folder.path().to_path_buf(), "it is a folder"),
            (folder.path().join("no/a.grist"), "no such file"),
        ] {
            let error = replace(&path, "catalog", |_| Ok(())).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}

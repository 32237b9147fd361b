//! One file per sample: `FOLDER/3f/0000a13f` is sample 0xa13f.
//!
//! The last two digits are the folder, so that neither has too many entries. A file is its sample's length and checksum
//! (which the id goes into, so that a file under another name is noticed), then the bytes. It is written as `.part` and
//! renamed, and is therefore whole or not there; after a power cut it may be anything, which the checksum finds.

use crate::disk::{lock_folder, make_folder};
use crate::{Error, Result};
use bytes::Bytes;
use rustix::fs::syncfs;
use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::xxh3_64_with_seed;

const HEAD_BYTES: usize = 16;
const PART: &str = "part";
/// What such a folder is called in messages.
const NOUN: &str = "slice folder";

/// A folder that this process alone uses.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    /// Held as long as the folder is used.
    _lock: File,
    /// The folder itself, for `syncfs`.
    handle: File,
}

impl Folder {
    /// Takes the folder, and says what lies in it. What was half written is deleted.
    pub(super) fn open(path: &Path) -> Result<(Folder, HashSet<u32>)> {
        if let Some(root) = path.parent().filter(|root| !root.as_os_str().is_empty()) {
            make_folder(root, NOUN)?;
        }
        make_folder(path, NOUN)?;
        let lock = lock_folder(path, NOUN)?;
        let mut ids = HashSet::new();
        for low in 0..=255_u32 {
            let folder = path.join(format!("{low:02x}"));
            make_folder(&folder, NOUN)?;
            let failed = |e| Error::io("list the slice folder", folder.display(), e);
            for entry in fs::read_dir(&folder).map_err(failed)? {
                let name = entry.map_err(failed)?.file_name();
                let Some(name) = name.to_str() else { continue };
                if let Some(id) = number(name).filter(|id| id & 0xff == low) {
                    ids.insert(id);
                } else if name.strip_suffix(".part").is_some_and(|stem| number(stem).is_some()) {
                    // Deleting it is tidiness; writing the sample again replaces it.
                    let _ = fs::remove_file(folder.join(name));
                }
            }
        }
        let handle = File::open(path).map_err(|e| Error::io("open the slice folder", path.display(), e))?;
        Ok((Folder { path: path.to_path_buf(), _lock: lock, handle }, ids))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn file(&self, id: u32) -> PathBuf {
        self.path.join(format!("{:02x}/{id:08x}", id & 0xff))
    }

    /// The bytes of a sample, if its file is whole.
    pub(super) fn read(&self, id: u32) -> Option<Bytes> {
        let no_link = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
        let mut file = OpenOptions::new().read(true).custom_flags(no_link).open(self.file(id)).ok()?;
        let size = file.metadata().ok().filter(fs::Metadata::is_file)?.len();
        let size = usize::try_from(size).ok().filter(|size| *size <= HEAD_BYTES + u32::MAX as usize)?;
        let mut head = [0; HEAD_BYTES];
        file.read_exact(&mut head).ok()?;
        let (length, sum) =
            (u64::from_le_bytes(*head.first_chunk()?), u64::from_le_bytes(*head.last_chunk()?));
        if length != size.checked_sub(HEAD_BYTES)? as u64 {
            return None;
        }
        let mut bytes = vec![0; size - HEAD_BYTES];
        file.read_exact(&mut bytes).ok()?;
        (xxh3_64_with_seed(&bytes, id.into()) == sum).then(|| bytes.into())
    }

    /// Writes a sample; it is there whole, or not at all.
    pub(super) fn write(&self, id: u32, bytes: &[u8]) -> Result<()> {
        let path = self.file(id);
        let part = path.with_extension(PART);
        let written = (|| {
            let mut options = OpenOptions::new();
            let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&part)?;
            let mut head = [0; HEAD_BYTES];
            head[..8].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
            head[8..].copy_from_slice(&xxh3_64_with_seed(bytes, id.into()).to_le_bytes());
            file.write_all(&head)?;
            file.write_all(bytes)?;
            fs::rename(&part, &path)
        })();
        written.map_err(|e| {
            // The error to tell is the first one.
            let _ = fs::remove_file(&part);
            Error::io("write", format_args!("sample {id} to {}", self.path.display()), e)
        })
    }

    /// Deletes a sample; that it is gone already is as good.
    pub(super) fn remove(&self, id: u32) -> Result<()> {
        match fs::remove_file(self.file(id)) {
            Err(e) if e.kind() != ErrorKind::NotFound => Err(Error::io("delete", self.file(id).display(), e)),
            _ => Ok(()),
        }
    }

    /// Makes all that was written durable.
    pub(super) fn sync(&self) -> Result<()> {
        syncfs(&self.handle).map_err(|e| Error::io("sync the disk of", self.path.display(), e.into()))
    }
}

/// The id that a file name means, if it is exactly how this module writes it.
fn number(name: &str) -> Option<u32> {
    let plain = name.len() == 8 && name.bytes().all(|c| c.is_ascii_digit() || (b'a'..=b'f').contains(&c));
    plain.then(|| u32::from_str_radix(name, 16).ok())?
}

//! An open catalog: a map of the file, and the promise that no unchecked byte of it is believed.
//!
//! Opening verifies the front of the file. Every block of the columns is verified when it is first used and
//! remembered in a bitmap, so opening takes no longer for ten million samples than for ten, and a flipped bit
//! anywhere ends in an error, never in a wrong sample. What the map holds costs no memory of ours.
//!
//! Deliberately not here: guarding against a file that is cut or overwritten in place while it is mapped.
//! Gristmill itself only ever replaces a catalog by renaming, which leaves open maps whole.
#![expect(unsafe_code, reason = "mapping a file is unsafe: another program could change it underneath")]

use super::SourceKind;
use super::draft::{Digest, SideFile};
use super::layout::{BLOCK_BYTES, CLASSES_MAX, Column, Layout};
use super::write::Head;
use crate::{Error, Result};
use gristmill_core::SampleId;
use gristmill_ops::Encoding;
use memmap2::Mmap;
use std::fs::{self, File};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use xxhash_rust::xxh3::xxh3_64;

/// The immutable list of samples of a data set.
#[derive(Debug)]
pub struct Catalog {
    bytes: Bytes,
    path: PathBuf,
    layout: Layout,
    head: Head,
    digest: Digest,
    /// One bit per block that fits its checksum.
    verified: Box<[AtomicU64]>,
    labels_checked: AtomicBool,
}

#[derive(Debug)]
enum Bytes {
    Map(Mmap),
    /// In words, because columns must lie on 8 bytes.
    Memory(Vec<u64>),
}

impl Bytes {
    fn get(&self) -> &[u8] {
        match self {
            Bytes::Map(map) => map,
            Bytes::Memory(words) => bytemuck::cast_slice(words),
        }
    }
}

/// Where one sample lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location<'a> {
    /// The number of its object.
    pub object: u32,
    /// The name of its object below the root.
    pub name: &'a str,
    /// Its bytes in the object; in the inflated object when [`Catalog::gzip`] says so.
    pub range: Range<u64>,
}

/// What the catalog knows about one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectFacts<'a> {
    /// Name below the root.
    pub name: &'a str,
    /// Size as stored.
    pub bytes: u64,
    /// The store's version of it when the catalog was built.
    pub version: u64,
    /// Hash of its content as stored; `None` when it was not read.
    pub content: Option<u64>,
    /// Size of what is inside when it is gzip, else the same as `bytes`.
    pub inflated_bytes: u64,
}

impl Catalog {
    /// Maps the catalog file `path` and verifies its front.
    pub fn open(path: &Path) -> Result<Catalog> {
        let failed = |e| Error::io("open the catalog", path.display(), e);
        // Asked before opening: opening a pipe would wait for its other end.
        if !fs::metadata(path).map_err(failed)?.is_file() {
            return Err(Error::config(format!("the catalog {} is not a file", path.display())));
        }
        let file = File::open(path).map_err(failed)?;
        // SAFETY: the map is only read, and as plain bytes, for which every bit pattern is valid. Writers replace
        // catalogs by renaming, so the mapped file keeps its length and content for as long as it is mapped.
        let map = unsafe { Mmap::map(&file) }.map_err(failed)?;
        Catalog::of(Bytes::Map(map), path)
    }

    /// A catalog from the bytes of a file.
    pub(super) fn from_bytes(file: &[u8]) -> Result<Catalog> {
        let mut words = vec![0_u64; file.len().div_ceil(8)];
        bytemuck::cast_slice_mut(&mut words)[..file.len()].copy_from_slice(file);
        Catalog::of(Bytes::Memory(words), Path::new("in memory"))
    }

    fn of(bytes: Bytes, path: &Path) -> Result<Catalog> {
        let layout = Layout::read(bytes.get(), path)?;
        let nonsense = |what: &str| {
            Error::corrupt(format!("the catalog {} is damaged: {what}", path.display()))
                .hint("make it again with `gristmill catalog build`")
        };
        let head = &bytes.get()[layout.head.start as usize..layout.head.end as usize];
        let head: Head =
            serde_json::from_slice(head).map_err(|e| nonsense("its head is not readable").because(e))?;
        let digest =
            u128::from_str_radix(&head.digest, 16).map_err(|_| nonsense("its digest is no number"))?;
        if head.classes.len() > CLASSES_MAX {
            return Err(nonsense("it has too many classes"));
        }
        let verified = (0..layout.blocks().div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Ok(Catalog {
            bytes,
            path: path.to_path_buf(),
            layout,
            head,
            digest: Digest(digest),
            verified,
            labels_checked: AtomicBool::new(false),
        })
    }

    /// How many samples there are.
    pub fn len(&self) -> u32 {
        self.layout.counts.samples
    }

    /// Whether there is no sample.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The name of the data set.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// The root of the store that holds the data, as the user wrote it.
    pub fn source(&self) -> &str {
        &self.head.source
    }

    /// The same, with the node of this URL in the place of the store: what is a path there need not be one here.
    #[must_use]
    pub fn served_by(mut self, url: &str) -> Catalog {
        self.head.source = url.to_string();
        self
    }

    /// The file or pattern below the root that the catalog was built from; `None` for the whole folder.
    pub fn source_object(&self) -> Option<&str> {
        self.head.object.as_deref()
    }

    /// How the data is laid out.
    pub fn kind(&self) -> SourceKind {
        self.head.kind
    }

    /// The class names in the order of their labels.
    pub fn classes(&self) -> &[String] {
        &self.head.classes
    }

    /// How the bytes of samples are encoded.
    pub fn encoding(&self) -> Encoding {
        self.head.encoding
    }

    /// What the builder wanted the user to know, a sentence each.
    pub fn notes(&self) -> &[String] {
        &self.head.notes
    }

    /// Files that hold no sample but that the catalog depends on.
    pub fn side_files(&self) -> &[SideFile] {
        &self.head.side
    }

    /// The version of Gristmill that built it.
    pub fn built_by(&self) -> &str {
        &self.head.gristmill
    }

    /// When it was built, in seconds since 1970.
    pub fn built_unix_s(&self) -> u64 {
        self.head.built_unix_s
    }

    /// Whether samples are ranges of objects; otherwise each sample is one whole object.
    pub fn packed(&self) -> bool {
        self.layout.counts.packed
    }

    /// Whether objects are gzip files, so that ranges are into what is inside of them.
    pub fn gzip(&self) -> bool {
        self.layout.counts.gzip
    }

    /// Whether every object's content was read and hashed.
    pub fn has_content(&self) -> bool {
        self.layout.counts.content
    }

    /// How many objects hold samples.
    pub fn objects(&self) -> u32 {
        self.layout.counts.objects
    }

    /// The size of the catalog itself.
    pub fn file_bytes(&self) -> u64 {
        self.layout.file_bytes
    }

    /// The catalog's file, byte for byte, so that it can be passed on; who receives it verifies it.
    pub fn file(&self) -> &[u8] {
        &self.bytes.get()[..self.layout.file_bytes as usize]
    }

    /// The sum of all samples' sizes.
    pub fn total_bytes(&self) -> Result<u64> {
        Ok(self.sizes()?.iter().map(|&bytes| u64::from(bytes)).sum())
    }

    /// How many samples each class has.
    pub fn class_counts(&self) -> Result<Vec<u32>> {
        let mut counts = vec![0; self.classes().len()];
        self.labels()?.iter().for_each(|&label| counts[label as usize] += 1);
        Ok(counts)
    }

    /// The label of every sample, each below the number of classes.
    pub fn labels(&self) -> Result<&[u32]> {
        let labels = self.whole_u32(Column::Label)?;
        if !self.labels_checked.load(Ordering::Relaxed) {
            if labels.iter().any(|&label| label as usize >= self.classes().len()) {
                return Err(self.damaged("a label has no class"));
            }
            self.labels_checked.store(true, Ordering::Relaxed);
        }
        Ok(labels)
    }

    /// The size of every sample.
    pub fn sizes(&self) -> Result<&[u32]> {
        self.whole_u32(Column::Bytes)
    }

    /// The label of one sample, below the number of classes.
    pub fn label(&self, id: SampleId) -> Result<u32> {
        let label = self.u32_at(Column::Label, self.known(id)?)?;
        if label as usize >= self.classes().len() {
            return Err(self.damaged("a label has no class"));
        }
        Ok(label)
    }

    /// The size of one sample.
    pub fn size(&self, id: SampleId) -> Result<u32> {
        self.u32_at(Column::Bytes, self.known(id)?)
    }

    /// Where one sample lies.
    pub fn locate(&self, id: SampleId) -> Result<Location<'_>> {
        let (object, range) = self.place(id)?;
        Ok(Location { object, name: self.name(object as usize)?, range })
    }

    /// In which object one sample lies, and where in it: without the name, which costs more than the rest.
    pub fn place(&self, id: SampleId) -> Result<(u32, Range<u64>)> {
        let at = self.known(id)?;
        let bytes = u64::from(self.u32_at(Column::Bytes, at)?);
        if !self.packed() {
            return Ok((id.0, 0..bytes));
        }
        let object = self.u32_at(Column::Object, at)?;
        let start = self.u64_at(Column::Offset, at)?;
        let inside = if self.gzip() { Column::Inflated } else { Column::ObjectBytes };
        let end = start.checked_add(bytes).filter(|_| object < self.objects());
        match end {
            Some(end) if end <= self.u64_at(inside, object as usize)? => Ok((object, start..end)),
            _ => Err(self.damaged(&format!("sample {id} lies outside of its object"))),
        }
    }

    /// What is known about object `i`.
    pub fn object(&self, i: u32) -> Result<ObjectFacts<'_>> {
        if i >= self.objects() {
            let (many, path) = (self.objects(), self.path.display());
            return Err(Error::config(format!(
                "the catalog {path} has {many} objects, so there is no object {i}"
            )));
        }
        let at = i as usize;
        let bytes = if self.packed() {
            self.u64_at(Column::ObjectBytes, at)?
        } else {
            u64::from(self.u32_at(Column::Bytes, at)?)
        };
        Ok(ObjectFacts {
            name: self.name(at)?,
            bytes,
            version: self.u64_at(Column::Version, at)?,
            content: if self.has_content() { Some(self.u64_at(Column::Content, at)?) } else { None },
            inflated_bytes: if self.gzip() { self.u64_at(Column::Inflated, at)? } else { bytes },
        })
    }

    /// Verifies every byte of the catalog now instead of when it is used.
    pub fn verify(&self) -> Result<()> {
        let columns = self.layout.columns_at()..self.layout.file_bytes;
        self.trusted(columns.start as usize..columns.end as usize)?;
        self.labels()?;
        Ok(())
    }

    fn known(&self, id: SampleId) -> Result<usize> {
        if id.0 < self.len() {
            return Ok(id.0 as usize);
        }
        let (many, path) = (self.len(), self.path.display());
        Err(Error::config(format!("the catalog {path} has {many} samples, so there is no sample {id}")))
    }

    fn name(&self, object: usize) -> Result<&str> {
        let start = if object == 0 { 0 } else { self.u64_at(Column::NameEnd, object - 1)? };
        let end = self.u64_at(Column::NameEnd, object)?;
        let names = self.layout.column(Column::Names);
        if start > end || end > names.end - names.start {
            return Err(self.damaged(&format!("the name of object {object} lies outside of the names")));
        }
        let bytes = self.trusted((names.start + start) as usize..(names.start + end) as usize)?;
        str::from_utf8(bytes).map_err(|_| self.damaged(&format!("the name of object {object} is not UTF-8")))
    }

    /// Element `at` of a column of u32, which the caller knows to be there.
    fn u32_at(&self, column: Column, at: usize) -> Result<u32> {
        let start = self.layout.column(column).start as usize + at * 4;
        let bytes = self.trusted(start..start + 4)?;
        Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    fn u64_at(&self, column: Column, at: usize) -> Result<u64> {
        let start = self.layout.column(column).start as usize + at * 8;
        let bytes = self.trusted(start..start + 8)?;
        Ok(bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
    }

    fn whole_u32(&self, column: Column) -> Result<&[u32]> {
        let range = self.layout.column(column);
        let bytes = self.trusted(range.start as usize..range.end as usize)?;
        bytemuck::try_cast_slice(bytes).map_err(|_| self.damaged("a column is not aligned"))
    }

    /// The bytes `range` of the columns, after their blocks were found to fit their checksums.
    fn trusted(&self, range: Range<usize>) -> Result<&[u8]> {
        let bytes = self.bytes.get();
        let (first, block_bytes) = (self.layout.columns_at() as usize, BLOCK_BYTES as usize);
        let blocks = (range.start - first) / block_bytes..(range.end - first).div_ceil(block_bytes);
        for block in blocks {
            let (word, bit) = (&self.verified[block / 64], 1 << (block % 64));
            // Relaxed is enough: the map never changes, so whoever sees the bit sees the bytes it speaks of.
            if word.load(Ordering::Relaxed) & bit == 0 {
                let start = first + block * block_bytes;
                let end = bytes.len().min(start + block_bytes);
                let sum_at = self.layout.table.start as usize + block * 8;
                if xxh3_64(&bytes[start..end]).to_le_bytes() != bytes[sum_at..sum_at + 8] {
                    return Err(self.damaged(&format!("bytes {start} to {end} do not fit their checksum")));
                }
                word.fetch_or(bit, Ordering::Relaxed);
            }
        }
        Ok(&bytes[range])
    }

    fn damaged(&self, what: &str) -> Error {
        Error::corrupt(format!("the catalog {} is damaged: {what}", self.path.display()))
            .hint("make it again with `gristmill catalog build`")
    }
}

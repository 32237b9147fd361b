//! A catalog in the making: columns in memory that grow sample by sample.
//!
//! Builders push into a draft; programs that make their own data may do the same. Nothing is believed before
//! [`Draft::validate`] has seen the whole, and the [`Digest`] is computed from what is there, never kept.

use super::layout::{CLASSES_MAX, Counts};
use super::{SourceKind, scan};
use crate::store::ObjectInfo;
use crate::{Error, Result};
use gristmill_ops::Encoding;
use std::fmt;
use xxhash_rust::xxh3::Xxh3Default;

/// The 128-bit name of a data set: equal for equal names, places, sizes, labels and (where read) contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(pub u128);

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// A file that holds no sample but that the catalog depends on: labels, class names, the list itself.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct SideFile {
    /// Name below the root.
    pub name: String,
    /// Size.
    pub bytes: u64,
    /// The store's version of it.
    pub version: u64,
    /// Hash of its content.
    pub content: u64,
}

/// A catalog in memory, not yet a file.
#[derive(Debug, Clone)]
pub struct Draft {
    pub(super) source: String,
    pub(super) object: Option<String>,
    pub(super) kind: SourceKind,
    pub(super) encoding: Encoding,
    pub(super) classes: Vec<String>,
    pub(super) notes: Vec<String>,
    pub(super) side: Vec<SideFile>,
    pub(super) built_unix_s: u64,
    pub(super) packed: bool,
    pub(super) labels: Vec<u32>,
    pub(super) sizes: Vec<u32>,
    pub(super) object_of: Vec<u32>,
    pub(super) offsets: Vec<u64>,
    pub(super) object_bytes: Vec<u64>,
    pub(super) versions: Vec<u64>,
    /// Empty when contents were not read.
    pub(super) contents: Vec<u64>,
    /// Empty unless objects are gzip.
    pub(super) inflated: Vec<u64>,
    pub(super) name_ends: Vec<u64>,
    pub(super) names: String,
}

impl Draft {
    fn new(source: &str, kind: SourceKind, encoding: Encoding, packed: bool) -> Draft {
        Draft {
            source: source.to_string(),
            object: None,
            kind,
            encoding,
            classes: Vec::new(),
            notes: Vec::new(),
            side: Vec::new(),
            built_unix_s: 0,
            packed,
            labels: Vec::new(),
            sizes: Vec::new(),
            object_of: Vec::new(),
            offsets: Vec::new(),
            object_bytes: Vec::new(),
            versions: Vec::new(),
            contents: Vec::new(),
            inflated: Vec::new(),
            name_ends: Vec::new(),
            names: String::new(),
        }
    }

    /// A draft without samples, where each sample will be one object below `source`.
    pub fn of_files(source: &str, kind: SourceKind, encoding: Encoding) -> Draft {
        Draft::new(source, kind, encoding, false)
    }

    /// A draft without samples, where samples will be ranges of objects below `source`.
    pub fn of_ranges(source: &str, kind: SourceKind, encoding: Encoding) -> Draft {
        Draft::new(source, kind, encoding, true)
    }

    /// Sets the class names; label `i` is `classes[i]`.
    pub fn set_classes(&mut self, classes: Vec<String>) {
        self.classes = classes;
    }

    /// Adds a sample that is the whole of one object. Only for drafts of files.
    pub fn push_file(&mut self, object: &ObjectInfo, label: u32) -> Result<()> {
        assert!(!self.packed, "push_file is for drafts of files");
        self.push_name(object)?;
        self.push_sample(self.versions.len() - 1, object.bytes, label)
    }

    /// Adds an object that will hold samples and gives its number. Only for drafts of ranges.
    pub fn push_object(&mut self, object: &ObjectInfo) -> Result<u32> {
        assert!(self.packed, "push_object is for drafts of ranges");
        self.push_name(object)?;
        self.object_bytes.push(object.bytes);
        Ok(self.versions.len() as u32 - 1)
    }

    /// Adds a sample that is a range of an object. Only for drafts of ranges.
    pub fn push_range(&mut self, object: u32, offset: u64, bytes: u64, label: u32) -> Result<()> {
        assert!(self.packed, "push_range is for drafts of ranges");
        self.push_sample(object as usize, bytes, label)?;
        self.object_of.push(object);
        self.offsets.push(offset);
        Ok(())
    }

    fn push_name(&mut self, object: &ObjectInfo) -> Result<()> {
        if self.versions.len() == u32::MAX as usize {
            return Err(Error::config("a data set cannot have more than 4,294,967,295 objects"));
        }
        self.names.push_str(&object.path);
        self.name_ends.push(self.names.len() as u64);
        self.versions.push(object.version);
        Ok(())
    }

    fn push_sample(&mut self, object: usize, bytes: u64, label: u32) -> Result<()> {
        let bytes = u32::try_from(bytes).map_err(|_| {
            let whom = format!("{}/{}", self.source, self.name(object));
            Error::config(format!(
                "a sample in {whom} has {bytes} bytes, more than the 4 GiB a sample may have"
            ))
        })?;
        if self.labels.len() == u32::MAX as usize {
            return Err(Error::config("a data set cannot have more than 4,294,967,295 samples"));
        }
        self.sizes.push(bytes);
        self.labels.push(label);
        Ok(())
    }

    pub(super) fn name(&self, object: usize) -> &str {
        let start = if object == 0 { 0 } else { self.name_ends[object - 1] };
        &self.names[start as usize..self.name_ends[object] as usize]
    }

    /// Name and size of every object.
    pub(super) fn object_list(&self) -> Vec<(&str, u64)> {
        let bytes = |i: usize| if self.packed { self.object_bytes[i] } else { u64::from(self.sizes[i]) };
        (0..self.versions.len()).map(|i| (self.name(i), bytes(i))).collect()
    }

    /// How many samples there are.
    pub fn len(&self) -> u32 {
        self.labels.len() as u32
    }

    /// Whether there is no sample.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// How the data is laid out.
    pub fn kind(&self) -> SourceKind {
        self.kind
    }

    /// The class names in the order of their labels.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    /// What the builder wants the user to know, a sentence each.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The sum of all samples' sizes.
    pub fn total_bytes(&self) -> u64 {
        self.sizes.iter().map(|&bytes| u64::from(bytes)).sum()
    }

    /// The name of this data set; it is computed anew each time.
    pub fn digest(&self) -> Digest {
        let mut hash = Xxh3Default::new();
        let mut text = |text: &str| {
            hash.update(&(text.len() as u64).to_le_bytes());
            hash.update(text.as_bytes());
        };
        text("gristmill catalog 1");
        text(match self.encoding {
            Encoding::Sniffed => "sniffed",
            Encoding::Raw(_) => "raw",
        });
        self.classes.iter().for_each(|class| text(class));
        (0..self.versions.len()).for_each(|i| text(self.name(i)));
        if let Encoding::Raw(shape) = self.encoding {
            for number in [shape.width, shape.height, shape.channels, u32::from(shape.planar)] {
                hash.update(&number.to_le_bytes());
            }
        }
        let counts = [self.classes.len(), self.versions.len(), self.labels.len(), self.contents.len()];
        for count in counts {
            hash.update(&(count as u64).to_le_bytes());
        }
        hash.update(&[u8::from(self.packed), u8::from(!self.inflated.is_empty())]);
        hash.update(bytemuck::cast_slice(&self.labels));
        hash.update(bytemuck::cast_slice(&self.sizes));
        hash.update(bytemuck::cast_slice(&self.object_of));
        hash.update(bytemuck::cast_slice(&self.offsets));
        hash.update(bytemuck::cast_slice(&self.contents));
        Digest(hash.digest128())
    }

    /// Refuses a draft that is no sound catalog.
    pub(super) fn validate(&self) -> Result<()> {
        if self.is_empty() {
            return Err(Error::config(format!("{} has no samples", self.source)));
        }
        if self.classes.len() > CLASSES_MAX {
            let (many, max) = (self.classes.len(), CLASSES_MAX);
            return Err(Error::config(format!(
                "{} has {many} classes; at most {max} are possible",
                self.source
            )));
        }
        if let Some(id) = self.labels.iter().position(|&label| label as usize >= self.classes.len()) {
            let (label, many) = (self.labels[id], self.classes.len());
            return Err(Error::config(format!(
                "sample {id} of {} has label {label}, but there are {many} classes",
                self.source
            )));
        }
        for id in 0..self.object_of.len() {
            let object = self.object_of[id] as usize;
            let inside = if self.inflated.is_empty() { &self.object_bytes } else { &self.inflated };
            let end = self.offsets[id].checked_add(u64::from(self.sizes[id]));
            if inside.get(object).is_none_or(|&bytes| end.is_none_or(|end| end > bytes)) {
                return Err(Error::config(format!(
                    "sample {id} of {} lies outside of its object",
                    self.source
                )));
            }
        }
        Ok(())
    }

    pub(super) fn counts(&self, head_bytes: u64) -> Counts {
        Counts {
            samples: self.len(),
            objects: self.versions.len() as u32,
            packed: self.packed,
            gzip: !self.inflated.is_empty(),
            content: !self.contents.is_empty(),
            head_bytes,
            names_bytes: self.names.len() as u64,
        }
    }

    /// Adds a sentence for the user.
    pub(super) fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// Adds a file that the catalog depends on.
    pub(super) fn push_side(&mut self, object: &ObjectInfo, content: &[u8]) {
        self.side.push(SideFile {
            name: object.path.clone(),
            bytes: object.bytes,
            version: object.version,
            content: scan::content_hash(content),
        });
    }
}

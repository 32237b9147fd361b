//! Where everything lies in a catalog file.
//!
//! ```text
//! header (64 bytes) | head (JSON) | one checksum per block | columns, little-endian, each on 8 bytes
//! ```
//! The places of the columns follow from a few counts in the header, so there is no table of sections that could
//! contradict them. The header's checksum covers itself, the head and the table of block checksums; each of those
//! covers 64 KiB of columns. Opening therefore checks a few hundred kilobytes at most, and every other byte is
//! checked before it is first believed.
//!
//! Deliberately not here: reading and writing; this is arithmetic.

use crate::{Error, Result};
use std::ops::Range;
use std::path::Path;
use xxhash_rust::xxh3::Xxh3Default;

/// The version of the file format; a file of another version is refused.
pub const VERSION: u32 = 1;
/// The first bytes of every catalog.
pub(crate) const MAGIC: [u8; 8] = *b"GRISTCAT";
/// Bytes of columns under one checksum.
pub(super) const BLOCK_BYTES: u64 = 64 * 1024;
/// Bytes of the fixed header.
pub(super) const HEADER_BYTES: u64 = 64;
/// Largest head: class names and notes.
pub(super) const HEAD_BYTES_MAX: u64 = 256 << 20;
/// Most classes; face recognition reaches millions, and a wild label must not make us allocate more.
pub(super) const CLASSES_MAX: usize = 1 << 22;
/// Most bytes of object names.
const NAMES_BYTES_MAX: u64 = 1 << 40;

// Columns are used in place, so the machine must order bytes as the file does.
const _: () = assert!(cfg!(target_endian = "little"), "catalogs are read in place on little-endian machines");

/// The columns in the order they are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Column {
    /// u32 per sample.
    Label,
    /// u32 per sample.
    Bytes,
    /// u32 per sample, when samples are ranges of objects.
    Object,
    /// u64 per sample, when samples are ranges of objects.
    Offset,
    /// u64 per object, when samples are ranges of objects (else an object is as large as its sample).
    ObjectBytes,
    /// u64 per object.
    Version,
    /// u64 per object, when contents were read.
    Content,
    /// u64 per object, when objects are gzip: the size of what is inside.
    Inflated,
    /// u64 per object: where its name ends in `Names`; it begins where the one before ends.
    NameEnd,
    /// All names, one after the other.
    Names,
}

impl Column {
    pub(super) const ALL: [Column; 10] = [
        Column::Label,
        Column::Bytes,
        Column::Object,
        Column::Offset,
        Column::ObjectBytes,
        Column::Version,
        Column::Content,
        Column::Inflated,
        Column::NameEnd,
        Column::Names,
    ];
}

/// The numbers in the header that decide the layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) samples: u32,
    pub(super) objects: u32,
    /// Samples are ranges of objects; otherwise each sample is one object.
    pub(super) packed: bool,
    /// Objects are gzip files and offsets are into what is inside.
    pub(super) gzip: bool,
    /// Contents were read and hashed.
    pub(super) content: bool,
    pub(super) head_bytes: u64,
    pub(super) names_bytes: u64,
}

/// Where everything lies.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    pub(super) counts: Counts,
    pub(super) head: Range<u64>,
    pub(super) table: Range<u64>,
    columns: [Range<u64>; 10],
    pub(super) file_bytes: u64,
}

impl Counts {
    /// The layout these counts lead to; `None` when they are out of bounds.
    pub(super) fn layout(self) -> Option<Layout> {
        let whole = !self.packed;
        if self.head_bytes > HEAD_BYTES_MAX
            || self.names_bytes > NAMES_BYTES_MAX
            || (whole && (self.samples != self.objects || self.gzip))
        {
            return None;
        }
        let (samples, objects) = (u64::from(self.samples), u64::from(self.objects));
        let when = |there: bool, bytes: u64| if there { bytes } else { 0 };
        let bytes = Column::ALL.map(|column| match column {
            Column::Label | Column::Bytes => samples * 4,
            Column::Object => when(self.packed, samples * 4),
            Column::Offset => when(self.packed, samples * 8),
            Column::ObjectBytes => when(self.packed, objects * 8),
            Column::Version | Column::NameEnd => objects * 8,
            Column::Content => when(self.content, objects * 8),
            Column::Inflated => when(self.gzip, objects * 8),
            Column::Names => self.names_bytes,
        });
        let columns_bytes: u64 = bytes.iter().map(|bytes| bytes.next_multiple_of(8)).sum();
        let head = HEADER_BYTES..HEADER_BYTES + self.head_bytes;
        let table_at = head.end.next_multiple_of(8);
        let table = table_at..table_at + columns_bytes.div_ceil(BLOCK_BYTES) * 8;
        let mut at = table.end;
        let columns = bytes.map(|bytes| {
            let column = at..at + bytes;
            at += bytes.next_multiple_of(8);
            column
        });
        Some(Layout { counts: self, head, table, columns, file_bytes: at })
    }
}

impl Layout {
    /// The bytes of one column in the file.
    pub(super) fn column(&self, column: Column) -> Range<u64> {
        self.columns[column as usize].clone()
    }

    /// Where the columns begin; the first block begins there too.
    pub(super) fn columns_at(&self) -> u64 {
        self.table.end
    }

    /// How many blocks there are.
    pub(super) fn blocks(&self) -> usize {
        ((self.table.end - self.table.start) / 8) as usize
    }

    /// The header's 64 bytes, given everything between it and the columns.
    pub(super) fn header(&self, after: &[u8]) -> [u8; HEADER_BYTES as usize] {
        let Counts { samples, objects, packed, gzip, content, head_bytes, names_bytes } = self.counts;
        let flags = u32::from(packed) | u32::from(gzip) << 1 | u32::from(content) << 2;
        let mut header = [0; HEADER_BYTES as usize];
        header[..8].copy_from_slice(&MAGIC);
        header[8..12].copy_from_slice(&VERSION.to_le_bytes());
        header[12..16].copy_from_slice(&flags.to_le_bytes());
        header[16..20].copy_from_slice(&samples.to_le_bytes());
        header[20..24].copy_from_slice(&objects.to_le_bytes());
        header[24..32].copy_from_slice(&head_bytes.to_le_bytes());
        header[32..40].copy_from_slice(&names_bytes.to_le_bytes());
        let checksum = checksum(&header, after);
        header[56..].copy_from_slice(&checksum.to_le_bytes());
        header
    }

    /// Reads the layout of a catalog file and verifies the header, the head and the table of block checksums.
    pub(super) fn read(file: &[u8], path: &Path) -> Result<Layout> {
        let shown = path.display();
        let damaged = |what: &str| {
            Error::corrupt(format!("the catalog {shown} is damaged: {what}"))
                .hint("make it again with `gristmill catalog build`")
        };
        let Some(header) = file.first_chunk::<{ HEADER_BYTES as usize }>().filter(|h| h[..8] == MAGIC) else {
            return Err(Error::corrupt(format!("{shown} is not a catalog"))
                .hint("make one with `gristmill catalog build`"));
        };
        let u32_at =
            |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        let version = u32_at(8);
        if version != VERSION {
            return Err(Error::config(format!(
                "the catalog {shown} has format version {version}, but this Gristmill reads version {VERSION}"
            ))
            .hint("make it again with `gristmill catalog build`"));
        }
        let flags = u32_at(12);
        let counts = Counts {
            samples: u32_at(16),
            objects: u32_at(20),
            packed: flags & 1 != 0,
            gzip: flags & 2 != 0,
            content: flags & 4 != 0,
            head_bytes: u64_at(24),
            names_bytes: u64_at(32),
        };
        let layout = counts.layout().ok_or_else(|| damaged("its counts make no sense"))?;
        if layout.file_bytes != file.len() as u64 {
            let (is, should) = (file.len(), layout.file_bytes);
            return Err(damaged(&format!("it has {is} bytes and should have {should}")));
        }
        let after = &file[HEADER_BYTES as usize..layout.columns_at() as usize];
        if checksum(header, after) != u64_at(56) {
            return Err(damaged("its header does not fit its checksum"));
        }
        Ok(layout)
    }
}

/// The header's checksum: all of it but the checksum itself, and everything up to the columns.
fn checksum(header: &[u8; HEADER_BYTES as usize], after: &[u8]) -> u64 {
    let mut hash = Xxh3Default::new();
    hash.update(&header[..56]);
    hash.update(after);
    hash.digest()
}

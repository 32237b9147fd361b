//! The members of one tar shard, found by reading as little of it as the store makes sensible.
//!
//! Headers are looked at through a window; what lies between them is skipped when it is larger than the window.
//! GNU long names and pax paths and sizes are understood. A shard that ends before its end mark was cut off, and
//! that is an error: a silently shorter data set would be worse.
//!
//! Deliberately not here: compressed tars (they have no random access) and sparse members.

use super::scan::Scan;
use crate::store::{ObjectInfo, Store};
use crate::{Error, Result};
use ::tar::{EntryType, Header};
use bytes::Bytes;

const BLOCK: u64 = 512;
/// Most bytes of a long name or of pax records.
const EXTRA_BYTES_MAX: u64 = 1 << 20;

/// One file in a shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) name: String,
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

/// Goes through the members of a shard.
pub(super) struct Members<'a> {
    store: &'a dyn Store,
    shard: &'a ObjectInfo,
    /// The shard's full name, for messages.
    shown: String,
    /// Where the next header is.
    at: u64,
    last: String,
    window: Bytes,
    window_at: u64,
    window_bytes: u64,
}

/// What the headers before a member's own say about it.
#[derive(Default)]
struct Extra {
    name: Option<Vec<u8>>,
    bytes: Option<u64>,
}

impl<'a> Members<'a> {
    pub(super) fn new(scan: &'a Scan<'_>, shard: &'a ObjectInfo) -> Members<'a> {
        // A file is cheap to read again and again; a request to an object store costs as much as a megabyte.
        let window_bytes = if scan.store.immediate() { 64 << 10 } else { 1 << 20 };
        let (store, shown, last) = (scan.store, scan.shown(&shard.path), String::new());
        Members { store, shard, shown, at: 0, last, window: Bytes::new(), window_at: 0, window_bytes }
    }

    /// The next regular file; `None` at the end mark.
    pub(super) async fn next(&mut self) -> Result<Option<Member>> {
        let mut extra = Extra::default();
        loop {
            let header_at = self.at;
            let block = self.read(header_at, BLOCK).await?;
            if block.iter().all(|&byte| byte == 0) {
                return Ok(None);
            }
            let header = Header::from_byte_slice(&block);
            let sum: u32 = block
                .iter()
                .enumerate()
                .map(|(at, &byte)| if (148..156).contains(&at) { 32 } else { u32::from(byte) })
                .sum();
            if header.cksum().ok() != Some(sum) {
                let what = if header_at == 0 { "is not a tar file" } else { "is damaged" };
                return Err(Error::corrupt(format!(
                    "{} {what}: the header at byte {header_at} does not fit its checksum",
                    self.shown
                )));
            }
            let wrong_size = || {
                Error::corrupt(format!("{}: the header at byte {header_at} has no readable size", self.shown))
            };
            let kind = header.entry_type();
            let mut bytes = header.entry_size().map_err(|_| wrong_size())?;
            let special = matches!(
                kind,
                EntryType::GNULongName
                    | EntryType::GNULongLink
                    | EntryType::XHeader
                    | EntryType::XGlobalHeader
            );
            let regular = matches!(kind, EntryType::Regular | EntryType::Continuous);
            if !special {
                bytes = extra.bytes.take().unwrap_or(bytes);
                let own = header.path_bytes();
                let name = extra.name.take().unwrap_or_else(|| own.into_owned());
                self.last = String::from_utf8_lossy(&name).into_owned();
                if regular && str::from_utf8(&name).is_err() {
                    return Err(Error::config(format!(
                        "{}: the member name {:?} is not UTF-8",
                        self.shown, self.last
                    )));
                }
            }
            // Folders, links and devices have no content, whatever their size field says.
            let kept = if special || regular || kind == EntryType::GNUSparse { bytes } else { 0 };
            let offset = header_at + BLOCK;
            let end = offset.checked_add(kept).ok_or_else(wrong_size)?;
            if end > self.shard.bytes {
                return Err(self.cut());
            }
            self.at = end.next_multiple_of(BLOCK);
            if special {
                self.special(kind, offset, bytes, &mut extra).await?;
            } else if regular {
                return Ok(Some(Member { name: self.last.clone(), offset, bytes }));
            }
        }
    }

    /// The content of a small member.
    pub(super) async fn content(&mut self, member: &Member, bytes_max: u64) -> Result<Bytes> {
        if member.bytes > bytes_max {
            let (shard, name) = (&self.shown, &member.name);
            return Err(Error::config(format!(
                "{shard}: the member {name} has {} bytes; at most {bytes_max} are possible here",
                member.bytes
            )));
        }
        self.read(member.offset, member.bytes).await
    }

    /// Reads what a special header says about the member after it.
    async fn special(&mut self, kind: EntryType, offset: u64, bytes: u64, extra: &mut Extra) -> Result<()> {
        if bytes > EXTRA_BYTES_MAX {
            return Err(Error::corrupt(format!(
                "{}: the long name or pax header at byte {} claims {bytes} bytes",
                self.shown,
                offset - BLOCK
            )));
        }
        let content = self.read(offset, bytes).await?;
        match kind {
            EntryType::GNULongName => {
                let end = content.iter().position(|&byte| byte == 0).unwrap_or(content.len());
                extra.name = Some(content[..end].to_vec());
            }
            EntryType::XHeader => pax(&content, extra).ok_or_else(|| {
                Error::corrupt(format!(
                    "{}: the pax header at byte {} is damaged",
                    self.shown,
                    offset - BLOCK
                ))
            })?,
            // A global header names commits and the like, a long link is no sample.
            _ => {}
        }
        Ok(())
    }

    async fn read(&mut self, at: u64, bytes: u64) -> Result<Bytes> {
        let end = at.checked_add(bytes).filter(|&end| end <= self.shard.bytes).ok_or_else(|| self.cut())?;
        if at < self.window_at || end > self.window_at + self.window.len() as u64 {
            let window_end = self.shard.bytes.min(at + self.window_bytes.max(bytes));
            self.window = self.store.read(&self.shard.path, at..window_end).await?;
            self.window_at = at;
        }
        let start = (at - self.window_at) as usize;
        Ok(self.window.slice(start..start + bytes as usize))
    }

    fn cut(&self) -> Error {
        let (shard, bytes, last) = (&self.shown, self.shard.bytes, &self.last);
        let message = match last.as_str() {
            "" => format!("{shard} is not a tar file: it has only {bytes} bytes"),
            last if self.at >= bytes => {
                format!("{shard} ends at byte {bytes} after member {last} without an end mark")
            }
            last => format!("{shard} ends in the middle of member {last} at byte {bytes}"),
        };
        Error::corrupt(message).hint("it was cut off; fetch or make it again")
    }
}

/// Reads pax records: "30 path=some/name\n" and so on, where the number is the record's own length.
fn pax(mut records: &[u8], extra: &mut Extra) -> Option<()> {
    while !records.is_empty() {
        let space = records.iter().position(|&byte| byte == b' ')?;
        let length: usize = str::from_utf8(&records[..space]).ok()?.parse().ok()?;
        let record = records.get(space + 1..length)?.strip_suffix(b"\n")?;
        let equals = record.iter().position(|&byte| byte == b'=')?;
        let value = &record[equals + 1..];
        match &record[..equals] {
            b"path" => extra.name = Some(value.to_vec()),
            b"size" => extra.bytes = Some(str::from_utf8(value).ok()?.parse().ok()?),
            _ => {}
        }
        records = &records[length..];
    }
    Some(())
}

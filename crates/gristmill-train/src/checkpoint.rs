//! Checkpoint files: a name, a version, content, a checksum; written beside their place and then renamed to it.
//!
//! A file that is cut off, damaged or of another version is an error before any of it is believed. [`Writer`] and
//! [`Reader`] are the few shapes that content is made of; every length is checked against what is there.
//!
//! Deliberately not here: what a training consists of (see `trainer::state`).

use gristmill_node::{Error, Result};
use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use xxhash_rust::xxh3::xxh3_64;

const MAGIC: [u8; 8] = *b"GRISTCKP";
const VERSION: u32 = 1;
/// The largest file that is read: far more than any model here, with the scores of 100 million samples.
const BYTES_MAX: u64 = 8 << 30;
const FRAME_BYTES: usize = MAGIC.len() + 4 + 8;

/// Writes `content` to `path` so that there is always a whole checkpoint there: the old one or this.
pub(crate) fn write(path: &Path, content: &[u8]) -> Result<()> {
    let failed = |e: std::io::Error| Error::io("write the checkpoint", path.display(), e);
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
    let mut frame = Vec::with_capacity(content.len() + FRAME_BYTES);
    frame.extend_from_slice(&MAGIC);
    frame.extend_from_slice(&VERSION.to_le_bytes());
    frame.extend_from_slice(content);
    frame.extend_from_slice(&xxh3_64(&frame).to_le_bytes());
    file.write_all(&frame).and_then(|()| file.as_file().sync_all()).map_err(failed)?;
    file.persist(path).map_err(|e| failed(e.error))?;
    Ok(())
}

/// Reads the content back.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>> {
    let failed = |e: std::io::Error| Error::io("read the checkpoint", path.display(), e);
    let meta = fs::metadata(path).map_err(failed)?;
    if !meta.is_file() || meta.len() > BYTES_MAX {
        return Err(Error::config(format!("{} is not a checkpoint", path.display())));
    }
    let mut frame = Vec::with_capacity(meta.len() as usize);
    fs::File::open(path).and_then(|file| file.take(BYTES_MAX).read_to_end(&mut frame)).map_err(failed)?;
    let shown = path.display();
    if frame.len() < FRAME_BYTES || frame[..MAGIC.len()] != MAGIC {
        return Err(Error::corrupt(format!("{shown} is not a checkpoint of a training"))
            .hint("name the file that --checkpoint wrote"));
    }
    let (front, sum) = frame.split_at(frame.len() - 8);
    if xxh3_64(front).to_le_bytes() != sum {
        return Err(Error::corrupt(format!(
            "the checkpoint {shown} is damaged: its checksum does not match"
        ))
        .hint("take a copy of it, or train again without --resume"));
    }
    let version = front[MAGIC.len()..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
    if version != VERSION {
        return Err(Error::config(format!(
            "the checkpoint {shown} has version {version}; this program reads version {VERSION}"
        ))
        .hint("resume it with the program that wrote it"));
    }
    frame.truncate(frame.len() - 8);
    frame.drain(..FRAME_BYTES - 8);
    Ok(frame)
}

/// Puts values one after the other.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    pub(crate) content: Vec<u8>,
}

impl Writer {
    pub(crate) fn number(&mut self, value: u64) {
        self.content.extend_from_slice(&value.to_le_bytes());
    }

    /// By its bits: what is read back is the same number.
    pub(crate) fn real(&mut self, value: f64) {
        self.number(value.to_bits());
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.content.extend_from_slice(bytes);
    }

    pub(crate) fn floats(&mut self, values: &[f32]) {
        self.number(values.len() as u64);
        values.iter().for_each(|value| self.content.extend_from_slice(&value.to_le_bytes()));
    }

    pub(crate) fn whole(&mut self, values: &[u32]) {
        self.number(values.len() as u64);
        values.iter().for_each(|value| self.content.extend_from_slice(&value.to_le_bytes()));
    }
}

/// Takes values out again, in the order in which they were put.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(content: &'a [u8]) -> Reader<'a> {
        Reader { rest: content }
    }

    pub(crate) fn number(&mut self) -> Result<u64> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or_else(short)?;
        self.rest = rest;
        Ok(u64::from_le_bytes(*bytes))
    }

    pub(crate) fn real(&mut self) -> Result<f64> {
        Ok(f64::from_bits(self.number()?))
    }

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8]> {
        let count = self.number()?;
        self.take(count, 1)
    }

    pub(crate) fn text(&mut self) -> Result<String> {
        Ok(String::from_utf8_lossy(self.bytes()?).into_owned())
    }

    pub(crate) fn floats(&mut self) -> Result<Vec<f32>> {
        let count = self.number()?;
        let (words, _) = self.take(count, 4)?.as_chunks::<4>();
        Ok(words.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
    }

    pub(crate) fn whole(&mut self) -> Result<Vec<u32>> {
        let count = self.number()?;
        let (words, _) = self.take(count, 4)?.as_chunks::<4>();
        Ok(words.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    fn take(&mut self, count: u64, size: u64) -> Result<&'a [u8]> {
        let length = count.checked_mul(size).filter(|length| *length <= self.rest.len() as u64);
        let (taken, rest) = self.rest.split_at(length.ok_or_else(short)? as usize);
        self.rest = rest;
        Ok(taken)
    }
}

fn short() -> Error {
    Error::corrupt("the checkpoint ends too early or holds something else")
        .hint("train again without --resume")
}

#[cfg(test)]
mod tests {
    use super::*;
    use gristmill_node::Kind;

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.ckpt");
        let mut writer = Writer::default();
        writer.number(7);
        writer.real(0.1);
        writer.bytes(b"name");
        writer.floats(&[1.5, f32::MIN_POSITIVE]);
        writer.whole(&[3, u32::MAX]);
        write(&path, &writer.content).unwrap();
        write(&path, &writer.content).unwrap();
        let content = read(&path).unwrap();
        let mut reader = Reader::new(&content);
        assert_eq!((reader.number().unwrap(), reader.real().unwrap()), (7, 0.1));
        assert_eq!(reader.text().unwrap(), "name");
        assert_eq!(reader.floats().unwrap(), [1.5, f32::MIN_POSITIVE]);
        assert_eq!(reader.whole().unwrap(), [3, u32::MAX]);
        assert!(reader.is_empty() && reader.number().is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn every_spoiled_byte_and_every_cut_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.ckpt");
        write(&path, b"some content").unwrap();
        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut spoiled = whole.clone();
            spoiled[at] ^= 1;
            fs::write(&path, &spoiled).unwrap();
            let error = read(&path).unwrap_err();
            assert!(error.to_string().contains("c.ckpt"), "byte {at}: {error}");
            fs::write(&path, &whole[..at]).unwrap();
            assert_eq!(read(&path).unwrap_err().kind(), Kind::Corrupt, "cut at {at}");
        }
        fs::remove_file(&path).unwrap();
        assert_eq!(read(&path).unwrap_err().kind(), Kind::NotFound);
    }

    #[test]
    fn a_length_is_believed_only_if_it_is_there() {
        for count in [u64::MAX, 1 << 62, 2] {
            let mut content = count.to_le_bytes().to_vec();
            content.push(1);
            assert!(Reader::new(&content).floats().is_err() && Reader::new(&content).bytes().is_err());
        }
    }
}

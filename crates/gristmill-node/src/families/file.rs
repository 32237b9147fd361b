//! The file of a data set's families: hashes and groups, under one checksum.
//!
//! Little-endian: magic, version, digest of the catalog, options, number of samples, one hash per sample, the groups as
//! `core::family` writes them, and the xxh3 of all that. It is made under another name and renamed, so it is whole
//! or absent. Whatever does not fit exactly is no error but no file: families can always be found again.

use super::{FamilyOptions, FamilySet};
use crate::catalog::{self, Digest};
use crate::{Result, open};
use gristmill_core::family::{Families, NO_HASH, RADIUS_MAX};
use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;
use xxhash_rust::xxh3::{Xxh3Default, xxh3_64};

const MAGIC: [u8; 8] = *b"GRISTFAM";
/// Also the version of the hash: another rule for its bits is another version.
const VERSION: u32 = 1;
/// Magic, version, digest, radius asked for, largest radius, flag, samples.
const HEAD_BYTES: usize = 8 + 4 + 16 + 4 + 4 + 4 + 4;
const SUM_BYTES: usize = 8;
/// Stands for a radius that was not asked for.
const CHOSEN: u32 = u32::MAX;

/// Writes `set` to `path`.
pub(super) fn write(path: &Path, set: &FamilySet) -> Result<()> {
    open::make_folder(path)?;
    let mut head = Vec::with_capacity(HEAD_BYTES);
    head.extend_from_slice(&MAGIC);
    head.extend_from_slice(&VERSION.to_le_bytes());
    head.extend_from_slice(&set.digest.0.to_le_bytes());
    let options = set.options;
    let words = [
        options.radius.unwrap_or(CHOSEN),
        set.radius_max,
        options.cross_label.into(),
        set.hashes.len() as u32,
    ];
    words.iter().for_each(|word| head.extend_from_slice(&word.to_le_bytes()));
    let hashes: Vec<u8> = set.hashes.iter().flat_map(|hash| hash.to_le_bytes()).collect();
    let groups = set.families.to_bytes();
    catalog::replace(path, "file of families", |file| put(file, &[&head, &hashes, &groups]))
}

fn put(file: &mut File, parts: &[&[u8]]) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 20, file);
    let mut sum = Xxh3Default::new();
    for part in parts {
        sum.update(part);
        out.write_all(part)?;
    }
    out.write_all(&sum.digest().to_le_bytes())?;
    out.flush()
}

/// The families at `path`, if they are those of the data set with this digest and so many samples.
pub(super) fn read(path: &Path, digest: Digest, samples: u32) -> Option<FamilySet> {
    // Asked before opening: opening a pipe would wait for its other end. A file of this many samples has a largest
    // size: every sample in a family of two.
    let meta = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    let bytes_max = (HEAD_BYTES + SUM_BYTES + 64) as u64 + u64::from(samples) * (8 + 4 + 2);
    if meta.len() > bytes_max {
        return None;
    }
    let mut bytes = Vec::with_capacity(meta.len() as usize);
    File::open(path).ok()?.take(bytes_max).read_to_end(&mut bytes).ok()?;
    let (content, sum) = bytes.split_last_chunk::<SUM_BYTES>()?;
    if xxh3_64(content) != u64::from_le_bytes(*sum) {
        return None;
    }
    parse(content, digest, samples)
}

fn parse(content: &[u8], digest: Digest, samples: u32) -> Option<FamilySet> {
    let (head, rest) = content.split_at_checked(HEAD_BYTES)?;
    let word = |at: usize| Some(u32::from_le_bytes(head.get(at..at + 4)?.try_into().ok()?));
    let of = u128::from_le_bytes(head.get(12..28)?.try_into().ok()?);
    if head[..8] != MAGIC || word(8)? != VERSION || of != digest.0 || word(40)? != samples {
        return None;
    }
    let radius = Some(word(28)?).filter(|radius| *radius != CHOSEN);
    let (radius_max, cross_label) = (word(32)?, word(36)?);
    if radius.unwrap_or(0).max(radius_max) > RADIUS_MAX || cross_label > 1 {
        return None;
    }
    let (hashes, groups) = rest.split_at_checked(samples as usize * 8)?;
    let hashes: Vec<u64> = hashes.as_chunks::<8>().0.iter().map(|hash| u64::from_le_bytes(*hash)).collect();
    let families = Families::from_bytes(groups, samples).ok()?;
    let bad = hashes.iter().filter(|hash| **hash == NO_HASH).count() as u32;
    let options = FamilyOptions { radius, cross_label: cross_label == 1 };
    Some(FamilySet { families, hashes, bad, options, radius_max, digest })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> FamilySet {
        let hashes = vec![5, 9, 5, NO_HASH, 7];
        FamilySet {
            families: Families::group(&hashes, &[0; 5], 1, false).unwrap(),
            hashes,
            bad: 1,
            options: FamilyOptions { radius: Some(1), cross_label: false },
            radius_max: 4,
            digest: Digest(77),
        }
    }

    #[test]
    fn what_is_written_comes_back_and_only_for_its_data_set() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/a.families");
        assert!(read(&path, Digest(77), 5).is_none());
        write(&path, &example()).unwrap();
        assert_eq!(read(&path, Digest(77), 5).unwrap(), example());
        assert!(read(&path, Digest(78), 5).is_none() && read(&path, Digest(77), 6).is_none());
        assert_eq!(fs::read_dir(folder.path().join("new")).unwrap().count(), 1);
    }

    #[test]
    fn any_flipped_bit_and_any_cut_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.families");
        write(&path, &example()).unwrap();
        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x10;
            fs::write(&path, &bytes).unwrap();
            assert!(read(&path, Digest(77), 5).is_none(), "byte {at}");
            fs::write(&path, &whole[..at]).unwrap();
            assert!(read(&path, Digest(77), 5).is_none(), "cut at {at}");
        }
    }
}

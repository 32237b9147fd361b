//! Inflating gzip files whose inflated size is known beforehand.
//!
//! The expected size bounds the work before it begins, so a small file cannot unfold into a large one; a file
//! that is shorter or longer than expected, or that has something after its end, is an error.

use crate::{Error, Result};
use flate2::bufread::MultiGzDecoder;
use std::io::Read;

/// Deflate cannot shrink anything more than this.
const RATIO_MAX: u64 = 1_032;

/// Inflates a gzip file that holds exactly `inflated_bytes`.
pub fn inflate(gzip: &[u8], inflated_bytes: u64) -> Result<Vec<u8>> {
    let possible = inflated_bytes.min((gzip.len() as u64).saturating_mul(RATIO_MAX));
    let mut all = Vec::with_capacity(possible as usize);
    let bytes = through(gzip, inflated_bytes, |chunk| all.extend_from_slice(chunk))?;
    if bytes != inflated_bytes {
        return Err(Error::corrupt(format!("it inflates to {bytes} bytes instead of {inflated_bytes}")));
    }
    Ok(all)
}

/// Shows what is inside to `see`, chunk by chunk, and gives its size; more than `bytes_max` is an error.
pub(super) fn through(gzip: &[u8], bytes_max: u64, mut see: impl FnMut(&[u8])) -> Result<u64> {
    let mut inside = MultiGzDecoder::new(gzip);
    let mut chunk = vec![0; 64 * 1024];
    let mut bytes = 0;
    loop {
        let read = inside.read(&mut chunk).map_err(|e| {
            Error::corrupt(format!("it is not a whole gzip file (after {bytes} inflated bytes: {e})"))
                .because(e)
        })?;
        if read == 0 {
            return Ok(bytes);
        }
        bytes += read as u64;
        if bytes > bytes_max {
            return Err(Error::corrupt(format!("it inflates to more than the expected {bytes_max} bytes")));
        }
        see(&chunk[..read]);
    }
}

/// The first bytes of what is inside, at most `most`.
pub(super) fn front(gzip: &[u8], most: u64) -> Result<Vec<u8>> {
    let mut front = Vec::new();
    MultiGzDecoder::new(gzip)
        .take(most)
        .read_to_end(&mut front)
        .map_err(|e| Error::corrupt(format!("it is not a whole gzip file ({e})")).because(e))?;
    Ok(front)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::{Compression, write::GzEncoder};
    use std::io::Write;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn exactly_the_expected_size_or_an_error() {
        let bytes = vec![7; 100_000];
        let whole = gzip(&bytes);
        assert_eq!(inflate(&whole, 100_000).unwrap(), bytes);
        let twice = [whole.clone(), whole.clone()].concat();
        assert_eq!(inflate(&twice, 200_000).unwrap().len(), 200_000, "members add up, as gunzip has it");
        let garbage = [whole.clone(), b"more".to_vec()].concat();
        let mut flipped = whole.clone();
        *flipped.last_mut().unwrap() ^= 1;
        for (gzip, size, words) in [
            (&whole, 99_999, "more than the expected 99999"),
            (&whole, 100_001, "100000 bytes instead of 100001"),
            (&whole, u64::MAX, "100000 bytes instead of"),
            (&garbage, 100_000, "not a whole gzip file"),
            (&flipped, 100_000, "not a whole gzip file"),
            (&whole[..whole.len() - 9].to_vec(), 100_000, "not a whole gzip file"),
            (&Vec::new(), 5, "not a whole gzip file"),
        ] {
            let error = inflate(gzip, size).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}

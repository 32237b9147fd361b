//! The shipped pictures, unpacked: nothing inside a gzip file can be read by itself, so nothing of it can be cached.

use anyhow::Result;
use flate2::read::MultiGzDecoder;
use gristmill_node::Error;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// More than the shipped files hold, so that a damaged one does not fill the disk.
const UNPACKED_BYTES_MAX: u64 = 64 << 20;

/// Unpacks idx pictures and their labels into a folder that is removed with the value.
pub(super) fn unpack(images: &Path) -> Result<(TempDir, PathBuf)> {
    let folder = tempfile::Builder::new().prefix("gristmill-compare-").tempdir();
    let folder = folder.map_err(|e| Error::io("make", "a temporary folder", e))?;
    let name = images.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let labels = images.with_file_name(name.replace("images", "labels").replace("idx3", "idx1"));
    let unpacked = one(images, folder.path())?;
    one(&labels, folder.path())?;
    Ok((folder, unpacked))
}

fn one(zipped: &Path, folder: &Path) -> Result<PathBuf> {
    let target = folder.join(zipped.file_stem().unwrap_or_default());
    let failed = |e| Error::io("unpack", zipped.display(), e);
    let mut inside = MultiGzDecoder::new(BufReader::new(File::open(zipped).map_err(failed)?));
    let mut file = File::create(&target).map_err(failed)?;
    let bytes =
        std::io::copy(&mut inside.by_ref().take(UNPACKED_BYTES_MAX + 1), &mut file).map_err(failed)?;
    if bytes > UNPACKED_BYTES_MAX {
        let name = zipped.display();
        return Err(Error::corrupt(format!("{name} unpacks to more than {UNPACKED_BYTES_MAX} bytes")).into());
    }
    Ok(target)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::source;

    #[test]
    fn the_shipped_pictures_unpack_with_their_labels() {
        let (train, _) = source::shipped().unwrap();
        let (folder, images) = unpack(&train).unwrap();
        let bytes = |path: &Path| std::fs::metadata(path).unwrap().len();
        assert_eq!(bytes(&images), 16 + 4_000 * 784);
        let labels = folder.path().join("fashion-mnist-4000-train-labels-idx1-ubyte");
        assert_eq!(bytes(&labels), 8 + 4_000);
        assert!(unpack(&images).is_err(), "what is not gzip is an error");
    }
}

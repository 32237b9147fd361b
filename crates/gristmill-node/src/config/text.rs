//! Reading small text files that people write: config files and recipes.
//!
//! Only regular files are opened: a device never ends and a pipe may never begin. Whatever is wrong with the name
//! that was given is the caller's to change, so it is a config error.

use crate::{Error, Kind, Result};
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

/// The text of the file `path`, which is to be `what` and may have at most `bytes_max` bytes.
pub(crate) fn read(path: &Path, what: &str, bytes_max: u64) -> Result<String> {
    let failed = |e| {
        let error = Error::io("read", format_args!("the {what} {}", path.display()), e);
        match error.kind() {
            Kind::NotFound => Error::config(error.to_string()).hint("check the spelling of the path"),
            _ => error,
        }
    };
    let refused = |why: &str| Error::config(format!("the {what} {} {why}", path.display()));
    let meta = fs::metadata(path).map_err(failed)?;
    if meta.is_dir() {
        return Err(refused("is a folder").hint("name a file in it"));
    }
    if !meta.is_file() {
        return Err(refused("is not a regular file").hint("devices and pipes are not read; name a file"));
    }
    let mut bytes = Vec::new();
    // The size is not believed: a file may grow, and some files of the system say that they have 0 bytes.
    File::open(path).and_then(|file| file.take(bytes_max + 1).read_to_end(&mut bytes)).map_err(failed)?;
    if bytes.len() as u64 > bytes_max {
        return Err(
            refused(&format!("has more than {bytes_max} bytes")).hint("is it the file that was meant?")
        );
    }
    String::from_utf8(bytes).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        refused(&format!("is not text in UTF-8 (byte {at} is not)")).hint("save it as UTF-8")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_small_regular_files_of_text() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("text"), "käse").unwrap();
        fs::write(path("long"), "123456").unwrap();
        fs::write(path("binary"), [b'a', 0xff]).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, path("pipe"), rustix::fs::Mode::RUSR).unwrap();
        assert_eq!(read(&path("text"), "recipe", 5).unwrap(), "käse");
        for (name, words) in [
            ("long", "has more than 5 bytes"),
            ("binary", "is not text in UTF-8 (byte 1 is not)"),
            ("pipe", "is not a regular file"),
            (".", "is a folder"),
            ("none", "no such file"),
            ("/dev/zero", "is not a regular file"),
        ] {
            let error = read(&path(name), "recipe", 5).unwrap_err();
            assert!(error.to_string().contains(words), "{name}: {error}");
            assert_eq!(error.kind(), Kind::Config, "{name}");
        }
    }
}

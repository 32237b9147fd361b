//! `cut-photos FOLDER [COUNT] [SEED] [QUALITY] [PART]`: writes a folder of JPEGs cut from the shipped photos, none of
//! them of a lower quality than asked for; with a part of the shipped Fashion-MNIST (`4000-train`, `1000-test`), its
//! pictures laid over such cuts.
//!
//! The folder appears under its name only when it is complete, so a run that was killed leaves nothing behind
//! that looks like a data set.

use gristmill_testdata::{QUALITIES, cut_photos_of, pasted_photos};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[expect(clippy::print_stderr, reason = "a command line")]
fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let number = |text: Option<String>, default: u64| text.map_or(Ok(default), |text| text.parse::<u64>());
    // What looks like an option is none of the names that anybody gives a folder.
    let folder = args.next().filter(|name| !name.starts_with('-')).map(PathBuf::from);
    let numbers = [400, 0, QUALITIES.start.into()].map(|default| number(args.next(), default));
    let (Some(folder), [Ok(count), Ok(seed), Ok(quality @ 1..=100)]) = (folder, numbers) else {
        eprintln!(
            "usage: cut-photos FOLDER [COUNT] [SEED] [QUALITY, at most 100; 95 without a part] [4000-train | 1000-test]"
        );
        return ExitCode::from(2);
    };
    let part = args.next();
    if part.is_none() && quality >= QUALITIES.end.into() {
        eprintln!("cut-photos: cuts are of a quality below {}, so none is of {quality}", QUALITIES.end);
        return ExitCode::from(2);
    }
    let write = |growing: &Path| match &part {
        Some(part) => pasted_photos(growing, part, count as u32, seed, quality as i32),
        None => cut_photos_of(growing, count as u32, seed, quality as u32..QUALITIES.end),
    };
    let growing = folder.with_extension("growing");
    let made = std::fs::remove_dir_all(&growing)
        .or_else(|e| if e.kind() == std::io::ErrorKind::NotFound { Ok(()) } else { Err(e) })
        .and_then(|()| write(&growing))
        .and_then(|()| std::fs::rename(&growing, &folder));
    match made {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("cut-photos: cannot write {}: {e}", folder.display());
            ExitCode::FAILURE
        }
    }
}

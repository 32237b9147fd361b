//! `cut-photos FOLDER [COUNT] [SEED]`: writes a folder of JPEGs cut from the shipped photos.
//!
//! The folder appears under its name only when it is complete, so a run that was killed leaves nothing behind
//! that looks like a data set.

use std::path::PathBuf;
use std::process::ExitCode;

#[expect(clippy::print_stderr, reason = "a command line")]
fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let number = |text: Option<String>, default: u64| text.map_or(Ok(default), |text| text.parse::<u64>());
    let (Some(folder), Ok(count), Ok(seed)) =
        (args.next().map(PathBuf::from), number(args.next(), 400), number(args.next(), 0))
    else {
        eprintln!("usage: cut-photos FOLDER [COUNT] [SEED]");
        return ExitCode::from(2);
    };
    let growing = folder.with_extension("growing");
    let made = std::fs::remove_dir_all(&growing)
        .or_else(|e| if e.kind() == std::io::ErrorKind::NotFound { Ok(()) } else { Err(e) })
        .and_then(|()| gristmill_testdata::cut_photos(&growing, count as u32, seed))
        .and_then(|()| std::fs::rename(&growing, &folder));
    match made {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("cut-photos: cannot write {}: {e}", folder.display());
            ExitCode::FAILURE
        }
    }
}

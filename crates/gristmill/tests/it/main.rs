//! The command line as a user meets it: real processes, real files, exit codes and sentences.

#![expect(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

mod bad_input;
mod cache;
mod commands;
mod compare_all;
mod compare_exchange;
mod compare_split;
mod documents;
mod exchange;
mod families;
mod interrupt;
mod memory;
#[cfg(feature = "mpi")]
mod mpi;
mod options;
mod page;
mod profile;
mod resume;
mod serve;
mod simulate;
mod train;
mod watch;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// A folder of its own for a test, with a catalog folder that no other run shares.
struct Place {
    folder: TempDir,
}

/// What a command did.
struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Place {
    fn new() -> Place {
        Place { folder: TempDir::new().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A folder of `count` pictures in class folders.
    fn photos(&self, count: u32) -> PathBuf {
        let folder = self.path("photos");
        gristmill_testdata::cut_photos(&folder, count, 3).unwrap();
        folder
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gristmill"));
        command
            .args(args)
            .current_dir(self.folder.path())
            .env("GRISTMILL_CATALOG_FOLDER", self.path("catalogs"));
        command
    }

    fn run(&self, args: &[&str]) -> Ran {
        Ran::of(&self.command(args).output().unwrap())
    }
}

impl Ran {
    fn of(output: &Output) -> Ran {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ran { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
    }

    #[track_caller]
    fn good(self) -> Ran {
        assert_eq!(self.code, Some(0), "stdout: {}\nstderr: {}", self.out, self.err);
        self
    }

    /// Failed with this code and one sentence with all these words in it; no panic, no backtrace.
    #[track_caller]
    fn bad(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, Some(code), "stdout: {}\nstderr: {}", self.out, self.err);
        let errors: Vec<&str> = self.err.lines().filter(|line| line.starts_with("error: ")).collect();
        assert_eq!(errors.len(), 1, "one sentence: {}", self.err);
        for word in words {
            assert!(errors[0].contains(word), "{word:?} is missing in: {}", self.err);
        }
        assert!(!self.err.contains("panicked") && !self.err.contains("RUST_BACKTRACE"), "{}", self.err);
    }

    #[track_caller]
    fn json(&self) -> Vec<serde_json::Value> {
        self.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

//! Finished trainings in a file, so that a comparison that was stopped goes on.
//!
//! One JSON object per line, appended when a training ends. A line that was cut off is passed over.

use crate::output::{name, say};
use anyhow::Result;
use gristmill_node::Error;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// The most that is read of such a file.
const BYTES_MAX: u64 = 64 << 20;

#[derive(Debug, Serialize, Deserialize)]
struct Line<T> {
    /// Everything that the outcome depends on.
    training: String,
    outcome: T,
}

/// What was trained before, and what each training came to.
#[derive(Debug)]
pub(super) struct Kept<T> {
    path: PathBuf,
    file: File,
    known: BTreeMap<String, T>,
}

impl<T: Clone + Serialize + DeserializeOwned> Kept<T> {
    pub(super) fn open(path: &Path) -> Result<Kept<T>> {
        let failed = |what: &str, e| Error::io(what, path.display(), e);
        let file = OpenOptions::new().read(true).append(true).create(true).open(path);
        let mut file = file.map_err(|e| failed("open", e))?;
        let mut bytes = Vec::new();
        (&mut file).take(BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|e| failed("read", e))?;
        if bytes.len() as u64 > BYTES_MAX {
            return Err(
                Error::config(format!("{} is no file of kept trainings: too large", path.display())).into()
            );
        }
        let text = String::from_utf8_lossy(&bytes);
        let (mut known, mut strange) = (BTreeMap::new(), 0_u32);
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            match serde_json::from_str::<Line<T>>(line) {
                Ok(line) => drop(known.insert(line.training, line.outcome)),
                Err(_) => strange += 1,
            }
        }
        if strange > 0 && known.is_empty() {
            let hint = "choose a file that is not there yet";
            return Err(Error::config(format!("{} holds no kept trainings", path.display()))
                .hint(hint)
                .into());
        }
        if strange > 0 {
            say(format_args!(
                "{}: {strange} lines that are no trainings are passed over",
                name(path.display())
            ));
        }
        if bytes.last().is_some_and(|byte| *byte != b'\n') {
            // The next line must not continue one that was cut off.
            file.write_all(b"\n").map_err(|e| failed("write", e))?;
        }
        Ok(Kept { path: path.into(), file, known })
    }

    pub(super) fn find(&self, training: &str) -> Option<T> {
        self.known.get(training).cloned()
    }

    pub(super) fn add(&mut self, training: String, outcome: T) -> Result<()> {
        let mut line = serde_json::to_string(&Line { training, outcome })?;
        line.push('\n');
        let written = self.file.write_all(line.as_bytes());
        written.map_err(|e| Error::io("write", self.path.display(), e).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gristmill_train::ranks::Outcome;

    const OUTCOME: Outcome = Outcome {
        accuracy: 0.875,
        loss: 0.5,
        train_loss: 0.25,
        steps: 7,
        moved_share: 0.3,
        divergence: None,
    };

    #[test]
    fn what_is_kept_is_found_and_a_cut_line_is_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kept");
        let mut kept = Kept::open(&path).unwrap();
        kept.add("a".into(), OUTCOME).unwrap();
        kept.add("b".into(), Outcome { steps: 8, ..OUTCOME }).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, &text[..text.len() - 5]).unwrap();
        let mut kept = Kept::open(&path).unwrap();
        assert_eq!((kept.find("a"), kept.find("b")), (Some(OUTCOME), None));
        kept.add("b".into(), OUTCOME).unwrap();
        assert_eq!(Kept::open(&path).unwrap().find("b"), Some(OUTCOME));
        std::fs::write(&path, "my diary\n").unwrap();
        assert!(Kept::<Outcome>::open(&path).unwrap_err().to_string().contains("holds no kept trainings"));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "my diary\n");
    }
}

//! Class names for sources whose labels are numbers.
//!
//! A file with one name per line beside the data names them; otherwise the numbers are the names.

use super::draft::Draft;
use super::layout::CLASSES_MAX;
use super::scan::{Scan, join};
use crate::{Error, Kind, Result};
use std::collections::HashSet;

/// Most bytes of a file of class names.
const NAMES_BYTES_MAX: u64 = 64 << 20;

/// "0", "1" and so on.
pub(super) fn numbered(count: usize) -> Vec<String> {
    (0..count).map(|label| label.to_string()).collect()
}

/// Names the draft's classes after the first of `files` that lies in `folder`, or by number. There are at least
/// `least` classes, and at least as many as the labels need.
pub(super) async fn name(
    scan: &Scan<'_>,
    draft: &mut Draft,
    folder: &str,
    files: &[&str],
    least: usize,
) -> Result<()> {
    let needed = draft.labels.iter().max().map_or(0, |&label| label as usize + 1).max(least);
    if needed > CLASSES_MAX {
        return Err(Error::config(format!(
            "{} has the label {}; labels must be below {CLASSES_MAX}",
            scan.url,
            needed - 1
        )));
    }
    for file in files {
        let name = join(folder, file);
        let object = match scan.store.stat(&name).await {
            Ok(object) => object,
            Err(error) if error.kind() == Kind::NotFound => continue,
            Err(error) => return Err(error),
        };
        let bytes = scan.read_whole(&object, NAMES_BYTES_MAX).await?;
        draft.classes = parse(&bytes, needed).map_err(|error| error.at(scan.shown(&name)))?;
        draft.push_side(&object, &bytes);
        return Ok(());
    }
    draft.classes = numbered(needed);
    Ok(())
}

/// One name per line; empty lines only at the end.
fn parse(bytes: &[u8], needed: usize) -> Result<Vec<String>> {
    let text = str::from_utf8(bytes).map_err(|_| Error::config("the class names are not UTF-8 text"))?;
    let names: Vec<String> = text.trim_end().lines().map(|line| line.trim().to_string()).collect();
    if names.len() < needed {
        return Err(Error::config(format!("there are {} class names, but {needed} classes", names.len())));
    }
    if names.len() > CLASSES_MAX {
        return Err(Error::config(format!("there are {} class names; at most {CLASSES_MAX}", names.len())));
    }
    let mut seen = HashSet::new();
    for (line, name) in names.iter().enumerate() {
        if name.is_empty() || !seen.insert(name) {
            let why = if name.is_empty() { "is empty" } else { "names a class a second time" };
            return Err(Error::config(format!("line {} {why}", line + 1)).hint("write one name per line"));
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_one_per_line() {
        assert_eq!(parse(b"cat\r\ndog\n\n", 2).unwrap(), ["cat", "dog"]);
        assert_eq!(parse(b"cat\ndog\nemu", 2).unwrap().len(), 3, "a class without samples keeps its name");
        for (bytes, words) in [
            (&b"cat"[..], "there are 1 class names, but 2 classes"),
            (b"cat\n\ndog", "line 2 is empty"),
            (b"cat\ncat", "line 2 names a class a second time"),
            (b"\xff\n", "not UTF-8"),
        ] {
            let error = parse(bytes, 2).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}

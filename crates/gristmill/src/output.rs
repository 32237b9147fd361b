//! Printing: data to standard output, words to standard error, and a reader that goes away is not a panic.

use anyhow::{Context, Result};
use gristmill_node::{Error, Kind};
use serde::Serialize;
use std::fmt::Display;
use std::io::{self, ErrorKind, Write};

/// Prints one line of data.
pub(crate) fn line(text: impl Display) -> Result<()> {
    write(&format!("{text}\n"))
}

/// Prints one JSON object on a line of its own.
pub(crate) fn json(value: &impl Serialize) -> Result<()> {
    let mut text = serde_json::to_string(value).context("cannot write JSON")?;
    text.push('\n');
    write(&text)
}

fn write(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|e| match e.kind() {
        ErrorKind::BrokenPipe => {
            Error::new(Kind::Io, "the reader of standard output went away before everything was printed")
                .into()
        }
        _ => anyhow::Error::from(Error::io("write to", "standard output", e)),
    })
}

/// Says something that is not data.
pub(crate) fn say(text: impl Display) {
    // Nobody listening to words is no reason to stop the work.
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Says what went wrong and what to do.
pub(crate) fn complain(error: &anyhow::Error, hint: Option<&str>) {
    say(format_args!("error: {error}"));
    if let Some(hint) = hint.filter(|hint| !hint.is_empty()) {
        say(format_args!("hint: {hint}"));
    }
}

/// Thousands apart, as people read numbers.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A size as people read it.
pub(crate) fn size(bytes: u64) -> String {
    let units = [("GB", 1e9), ("MB", 1e6), ("kB", 1e3)];
    let fitting = units.iter().find(|(_, scale)| bytes as f64 >= *scale);
    fitting
        .map_or_else(|| format!("{bytes} B"), |(unit, scale)| format!("{:.1} {unit}", bytes as f64 / scale))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_people() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([12, 1_500, 2_000_000, 3_100_000_000].map(size), ["12 B", "1.5 kB", "2.0 MB", "3.1 GB"]);
    }
}

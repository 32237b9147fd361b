//! Printing: data to standard output, words to standard error, and a reader that goes away is not a panic.

use anyhow::{Context, Result};
use gristmill_node::{Error, Kind};
use serde::Serialize;
use std::fmt::Display;
use std::io::{self, ErrorKind, Write};

/// Prints one line of data.
pub(crate) fn line(text: impl Display) -> Result<()> {
    write(&escaped(&format!("{text}\n"), true))
}

/// A name or a sentence with names in it, as one line that does nothing to a terminal.
pub(crate) fn name(text: impl Display) -> String {
    escaped(&text.to_string(), false)
}

/// Shows control characters, and those that turn the direction of text, instead of obeying them.
fn escaped(text: &str, keep_lines: bool) -> String {
    let obeyed = |c: char| {
        let turns = matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        (c.is_control() && !(keep_lines && c == '\n')) || turns
    };
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if obeyed(c) { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out
}

/// Writes lines to a terminal over the last `over` ones.
pub(crate) fn redraw(lines: &[String], over: usize) -> Result<()> {
    let mut text = if over > 0 { format!("\x1b[{over}F") } else { String::new() };
    for line in lines {
        text.push_str(&escaped(line, false));
        text.push_str("\x1b[K\n");
    }
    text.push_str("\x1b[J");
    write(&text)
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
    let _ = writeln!(io::stderr().lock(), "{}", escaped(&text.to_string(), true));
}

/// Says what went wrong and what to do.
pub(crate) fn complain(error: &anyhow::Error, hint: Option<&str>) {
    say(format_args!("error: {}", name(error)));
    if let Some(hint) = hint.filter(|hint| !hint.is_empty()) {
        say(format_args!("hint: {}", name(hint)));
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

/// A number of things, with the word for one or for many.
pub(crate) fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", grouped(number), if number == 1 { one } else { many })
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
    fn names_cannot_write_on_the_terminal() {
        for (text, one_line, lines) in [
            ("plain ü/名.jpg", "plain ü/名.jpg", "plain ü/名.jpg"),
            ("a\x1b[2Jb\r", "a\\u{1b}[2Jb\\r", "a\\u{1b}[2Jb\\r"),
            ("a\nb\u{85}", "a\\nb\\u{85}", "a\nb\\u{85}"),
            ("gpj.\u{202e}exe", "gpj.\\u{202e}exe", "gpj.\\u{202e}exe"),
        ] {
            assert_eq!((name(text), escaped(text, true)), (one_line.to_string(), lines.to_string()));
        }
    }

    #[test]
    fn numbers_for_people() {
        assert_eq!([0, 1, 2].map(|n| counted(n, "class", "classes")), ["0 classes", "1 class", "2 classes"]);
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([12, 1_500, 2_000_000, 3_100_000_000].map(size), ["12 B", "1.5 kB", "2.0 MB", "3.1 GB"]);
    }
}

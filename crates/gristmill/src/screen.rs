//! A view that is drawn again in its place in a terminal.
//!
//! The cursor goes up to where the view began and every line is written over; what was on the screen before stays in
//! its history, and the last view stays when the command ends. Nothing must be undone, so that a process that is killed
//! leaves the terminal as it was. Deliberately not here: colours, and any other mode of the terminal.

use crate::output;
use anyhow::Result;
use rustix::termios::tcgetwinsize;
use std::io::{IsTerminal, stderr, stdout};

/// Rows and columns where a terminal does not say.
const USUAL: (usize, usize) = (24, 80);

/// The place of a view on standard output.
pub(crate) struct Screen {
    drawn: usize,
}

impl Screen {
    /// A place for a view; none where standard output is no terminal.
    pub(crate) fn open() -> Option<Screen> {
        stdout().is_terminal().then_some(Screen { drawn: 0 })
    }

    /// Draws the view over the last one, as far as there is room.
    pub(crate) fn draw(&mut self, text: &str) -> Result<()> {
        let (rows, columns) = tcgetwinsize(stdout()).map_or(USUAL, |size| of(size.ws_row, size.ws_col));
        let lines = fitted(text, rows, columns);
        output::redraw(&lines, self.drawn)?;
        self.drawn = lines.len();
        Ok(())
    }
}

/// The columns of the terminal behind standard error.
pub(crate) fn columns() -> usize {
    tcgetwinsize(stderr()).map_or(USUAL, |size| of(size.ws_row, size.ws_col)).1
}

/// A terminal of no size does not know it.
fn of(rows: u16, columns: u16) -> (usize, usize) {
    if rows == 0 || columns == 0 { USUAL } else { (rows.into(), columns.into()) }
}

/// A line that does not wrap.
pub(crate) fn cut(line: &str, columns: usize) -> String {
    let room = columns.saturating_sub(1).max(1);
    if line.chars().count() <= room {
        return line.to_string();
    }
    line.chars().take(room - 1).chain(['…']).collect()
}

fn fitted(text: &str, rows: usize, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = text.trim_end().lines().map(|line| cut(line, columns)).collect();
    let room = rows.saturating_sub(1).max(1);
    if lines.len() > room {
        let hidden = lines.len() - room + 1;
        lines.truncate(room - 1);
        lines.push(cut(&format!("… {hidden} more lines: make the terminal taller"), columns));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_fits_its_terminal() {
        assert_eq!((cut("abc", 4), cut("abcd", 4), cut("äöü", 1)), ("abc".into(), "ab…".into(), "…".into()));
        assert_eq!(fitted("a\nb\nc\n", 4, 80), ["a", "b", "c"]);
        let cut_short = fitted("a\nb\nc\nd", 4, 80);
        assert_eq!(cut_short, ["a", "b", "… 2 more lines: make the terminal taller"]);
        assert_eq!(fitted("a\nb", 1, 80).len(), 1);
    }
}

//! Progress on standard error: a bar in a terminal, a plain line now and then elsewhere.
//!
//! Both say the same words: how much is done, of how much once that is known, and of what.

use crate::output::{grouped, say, size};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use std::fmt::Write;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// How often a plain line is printed where there is no terminal.
const PLAIN_EVERY: Duration = Duration::from_secs(5);

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Things, by the word for one and for many, and what was done to them.
    Things(&'static str, &'static str, &'static str),
    /// Bytes, and what was done to them.
    Bytes(&'static str),
}

pub(crate) const BATCHES: Unit = Unit::Things("batch", "batches", "");
pub(crate) const EPOCHS: Unit = Unit::Things("epoch", "epochs", "trained");
pub(crate) const SAMPLES: Unit = Unit::Things("sample", "samples", "decoded");

/// Progress of one long piece of work.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    /// What the bar shows, and whether of a total, once it shows anything.
    shows: Option<(Unit, bool)>,
    what: String,
    next_line: Option<Instant>,
    started: Instant,
}

impl Progress {
    /// Progress of `what`. `quiet` shows nothing.
    pub(crate) fn new(what: &str, quiet: bool) -> Progress {
        let terminal = std::io::stderr().is_terminal() && !quiet;
        let bar = terminal.then(|| {
            ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10))
                .with_style(template("{prefix} {spinner}"))
                .with_prefix(what.to_string())
        });
        let next_line = (!terminal && !quiet).then(|| Instant::now() + PLAIN_EVERY);
        Progress { bar, shows: None, what: what.to_string(), next_line, started: Instant::now() }
    }

    /// Says how far it is, out of `total` if that is known, and adds `more` to it.
    pub(crate) fn at(&mut self, done: u64, total: Option<u64>, unit: Unit, more: impl FnOnce() -> String) {
        if let Some(bar) = &self.bar {
            if self.shows.replace((unit, total.is_some())) != Some((unit, total.is_some())) {
                bar.set_style(style(unit, total.is_some()));
                bar.reset_eta();
            }
            // Length and position in one go: each change may draw, and words and bar must agree.
            bar.update(|state| {
                total.into_iter().for_each(|total| state.set_len(total));
                state.set_pos(done);
            });
            bar.set_message(joined(more()));
        } else if self.next_line.is_some_and(|next| Instant::now() >= next) {
            let (words, more) = (words(done, total, unit), joined(more()));
            let left = total.and_then(|total| left(self.started.elapsed(), done, total)).unwrap_or_default();
            say(format_args!("{}: {words}{more}{}", self.what, joined(left)));
            self.next_line = Some(Instant::now() + PLAIN_EVERY);
        }
    }

    /// Removes the bar.
    pub(crate) fn done(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}

/// How long the rest will take if it goes on like this.
fn left(elapsed: Duration, done: u64, total: u64) -> Option<String> {
    let seconds = elapsed.as_secs_f64() * total.checked_sub(done)? as f64 / done as f64;
    let text = match seconds {
        _ if !seconds.is_finite() => return None,
        _ if seconds < 100.0 => format!("{seconds:.0} s"),
        _ if seconds < 6_000.0 => format!("{:.0} min", seconds / 60.0),
        _ => format!("{:.1} h", seconds / 3_600.0),
    };
    Some(format!("about {text} left"))
}

fn joined(more: String) -> String {
    if more.is_empty() { more } else { format!(", {more}") }
}

/// How a bar looks. Its words are made when it is drawn, from what is drawn.
fn style(unit: Unit, of_total: bool) -> ProgressStyle {
    let style = if of_total {
        template("{prefix} [{bar:20}] {percent:>3} % {eta:>4} {words}{wide_msg}")
    } else {
        template("{prefix} {spinner} {words}{wide_msg}")
    };
    style.with_key("words", move |state: &ProgressState, out: &mut dyn Write| {
        // A bar that cannot be drawn is not worth a word.
        let _ = out.write_str(&words(state.pos(), state.len().filter(|_| of_total), unit));
    })
}

fn template(template: &str) -> ProgressStyle {
    let style = ProgressStyle::with_template(template);
    style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> ")
}

fn words(done: u64, total: Option<u64>, unit: Unit) -> String {
    let of = |show: fn(u64) -> String| match total {
        Some(total) => format!("{} of {}", show(done), show(total)),
        None => show(done),
    };
    let text = match unit {
        Unit::Things(one, many, verb) => {
            format!("{} {} {verb}", of(grouped), if total.unwrap_or(done) == 1 { one } else { many })
        }
        Unit::Bytes(verb) => format!("{} {verb}", of(size)),
    };
    text.trim_end().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_progress() {
        let objects = Unit::Things("object", "objects", "listed");
        for (done, total, unit, expect) in [
            (1, Some(5), BATCHES, "1 of 5 batches"),
            (1, Some(1), BATCHES, "1 of 1 batch"),
            (1, None, objects, "1 object listed"),
            (6_400, None, objects, "6,400 objects listed"),
            (1_500, Some(2_000_000), Unit::Bytes("hashed"), "1.5 kB of 2.0 MB hashed"),
        ] {
            assert_eq!(words(done, total, unit), expect);
        }
    }

    #[test]
    fn the_rest_is_foreseen_once_something_is_done() {
        let left = |seconds, done, total| left(Duration::from_secs(seconds), done, total);
        assert_eq!(left(10, 0, 4), None);
        assert_eq!(left(10, 1, 4).unwrap(), "about 30 s left");
        assert_eq!(left(600, 1, 3).unwrap(), "about 20 min left");
        assert_eq!(left(3_600, 1, 4).unwrap(), "about 3.0 h left");
        assert_eq!(left(10, 5, 4), None);
    }

    #[test]
    fn a_bar_takes_the_total_when_it_is_known() {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        let mut progress = Progress {
            bar: Some(bar.clone()),
            shows: None,
            what: String::new(),
            next_line: None,
            started: Instant::now(),
        };
        progress.at(3, None, BATCHES, String::new);
        assert_eq!((bar.length(), progress.shows), (None, Some((BATCHES, false))));
        progress.at(4, Some(9), BATCHES, || "fast".into());
        assert_eq!((bar.length(), bar.position(), bar.message().as_str()), (Some(9), 4, ", fast"));
        assert_eq!(progress.shows, Some((BATCHES, true)));
    }
}

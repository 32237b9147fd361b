//! Progress on standard error: a bar in a terminal, a plain line now and then elsewhere.

use crate::output::say;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// How often a plain line is printed where there is no terminal.
const PLAIN_EVERY: Duration = Duration::from_secs(5);

/// Progress of one long piece of work.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    what: String,
    next_line: Instant,
}

impl Progress {
    /// Progress of `what`, out of `total` if that is known. `quiet` shows nothing.
    pub(crate) fn new(what: &str, total: Option<u64>, quiet: bool) -> Progress {
        let terminal = std::io::stderr().is_terminal() && !quiet;
        let bar = terminal.then(|| {
            let bar = total.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
            bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(10));
            let template = if total.is_some() {
                "{prefix} [{bar:32}] {pos}/{len} {percent}% {eta} {msg}"
            } else {
                "{prefix} {spinner} {pos} {msg}"
            };
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style.progress_chars("=> "));
            }
            bar.set_prefix(what.to_string());
            bar
        });
        let next_line = Instant::now() + if quiet { Duration::from_secs(1 << 40) } else { PLAIN_EVERY };
        Progress { bar, what: what.to_string(), next_line }
    }

    /// Says how far it is.
    pub(crate) fn at(&mut self, done: u64, message: impl FnOnce() -> String) {
        if let Some(bar) = &self.bar {
            bar.set_position(done);
            bar.set_message(message());
        } else if Instant::now() >= self.next_line {
            say(format_args!("{}: {done} {}", self.what, message()));
            self.next_line = Instant::now() + PLAIN_EVERY;
        }
    }

    /// Says how much there is, once that is known.
    pub(crate) fn of(&mut self, total: u64) {
        if let Some(bar) = &self.bar
            && bar.length() != Some(total)
        {
            bar.set_length(total);
        }
    }

    /// Removes the bar.
    pub(crate) fn done(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}

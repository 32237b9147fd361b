//! Ctrl-C: the first asks the work to end tidily, the second ends the process.

use gristmill_node::{Error, Kind, Result};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// How long Ctrl-C may go unheard.
pub(crate) const SLICE: Duration = Duration::from_millis(50);

static ASKED: AtomicU32 = AtomicU32::new(0);

/// Starts to listen for Ctrl-C.
pub(crate) fn listen() {
    // Without a handler Ctrl-C just ends the process, which is sound too: no file is ever half written.
    let _ = ctrlc::set_handler(|| {
        if ASKED.fetch_add(1, SeqCst) > 0 {
            std::process::exit(130);
        }
    });
}

/// Whether the user asked to stop.
pub(crate) fn asked() -> bool {
    ASKED.load(SeqCst) > 0
}

/// Sleeps, but no longer than until the user asks to stop.
pub(crate) fn sleep(time: Duration) {
    let end = Instant::now() + time;
    while !asked() {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        std::thread::sleep(left.min(SLICE));
    }
}

/// An error if the user asked to stop.
pub(crate) fn check() -> Result<()> {
    if asked() { Err(Error::new(Kind::Stopped, "stopped by Ctrl-C")) } else { Ok(()) }
}

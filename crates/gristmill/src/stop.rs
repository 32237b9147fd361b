//! Ctrl-C: the first asks the work to end tidily, the second ends the process.

use gristmill_node::{Error, Kind, Result};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

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

/// An error if the user asked to stop.
pub(crate) fn check() -> Result<()> {
    if asked() { Err(Error::new(Kind::Stopped, "stopped by Ctrl-C")) } else { Ok(()) }
}

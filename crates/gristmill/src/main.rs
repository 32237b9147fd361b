//! The gristmill command line: parse, run, report, exit.
//!
//! Exit codes: 0 done; 1 it ran and found or met a problem; 2 the call or the configuration is wrong; 130 stopped
//! by Ctrl-C. Data goes to standard output, words to standard error.

mod allocator;
mod args;
mod bars;
mod commands;
mod glance;
mod output;
mod plot;
mod progress;
mod screen;
mod stop;

use clap::Parser;
use gristmill_node::{Error, Kind};
use std::process::ExitCode;

fn main() -> ExitCode {
    let args = match args::Args::try_parse() {
        Ok(args) => args,
        Err(usage) => {
            // Help and version are answers, not errors; a closed pipe while printing them harms nobody.
            let _ = usage.print();
            return ExitCode::from(if usage.use_stderr() { 2 } else { 0 });
        }
    };
    stop::listen();
    match commands::run(args) {
        Ok(code) => code,
        Err(error) => fail(&error),
    }
}

/// Says what went wrong; the exit code for it.
fn fail(error: &anyhow::Error) -> ExitCode {
    let (code, hint) = match error.downcast_ref::<Error>() {
        Some(known) => (exit_code(known.kind()), known.remedy()),
        None => (1, None),
    };
    output::complain(error, hint);
    ExitCode::from(code)
}

fn exit_code(kind: Kind) -> u8 {
    match kind {
        Kind::Config => 2,
        Kind::Stopped => 130,
        _ => 1,
    }
}

//! `gristmill simulate`: what epochs would cost at any scale.
//!
//! The work is `gristmill-sim`'s; here is what is typed ([`options`]), measured ([`measured`]) and shown ([`table`]).

mod measured;
mod options;
mod table;
mod total;

use crate::args::SimulateArgs;
use crate::commands::train;
use crate::output::{json, line, name, say};
use crate::progress::{Progress, Unit};
use crate::stop;
use anyhow::Result;
use gristmill_node::Error;
use gristmill_sim::{EpochCost, Setup, Shuffle, Simulation, Trouble};
use measured::Measured;
use std::process::ExitCode;
use total::Total;

/// The most epochs that are simulated.
const EPOCHS_MAX: u64 = 100_000;
const EPOCHS: Unit = Unit::Things("epoch", "epochs", "simulated");

/// One way to shuffle, simulated.
struct Side {
    setup: Setup,
    costs: Vec<EpochCost>,
    total: Total,
}

pub(super) fn simulate(args: &SimulateArgs) -> Result<ExitCode> {
    if args.epochs == 0 || args.epochs > EPOCHS_MAX {
        return Err(Error::config(format!("--epochs {} is not from 1 to {EPOCHS_MAX}", args.epochs)).into());
    }
    args.svg.iter().try_for_each(|path| train::check_folder("--svg", path))?;
    let measured = args.profile.as_deref().map(Measured::open).transpose()?;
    let setups = options::setups(args, measured.as_ref())?;
    if let Some(measured) = measured.filter(|_| !args.json) {
        say(format_args!("figures of {} as they were measured", name(&measured.source)));
        if measured.compute_per_s.is_none() && args.data.step_ms.is_none() {
            say("note: the profile does not say how long a step takes; --step-ms does");
        }
        let reads = setups.iter().any(|setup| setup.knobs.shuffle == Shuffle::Global);
        if reads && args.ranks > 1 && args.hardware.store.is_none() && measured.is_latency_bound() {
            say("note: the profile met no limit of the store, so none is simulated; --store sets one");
        }
    }
    // Several ways are compared at the end; their epochs need less room.
    let rows_max = if setups.len() > 1 { table::ROWS_MAX / 2 } else { table::ROWS_MAX };
    let mut sides = Vec::new();
    for setup in setups {
        let side = one(args, setup)?;
        if !args.json {
            if !sides.is_empty() {
                line("")?;
            }
            table::text(&side, rows_max).iter().try_for_each(line)?;
            total::text(&side.total).iter().try_for_each(line)?;
        }
        sides.push(side);
    }
    if args.json {
        for side in &sides {
            side.costs.iter().try_for_each(|cost| json(&table::Row::new(&side.setup, cost)))?;
            json(&side.total)?;
        }
    } else {
        let beside: Vec<&Total> = sides.iter().map(|side| &side.total).collect();
        total::beside(&beside).iter().try_for_each(line)?;
    }
    if let Some(path) = &args.svg {
        train::write_file(path, &table::picture(&sides))?;
        if !args.json {
            say(format_args!("picture written to {}", name(path.display())));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Simulates one way to shuffle from the first epoch to the last.
fn one(args: &SimulateArgs, setup: Setup) -> Result<Side> {
    let told = |trouble: Trouble| match trouble {
        Trouble::Invalid(invalid) => Error::config(invalid.to_string()),
        Trouble::Violation(broken) => Error::corrupt(broken.to_string())
            .hint("this must never happen: please report it with the command that you typed"),
    };
    let mut simulation = Simulation::new(setup).map_err(|e| told(e.into()))?;
    let mut bar = Progress::new(simulation.setup().knobs.shuffle.name(), args.json);
    let mut costs = Vec::new();
    for epoch in 0..args.epochs {
        bar.at(epoch, Some(args.epochs), EPOCHS, String::new);
        costs.push(simulation.next_epoch().map_err(told)?);
        stop::check()?;
    }
    bar.done();
    let total = Total::new(&simulation, &costs);
    Ok(Side { setup: simulation.setup().clone(), costs, total })
}

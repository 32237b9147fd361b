//! Simulates training at any scale: the real decisions, on modelled hardware, under a virtual clock.
//!
//! A [`Machine`] is what there is, a [`Load`] what is to be done, [`Knobs`] how; [`simulate_epoch`] says what an epoch
//! costs then. A [`Simulation`] goes on from epoch to epoch, with [`Fault`]s, and checks after each that nothing was lost,
//! doubled or trained where it is not held. Who holds and sends what is decided by `gristmill-core`, exactly as in a real run;
//! only bytes and time are pretended.
//!
//! Deliberately not here: files, threads, the time of day. The same setup gives the same figures, bit for bit, on any machine.

#![forbid(unsafe_code)]

mod check;
mod clock;
mod cost;
mod epoch;
mod fault;
mod knobs;
mod load;
mod machine;
mod seen;
mod simulation;

pub use check::Violation;
pub use cost::{Causes, EpochCost, Traffic};
pub use fault::Fault;
pub use knobs::{Hold, Knobs, Shuffle};
pub use load::{Labels, Load, SAMPLES_MAX};
pub use machine::{Disk, Link, Machine, RANKS_MAX, Store};
pub use seen::SeenShare;
pub use simulation::{Setup, Simulation, Trouble, simulate_epoch};

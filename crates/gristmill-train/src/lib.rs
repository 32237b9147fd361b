//! A small embedded trainer: the whole loop of load, train, feed back and select, on a bare machine.
//!
//! An [`Mlp`] of dense layers with batch norm and rectifiers is trained by SGD with momentum on weighted softmax cross
//! entropy. A [`Trainer`] runs it over a loader's epochs, gives the loader its feedback, and can be stopped and resumed at any
//! batch with the same bits at the end.
//!
//! [`ranks`] trains as many ranks do together, from samples that each of them holds, to show what an exchange is worth.
//!
//! Deliberately not here: convolutions, other optimisers, several threads per product, accelerators. Real models are
//! trained by PyTorch through the Python package; this one exists to show every claim without it.

mod checkpoint;
mod layer;
mod loss;
mod matrix;
mod model;
mod optimiser;
pub mod ranks;
mod trainer;

pub use loss::{Facts, softmax_cross_entropy};
pub use model::{Mlp, Mode};
pub use optimiser::{Schedule, Sgd};
pub use trainer::{Checkpoint, Ended, EpochRow, Event, Live, Run, TrainOptions, Trainer};

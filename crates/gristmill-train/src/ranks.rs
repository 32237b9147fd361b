//! Many ranks in one process: data-parallel SGD with M ranks is one step on a batch of M parts.
//!
//! What a rank adds to training is its own batch, its own batch-norm statistics, and nothing else: gradients are averaged,
//! weights are the same everywhere. So a training on 2,048 ranks runs on one core, with the orders that the ranks would
//! really have ([`Orders`]) and the accuracy that they would really reach.
//!
//! [`together`] trains a few ranks that load for themselves, each with a loader and a thread of its own.
//!
//! Deliberately not here: time, traffic and waiting of thousands of ranks (the simulator's).

mod held;
mod orders;
mod together;

pub use held::Held;
pub use orders::{Dealing, Fraction, Orders, Partition};
pub use together::{Joint, together};

use crate::loss::Facts;
use crate::model::{Mlp, Mode};
use crate::trainer::TrainOptions;
use gristmill_node::{Error, Kind, Result};
use serde::{Deserialize, Serialize};

/// The part of a training in which the rate rises.
const WARM_PART: f64 = 0.1;
/// How many samples are judged at once.
const JUDGED: usize = 1_000;

/// What a training came to.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The share of the judged samples that the model has right.
    pub accuracy: f64,
    /// Their mean loss.
    pub loss: f64,
    /// The mean loss of the training samples in the last epoch.
    pub train_loss: f64,
    /// Steps, over all epochs.
    pub steps: u64,
    /// The share of the samples that moved to another rank, per epoch.
    pub moved_share: f64,
    /// How far the classes that a rank holds are from those of all in the end (mean total variation); none if nothing is held.
    pub divergence: Option<f64>,
}

/// Trains on `train` in the orders of the ranks and judges by `test`. `tell` hears of every finished epoch. None if it was told
/// to stop.
///
/// The rate rises over the first tenth of all steps and then falls as `options.schedule` says.
pub fn train(
    options: &TrainOptions,
    train: &Held,
    test: &Held,
    mut orders: Orders,
    stop: &dyn Fn() -> bool,
    tell: &mut dyn FnMut(u64),
) -> Result<Option<Outcome>> {
    let classes = train.classes.max(test.classes);
    options.check(train.inputs, classes)?;
    if test.inputs != train.inputs {
        return Err(Error::config(format!(
            "a test sample has {} numbers, but a training sample has {}",
            test.inputs, train.inputs
        ))
        .hint("train and test with the same recipe and size of pictures"));
    }
    let (world, size) = (orders.world() as usize, orders.global_batch());
    let mut model = Mlp::new(train.inputs, &options.hidden, classes, options.seed).in_parts(world);
    let (mut numbers, mut labels, mut facts) = (Vec::new(), Vec::new(), Facts::default());
    let weights = vec![1.0; size];
    // What is not trained yet is as important as anything can be: nothing is known against it.
    let mut losses = vec![1.0_f32; train.len()];
    let per_epoch = train.len() / size;
    let (mut taken, mut train_loss) = (0_u64, 0.0);
    for epoch in 0..options.epochs {
        let order = orders.begin(epoch, &train.labels, &losses)?;
        train_loss = 0.0;
        for places in order.chunks_exact(size) {
            if stop() {
                return Ok(None);
            }
            train.gather(places, &mut numbers, &mut labels);
            let loss = model.learn(&numbers, &labels, &weights, &mut facts);
            if !loss.is_finite() {
                return Err(Error::new(
                    Kind::Config,
                    format!("the loss of epoch {epoch} on {world} ranks is {loss}"),
                )
                .hint("the learning rate is too high for this model, or the samples are not normalised"));
            }
            train_loss += loss / per_epoch as f64;
            places.iter().zip(&facts.loss).for_each(|(place, loss)| losses[*place as usize] = *loss);
            let part = taken as f64 / (per_epoch as u64 * options.epochs) as f64;
            let warm = (part / WARM_PART).clamp(1.0 / 64.0, 1.0);
            let factor = options.schedule.fallen(part) * warm;
            options.sgd.step(&mut model, options.rate * factor as f32);
            taken += 1;
        }
        orders.end();
        tell(epoch + 1);
    }
    let (accuracy, loss) = judge(&mut model, test);
    let (moved_share, divergence) = (orders.moved_share(), orders.divergence(&train.labels));
    Ok(Some(Outcome { accuracy, loss, train_loss, steps: taken, moved_share, divergence }))
}

/// The share of samples that the model has right, and their mean loss.
fn judge(model: &mut Mlp, test: &Held) -> (f64, f64) {
    let (mut facts, mut right, mut loss) = (Facts::default(), 0, 0.0);
    for (numbers, labels) in test.numbers.chunks(JUDGED * test.inputs).zip(test.labels.chunks(JUDGED)) {
        model.forward(numbers, Mode::Evaluate);
        loss += model.judge(labels, &vec![1.0; labels.len()], &mut facts) * labels.len() as f64;
        right += facts.correct();
    }
    let count = test.len().max(1) as f64;
    (right as f64 / count, loss / count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::optimiser::{Schedule, Sgd};
    use gristmill_core::exchange::Choose;
    use gristmill_core::rng::Stream;

    /// Four classes around four points, `count` samples.
    fn clouds(seed: u64, count: u32) -> Held {
        let mut stream = Stream::from_key(seed);
        let labels: Vec<u32> = (0..count).map(|id| id % 4).collect();
        let at = |label: u32, side: u32| if label >> side & 1 == 1 { 1.0 } else { -1.0 };
        let numbers = labels
            .iter()
            .flat_map(|label| [0, 1].map(|side| at(*label, side) + ((stream.unit() - 0.5) * 2.4) as f32))
            .collect();
        Held { inputs: 2, classes: 4, numbers, labels }
    }

    fn run(fraction: &str, stop: &dyn Fn() -> bool) -> Option<Outcome> {
        let (data, test) = (clouds(1, 960), clouds(2, 400));
        let sgd = Sgd { momentum: 0.9, weight_decay: 1e-4 };
        let schedule = Schedule::Cosine;
        let options = TrainOptions { hidden: vec![16], epochs: 12, rate: 0.1, schedule, sgd, seed: 3 };
        let dealing = Dealing {
            fraction: fraction.parse().unwrap(),
            partition: Partition::Sorted,
            choose: Choose::Uniform,
        };
        let orders = Orders::new(data.labels(), 24, 8, 5, dealing).unwrap();
        let mut epochs = Vec::new();
        let outcome = train(&options, &data, &test, orders, stop, &mut |epoch| epochs.push(epoch)).unwrap();
        assert_eq!(epochs.len(), if outcome.is_some() { 12 } else { 0 });
        outcome
    }

    #[test]
    fn sorted_slices_spoil_a_training_and_an_exchange_mends_it() {
        let [local, part, global] = ["0", "0.5", "global"].map(|fraction| run(fraction, &|| false).unwrap());
        assert_eq!(global.steps, 12 * 5);
        assert!(global.accuracy > 0.8, "{global:?}");
        assert!(local.accuracy < global.accuracy - 0.1, "{local:?} {global:?}");
        assert!(part.accuracy > global.accuracy - 0.05, "{part:?} {global:?}");
        assert_eq!(Some(part), run("0.5", &|| false), "the same again");
        assert_eq!(run("0.5", &|| true), None);
    }
}

//! Stochastic gradient descent with momentum and weight decay, and how its rate falls.

use crate::model::Mlp;
use gristmill_node::Error;
use std::fmt;
use std::str::FromStr;

/// How a step is made from a gradient.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sgd {
    /// How much of the last step is in the next one.
    pub momentum: f32,
    /// How strongly the weights of products are drawn to 0.
    pub weight_decay: f32,
}

impl Sgd {
    /// Makes one step of this rate along the gradient that the model holds.
    pub fn step(&self, model: &mut Mlp, rate: f32) {
        for param in model.params() {
            let decay = if param.decays { self.weight_decay } else { 0.0 };
            let learned = param.value.iter_mut().zip(&mut param.velocity).zip(&param.grad);
            for ((value, velocity), grad) in learned {
                *velocity = self.momentum * *velocity + grad + decay * *value;
                *value -= rate * *velocity;
            }
        }
    }
}

/// How the rate falls from epoch to epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Schedule {
    /// Along half a cosine wave, nearly to 0.
    Cosine,
    /// To a tenth at half of the epochs, and again at three quarters.
    Step,
}

impl Schedule {
    /// The factor of the rate in `epoch` of `epochs`, at a step of that epoch. The first epoch warms up: its steps
    /// rise evenly to the full rate.
    pub fn factor(self, epoch: u64, epochs: u64, step: u64, steps: u64) -> f32 {
        let fallen = self.fallen(epoch as f64 / epochs.max(1) as f64);
        let warm = if epoch == 0 { (step + 1) as f64 / steps.max(1) as f64 } else { 1.0 };
        (fallen * warm.min(1.0)) as f32
    }

    /// The factor of the rate after this part of a training, without any warm-up.
    pub(crate) fn fallen(self, part: f64) -> f64 {
        match self {
            Schedule::Cosine => f64::midpoint(1.0, (part * std::f64::consts::PI).cos()),
            Schedule::Step if part < 0.5 => 1.0,
            Schedule::Step if part < 0.75 => 0.1,
            Schedule::Step => 0.01,
        }
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Schedule::Cosine => "cosine",
            Schedule::Step => "step",
        })
    }
}

impl FromStr for Schedule {
    type Err = Error;

    fn from_str(text: &str) -> Result<Schedule, Error> {
        match text {
            "cosine" => Ok(Schedule::Cosine),
            "step" => Ok(Schedule::Step),
            _ => Err(Error::config(format!("{text:?} is not a schedule")).hint("cosine or step")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loss::Facts;

    #[test]
    fn the_rate_warms_up_and_falls() {
        let cosine = |epoch, step| Schedule::Cosine.factor(epoch, 10, step, 4);
        let rates = [0, 1, 2, 3].map(|step| cosine(0, step));
        assert_eq!(format!("{rates:?}"), "[0.25, 0.5, 0.75, 1.0]");
        assert!((cosine(5, 0) - 0.5).abs() < 1e-6 && cosine(9, 0) < 0.03 && cosine(9, 0) > 0.0);
        let step = |epoch| Schedule::Step.factor(epoch, 8, 0, 1);
        let rates = [0, 3, 4, 5, 6, 7].map(step);
        assert_eq!(format!("{rates:?}"), "[1.0, 1.0, 0.1, 0.1, 0.01, 0.01]");
        let unknown = Schedule::Cosine.factor(0, 1, 0, 0);
        assert!((unknown - 1.0).abs() < 1e-6, "an epoch without a known length");
    }

    #[test]
    fn the_rate_does_not_follow_the_number_of_steps() {
        // A selection makes epochs of fewer steps, or of smaller batches: the rate of an epoch stays what it is.
        for schedule in [Schedule::Cosine, Schedule::Step] {
            for epoch in 1..30 {
                let full = schedule.factor(epoch, 30, 0, 400);
                for steps in [1, 7, 200, 400] {
                    let rates = (0..steps).map(|step| schedule.factor(epoch, 30, step, steps));
                    assert!(
                        rates.into_iter().all(|rate| rate.to_bits() == full.to_bits()),
                        "{schedule} {epoch}"
                    );
                }
            }
        }
    }

    #[test]
    fn momentum_and_decay_follow_the_rule() {
        let mut model = Mlp::new(1, &[], 2, 3);
        let before: Vec<f32> = model.params().flat_map(|param| param.value.clone()).collect();
        let sgd = Sgd { momentum: 0.5, weight_decay: 0.1 };
        for param in model.params() {
            param.grad.fill(1.0);
        }
        sgd.step(&mut model, 0.01);
        sgd.step(&mut model, 0.01);
        let after: Vec<f32> = model.params().flat_map(|param| param.value.clone()).collect();
        for (i, (w, now)) in before.iter().zip(&after).enumerate() {
            // The first two are weights, the others the shifts, which do not decay.
            let decay = if i < 2 { 0.1 } else { 0.0 };
            let v1 = 1.0 + decay * w;
            let w1 = w - 0.01 * v1;
            let v2 = 0.5 * v1 + 1.0 + decay * w1;
            assert!((now - (w1 - 0.01 * v2)).abs() < 1e-6, "{i}: {now}");
        }
    }

    #[test]
    fn a_small_problem_is_learned_and_learned_alike() {
        // Two classes that no single line divides: a ring around a disc.
        let mut stream = gristmill_core::rng::Stream::from_key(5);
        let mut points = Vec::new();
        let mut labels = Vec::new();
        for i in 0..256 {
            let angle = stream.unit() * std::f64::consts::TAU;
            let radius = stream.unit() * 0.4 + if i % 2 == 0 { 0.0 } else { 0.6 };
            points.extend([(radius * angle.cos()) as f32, (radius * angle.sin()) as f32]);
            labels.push(i % 2);
        }
        let weights = vec![1.0; labels.len()];
        let train = || {
            let (mut model, mut facts) = (Mlp::new(2, &[16, 8], 2, 11), Facts::default());
            let sgd = Sgd { momentum: 0.9, weight_decay: 1e-4 };
            let mut losses = Vec::new();
            for _ in 0..200 {
                losses.push(model.learn(&points, &labels, &weights, &mut facts));
                sgd.step(&mut model, 0.1);
            }
            let bits: Vec<u32> = model.params().flat_map(|p| p.value.clone()).map(f32::to_bits).collect();
            (losses, facts.correct(), bits)
        };
        let (losses, correct, bits) = train();
        assert!(losses[0] > 0.5 && losses[199] < 0.05, "{} {}", losses[0], losses[199]);
        assert!(correct >= 254, "{correct}");
        assert_eq!(bits, train().2, "the same seed gives the same bits");
    }
}

//! The options of every way to select: names, defaults, limits.
//!
//! Each way has a struct of its own with the defaults; [`Selection::set`] and [`Selection::options`] reach its fields
//! by the names that users write in a file, an argument or Python. An option that a way does not have is an error:
//! a value that silently does nothing would be trained with.
//!
//! The defaults are those of the publications where they have some. What was tried for `bucket` is in
//! `bench/results/selection-sweep-bucket.txt`, and for `weighted` in the files that `selection-notes.txt` beside it names.

mod bounds;
mod fields;

pub use bounds::Bounds;

use crate::Invalid;
use crate::nearest::nearest;
use crate::score::{EntropyForm, Polarity};

/// How the samples of an epoch are selected.
#[derive(Debug, Clone, PartialEq)]
pub enum Selection {
    /// Every sample, once.
    Uniform,
    /// Active and resting samples by smoothed thresholds, with recall (IOWA).
    Bucket(Bucket),
    /// Drawn by the rank of their loss, with replacement (Loshchilov and Hutter 2016).
    Online(Online),
    /// Weighted by how much the prediction varies (Chang 2017).
    ActiveBias(ActiveBias),
    /// Everything is fetched and forwarded, the biggest losses are trained (Jiang 2019).
    BiggestLoser(BiggestLoser),
    /// A small model first, then the share it was least sure of (Coleman 2020).
    Proxy(Proxy),
    /// The biggest last-known losses are fetched (iCACHE).
    Iis(Iis),
    /// A random share of the samples below the mean loss is skipped, the others carry their weight (Qin 2024).
    InfoBatch(InfoBatch),
    /// Ours: see [`Weighted`].
    Weighted(Weighted),
}

/// Which criteria decide in `bucket`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Criteria {
    /// The vote when training waits for I/O, else the entropy alone.
    Auto,
    /// The entropy alone.
    Entropy,
    /// Entropy, margin and cost: two of three.
    Vote,
}

/// IOWA's buckets.
#[derive(Debug, Clone, PartialEq)]
pub struct Bucket {
    /// Full epochs before the first sample rests.
    pub warmup: u32,
    /// The share of epochs at the end that train on everything.
    pub full_share: f64,
    /// How much of the old threshold stays in the new one.
    pub smoothing: f64,
    /// The threshold as a part of the median, for entropy and margin.
    pub relax: f64,
    /// The same for the cost.
    pub relax_cost: f64,
    /// 0 follows the median; above, the threshold is this quantile of the scores.
    pub quantile: f64,
    /// The share of all samples that stays active whatever the scores say.
    pub floor: f64,
    /// The share of all samples that may go to rest after one epoch.
    pub out_max: f64,
    /// Whether resting samples come back when training stagnates; off is BS-norecall.
    pub recall: bool,
    /// The share of the resting samples that comes back at once.
    pub recall_share: f64,
    /// After how many epochs without a better accuracy.
    pub stagnation: u32,
    /// The share of samples that never rests, by whose accuracy stagnation is judged.
    pub probe: f64,
    /// 0 drops resting samples; above, only this share of them, and the others carry their weight.
    pub soft: f64,
    /// Which criteria decide.
    pub criteria: Criteria,
    /// The formula of the entropy.
    pub entropy: EntropyForm,
    /// Which side of a threshold is important.
    pub polarity: Polarity,
}

impl Default for Bucket {
    fn default() -> Bucket {
        Bucket {
            warmup: 3,
            full_share: 0.0,
            smoothing: 0.9,
            relax: 0.15,
            relax_cost: 1.0,
            quantile: 0.0,
            floor: 0.1,
            out_max: 0.3,
            recall: true,
            recall_share: 0.5,
            stagnation: 3,
            probe: 0.02,
            soft: 0.0,
            criteria: Criteria::Auto,
            entropy: EntropyForm::Ce,
            polarity: Polarity::Higher,
        }
    }
}

/// Online batch selection.
#[derive(Debug, Clone, PartialEq)]
pub struct Online {
    /// Full epochs first.
    pub warmup: u32,
    /// How much likelier the largest loss is drawn than the smallest, in the first epoch.
    pub pressure: f64,
    /// The same in the last epoch; between them it changes geometrically.
    pub pressure_end: f64,
    /// Draws per epoch, as a share of the samples.
    pub share: f64,
}

impl Default for Online {
    fn default() -> Online {
        Online { warmup: 1, pressure: 100.0, pressure_end: 100.0, share: 1.0 }
    }
}

/// Active bias.
#[derive(Debug, Clone, PartialEq)]
pub struct ActiveBias {
    /// Full epochs first, in which the histories grow.
    pub warmup: u32,
    /// Whether the variation is a weight of the loss, or the chance of being drawn.
    pub draw: bool,
}

impl Default for ActiveBias {
    fn default() -> ActiveBias {
        ActiveBias { warmup: 5, draw: false }
    }
}

/// Biggest loser, also known as selective backprop.
#[derive(Debug, Clone, PartialEq)]
pub struct BiggestLoser {
    /// Full epochs first.
    pub warmup: u32,
    /// The chance is the percentile of the loss to this power: 1 trains half, 2 a third, 3 a quarter.
    pub power: f64,
    /// Losses that a percentile is taken of.
    pub history: u32,
    /// Epochs in a row that go by the last known losses instead of forwarding everything.
    pub staleness: u32,
}

impl Default for BiggestLoser {
    fn default() -> BiggestLoser {
        BiggestLoser { warmup: 1, power: 3.0, history: 1_024, staleness: 0 }
    }
}

/// Selection by proxy.
#[derive(Debug, Clone, PartialEq)]
pub struct Proxy {
    /// Epochs in which a small model is trained on everything.
    pub warmup: u32,
    /// The share of samples, least confident first, that the real model is trained on.
    pub share: f64,
}

impl Proxy {
    /// Epochs of the small model in a run of so many: the real one must have at least one.
    pub fn epochs(&self, run: Option<u32>) -> u32 {
        run.map_or(self.warmup, |run| self.warmup.min(run.saturating_sub(1)))
    }
}

impl Default for Proxy {
    fn default() -> Proxy {
        Proxy { warmup: 3, share: 0.5 }
    }
}

/// iCACHE's I/O-oriented importance sampling.
#[derive(Debug, Clone, PartialEq)]
pub struct Iis {
    /// Full epochs first.
    pub warmup: u32,
    /// Every so many epochs are full.
    pub reuse: u32,
    /// The chance is the percentile of the loss to this power: 0.33 takes three quarters.
    pub power: f64,
    /// Losses that a percentile is taken of.
    pub history: u32,
}

impl Default for Iis {
    fn default() -> Iis {
        Iis { warmup: 5, reuse: 3, power: 0.33, history: 1_024 }
    }
}

/// `InfoBatch`.
#[derive(Debug, Clone, PartialEq)]
pub struct InfoBatch {
    /// Full epochs first.
    pub warmup: u32,
    /// The share of the samples below the mean loss that is skipped.
    pub prune: f64,
    /// The share of epochs at the end that train on everything.
    pub full_share: f64,
}

impl Default for InfoBatch {
    fn default() -> InfoBatch {
        InfoBatch { warmup: 1, prune: 0.5, full_share: 0.125 }
    }
}

/// Ours: skip what adds least, and let the survivors carry its weight.
///
/// A sample's gradient is about as large as `1 - p_true`. The samples below a threshold may be skipped: one that is
/// at half the threshold is trained every second epoch with twice its weight, so that what the model learns from is
/// the same on average. The threshold is the one at which the noise this adds is the share `noise` of what there is.
#[derive(Debug, Clone, PartialEq)]
pub struct Weighted {
    /// Full epochs first.
    pub warmup: u32,
    /// The share of epochs at the end that train on everything.
    pub full_share: f64,
    /// The noise that skipping may add, as a share of the noise there is; less where more than a tenth is predicted wrongly,
    /// more where fewer are if `easy` is above 1. None goes by [`Weighted::bounds`].
    pub noise: Option<f64>,
    /// How many times `noise` in the first epoch, falling evenly to once in the last: what noise does early, while the
    /// model moves in large steps, is soon forgotten. It takes a run whose epochs are known.
    pub early: f64,
    /// How many times that at most where less than a tenth is predicted wrongly, in inverse proportion (so 4 is reached at a
    /// fortieth): a model that knows its samples bears more. Not where feedback does not say who was right, nor with a
    /// `wrong_max` of 1. None goes by [`Weighted::bounds`].
    pub easy: Option<f64>,
    /// The least chance of being trained in an epoch; none goes by [`Weighted::bounds`].
    pub least: Option<f64>,
    /// The most that a sample may weigh. Beyond it the easiest samples count less than they would in a full epoch. None
    /// goes by [`Weighted::bounds`].
    pub weight_max: Option<f64>,
    /// The smallest batch, as a share of the usual one; 1 keeps batches whole, and an epoch has fewer of them. None goes by
    /// [`super::Norm`] and the length of the run.
    pub batch_least: Option<f64>,
    /// How much of the old threshold stays in the new one.
    pub smoothing: f64,
    /// Whether what is dear to fetch is skipped sooner when training waits for I/O.
    pub cost: bool,
    /// Nothing is skipped while this share of the samples, or more, is predicted wrongly, and less the nearer it is to that:
    /// a model that is far from knowing its data learns from all of it. Twice that in the first epoch of a run whose epochs
    /// are known, falling to it: there is time left to come to know it. With 1 neither this nor the noise goes by wrong
    /// predictions. Feedback that does not say who was right counts as wrong what has a loss above ln 2.
    pub wrong_max: f64,
}

impl Default for Weighted {
    fn default() -> Weighted {
        Weighted {
            warmup: 1,
            full_share: 0.05,
            noise: None,
            early: 1.0,
            easy: None,
            least: None,
            weight_max: None,
            batch_least: None,
            smoothing: 0.0,
            cost: true,
            wrong_max: 0.25,
        }
    }
}

impl Selection {
    /// Every way to select, by name.
    pub const NAMES: [&str; 9] = [
        "uniform",
        "bucket",
        "online",
        "active-bias",
        "biggest-loser",
        "proxy",
        "iis",
        "infobatch",
        "weighted",
    ];

    /// A way to select with its default options.
    pub fn named(name: &str) -> Result<Selection, Invalid> {
        Ok(match name {
            "uniform" => Selection::Uniform,
            "bucket" => Selection::Bucket(Bucket::default()),
            "online" => Selection::Online(Online::default()),
            "active-bias" => Selection::ActiveBias(ActiveBias::default()),
            "biggest-loser" => Selection::BiggestLoser(BiggestLoser::default()),
            "proxy" => Selection::Proxy(Proxy::default()),
            "iis" => Selection::Iis(Iis::default()),
            "infobatch" => Selection::InfoBatch(InfoBatch::default()),
            "weighted" => Selection::Weighted(Weighted::default()),
            _ => {
                let near = nearest(name, Selection::NAMES);
                let rest = near.map_or(String::new(), |near| format!("; did you mean {near:?}?"));
                let names = Selection::NAMES.join(", ");
                return Err(Invalid(format!("selection {name:?} is not one of {names}{rest}")));
            }
        })
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        let index = match self {
            Selection::Uniform => 0,
            Selection::Bucket(_) => 1,
            Selection::Online(_) => 2,
            Selection::ActiveBias(_) => 3,
            Selection::BiggestLoser(_) => 4,
            Selection::Proxy(_) => 5,
            Selection::Iis(_) => 6,
            Selection::InfoBatch(_) => 7,
            Selection::Weighted(_) => 8,
        };
        Selection::NAMES[index]
    }

    /// Whether it needs to hear from the trainer.
    pub fn needs_feedback(&self) -> bool {
        *self != Selection::Uniform
    }

    /// Whether an epoch may have a sample more than once, and so more samples than there are: at most twice as many.
    pub fn draws(&self) -> bool {
        matches!(self, Selection::Online(_) | Selection::ActiveBias(ActiveBias { draw: true, .. }))
    }

    /// Sets one of its options.
    pub fn set(&mut self, option: &str, value: &str) -> Result<(), Invalid> {
        let kind = self.name();
        let mut fields = self.fields();
        let Some((_, field)) = fields.iter_mut().find(|(name, _)| *name == option) else {
            let names: Vec<&str> = fields.iter().map(|(name, _)| *name).collect();
            let near = nearest(option, names.iter().copied());
            let rest = match near {
                Some(near) => format!("did you mean {near:?}?"),
                None if names.is_empty() => "it has none".into(),
                None => format!("it has {}", names.join(", ")),
            };
            return Err(Invalid(format!("selection {kind} has no option {option:?}; {rest}")));
        };
        field.set(value).map_err(|expected| {
            Invalid(format!("selection.{option} = {value:?} of {kind} is not {expected}"))
        })
    }

    /// Whether some way has this option and takes this value; if not, what it would take.
    pub fn accepts(option: &str, value: &str) -> Result<(), String> {
        let mut expected = Vec::new();
        for name in Selection::NAMES {
            let Ok(mut selection) = Selection::named(name) else { continue };
            for (known, mut field) in selection.fields() {
                if known == option {
                    match field.set(value) {
                        Ok(()) => return Ok(()),
                        Err(words) if expected.contains(&words) => {}
                        Err(words) => expected.push(words),
                    }
                }
            }
        }
        Err(expected.join(", or "))
    }

    /// Its options with their values, as users write them.
    pub fn options(&self) -> Vec<(&'static str, String)> {
        let mut copy = self.clone();
        copy.fields().into_iter().map(|(name, field)| (name, field.show())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_of_every_way_reads_what_it_shows() {
        for name in Selection::NAMES {
            let mut selection = Selection::named(name).unwrap();
            assert_eq!(selection.name(), name);
            for (option, value) in selection.options() {
                selection.set(option, &value).unwrap();
                let error = selection.set(option, "?").unwrap_err().0;
                assert!(error.contains(option) && error.contains(name), "{error}");
            }
            assert_eq!(selection, Selection::named(name).unwrap());
        }
    }

    #[test]
    fn wrong_names_and_values_are_told_apart() {
        let error = Selection::named("buckets").unwrap_err().0;
        assert!(error.contains("did you mean \"bucket\"?"), "{error}");
        let mut bucket = Selection::named("bucket").unwrap();
        assert!(bucket.set("relaks", "1").unwrap_err().0.contains("\"relax\""));
        assert!(Selection::Uniform.set("warmup", "1").unwrap_err().0.contains("it has none"));
        for (option, value) in [
            ("stagnation", "0"),
            ("recall_share", "0"),
            ("recall_share", "1.5"),
            ("floor", "0"),
            ("floor", "NaN"),
        ] {
            assert!(bucket.set(option, value).is_err(), "{option} = {value}");
        }
        bucket.set("recall", "off").unwrap();
        let Selection::Bucket(b) = bucket else { unreachable!() };
        assert!(!b.recall);
    }
}

//! What is compared: from what was typed to cases, and from cases to the trainings that they need.
//!
//! Global shuffling knows no partition and local shuffling chooses nothing, so several cases share one training.

use crate::args::CompareExchangeArgs;
use gristmill_core::exchange::Choose;
use gristmill_core::nearest::nearest;
use gristmill_node::{Error, Result};
use gristmill_train::TrainOptions;
use gristmill_train::ranks::{Dealing, Fraction, Partition};

/// What is tried when nothing is typed.
const RANKS: [u32; 4] = [8, 64, 512, 2_048];
/// Of those, what leaves a rank fewer batches per epoch than this is left out.
const BATCHES_MIN: usize = 3;
/// How many values an option may list.
const LIST_MAX: usize = 32;
/// The most ranks.
const RANKS_MAX: u32 = 1 << 20;
/// Samples per batch on a rank, when nothing is typed; batch norm over fewer is mostly noise.
const BATCH_MIN: u32 = 8;
const BATCH_MAX: u32 = 32;
/// Steps below which a training gets more epochs: large batches make few steps, and few steps learn little.
const STEPS_MIN: u64 = 300;
/// The global batch that `--lr` is for, and how far the rate grows with it.
const BATCH_OF_RATE: f32 = 256.0;
const RATE_GROWS_MAX: f32 = 16.0;

/// What was typed.
#[derive(Debug, Clone)]
pub(super) struct Typed {
    ranks: Option<Vec<u32>>,
    fractions: Vec<Fraction>,
    partitions: Vec<Partition>,
    chooses: Vec<Choose>,
    batch: Option<u32>,
}

impl Typed {
    pub(super) fn of(args: &CompareExchangeArgs) -> Result<Typed> {
        let ranks = args.ranks.as_deref().map(|text| list("--ranks", text, ranks)).transpose()?;
        let batch = args.ground.batch.as_deref().map(|text| {
            text.parse().ok().filter(|batch| *batch > 0).ok_or_else(|| {
                Error::config(format!("--batch {text:?} is not a number of samples")).hint("e.g. --batch 16")
            })
        });
        let mut fractions = list("--fractions", &args.fractions, |text| {
            text.parse()
                .map_err(|e: Error| Error::config(format!("--fractions: {e}")).hint("e.g. 0,0.1,0.3,global"))
        })?;
        fractions.retain(|fraction| *fraction != Fraction::Global);
        fractions.sort_by(|a, b| part(*a).total_cmp(&part(*b)));
        fractions.push(Fraction::Global);
        Ok(Typed {
            ranks,
            fractions,
            partitions: list("--partition", &args.partition, |text| {
                named("--partition", text, &Partition::NAMES)
            })?,
            chooses: list("--choose", &args.choose, |text| named("--choose", text, &Choose::NAMES))?,
            batch: batch.transpose()?,
        })
    }
}

/// A fraction as a number; global is beyond all.
pub(super) fn part(fraction: Fraction) -> f64 {
    match fraction {
        Fraction::Part(part) => part,
        Fraction::Global => f64::INFINITY,
    }
}

fn list<T: PartialEq>(option: &str, text: &str, one: impl Fn(&str) -> Result<T>) -> Result<Vec<T>> {
    let mut values = Vec::new();
    for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        let value = one(word)?;
        if !values.contains(&value) {
            values.push(value);
        }
    }
    match values.len() {
        0 => Err(Error::config(format!("{option} names nothing")).hint("separate values by commas")),
        1..=LIST_MAX => Ok(values),
        _ => Err(Error::config(format!("{option} names more than {LIST_MAX} values"))),
    }
}

fn ranks(text: &str) -> Result<u32> {
    let number = text.parse().ok().filter(|ranks| (2..=RANKS_MAX).contains(ranks));
    number.ok_or_else(|| {
        Error::config(format!("--ranks: {text:?} is not a number from 2 to {RANKS_MAX}"))
            .hint("one rank has nobody to exchange with")
    })
}

fn named<T: Copy>(option: &str, text: &str, names: &[(&str, T)]) -> Result<T> {
    let found = names.iter().find(|(name, _)| *name == text);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let known: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
        let hint = nearest(text, known.iter().copied())
            .map_or(String::new(), |near| format!("did you mean {near}?"));
        Error::config(format!("{option}: {text:?} is not one of {}", known.join(", "))).hint(hint)
    })
}

/// The ranks of a case, and what follows from their number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct World {
    pub(super) ranks: u32,
    /// Samples per batch on one rank.
    pub(super) batch: u32,
    /// The learning rate at its highest.
    pub(super) rate: f32,
    pub(super) epochs: u64,
}

impl World {
    fn new(ranks: u32, batch: Option<u32>, samples: usize, options: &TrainOptions) -> World {
        let batch = batch.unwrap_or_else(|| usual_batch(samples as u32 / ranks));
        let global = u64::from(ranks) * u64::from(batch);
        let grows = (global as f32 / BATCH_OF_RATE).min(RATE_GROWS_MAX);
        let epochs = STEPS_MIN.div_ceil((samples as u64 / global).max(1)).max(options.epochs);
        World { ranks, batch, rate: options.rate * grows, epochs }
    }

    pub(super) fn global_batch(&self) -> u64 {
        u64::from(self.ranks) * u64::from(self.batch)
    }
}

/// The batch of a rank that holds so many samples: a power of two below their root, or if an epoch would leave out many of
/// them, the size not far below it that uses the most.
fn usual_batch(each: u32) -> u32 {
    let root = each.isqrt().clamp(BATCH_MIN, BATCH_MAX);
    let size = 1 << root.ilog2();
    if each % size * 10 <= each {
        return size;
    }
    (size * 3 / 4..=size).max_by_key(|size| (each / size * size, *size)).unwrap_or(size)
}

/// One training, to be repeated with several seeds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Training {
    pub(super) world: World,
    pub(super) dealing: Dealing,
}

/// One case, and which training it is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Case {
    pub(super) run: usize,
    /// The training with global shuffling that it is compared with.
    pub(super) base: usize,
    pub(super) world: World,
    pub(super) dealing: Dealing,
}

/// All that is compared.
#[derive(Debug, Clone, Default)]
pub(super) struct Cases {
    pub(super) all: Vec<Case>,
    pub(super) runs: Vec<Training>,
    /// Which ranks are left out, in words.
    pub(super) left_out: Vec<String>,
}

impl Cases {
    pub(super) fn new(typed: &Typed, samples: usize, options: &TrainOptions) -> Result<Cases> {
        let mut cases = Cases::default();
        let asked = typed.ranks.as_deref();
        for &ranks in asked.unwrap_or(&RANKS) {
            let world = World::new(ranks, typed.batch, samples, options);
            let batches = samples as u64 / world.global_batch();
            if asked.is_none() && batches < BATCHES_MIN as u64 {
                let words = "ranks are left out: so few samples are no";
                cases
                    .left_out
                    .push(format!("{ranks} {words} {BATCHES_MIN} batches of {} on each", world.batch));
                continue;
            }
            if batches == 0 {
                let each = world.batch;
                return Err(Error::config(format!(
                    "{samples} samples are not one batch of {each} for each of {ranks} ranks"
                ))
                .hint("take fewer ranks, a smaller --batch, or more data"));
            }
            cases.add(typed, world);
        }
        if cases.all.is_empty() {
            return Err(Error::config(format!("{samples} samples are too few to deal out"))
                .hint("name --ranks and --batch"));
        }
        Ok(cases)
    }

    fn add(&mut self, typed: &Typed, world: World) {
        // What makes no difference has one name, so that a training that was kept is found whatever else is asked for.
        let neutral =
            Dealing { fraction: Fraction::Global, partition: Partition::Even, choose: Choose::Uniform };
        let base = self.run(Training { world, dealing: neutral });
        for &partition in &typed.partitions {
            for &choose in &typed.chooses {
                for &fraction in &typed.fractions {
                    let chooses = matches!(fraction, Fraction::Part(part) if part > 0.0);
                    if !chooses && choose != typed.chooses[0] {
                        continue;
                    }
                    let dealing = Dealing { fraction, partition, choose };
                    let run = match fraction {
                        Fraction::Global => base,
                        Fraction::Part(_) if chooses => self.run(Training { world, dealing }),
                        Fraction::Part(_) => self
                            .run(Training { world, dealing: Dealing { choose: Choose::Uniform, ..dealing } }),
                    };
                    self.all.push(Case { run, base, world, dealing });
                }
            }
        }
    }

    fn run(&mut self, training: Training) -> usize {
        self.runs.push(training);
        self.runs.len() - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Args, Command, Compare};
    use clap::Parser;
    use gristmill_train::{Schedule, Sgd};

    fn typed(more: &[&str]) -> Result<Typed> {
        let line = ["gristmill", "compare", "exchange"].iter().chain(more);
        let Command::Compare(Compare::Exchange(args)) = Args::try_parse_from(line).unwrap().command else {
            panic!("another command")
        };
        Typed::of(&args)
    }

    fn cases(typed: &Typed, samples: usize) -> Result<Cases> {
        let sgd = Sgd { momentum: 0.9, weight_decay: 0.0 };
        let schedule = Schedule::Cosine;
        let options = TrainOptions { hidden: vec![4], epochs: 2, rate: 0.1, schedule, sgd, seed: 0 };
        Cases::new(typed, samples, &options)
    }

    #[test]
    fn batch_and_rate_follow_from_the_ranks() {
        let made = cases(&typed(&["--choose", "uniform"]).unwrap(), 60_000).unwrap();
        let mut worlds: Vec<World> = made.runs.iter().map(|run| run.world).collect();
        worlds.dedup();
        let expected = [(8, 32, 0.1, 2), (64, 16, 0.4, 6), (512, 8, 1.6, 22), (2_048, 7, 1.6, 75)];
        assert_eq!(worlds, expected.map(|(ranks, batch, rate, epochs)| World { ranks, batch, rate, epochs }));
        assert_eq!((made.runs.len(), made.all.len()), (4 * 9, 4 * 10), "global is trained once per world");
        let small = cases(&typed(&[]).unwrap(), 4_000).unwrap();
        assert_eq!(small.left_out.len(), 2, "{:?}", small.left_out);
        assert!(small.left_out[1].starts_with("2048 ranks"), "{:?}", small.left_out);
        let given = cases(&typed(&["--batch", "2", "--ranks", "100"]).unwrap(), 400).unwrap();
        assert_eq!(given.runs[0].world.global_batch(), 200);
    }

    #[test]
    fn cases_share_trainings_where_they_are_the_same() {
        let typed = typed(&["--ranks", "4", "--fractions", "0.5,0", "--choose", "class,uniform"]).unwrap();
        let made = cases(&typed, 400).unwrap();
        let shown: Vec<String> = made
            .all
            .iter()
            .map(|case| {
                let Dealing { fraction, partition, choose } = case.dealing;
                format!("{fraction} {} {choose:?} {}", partition.name(), case.run)
            })
            .collect();
        assert_eq!(
            shown,
            [
                "0 even Class 1",
                "0.5 even Class 2",
                "global even Class 0",
                "0.5 even Uniform 3",
                "0 sorted Class 4",
                "0.5 sorted Class 5",
                "global sorted Class 0",
                "0.5 sorted Uniform 6",
            ]
        );
        let named: Vec<String> = [0, 1, 4].map(|run| format!("{:?}", made.runs[run].dealing)).into();
        assert!(named.iter().all(|name| name.contains("choose: Uniform")), "{named:?}");
    }

    #[test]
    fn nonsense_is_refused_in_words() {
        for (args, word) in [
            (["--ranks", "1"], "from 2"),
            (["--ranks", "x"], "from 2"),
            (["--ranks", ","], "names nothing"),
            (["--fractions", "1.1"], "from 0 to 1"),
            (["--partition", "sortet"], "even, sorted"),
            (["--choose", "clas"], "uniform"),
            (["--batch", "0"], "--batch"),
        ] {
            let error = typed(&args).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
        let error = cases(&typed(&["--ranks", "500"]).unwrap(), 400).unwrap_err().to_string();
        assert!(error.contains("500 ranks"), "{error}");
    }
}

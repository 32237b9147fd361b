//! What must hold after every epoch, whatever the machine, the faults and the knobs.
//!
//! The numbers are those of the specification. Each check looks at plain facts (who holds what, who sent what, who trained
//! what) and not at how they were decided, so that a wrong decision cannot hide. What is not an event of one epoch is
//! checked where it happens: the same plan again from what was saved (7, 9), at every epoch that begins anew.

use gristmill_core::exchange::{Exchange, Owners};
use gristmill_core::plan::Plan;
use std::fmt;

/// Something that must never happen did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Which invariant is broken.
    pub invariant: &'static str,
    /// In which epoch.
    pub epoch: u64,
    /// What was seen.
    pub detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "epoch {}: {} is broken: {}", self.epoch, self.invariant, self.detail)
    }
}

impl std::error::Error for Violation {}

pub(crate) const COMPLETE: &str = "invariant 1 (every sample is held by exactly one rank)";
pub(crate) const SIZES: &str = "invariant 2 (slices keep their sizes)";
pub(crate) const ROOM: &str = "invariant 3 (no rank holds more than its slice and what comes in)";
pub(crate) const ONCE: &str = "invariant 4 (every sample is trained exactly once)";
pub(crate) const BIJECTION: &str = "invariant 5 (in a step everybody sends to somebody else)";
pub(crate) const HELD: &str = "invariant 6 (what is received is first trained in the next epoch)";
pub(crate) const SAME: &str = "invariant 7 (the same seed gives the same plan)";
pub(crate) const NOTHING: &str = "invariant 8 (a fraction of 0 sends nothing)";
pub(crate) const LOSSLESS: &str = "invariant 9 (a restart from the epoch's beginning loses nothing)";

const NOBODY: u32 = u32::MAX;

/// Looks on, with the memory that it needs for that.
#[derive(Debug)]
pub(crate) struct Watch {
    sizes: Vec<u32>,
    /// Who held each sample when the epoch began.
    holder: Vec<u32>,
    /// How often each sample was trained.
    times: Vec<u8>,
    epoch: u64,
}

impl Watch {
    pub(crate) fn new(samples: u32, owners: Option<&Owners>) -> Watch {
        let sizes = owners.map_or(Vec::new(), |owners| {
            (0..owners.world()).map(|rank| owners.held(rank).len() as u32).collect()
        });
        Watch { sizes, holder: Vec::new(), times: vec![0; samples as usize], epoch: 0 }
    }

    pub(crate) fn broken(&self, invariant: &'static str, detail: String) -> Violation {
        Violation { invariant, epoch: self.epoch, detail }
    }

    /// The epoch that begins; who holds what was looked at when the one before ended.
    pub(crate) fn at(&mut self, epoch: u64, owners: &Owners) -> Result<(), Violation> {
        self.epoch = epoch;
        if self.holder.is_empty() { self.begin(epoch, owners) } else { Ok(()) }
    }

    /// Who holds what when an epoch begins or has ended (1, 2).
    pub(crate) fn begin(&mut self, epoch: u64, owners: &Owners) -> Result<(), Violation> {
        self.epoch = epoch;
        self.holder.clear();
        self.holder.resize(self.times.len(), NOBODY);
        for rank in 0..owners.world() {
            let held = owners.held(rank);
            let size = self.sizes[rank as usize];
            if held.len() != size as usize {
                let detail = format!("rank {rank} holds {} samples instead of {size}", held.len());
                return Err(self.broken(SIZES, detail));
            }
            for &id in held {
                let Some(holder) = self.holder.get_mut(id as usize).filter(|holder| **holder == NOBODY)
                else {
                    return Err(self.broken(COMPLETE, format!("sample {id} at rank {rank} is not its alone")));
                };
                *holder = rank;
            }
        }
        match self.holder.iter().position(|holder| *holder == NOBODY) {
            Some(id) => Err(self.broken(COMPLETE, format!("nobody holds sample {id}"))),
            None => Ok(()),
        }
    }

    /// What moves (3, 5, 8); `room` is the most that a rank may hold.
    pub(crate) fn moves(
        &self,
        exchange: &Exchange,
        fraction: f64,
        room: impl Fn(u32) -> u32,
    ) -> Result<u32, Violation> {
        if fraction == 0.0 && exchange.all().next().is_some() {
            return Err(self.broken(NOTHING, "something is sent".into()));
        }
        let (mut sent, mut received) = (vec![NOBODY; self.sizes.len()], vec![NOBODY; self.sizes.len()]);
        let mut come = vec![0_u32; self.sizes.len()];
        for (step, from, to, id) in exchange.all() {
            let again = std::mem::replace(&mut sent[from as usize], step) == step
                || std::mem::replace(&mut received[to as usize], step) == step;
            if again || from == to {
                return Err(self.broken(BIJECTION, format!("rank {from} to rank {to} in step {step}")));
            }
            if self.holder[id as usize] != from {
                return Err(self.broken(COMPLETE, format!("rank {from} sends sample {id}, which it has not")));
            }
            come[to as usize] += 1;
        }
        let mut most = 0;
        for (rank, (size, come)) in self.sizes.iter().zip(come).enumerate() {
            let (peak, room) = (size + come, room(rank as u32));
            if peak > room {
                return Err(
                    self.broken(ROOM, format!("rank {rank} holds {peak} samples, {room} are allowed"))
                );
            }
            most = most.max(peak);
        }
        Ok(most)
    }

    /// What is trained, and where (4, 6): `chosen` samples, some of them again and some left out, as was said.
    pub(crate) fn trained(&mut self, plan: &Plan, world: u32, said: Said<'_>) -> Result<(), Violation> {
        self.times.fill(0);
        for rank in 0..world {
            for batch in 0..plan.batches() {
                for id in plan.batch_of(rank, batch).map(|id| id.0) {
                    if said.held && self.holder[id as usize] != rank {
                        let holder = self.holder[id as usize];
                        let detail = format!("rank {rank} trains sample {id}, which rank {holder} holds");
                        return Err(self.broken(HELD, detail));
                    }
                    let times = &mut self.times[id as usize];
                    *times = times.saturating_add(1);
                }
            }
        }
        let again: u64 = self.times.iter().map(|times| u64::from(times.saturating_sub(1))).sum();
        let unchosen = |id: usize| said.chosen.is_some_and(|chosen| !chosen[id]);
        // A sample that was not chosen is only trained where a rank had none that was.
        let strangers = match said.chosen {
            None => 0,
            Some(_) => {
                self.times.iter().enumerate().filter(|(id, times)| **times > 0 && unchosen(*id)).count()
            }
        };
        if again + strangers as u64 > said.again {
            let detail = format!("{} places are trained again, {} were announced", again, said.again);
            return Err(self.broken(ONCE, detail));
        }
        let missing = |id: usize| self.times[id] == 0 && !unchosen(id);
        let missed = (0..self.times.len()).filter(|id| missing(*id)).count();
        if missed != said.left.len() || said.left.iter().any(|id| self.times[*id as usize] > 0) {
            let detail = format!("{missed} samples are not trained, {} were left out", said.left.len());
            return Err(self.broken(ONCE, detail));
        }
        Ok(())
    }
}

/// What an epoch was said to train.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Said<'a> {
    /// Whether ranks train only what they hold.
    pub(crate) held: bool,
    /// Whether each sample was chosen; none for all.
    pub(crate) chosen: Option<&'a [bool]>,
    /// How many places are filled with what is trained already, at most.
    pub(crate) again: u64,
    /// Samples that are left out.
    pub(crate) left: &'a [u32],
}

#[cfg(test)]
mod tests {
    use super::*;
    use gristmill_core::exchange::{Choose, ExchangeOptions, Form, View};
    use gristmill_core::plan::Shape;

    const ALL: Said<'_> = Said { held: true, chosen: None, again: 0, left: &[] };

    fn owners(held: &[&[u32]]) -> Owners {
        Owners::of(held.iter().map(|ids| ids.to_vec()).collect()).unwrap()
    }

    #[test]
    fn a_sample_that_moves_between_slices_of_the_wrong_size_is_seen() {
        let mut watch = Watch::new(4, Some(&owners(&[&[0, 1], &[2, 3]])));
        assert_eq!(watch.begin(0, &owners(&[&[0, 3], &[2, 1]])), Ok(()));
        let broken = watch.begin(1, &owners(&[&[0, 1, 2], &[3]])).unwrap_err();
        assert_eq!((broken.invariant, broken.epoch), (SIZES, 1));
        assert!(broken.to_string().contains("rank 0 holds 3 samples instead of 2"), "{broken}");
    }

    #[test]
    fn lost_and_doubled_samples_are_seen() {
        // Owners cannot be wrong by themselves, so the watch is told of another data set.
        let mut watch = Watch::new(5, Some(&owners(&[&[0, 1], &[2, 3]])));
        assert_eq!(watch.begin(0, &owners(&[&[0, 1], &[2, 3]])).unwrap_err().detail, "nobody holds sample 4");
        let mut watch = Watch::new(3, Some(&owners(&[&[0, 1], &[2, 3]])));
        assert_eq!(watch.begin(0, &owners(&[&[0, 1], &[2, 3]])).unwrap_err().invariant, COMPLETE);
    }

    #[test]
    fn moves_of_others_and_too_many_are_seen() {
        let before = Owners::new(40, 4, 1).unwrap();
        let options = ExchangeOptions { fraction: 0.5, form: Form::Derangement, choose: Choose::Uniform };
        let exchange = before.exchange(1, 0, &options, View::default()).unwrap();
        let mut watch = Watch::new(40, Some(&before));
        watch.begin(0, &before).unwrap();
        assert_eq!(watch.moves(&exchange, 0.5, |rank| before.held_max(rank, 0.5)), Ok(15));
        assert_eq!(watch.moves(&exchange, 0.5, |_| 14).unwrap_err().invariant, ROOM);
        assert_eq!(watch.moves(&exchange, 0.0, |_| 99).unwrap_err().invariant, NOTHING);
        let mut after = before.clone();
        after.commit(&exchange);
        watch.begin(1, &after).unwrap();
        assert_eq!(watch.moves(&exchange, 0.5, |_| 99).unwrap_err().invariant, COMPLETE, "sent twice");
    }

    #[test]
    fn what_is_trained_elsewhere_twice_or_not_at_all_is_seen() {
        let here = owners(&[&[0, 1], &[2, 3]]);
        let mut watch = Watch::new(4, Some(&here));
        watch.begin(0, &here).unwrap();
        let shape = Shape { world: 2, ..Shape::single(1) };
        let plan = |order: &[u32]| Plan::of(order.to_vec(), shape).unwrap();
        let mut see =
            |order: &[u32], said: Said<'_>| watch.trained(&plan(order), 2, said).map_err(|v| v.invariant);
        assert_eq!(see(&[0, 2, 1, 3], ALL), Ok(()));
        assert_eq!(see(&[0, 1, 2, 3], ALL), Err(HELD));
        assert_eq!(see(&[0, 1, 2, 3], Said { held: false, ..ALL }), Ok(()));
        assert_eq!(see(&[0, 2, 0, 3], ALL), Err(ONCE));
        assert_eq!(see(&[0, 2, 0, 3], Said { again: 1, ..ALL }), Err(ONCE), "1 is nowhere");
        assert_eq!(see(&[0, 2, 0, 3], Said { again: 1, left: &[1], ..ALL }), Ok(()));
        let two = [true, false, true, false];
        assert_eq!(see(&[0, 2], Said { chosen: Some(&two), ..ALL }), Ok(()));
        assert_eq!(see(&[0, 2, 1, 3], Said { chosen: Some(&two), ..ALL }), Err(ONCE), "strangers");
    }
}

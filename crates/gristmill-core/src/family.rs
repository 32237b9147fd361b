//! Families: near-duplicate samples, found by their perceptual hashes, and who may stand in for whom.
//!
//! Two samples whose 64-bit hashes differ in at most `radius` bits look alike. Grouping is leader clustering in the
//! order of ids: a sample joins the earliest leader within the radius, or becomes a leader. So any two members differ
//! in at most twice the radius, and no chain of small steps ties unlike samples together. By default only samples of
//! one label make a family.
//!
//! What a family is good for (IOWA's redundancy removal): when computing is the bottleneck one member per epoch is
//! enough ([`Families::remove`]); when fetching is, a member that is still in memory can be trained again instead of
//! fetching its relative ([`Families::stand_ins`]).
//!
//! Deliberately not here: hashing (pixels are the ops' business) and keeping the result (files are the node's).

mod bytes;
mod group;
mod stand_in;

pub use stand_in::{Hold, StandInLimits, StandIns};

use crate::Invalid;
use crate::rng::{Purpose, key};

/// The hash of a sample that has none, because it could not be decoded. No picture has it.
pub const NO_HASH: u64 = 0;
/// The widest radius: beyond it pictures that merely share their layout would be relatives.
pub const RADIUS_MAX: u32 = 10;
/// More than this share of a data set in families means that the radius is too wide for it.
const GROUPED_SHARE_MAX: f64 = 0.2;
/// Fewer than this share of samples with their family's commonest label means the same.
const PURITY_MIN: f64 = 0.99;
/// The family of a sample that has none.
const ALONE: u32 = u32::MAX;

/// Which samples are near-duplicates of each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Families {
    radius: u32,
    cross_label: bool,
    /// The family of each sample.
    of: Vec<u32>,
    /// Where the members of each family begin, and where the last one's end.
    starts: Vec<u32>,
    /// The members of one family after the other, ids ascending: the first is the leader.
    members: Vec<u32>,
}

impl Families {
    /// Groups samples whose hashes lie within `radius` bits of a leader's; of one label only, unless `cross_label`.
    pub fn group(
        hashes: &[u64],
        labels: &[u32],
        radius: u32,
        cross_label: bool,
    ) -> Result<Families, Invalid> {
        if radius > RADIUS_MAX {
            return Err(Invalid(format!(
                "radius {radius} is over {RADIUS_MAX}: that would group unlike samples"
            )));
        }
        if hashes.len() != labels.len() || hashes.len() >= u32::MAX as usize {
            return Err(Invalid(format!(
                "{} hashes and {} labels; there must be one of each per sample",
                hashes.len(),
                labels.len()
            )));
        }
        let leaders = group::leaders(hashes, labels, radius, cross_label);
        Ok(Families::of_leaders(&leaders, radius, cross_label))
    }

    /// Groups with the widest radius that fits the data: from [`radius_for`] its pictures' size downwards until few
    /// enough samples are grouped and nearly all of them have their family's label.
    pub fn calibrated(
        hashes: &[u64],
        labels: &[u32],
        radius_max: u32,
        cross_label: bool,
    ) -> Result<Families, Invalid> {
        let mut radius = radius_max;
        loop {
            let families = Families::group(hashes, labels, radius, cross_label)?;
            let share = families.grouped() as f64 / hashes.len().max(1) as f64;
            if radius == 0 || (share < GROUPED_SHARE_MAX && families.purity(labels) >= PURITY_MIN) {
                return Ok(families);
            }
            radius -= 1;
        }
    }

    /// From the leader of each sample (its own id for those that lead or are alone).
    fn of_leaders(leaders: &[u32], radius: u32, cross_label: bool) -> Families {
        let mut sizes = vec![0_u32; leaders.len()];
        leaders.iter().for_each(|&leader| sizes[leader as usize] += 1);
        let mut of = vec![ALONE; leaders.len()];
        let (mut starts, mut next) = (vec![0], Vec::new());
        for (leader, &size) in sizes.iter().enumerate().filter(|(_, size)| **size > 1) {
            let begin = starts[starts.len() - 1];
            of[leader] = next.len() as u32;
            next.push(begin);
            starts.push(begin + size);
        }
        let mut members = vec![0; starts[starts.len() - 1] as usize];
        for (id, &leader) in leaders.iter().enumerate() {
            let family = of[leader as usize];
            if family != ALONE {
                let place = &mut next[family as usize];
                members[*place as usize] = id as u32;
                *place += 1;
                of[id] = family;
            }
        }
        Families { radius, cross_label, of, starts, members }
    }

    /// Hashes of a member and its leader differ in at most this many bits.
    pub fn radius(&self) -> u32 {
        self.radius
    }

    /// Whether samples of different labels may be in one family.
    pub fn cross_label(&self) -> bool {
        self.cross_label
    }

    /// How many samples the data set has, relatives or not.
    pub fn samples(&self) -> u32 {
        self.of.len() as u32
    }

    /// How many families there are; each has at least two members.
    pub fn len(&self) -> usize {
        self.starts.len() - 1
    }

    /// Whether every sample is alone.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many samples have relatives.
    pub fn grouped(&self) -> usize {
        self.members.len()
    }

    /// How many members the largest family has; 0 without families.
    pub fn largest(&self) -> usize {
        self.iter().map(<[u32]>::len).max().unwrap_or(0)
    }

    /// All families in the order of their leaders: ids ascending, the leader first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u32]> {
        self.starts.windows(2).map(|ends| &self.members[ends[0] as usize..ends[1] as usize])
    }

    /// The sample around which the family of `id` was made: itself, if it is alone.
    pub fn leader(&self, id: u32) -> u32 {
        self.family(id).first().copied().unwrap_or(id)
    }

    /// The family of `id`, itself included; empty if it is alone or does not exist.
    pub fn family(&self, id: u32) -> &[u32] {
        match self.number(id) {
            Some(family) => self.members_of(family),
            None => &[],
        }
    }

    fn number(&self, id: u32) -> Option<usize> {
        self.of.get(id as usize).filter(|family| **family != ALONE).map(|family| *family as usize)
    }

    fn members_of(&self, family: usize) -> &[u32] {
        &self.members[self.starts[family] as usize..self.starts[family + 1] as usize]
    }

    /// Which share of the grouped samples has its family's commonest label, 0 to 1; 1 without families.
    pub fn purity(&self, labels: &[u32]) -> f64 {
        let mut fitting = 0;
        let mut of_family = Vec::new();
        for family in self.iter() {
            of_family.clear();
            of_family.extend(family.iter().map(|&id| labels.get(id as usize)));
            of_family.sort_unstable();
            fitting += of_family.chunk_by(|a, b| a == b).map(<[_]>::len).max().unwrap_or(0);
        }
        if self.grouped() == 0 { 1.0 } else { fitting as f64 / self.grouped() as f64 }
    }

    /// Of the selection `ids`, at most one member of each family; the order stays. Which one changes from epoch to
    /// epoch, so that a member that is always selected is kept at least once in as many epochs as it has relatives. Those
    /// in `always` (ids in ascending order) stay whoever their relatives are, and are kept before others.
    pub fn remove(&self, ids: &[u32], epoch: u64, seed: u64, always: &[u32]) -> Vec<u32> {
        let mut selected = vec![0_u64; self.of.len().div_ceil(64)];
        for &id in ids.iter().filter(|id| (**id as usize) < self.of.len()) {
            selected[id as usize / 64] |= 1 << (id % 64);
        }
        let is_selected = |id: u32| selected[id as usize / 64] >> (id % 64) & 1 == 1;
        let is_always = |id: u32| always.binary_search(&id).is_ok();
        // One look per family, whatever its size: the kept member, once it is known.
        let mut kept = vec![ALONE; self.len()];
        let mut keep = |id: u32| {
            let Some(family) = self.number(id) else { return true };
            if kept[family] == ALONE {
                let members = self.members_of(family);
                let first = key(&[seed, Purpose::Selection as u64, members[0].into()]);
                let turn = (first.wrapping_add(epoch) % members.len() as u64) as usize;
                let turned = || members[turn..].iter().chain(&members[..turn]).copied();
                let stays = turned().find(|&member| is_selected(member) && is_always(member));
                let any = || turned().find(|&member| is_selected(member));
                kept[family] = stays.or_else(any).unwrap_or(id);
            }
            kept[family] == id || is_always(id)
        };
        ids.iter().copied().filter(|&id| keep(id)).collect()
    }
}

/// The radius to begin with for pictures whose shorter side has `side` pixels: small pictures have few distinctive
/// coefficients, so theirs is tighter.
pub fn radius_for(side: u32) -> u32 {
    match side {
        0..=32 => 2,
        33..=63 => 3,
        _ => 4,
    }
}

#[cfg(test)]
mod tests;

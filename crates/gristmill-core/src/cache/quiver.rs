//! Quiver's way: the epoch goes where the cache is.
//!
//! The data set is cut into packages of half the cache. At most two are resident, and the epoch is ordered so that it
//! walks from package to package, those that are still resident first: each is consumed mixed with the next. A
//! package goes as a whole, once the epoch has consumed it and another one is to come in; so the last two of an epoch
//! are the first hits of the next.
//!
//! A package is a seeded random part of the data set, not a run of neighbours: data sets are often sorted by class,
//! and two classes at a time train nothing. Deliberately not here: Quiver's looking up of ten times the ids it
//! needs; with the order known in advance there is nothing to look up.

use crate::rng::{Purpose, Stream};

const NONE: u32 = u32::MAX;

/// The data set cut into packages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packages {
    /// The package of each sample; one that is larger than half the cache has none.
    of: Vec<u32>,
    count: u32,
}

impl Packages {
    /// Packages of at most half of `bytes_max` each.
    pub fn cut(sizes: &[u32], bytes_max: u64, seed: u64) -> Packages {
        let most = bytes_max / 2;
        let mut of = vec![NONE; sizes.len()];
        let (mut package, mut bytes) = (0, 0_u64);
        let order = Stream::new(seed, 0, Purpose::PackOrder, &[2]).permutation(sizes.len() as u32);
        let mut any = false;
        for id in order {
            let size = u64::from(sizes[id as usize]);
            if size > most {
                continue;
            }
            if bytes + size > most {
                (package, bytes) = (package + 1, 0);
            }
            bytes += size;
            of[id as usize] = package;
            any = true;
        }
        Packages { of, count: if any { package + 1 } else { 0 } }
    }

    /// How many there are.
    pub fn len(&self) -> u32 {
        self.count
    }

    /// Whether no sample is small enough to be in one.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The package of a sample, if it has one.
    pub fn of(&self, id: u32) -> Option<u32> {
        self.of.get(id as usize).copied().filter(|package| *package != NONE)
    }

    pub(super) fn overhead_bytes(&self) -> u64 {
        4 * self.of.len() as u64
    }
}

/// In which order an epoch comes to the packages: those that are resident first.
fn visits(packages: &Packages, resident: &[u32], seed: u64, epoch: u64) -> Vec<u32> {
    let mut visits = Stream::new(seed, epoch, Purpose::PackOrder, &[3, 0]).permutation(packages.len());
    visits.sort_by_key(|package| !resident.contains(package));
    visits
}

/// The packages that are resident when an epoch begins, if those before it were read whole: the last two that the one
/// before it came to. It depends on nothing but the seed, so that an epoch has the same order after a restart and on
/// every rank, whatever is really there.
pub fn left_over(packages: &Packages, seed: u64, epoch: u64) -> Vec<u32> {
    (0..epoch).fold(Vec::new(), |resident, before| {
        let mut visits = visits(packages, &resident, seed, before);
        visits.split_off(visits.len().saturating_sub(2))
    })
}

/// The order of an epoch with these samples, each as often as it is named: the resident packages first.
pub fn order(packages: &Packages, resident: &[u32], chosen: &[u32], seed: u64, epoch: u64) -> Vec<u32> {
    let stream = |what: u64| Stream::new(seed, epoch, Purpose::PackOrder, &[3, what]);
    let count = packages.len() as usize;
    // What has no package is a package of its own, and comes last.
    let mut members: Vec<Vec<u32>> = vec![Vec::new(); count + 1];
    for &id in chosen {
        members[packages.of(id).map_or(count, |package| package as usize)].push(id);
    }
    let mut visits = visits(packages, resident, seed, epoch);
    visits.push(count as u32);
    visits.retain(|package| !members[*package as usize].is_empty());
    let mut order = Vec::with_capacity(chosen.len());
    let mut rest: Vec<u32> = Vec::new();
    for (place, &package) in visits.iter().enumerate() {
        // The rest of this one, with a random half of the next.
        if place == 0 {
            rest = std::mem::take(&mut members[package as usize]);
        }
        let mut phase = std::mem::take(&mut rest);
        if let Some(&next) = visits.get(place + 1) {
            rest = shuffled(&members[next as usize], stream(2 * place as u64 + 1));
            let half = rest.len() / 2;
            phase.extend(rest.drain(..half));
        }
        order.extend(shuffled(&phase, stream(2 * place as u64 + 2)));
    }
    order
}

fn shuffled(ids: &[u32], stream: Stream) -> Vec<u32> {
    stream.permutation(ids.len() as u32).into_iter().map(|place| ids[place as usize]).collect()
}

/// Which packages are in the cache, and what the announced epochs still want of each.
#[derive(Debug)]
pub(super) struct Slots {
    pub(super) packages: Packages,
    /// At most two, the older first.
    resident: Vec<u32>,
    /// Uses left, by package.
    left: Vec<u64>,
}

/// What happens to a sample that is offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// Its package is resident.
    Open,
    /// Its package takes a free slot.
    Free,
    /// Its package takes the slot of this one.
    Instead(u32),
    /// There is no place for it now.
    None,
}

impl Slots {
    pub(super) fn new(packages: Packages) -> Slots {
        let left = vec![0; packages.len() as usize];
        Slots { packages, resident: Vec::new(), left }
    }

    pub(super) fn resident(&self) -> &[u32] {
        &self.resident
    }

    /// What is wanted changed as a whole: `left` gives the uses left of a sample.
    pub(super) fn recount(&mut self, left: impl Fn(u32) -> u32) {
        self.left.fill(0);
        for id in 0..self.packages.of.len() as u32 {
            if let Some(package) = self.packages.of(id) {
                self.left[package as usize] += u64::from(left(id));
            }
        }
    }

    pub(super) fn consumed(&mut self, id: u32) {
        if let Some(package) = self.packages.of(id) {
            let left = &mut self.left[package as usize];
            *left = left.saturating_sub(1);
        }
    }

    pub(super) fn place(&self, id: u32) -> Place {
        let Some(package) = self.packages.of(id) else { return Place::None };
        if self.resident.contains(&package) {
            return Place::Open;
        }
        if self.resident.len() < 2 {
            return Place::Free;
        }
        let done = self.resident.iter().find(|old| self.left[**old as usize] == 0);
        done.map_or(Place::None, |&old| Place::Instead(old))
    }

    /// Lets the package of this sample in, after `place` found room.
    pub(super) fn enter(&mut self, id: u32, place: Place) {
        if let Place::Instead(old) = place {
            self.resident.retain(|package| *package != old);
        }
        if let (Place::Free | Place::Instead(_), Some(package)) = (place, self.packages.of(id)) {
            self.resident.push(package);
        }
    }

    pub(super) fn overhead_bytes(&self) -> u64 {
        self.packages.overhead_bytes() + 8 * self.left.len() as u64
    }
}

#[cfg(test)]
mod tests;

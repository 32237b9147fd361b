//! Who is trained again instead of fetching a relative: decided for the whole epoch before it starts.
//!
//! The order of an epoch is known, so what each rank holds in memory at any position is known too, and stand-ins
//! need no question to a cache: every rank computes the same list, and a restart continues it. The walk of one rank
//! is plain. A sample with relatives that is fetched stays *held*, first in, first out, within a limit on bytes. A
//! sample that is not held while a relative is, and is not in this batch yet, is served by that relative: the one
//! that was not used for longest. After `repeats_max` repeats a sample is let go.
//!
//! What is served is what is said: the list holds the ids that are served, and the labels follow them.

use super::Families;
use crate::Invalid;
use crate::plan::Shape;
use std::collections::VecDeque;

/// How many stand-ins are named one by one.
const SHOWN_MAX: usize = 1_000;

/// What stand-ins may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StandInLimits {
    /// Bytes of raw samples that one rank may hold for this.
    pub held_bytes_max: u64,
    /// How often one sample may be trained again in an epoch.
    pub repeats_max: u32,
}

/// An epoch's order with stand-ins in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StandIns {
    /// The sample that is served at each position of the order.
    pub served: Vec<u32>,
    /// At how many positions that is another one than was asked for.
    pub count: u32,
    /// The first of them, to be looked at: who was asked for, and who is served.
    pub shown: Vec<(u32, u32)>,
    /// Whose bytes must stay in memory for how long, by `from`.
    pub holds: Vec<Hold>,
}

/// Bytes that are needed again: fetched at one position of the order, last served at another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hold {
    /// The position at which the sample is fetched.
    pub from: u32,
    /// The last position at which it is served from memory.
    pub until: u32,
}

impl StandIns {
    /// The last position that needs the bytes which are fetched at `position`, if any does.
    pub fn held_until(&self, position: u32) -> Option<u32> {
        let at = self.holds.binary_search_by_key(&position, |hold| hold.from).ok()?;
        Some(self.holds[at].until)
    }
}

impl Families {
    /// Puts stand-ins into the `order` of an epoch that is cut as `shape` says; `sizes` are the samples' bytes. Nobody stands
    /// in for those in `always`, which are in ascending order.
    pub fn stand_ins(
        &self,
        order: &[u32],
        shape: Shape,
        sizes: &[u32],
        limits: StandInLimits,
        always: &[u32],
    ) -> Result<StandIns, Invalid> {
        if sizes.len() != self.of.len() {
            let (sizes, samples) = (sizes.len(), self.of.len());
            return Err(Invalid(format!("{sizes} sizes for families of {samples} samples")));
        }
        if let Some(id) = order.iter().find(|id| **id as usize >= self.of.len()) {
            return Err(Invalid(format!("sample {id} is in the order but not in the families")));
        }
        shape.check()?;
        let mut out = StandIns { served: order.to_vec(), count: 0, shown: Vec::new(), holds: Vec::new() };
        if self.is_empty() || limits.repeats_max == 0 {
            return Ok(out);
        }
        let mut walk = Walk::new(self, sizes, limits, always);
        for rank in 0..shape.world {
            walk.forget();
            for places in batches(order.len(), Shape { rank, ..shape }) {
                walk.batch(places, order, &mut out);
            }
        }
        out.holds.sort_unstable();
        let changed = order.iter().zip(&out.served).filter(|(asked, served)| asked != served);
        out.shown = changed.map(|(asked, served)| (*asked, *served)).take(SHOWN_MAX).collect();
        Ok(out)
    }
}

/// The positions of each batch of one rank.
fn batches(samples: usize, shape: Shape) -> impl Iterator<Item = std::ops::Range<usize>> {
    let global = shape.batch as usize * shape.world as usize;
    let (full, rest) = shape.cut(samples as u32);
    let count = full as usize + usize::from(rest > 0 && !shape.drop_last);
    (0..count).map(move |batch| {
        let part = if batch < full as usize { shape.batch } else { rest } as usize;
        let start = batch * global + shape.rank as usize * part;
        // Positions that only even out the end repeat the beginning of the order, which is served as it is.
        start.min(samples)..(start + part).min(samples)
    })
}

const NONE: u32 = u32::MAX;

/// What one rank holds at the position that the walk has reached. Members are known by their place in the families'
/// list of members.
struct Walk<'a> {
    families: &'a Families,
    sizes: &'a [u32],
    limits: StandInLimits,
    /// For whom nobody stands in.
    always: &'a [u32],
    /// Of each member: the position at which it was fetched, if it is held.
    held_from: Vec<u32>,
    /// Which batch this is, over all ranks.
    now: u32,
    /// Of each member: the last batch it is in.
    batch_of: Vec<u32>,
    /// Of each member: the last batch in which it was put at the end of its family's list.
    linked_in: Vec<u32>,
    repeats: Vec<u32>,
    /// Of each member: where its bytes are in `StandIns::holds`, once they are needed again.
    hold_of: Vec<u32>,
    /// The held members of each family, the one that was not used for longest first: links between members.
    heads: Vec<u32>,
    tails: Vec<u32>,
    links: Vec<[u32; 2]>,
    /// What was fetched, in that order; those let go since then stay in it until their turn.
    fetched: VecDeque<(u32, u32)>,
    held_bytes: u64,
}

impl<'a> Walk<'a> {
    fn new(families: &'a Families, sizes: &'a [u32], limits: StandInLimits, always: &'a [u32]) -> Walk<'a> {
        let members = families.grouped();
        Walk {
            families,
            sizes,
            limits,
            always,
            held_from: vec![NONE; members],
            now: 0,
            batch_of: vec![NONE; members],
            linked_in: vec![NONE; members],
            repeats: vec![0; members],
            hold_of: vec![NONE; members],
            heads: vec![NONE; families.len()],
            tails: vec![NONE; families.len()],
            links: vec![[NONE; 2]; members],
            fetched: VecDeque::new(),
            held_bytes: 0,
        }
    }

    /// Begins with the next rank, which holds nothing.
    fn forget(&mut self) {
        while let Some((member, from)) = self.fetched.pop_front() {
            if self.held_from[member as usize] == from {
                self.let_go(member);
            }
        }
    }

    fn member(&self, id: u32) -> Option<u32> {
        let family = self.families.number(id)?;
        let place = self.families.members_of(family).binary_search(&id).ok()?;
        Some(self.families.starts[family] + place as u32)
    }

    fn family_of(&self, member: u32) -> usize {
        self.families.of[self.families.members[member as usize] as usize] as usize
    }

    fn batch(&mut self, places: std::ops::Range<usize>, order: &[u32], out: &mut StandIns) {
        self.now += 1;
        for &id in &order[places.clone()] {
            // What is asked for later in this batch must not stand in before.
            if let Some(member) = self.member(id) {
                self.batch_of[member as usize] = self.now;
            }
        }
        for position in places {
            let Some(asked) = self.member(order[position]) else { continue };
            if self.held_from[asked as usize] != NONE {
                self.serve(asked, position as u32, out);
            } else if let Some(relative) = self.relative(asked) {
                self.batch_of[relative as usize] = self.now;
                self.serve(relative, position as u32, out);
                out.served[position] = self.families.members[relative as usize];
                out.count += 1;
                self.repeats[relative as usize] += 1;
                if self.repeats[relative as usize] >= self.limits.repeats_max {
                    self.let_go(relative);
                }
            } else {
                self.hold(asked, position as u32);
            }
        }
    }

    /// The held relative that was not used for longest and is not in this batch.
    fn relative(&self, asked: u32) -> Option<u32> {
        if self.always.binary_search(&self.families.members[asked as usize]).is_ok() {
            return None;
        }
        let mut at = self.heads[self.family_of(asked)];
        // Those of this batch are at the end: at the first of them the search is over. Before them only what is asked
        // for twice in an epoch is passed.
        while at != NONE && self.linked_in[at as usize] != self.now {
            if self.batch_of[at as usize] != self.now {
                return Some(at);
            }
            at = self.links[at as usize][1];
        }
        None
    }

    /// Serves a held member once more and notes that its bytes are needed until now.
    fn serve(&mut self, member: u32, position: u32, out: &mut StandIns) {
        let from = self.held_from[member as usize];
        let known = self.hold_of[member as usize];
        if let Some(hold) = out.holds.get_mut(known as usize).filter(|hold| hold.from == from) {
            hold.until = position;
        } else {
            self.hold_of[member as usize] = out.holds.len() as u32;
            out.holds.push(Hold { from, until: position });
        }
        self.unlink(member);
        self.link(member);
    }

    /// Holds a member that was just fetched, and lets the oldest go that have no room beside it.
    fn hold(&mut self, member: u32, position: u32) {
        let bytes = self.bytes(member);
        if bytes > self.limits.held_bytes_max || self.repeats[member as usize] >= self.limits.repeats_max {
            return;
        }
        while self.held_bytes + bytes > self.limits.held_bytes_max {
            let Some((oldest, from)) = self.fetched.pop_front() else { break };
            if self.held_from[oldest as usize] == from {
                self.let_go(oldest);
            }
        }
        self.held_from[member as usize] = position;
        self.held_bytes += bytes;
        self.fetched.push_back((member, position));
        self.link(member);
    }

    fn let_go(&mut self, member: u32) {
        self.held_from[member as usize] = NONE;
        self.held_bytes -= self.bytes(member);
        self.unlink(member);
    }

    fn bytes(&self, member: u32) -> u64 {
        self.sizes[self.families.members[member as usize] as usize].into()
    }

    /// Puts a member at the end of its family's list.
    fn link(&mut self, member: u32) {
        let family = self.family_of(member);
        self.linked_in[member as usize] = self.now;
        let last = std::mem::replace(&mut self.tails[family], member);
        self.links[member as usize] = [last, NONE];
        match last {
            NONE => self.heads[family] = member,
            last => self.links[last as usize][1] = member,
        }
    }

    fn unlink(&mut self, member: u32) {
        let family = self.family_of(member);
        let [before, after] = self.links[member as usize];
        match before {
            NONE => self.heads[family] = after,
            before => self.links[before as usize][1] = after,
        }
        match after {
            NONE => self.tails[family] = before,
            after => self.links[after as usize][0] = before,
        }
    }
}

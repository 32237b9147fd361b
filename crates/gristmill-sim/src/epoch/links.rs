//! The exchange beside the training: what each rank sends and receives after each batch, over its own link.
//!
//! A round is what is due once a batch was handed out. All messages of a rank leave over its link one after the other, and
//! those for it come in over its link at its rate, none before its sender has sent it. Both directions go on while the
//! ranks train; only what is not done by the last step is waited for, and then the commit.

use super::{Course, Rank};
use crate::clock::{Ns, Server, ns};
use crate::knobs::Hold;

/// What moves after one batch, in bytes relative to the mean sample: sender, receiver, size.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Round {
    pub(crate) moves: Vec<(u32, u32, f32)>,
}

#[derive(Debug)]
pub(super) struct Links<'a> {
    rounds: &'a [Round],
    link: Server,
    latency: Ns,
    commit: Ns,
    bytes: f64,
    out_free: Vec<Ns>,
    in_free: Vec<Ns>,
    done: Option<Ns>,
    sent: Vec<f64>,
    received: Vec<f64>,
    first: Vec<Ns>,
    last: Vec<Ns>,
}

impl<'a> Links<'a> {
    pub(super) fn new(course: &Course<'a>) -> Links<'a> {
        let world = if course.rounds.is_empty() { 0 } else { course.machine.ranks as usize };
        let link = course.machine.link;
        let sync_s = if course.knobs.hold == Hold::Disk { course.machine.disk.sync_s } else { 0.0 };
        let hops = 2 * (world.max(1) as u64).next_power_of_two().trailing_zeros();
        Links {
            rounds: course.rounds,
            link: Server::new(0.0, link.bytes_per_s, f64::INFINITY),
            latency: ns(link.latency_s),
            commit: ns(link.latency_s) * Ns::from(hops) + ns(sync_s),
            bytes: course.load.bytes,
            out_free: vec![0; world],
            in_free: vec![0; world],
            done: None,
            sent: vec![0.0; world],
            received: vec![0.0; world],
            first: vec![0; world],
            last: vec![0; world],
        }
    }

    /// Sends what is due once batch `batch` was handed out to each rank at these times.
    pub(super) fn round(&mut self, batch: u32, handed: &[Ns], ranks: &mut [Rank]) {
        let Some(round) = self.rounds.get(batch as usize).filter(|round| !round.moves.is_empty()) else {
            return;
        };
        self.sent.fill(0.0);
        self.received.fill(0.0);
        self.first.fill(Ns::MAX);
        self.last.fill(0);
        for &(from, _, size) in &round.moves {
            self.sent[from as usize] += f64::from(size) * self.bytes;
        }
        for (rank, &bytes) in self.sent.iter().enumerate().filter(|(_, bytes)| **bytes > 0.0) {
            self.out_free[rank] = self.out_free[rank].max(handed[rank]) + self.link.flow(bytes);
        }
        for &(from, to, size) in &round.moves {
            let (from, to) = (from as usize, to as usize);
            self.received[to] += f64::from(size) * self.bytes;
            self.first[to] = self.first[to].min(handed[from]);
            self.last[to] = self.last[to].max(self.out_free[from]);
        }
        for (rank, &bytes) in self.received.iter().enumerate() {
            if self.first[rank] < Ns::MAX {
                let flown = self.in_free[rank].max(self.first[rank]) + self.link.flow(bytes);
                self.in_free[rank] = flown.max(self.last[rank]);
                self.done = self.done.max(Some(self.in_free[rank] + self.latency));
            }
            // What is sent is read, and what came is written.
            ranks[rank].burden(bytes + self.sent[rank]);
        }
    }

    /// When the last message had come; none if nothing moved.
    pub(super) fn done(&self) -> Option<Ns> {
        self.done
    }

    /// What comes then: disks make sure of what they have, and everybody hears from everybody that all is well.
    pub(super) fn commit(&self) -> Ns {
        self.commit
    }
}

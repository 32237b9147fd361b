//! Evening out the ranks when a selection leaves some with more to train than others.
//!
//! In each step the rank with the most active samples is paired with the one that has the fewest, the second with the
//! second fewest, and so on, as long as that helps. The one sends an active sample, the other sends a resting one back:
//! so slices keep their sizes and nobody holds more than it may, at the price of moving something that rests. Which
//! samples: those with the lowest ids. Pairs go before the random part of the exchange and use up its steps.

use super::pick::Queue;

/// How many active samples each rank would have.
#[derive(Debug)]
pub(super) struct Balance {
    active: Vec<u32>,
    /// Nothing is left to even out.
    done: bool,
}

impl Balance {
    pub(super) fn new(queues: &[Queue], wanted: bool) -> Balance {
        let active: Vec<u32> = queues.iter().map(Queue::active_len).collect();
        Balance { done: !wanted, active }
    }

    /// Pairs ranks for one step; says how many moves that makes.
    pub(super) fn pair(&mut self, queues: &mut [Queue], ids: &mut [u32], to: &mut [u32]) -> u32 {
        if self.done {
            return 0;
        }
        let mut by_surplus: Vec<usize> = (0..self.active.len()).collect();
        by_surplus.sort_by_key(|&rank| (std::cmp::Reverse(self.active[rank]), rank));
        let mut moves = 0;
        let half = by_surplus.len() / 2;
        let pairs = by_surplus[..half].iter().zip(by_surplus.iter().rev());
        for (&more, &less) in pairs {
            if self.active[more] < self.active[less] + 2 {
                break;
            }
            let (Some(sent), Some(back)) = (queues[more].active(), queues[less].resting()) else { continue };
            (ids[more], to[more]) = (queues[more].take(sent), less as u32);
            (ids[less], to[less]) = (queues[less].take(back), more as u32);
            self.active[more] -= 1;
            self.active[less] += 1;
            moves += 2;
        }
        self.done = moves == 0;
        moves
    }
}

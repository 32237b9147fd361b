//! Who sends to whom in one step.
//!
//! Ranks that a step has paired already (to even out a selection) are left alone; the others get a random order among
//! themselves. Without any pairs that is one order of all ranks, as published.

use super::{Form, NONE};
use crate::rng::Stream;

/// Gives every rank without a destination one.
pub(super) fn fill(form: Form, stream: &mut Stream, to: &mut [u32]) {
    if to.iter().all(|&to| to == NONE) {
        to.copy_from_slice(&destinations(form, stream, to.len() as u32));
        return;
    }
    let idle: Vec<u32> = (0..to.len() as u32).filter(|&rank| to[rank as usize] == NONE).collect();
    if !idle.is_empty() {
        let order = destinations(form, stream, idle.len() as u32);
        idle.iter().zip(order).for_each(|(&rank, place)| to[rank as usize] = idle[place as usize]);
    }
}

/// A random order of `world` ranks: place r is where rank r sends to.
pub(super) fn destinations(form: Form, stream: &mut Stream, world: u32) -> Vec<u32> {
    let order = stream.next_permutation(world);
    if form == Form::Plain || world < 2 {
        return order;
    }
    // Everybody is put on a circle at random and sends to the one so many places further: nobody to itself.
    let ahead = 1 + stream.below(u64::from(world) - 1) as u32;
    let mut at = vec![0; order.len()];
    order.iter().enumerate().for_each(|(rank, &place)| at[place as usize] = rank as u32);
    let further = |place: u32| ((u64::from(place) + u64::from(ahead)) % u64::from(world)) as usize;
    order.iter().map(|&place| at[further(place)]).collect()
}

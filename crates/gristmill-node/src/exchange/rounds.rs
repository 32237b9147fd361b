//! Which messages an exchange has, computed alike by the one who sends and the one who receives.
//!
//! All samples that go from one rank to another within one batch are one message, unless that would be over the limit;
//! then it is several. A message is, for each of its samples, the id and the length (four bytes each, lowest first) and the
//! bytes. Sizes are in the catalog, so the receiver knows the exact length beforehand. A sample that the sender lacks keeps
//! its place: its length is [`ABSENT`] and its bytes are zero, and the receiver gets it from the store.

use crate::{Error, Result};
use bytes::{BufMut, Bytes, BytesMut};
use gristmill_core::exchange::{Exchange, Move};
use std::collections::BTreeMap;

/// What every sample of a message takes beside its bytes.
pub(super) const HEAD_BYTES: u64 = 8;
/// The length of a sample that is not there.
const ABSENT: u32 = u32::MAX;

/// One message of an epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Message {
    /// The batch that it goes out with.
    pub(super) batch: u32,
    pub(super) peer: u32,
    /// Its number among all of the same sender and receiver.
    pub(super) tag: u32,
    pub(super) ids: Vec<u32>,
    pub(super) bytes: usize,
}

/// A sample of a message: its bytes, or none if the sender lacked it.
pub(super) type Sample<'a> = (u32, Option<&'a [u8]>);

/// The messages that these moves (of one rank, in one direction) make, in the order in which they are due.
pub(super) fn messages(
    exchange: &Exchange,
    moves: &[Move],
    batches: u32,
    sizes: &[u32],
    bytes_max: u64,
) -> Vec<Message> {
    let mut all: Vec<Message> = Vec::new();
    // Of each peer: its message that may still grow, and its next tag.
    let mut open: BTreeMap<u32, (usize, u32)> = BTreeMap::new();
    let mut batch = 0;
    for one in moves {
        while exchange.due(batch, batches) <= one.step {
            batch += 1;
        }
        let bytes = HEAD_BYTES as usize + sizes[one.id as usize] as usize;
        let (at, tag) = open.entry(one.peer).or_insert((usize::MAX, 0));
        match all.get_mut(*at) {
            Some(message) if message.batch == batch && (message.bytes + bytes) as u64 <= bytes_max => {
                message.ids.push(one.id);
                message.bytes += bytes;
            }
            _ => {
                *at = all.len();
                all.push(Message { batch, peer: one.peer, tag: *tag, ids: vec![one.id], bytes });
                *tag += 1;
            }
        }
    }
    all
}

/// Puts a message together; `get` gives the bytes of a sample, if it can.
pub(super) fn pack(message: &Message, sizes: &[u32], get: impl Fn(u32) -> Option<Bytes>) -> Bytes {
    let mut out = BytesMut::with_capacity(message.bytes);
    for &id in &message.ids {
        let size = sizes[id as usize];
        out.put_u32_le(id);
        if let Some(bytes) = get(id).filter(|bytes| bytes.len() == size as usize) {
            out.put_u32_le(size);
            out.extend_from_slice(&bytes);
        } else {
            out.put_u32_le(ABSENT);
            out.put_bytes(0, size as usize);
        }
    }
    out.freeze()
}

/// Takes a message apart: each sample with its bytes, or without if the sender lacked it.
pub(super) fn unpack<'a>(message: &Message, sizes: &[u32], mut bytes: &'a [u8]) -> Result<Vec<Sample<'a>>> {
    let Message { peer, tag, .. } = message;
    let wrong = |what: String| {
        Error::corrupt(format!("message {tag} of rank {peer} {what}"))
            .hint("the ranks do not work on the same plan")
    };
    if bytes.len() != message.bytes {
        return Err(wrong(format!("has {} bytes instead of {}", bytes.len(), message.bytes)));
    }
    let mut samples = Vec::with_capacity(message.ids.len());
    for &expected in &message.ids {
        let size = sizes[expected as usize];
        // The lengths add up to the whole, which was checked.
        let (head, rest) = bytes.split_at(HEAD_BYTES as usize);
        let number = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (id, length) = (number(0), number(4));
        if id != expected || (length != size && length != ABSENT) {
            return Err(wrong(format!(
                "has sample {id} of {length} bytes where sample {expected} of {size} bytes should be"
            )));
        }
        let (content, rest) = rest.split_at(size as usize);
        samples.push((id, (length != ABSENT).then_some(content)));
        bytes = rest;
    }
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gristmill_core::exchange::{Choose, ExchangeOptions, Form, Owners, View};
    use proptest::prelude::*;

    fn sample(id: u32, size: u32) -> Bytes {
        vec![id as u8; size as usize].into()
    }

    proptest! {
        /// What one sends is what the other expects: same tags, sizes and samples, each sample in one message, every
        /// message within the limit and out with the right batch.
        #[test]
        fn both_sides_compute_the_same_messages(
            samples in 8_u32..160, world in 2_u32..7, batches in 1_u32..20, seed: u64, fraction in 0.1_f64..1.0, bytes_max in 60_u64..400,
        ) {
            let sizes: Vec<u32> = (0..samples).map(|id| id * 7 % 50).collect();
            let options = ExchangeOptions { fraction, form: Form::Derangement, choose: Choose::Uniform };
            let owners = Owners::new(samples, world, seed).unwrap();
            let exchange = owners.exchange(seed, 0, &options, View::default()).unwrap();
            let mut received = 0;
            for to in 0..world {
                let expected = messages(&exchange, &exchange.receives(to), batches, &sizes, bytes_max);
                prop_assert!(expected.is_sorted_by_key(|message| message.batch));
                for want in &expected {
                    let sent = messages(&exchange, &exchange.sends(want.peer), batches, &sizes, bytes_max);
                    let found = sent.iter().find(|m| (m.peer, m.tag) == (to, want.tag)).unwrap();
                    prop_assert_eq!((found.batch, &found.ids, found.bytes), (want.batch, &want.ids, want.bytes));
                    prop_assert!(want.bytes as u64 <= bytes_max && want.batch < batches);
                    let lacks = |id: u32| (!id.is_multiple_of(5)).then(|| sample(id, sizes[id as usize]));
                    let packed = pack(found, &sizes, lacks);
                    for (id, bytes) in unpack(want, &sizes, &packed).unwrap() {
                        let full = sample(id, sizes[id as usize]);
                        prop_assert_eq!(bytes, (!id.is_multiple_of(5)).then_some(&full[..]));
                        received += 1;
                    }
                    let mut wrong = packed.to_vec();
                    wrong[0] ^= 1;
                    prop_assert!(unpack(want, &sizes, &wrong).is_err());
                    prop_assert!(unpack(want, &sizes, &packed[1..]).is_err());
                }
            }
            prop_assert_eq!(received, exchange.all().count());
        }
    }
}

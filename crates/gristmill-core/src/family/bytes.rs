//! Families as bytes, and back. What comes back is not believed: every number is checked against the others.
//!
//! Little-endian words of 32 bits: version, radius, cross-label, samples, families, grouped samples; then the size of
//! each family; then the members, family by family. Deliberately not here: a checksum, and which data set they belong
//! to; the node's file has both.

use super::{ALONE, Families, RADIUS_MAX};
use crate::Invalid;

const VERSION: u32 = 1;
const HEAD_WORDS: usize = 6;

impl Families {
    /// As bytes for a file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let head = [
            VERSION,
            self.radius,
            self.cross_label.into(),
            self.samples(),
            self.len() as u32,
            self.grouped() as u32,
        ];
        let sizes = self.iter().map(|family| family.len() as u32);
        head.into_iter().chain(sizes).chain(self.members.iter().copied()).flat_map(u32::to_le_bytes).collect()
    }

    /// From bytes of a file that is about a data set of `samples`.
    pub fn from_bytes(bytes: &[u8], samples: u32) -> Result<Families, Invalid> {
        let damaged = |what: &str| Invalid(format!("the families are damaged: {what}"));
        let (words, rest) = bytes.as_chunks::<4>();
        let head: [Option<u32>; HEAD_WORDS] =
            std::array::from_fn(|at| words.get(at).map(|word| u32::from_le_bytes(*word)));
        let [Some(version), Some(radius), Some(cross_label), Some(of_samples), Some(families), Some(grouped)] =
            head
        else {
            return Err(damaged("they end in the head"));
        };
        if version != VERSION {
            return Err(Invalid(format!(
                "families of version {version}, where this program knows {VERSION}"
            )));
        }
        if of_samples != samples {
            return Err(Invalid(format!(
                "families of {of_samples} samples, where the data set has {samples}"
            )));
        }
        let (families, grouped) = (families as usize, grouped as usize);
        // Bounds everything that is allocated below by the length of what was given.
        if !rest.is_empty() || words.len() - HEAD_WORDS != families.saturating_add(grouped) {
            return Err(damaged("their length is not what the head says"));
        }
        if radius > RADIUS_MAX || cross_label > 1 {
            return Err(damaged("a radius or a flag that does not exist"));
        }
        let value = |word: &[u8; 4]| u32::from_le_bytes(*word);
        let (sizes, members) = words[HEAD_WORDS..].split_at(families);
        let members: Vec<u32> = members.iter().map(value).collect();
        let mut starts = vec![0];
        let mut of = vec![ALONE; samples as usize];
        let (mut begin, mut last_leader) = (0_usize, None);
        for (family, size) in sizes.iter().map(value).enumerate() {
            let end = begin.saturating_add(size as usize);
            let Some(ids) = members.get(begin..end).filter(|ids| ids.len() > 1) else {
                return Err(damaged("a family of the wrong size"));
            };
            let ascending = ids.is_sorted_by(|a, b| a < b) && last_leader < Some(ids[0]);
            for &id in ids {
                match of.get_mut(id as usize) {
                    Some(of) if *of == ALONE && ascending => *of = family as u32,
                    _ => return Err(damaged("a member that is none")),
                }
            }
            last_leader = Some(ids[0]);
            starts.push(end as u32);
            begin = end;
        }
        if begin != members.len() {
            return Err(damaged("members without a family"));
        }
        Ok(Families { radius, cross_label: cross_label == 1, of, starts, members })
    }
}

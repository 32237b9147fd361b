//! What one rank heard from its trainer and measured, and how it travels to the others.

use crate::report::EpochReport;
use gristmill_core::score::{Feedback, ReadTimes};
use gristmill_core::select::Norm;
use gristmill_core::steer::Profile;

/// What one rank has to tell the others, as columns.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Heard {
    pub(super) ids: Vec<u32>,
    /// Probability of the label, of the rival, loss, entropy (which may be missing).
    pub(super) columns: [Vec<f32>; 4],
    pub(super) times: ReadTimes,
    /// Where this rank's time went.
    pub(super) spent: Spent,
    /// What is known of its model's batch norm, if that was told.
    pub(super) norm: Option<Norm>,
    /// Whether some of it is of a loss that does not tell who was right.
    pub(super) unjudged: bool,
}

/// Where the time of epochs went, added up: what says which resource is the bottleneck.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Spent {
    /// Samples, milliseconds in all, of waiting, of preprocessing per thread, of reading per read at once.
    sums: [f64; 5],
}

impl Spent {
    pub(super) fn note(&mut self, report: &EpochReport, reads_at_once: usize) {
        let prep = (report.decode_ms + report.ops_ms) / report.threads.max(1) as f64;
        let reading = if report.from_memory { 0.0 } else { report.fetch_ms / reads_at_once.max(1) as f64 };
        let terms = [report.processed as f64, report.wall_ms, report.wait.total_ms, prep, reading];
        self.sums.iter_mut().zip(terms).for_each(|(sum, term)| *sum += term);
    }

    pub(super) fn merge(&mut self, other: &Spent) {
        self.sums.iter_mut().zip(other.sums).for_each(|(sum, term)| *sum += term);
    }

    pub(super) fn profile(&self) -> Profile {
        let [samples, wall_ms, wait_ms, prep_ms, reading_ms] = self.sums;
        let rate = |ms: f64| (ms > 0.0 && samples > 0.0).then(|| samples * 1e3 / ms);
        Profile {
            compute_per_s: rate(wall_ms - wait_ms),
            prep_per_s: rate(prep_ms),
            io_per_s: rate(reading_ms),
            stall: (wall_ms > 0.0).then(|| wait_ms / wall_ms),
        }
    }
}

impl Heard {
    pub(super) fn said(&self) -> Feedback<'_> {
        let [p_true, p_rival, loss, entropy] = &self.columns;
        let entropy = (!entropy.is_empty()).then_some(entropy.as_slice());
        Feedback { ids: &self.ids, p_true, p_rival, loss, entropy }
    }

    pub(super) fn pack(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(80 + self.ids.len() * 20);
        for number in self.times.sums.iter().chain(&self.spent.sums) {
            out.extend_from_slice(&number.to_le_bytes());
        }
        // 0 is nothing, and then come the kinds.
        let told = self.norm.map_or(0, |norm| norm as u64 + 1);
        out.extend_from_slice(&(told << 1 | u64::from(self.unjudged)).to_le_bytes());
        out.extend_from_slice(&(self.ids.len() as u64).to_le_bytes());
        out.extend_from_slice(&(self.columns[3].len() as u64).to_le_bytes());
        self.ids.iter().for_each(|id| out.extend_from_slice(&id.to_le_bytes()));
        self.columns.iter().flatten().for_each(|value| out.extend_from_slice(&value.to_le_bytes()));
        out
    }

    pub(super) fn unpack(mut pack: &[u8]) -> Option<Heard> {
        let mut heard = Heard::default();
        for number in heard.times.sums.iter_mut().chain(&mut heard.spent.sums) {
            *number = f64::from_le_bytes(*take(&mut pack)?);
        }
        let told = u64::from_le_bytes(*take(&mut pack)?);
        heard.unjudged = told & 1 != 0;
        heard.norm = match told >> 1 {
            0 => None,
            told => Some(*Norm::ALL.get(usize::try_from(told - 1).ok()?)?),
        };
        let count = usize::try_from(u64::from_le_bytes(*take(&mut pack)?)).ok()?;
        let entropies = usize::try_from(u64::from_le_bytes(*take(&mut pack)?)).ok()?;
        // Lengths are told before what they count: believe them only when the bytes are there.
        if (entropies != 0 && entropies != count)
            || count.checked_mul(16)?.checked_add(entropies.checked_mul(4)?)? != pack.len()
        {
            return None;
        }
        let (words, _) = pack.as_chunks::<4>();
        let mut words = words.iter();
        heard.ids = words.by_ref().take(count).map(|word| u32::from_le_bytes(*word)).collect();
        for column in &mut heard.columns[..3] {
            *column = words.by_ref().take(count).map(|word| f32::from_le_bytes(*word)).collect();
        }
        heard.columns[3] = words.map(|word| f32::from_le_bytes(*word)).collect();
        Some(heard)
    }
}

pub(super) fn take<'a, const N: usize>(bytes: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (taken, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(taken)
}

//! The policies by name, and what a cache is made with.

use super::PackSize;
use crate::Invalid;
use crate::nearest::nearest;

/// How a cache decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// The highest scores stay, unimportant samples come in packs (iCACHE).
    Score,
    /// Who was asked for the longest ago goes.
    Lru,
    /// Who was asked for least since it came goes; of equals, who was asked for the longest ago.
    Lfu,
    /// Who came first stays (`CoorDL`).
    Static,
    /// Packages of half the cache, consumed whole (Quiver).
    Quiver,
    /// Ours: probability of being wanted, times the time it saves, per byte.
    Foresight,
}

impl Policy {
    /// Every policy, by name.
    pub const NAMES: [(&str, Policy); 6] = [
        ("score", Policy::Score),
        ("lru", Policy::Lru),
        ("lfu", Policy::Lfu),
        ("static", Policy::Static),
        ("quiver", Policy::Quiver),
        ("foresight", Policy::Foresight),
    ];

    /// The policy of this name.
    pub fn named(name: &str) -> Result<Policy, Invalid> {
        if let Some((_, policy)) = Policy::NAMES.iter().find(|(known, _)| *known == name) {
            return Ok(*policy);
        }
        let names = Policy::NAMES.map(|(name, _)| name);
        let near = nearest(name, names);
        let rest = near.map_or(String::new(), |near| format!("; did you mean {near:?}?"));
        Err(Invalid(format!("cache policy {name:?} is not one of {}{rest}", names.join(", "))))
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        Policy::NAMES.iter().find(|(_, policy)| *policy == self).map_or("", |(name, _)| name)
    }

    /// Whether it goes by a value per sample that is renewed by [`Cache::swap`].
    pub fn values(self) -> bool {
        matches!(self, Policy::Score | Policy::Foresight)
    }
}

/// What a cache is made with.
#[derive(Debug, Clone, PartialEq)]
pub struct CacheOptions {
    /// How it decides.
    pub policy: Policy,
    /// The most bytes of samples, both regions together.
    pub bytes_max: u64,
    /// The share of the bytes that the cold region has at first; only `score` has one, and 0 is none.
    pub cold_share: f64,
    /// Whether the cold region's size follows what [`Cache::adapt`] is told.
    pub adapt: bool,
    /// How packs are cut.
    pub pack: PackSize,
    /// So many uses ahead in each announced plan, nobody is let go; only `foresight` looks ahead.
    pub horizon: u32,
}

impl CacheOptions {
    /// The usual options.
    pub fn new(policy: Policy, bytes_max: u64) -> CacheOptions {
        let cold_share = if policy == Policy::Score { 0.1 } else { 0.0 };
        CacheOptions { policy, bytes_max, cold_share, adapt: true, pack: PackSize::default(), horizon: 512 }
    }
}

pub(super) fn check(options: &CacheOptions, sizes: &[u32]) -> Result<(), Invalid> {
    let smallest = sizes.iter().copied().min();
    let Some(smallest) = smallest else {
        return Err(Invalid("there is nothing to cache: the data set has no samples".into()));
    };
    if sizes.len() >= (u32::MAX - 1) as usize {
        return Err(Invalid(format!("{} samples are more than a cache can name", sizes.len())));
    }
    if options.bytes_max < smallest.into() {
        return Err(Invalid(format!(
            "a cache of {} bytes holds nothing: the smallest sample has {smallest}; give it more or switch it off",
            options.bytes_max
        )));
    }
    if !(0.0..=0.5).contains(&options.cold_share) {
        return Err(Invalid(format!("cache.cold_share = {} is not from 0 to 0.5", options.cold_share)));
    }
    let PackSize { bytes, samples_min, samples_max } = options.pack;
    if bytes == 0 || samples_min == 0 || samples_max < samples_min || samples_max > 4_096 {
        return Err(Invalid(format!(
            "packs of {bytes} bytes and {samples_min} to {samples_max} samples cannot be cut; the least is 1, the most 4,096 samples"
        )));
    }
    Ok(())
}

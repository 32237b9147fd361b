//! A short look at how the store answers: how long one read takes, and how many come per second when many are asked for.
//!
//! An epoch shows only what its own reads in flight brought. Whether more of them would bring more is known once a few were
//! read one after the other and some all at once: the first gives the latency, the second what is shared. It reads a few
//! samples more than the epoch needs, seldom, and only where training waits for bytes.
//!
//! Others may read from the same store, and whoever waits behind them sees their queue as latency. They come and go, so a
//! few are read alone before the many and a few after them, and what counts is the quieter moment of the two.

use crate::Result;
use futures::future::BoxFuture;
use futures::{StreamExt, stream};
use std::time::Instant;

/// Reads that are made one after the other, half of them before the others and half of them after.
const ALONE: usize = 6;
/// And those that are made at once, at most.
const TOGETHER_MAX: usize = 128;
/// The share of an epoch that a look may read.
const SHARE_MAX: f64 = 0.04;
/// Of a short epoch it reads the least that says anything, if that is not more than one in so many of its samples.
const SHORT: u64 = 4;
/// The least that says anything.
const TOGETHER_MIN: usize = 24;

/// How the store answers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Answers {
    /// Time before an answer begins.
    pub(crate) latency_s: f64,
    /// What all answers share; infinite where nothing is seen to be shared.
    pub(crate) bytes_per_s: f64,
}

/// How many reads a look at an epoch of so many samples makes in all; none if that would be too much of it.
pub(crate) fn reads(samples: u64) -> Option<usize> {
    let together = ((samples as f64 * SHARE_MAX) as usize).clamp(TOGETHER_MIN, TOGETHER_MAX);
    (samples >= SHORT * (ALONE + TOGETHER_MIN) as u64).then_some(ALONE + together)
}

/// Looks, by reading these samples; each future says how many bytes came.
pub(crate) fn look<'a>(ids: &[u32], read: &dyn Fn(u32) -> BoxFuture<'a, Result<u64>>) -> Option<Answers> {
    let (before, rest) = ids.split_at_checked(ALONE / 2)?;
    let (together, after) = rest.split_at(rest.len().saturating_sub(ALONE / 2));
    if together.len() < TOGETHER_MIN {
        return None;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
    runtime.block_on(async {
        let first = one_by_one(before, read).await;
        let start = Instant::now();
        let mut came = stream::iter(together.iter().map(|&id| read(id))).buffer_unordered(TOGETHER_MAX);
        let (mut bytes, mut good) = (0, 0);
        while let Some(one) = came.next().await {
            if let Ok(one) = one {
                bytes += one;
                good += 1;
            }
        }
        let all_s = start.elapsed().as_secs_f64();
        let second = one_by_one(after, read).await;
        let (one_s, one_bytes) = [first, second].into_iter().flatten().min_by(|a, b| a.0.total_cmp(&b.0))?;
        let enough = good >= together.len() / 2;
        enough.then(|| fit(one_s, one_bytes, good, all_s, bytes as f64))
    })
}

/// Reads these one after the other: how long the middle one took, and its bytes.
async fn one_by_one<'a>(ids: &[u32], read: &dyn Fn(u32) -> BoxFuture<'a, Result<u64>>) -> Option<(f64, f64)> {
    let mut times = Vec::with_capacity(ids.len());
    for &id in ids {
        let start = Instant::now();
        // One that cannot be read is the epoch's business.
        if let Ok(bytes) = read(id).await {
            times.push((start.elapsed().as_secs_f64(), bytes as f64));
        }
    }
    // The first may have had to connect.
    times.sort_by(|a, b| a.0.total_cmp(&b.0));
    times.get(times.len() / 2).copied()
}

/// What answers that way: all reads are asked for at once, begin after the latency and share the rest of the time.
fn fit(one_s: f64, one_bytes: f64, reads: usize, all_s: f64, all_bytes: f64) -> Answers {
    // A single read takes the latency and its own part of what is shared; many take the latency once.
    let mean_bytes = all_bytes / reads as f64;
    let others = (reads as f64 - one_bytes / mean_bytes.max(1.0)).max(1.0);
    let each_s = ((all_s - one_s) / others).max(0.0);
    let latency_s = (one_s - each_s * one_bytes / mean_bytes.max(1.0)).max(0.0);
    // What is within the wobble of one read is not shared at all.
    let shared = each_s * reads as f64 > one_s * 0.2;
    Answers {
        latency_s,
        bytes_per_s: if shared && all_bytes > 0.0 { mean_bytes / each_s } else { f64::INFINITY },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use std::time::Duration;

    #[test]
    fn latency_and_what_is_shared_are_told_apart() {
        // 5 ms before every answer, nothing shared.
        let far = fit(0.005, 1e5, 100, 0.0052, 1e7);
        assert!((far.latency_s - 0.005).abs() < 1e-4 && far.bytes_per_s.is_infinite(), "{far:?}");
        // 1 ms and 100 MB/s: a read of 100 kB takes 2 ms, a hundred take 101 ms.
        let link = fit(0.002, 1e5, 100, 0.101, 1e7);
        assert!(
            (link.latency_s - 0.001).abs() < 1e-4 && (link.bytes_per_s / 1e8 - 1.0).abs() < 0.02,
            "{link:?}"
        );
        // No latency at all.
        let near = fit(0.001, 1e5, 100, 0.1, 1e7);
        assert!(near.latency_s < 1e-4 && (near.bytes_per_s / 1e8 - 1.0).abs() < 0.02, "{near:?}");
    }

    #[test]
    fn somebody_elses_queue_is_not_latency() {
        // A store that answers after 2 ms, four in a millisecond. Others had it answer 60 ms later while the first were read.
        let asked = std::sync::atomic::AtomicU64::new(0);
        let busy = |_| {
            let place = asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let wait_ms = match place {
                0..3 => 60,
                3..131 => 2 + (place - 3) / 4,
                _ => 2,
            };
            async move {
                tokio::time::sleep(Duration::from_millis(wait_ms)).await;
                Ok(1_000)
            }
            .boxed()
        };
        let ids: Vec<u32> = (0..134).collect();
        let seen = look(&ids, &busy).unwrap();
        assert!(seen.latency_s < 0.03 && seen.bytes_per_s.is_finite(), "{seen:?}");
    }

    #[test]
    fn a_look_reads_little_and_a_store_that_fails_says_nothing() {
        assert_eq!(
            (reads(100), reads(120), reads(600), reads(1_000_000)),
            (None, Some(ALONE + 24), Some(ALONE + 24), Some(ALONE + TOGETHER_MAX))
        );
        let ids: Vec<u32> = (0..40).collect();
        let slow = |_| {
            async {
                tokio::time::sleep(Duration::from_millis(10)).await;
                Ok(1_000)
            }
            .boxed()
        };
        let seen = look(&ids, &slow).unwrap();
        assert!((0.009..0.03).contains(&seen.latency_s) && seen.bytes_per_s > 1e5, "{seen:?}");
        let fails = |_| async { Err(crate::Error::config("gone")) }.boxed();
        assert_eq!(look(&ids, &fails), None);
        assert_eq!(look(&ids[..3], &slow), None);
        assert_eq!(look(&ids[..20], &slow), None, "too few to say anything");
        let some = |id: u32| {
            async move { if id.is_multiple_of(5) { Err(crate::Error::config("gone")) } else { Ok(1_000) } }
                .boxed()
        };
        assert!(look(&ids, &some).is_some(), "a few that cannot be read do not matter");
    }
}

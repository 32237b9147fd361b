//! The settings of the split: which ops run on the node behind the loader.

use super::{BYTES_MAX, Key, boolean, bytes_to, format_bytes, shown, whole};
use crate::serve::{CORES_LEAST, CORES_MAX};
use crate::split::SplitMode;

/// Every setting of the split.
pub(super) const SPLIT: &[Key] = &[
    key!(
        "split.policy",
        "which ops run on the node behind the loader: auto does so where the link is the bottleneck",
        split.mode,
        mode,
        |mode: &SplitMode| mode.name()
    ),
    key!(
        "split.profile_samples",
        "the most samples of a first epoch that are measured before its rest is split; an eighth of it is enough",
        split.profile_samples,
        whole::<u32, 8, 1_000_000_000>,
        shown
    ),
    key!(
        "split.calibrate_samples",
        "samples that are fetched beside the first epoch to learn how fast the node's ops are",
        split.calibrate_samples,
        whole::<u32, 1, 100_000>,
        shown
    ),
    key!(
        "split.lossy",
        "let crops come as JPEG of high quality, which changes pixels a little",
        split.lossy,
        boolean,
        shown
    ),
    key!(
        "split.link_bytes_per_s",
        "what the link to the node carries; auto measures it",
        split.link_bytes_per_s,
        link,
        |rate: &Option<f64>| rate.map_or("auto".into(), |rate| format_bytes(rate as u64))
    ),
    key!(
        "split.accelerator_samples_per_s",
        "what training takes per second; auto measures it",
        split.accelerator_samples_per_s,
        rate,
        show_auto
    ),
    key!(
        "split.upstream_cores",
        "cores of the node that the decision counts with; auto is what the node says",
        split.upstream_cores,
        cores,
        show_auto
    ),
    key!(
        "split.same_machine",
        "whether the node's ops take this machine's cores; auto goes by its address (a Unix socket, loopback)",
        split.same_machine,
        whether,
        |whether: &Option<bool>| whether.map_or("auto".into(), |whether| whether.to_string())
    ),
];

/// The names that a mode may have, but for single stages.
const MODES: [&str; 7] = ["none", "all", "resize", "fastflow", "sophon", "best", "auto"];

fn mode(text: &str) -> Result<SplitMode, String> {
    SplitMode::named(text).ok_or_else(|| format!("{} or stage:NAME", MODES.join(", ")))
}

fn link(text: &str) -> Result<Option<f64>, String> {
    if text == "auto" {
        return Ok(None);
    }
    match bytes_to::<1, BYTES_MAX>(text) {
        Ok(rate) => Ok(Some(rate as f64)),
        Err(expected) => Err(format!("auto or {expected}")),
    }
}

fn whether(text: &str) -> Result<Option<bool>, String> {
    if text == "auto" {
        Ok(None)
    } else {
        boolean(text).map(Some).map_err(|expected| format!("auto or {expected}"))
    }
}

fn rate(text: &str) -> Result<Option<f64>, String> {
    number(text, |number| number > 0.0 && number <= 1e9, || "a number above 0, at most 1e9".into())
}

/// Cores, fractions included.
pub(super) fn cores(text: &str) -> Result<Option<f64>, String> {
    let fits = |number| number == 0.0 || (CORES_LEAST..=CORES_MAX).contains(&number);
    number(text, fits, || format!("0 or a number from {CORES_LEAST} to {CORES_MAX} such as 2 or 0.5"))
}

/// A number that fits, or none for `auto`.
fn number(
    text: &str,
    fits: impl Fn(f64) -> bool,
    expected: impl Fn() -> String,
) -> Result<Option<f64>, String> {
    if text == "auto" {
        return Ok(None);
    }
    match text.parse() {
        Ok(number) if fits(number) => Ok(Some(number)),
        _ => Err(format!("auto or {}", expected())),
    }
}

#[expect(clippy::ref_option, reason = "all that show a value in the table have one shape")]
pub(super) fn show_auto(value: &Option<f64>) -> String {
    value.map_or_else(|| "auto".into(), |value| value.to_string())
}

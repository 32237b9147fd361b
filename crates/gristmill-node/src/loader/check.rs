//! What a loader must know before it starts: that its options make sense and fit the data set.

use super::LoaderOptions;
use super::budget::Budget;
use crate::dataset::DataSet;
use crate::selection::FamilyUse;
use crate::{Error, Result};
use gristmill_core::SampleId;
use gristmill_ops::{Limits, Pipeline, Recipe};

/// What of the memory may hold samples that stand in for others later.
pub(super) fn held_bytes_max(options: &LoaderOptions) -> u64 {
    match options.selection.families {
        FamilyUse::Off | FamilyUse::Remove => 0,
        FamilyUse::Repeat | FamilyUse::Auto => options.memory_bytes_max / 16,
    }
}

/// Refuses a data set with a sample that could never be loaded within the limit.
pub(super) fn check_samples(budget: Budget, options: &LoaderOptions, set: &DataSet) -> Result<()> {
    let sizes = set.catalog().sizes()?;
    let Some((id, &largest)) = sizes.iter().enumerate().max_by_key(|(_, size)| **size) else { return Ok(()) };
    let room = budget.raw / if set.immediate() { super::steered::most(options).0 as u64 } else { 1 };
    if u64::from(largest) <= room {
        return Ok(());
    }
    let name = set.catalog().locate(SampleId(id as u32))?.name.to_string();
    Err(Error::config(format!(
        "sample {id} ({name}) has {largest} bytes, but loader.memory_bytes_max = {} leaves {room} for one",
        options.memory_bytes_max
    ))
    .hint("raise loader.memory_bytes_max, or leave the sample out of the catalog"))
}

pub(super) fn check(options: &LoaderOptions, set: &DataSet) -> Result<()> {
    let positive = [
        ("loader.threads", options.threads as u64),
        ("loader.batch", options.shape.batch.into()),
        ("loader.pixels_max", options.pixels_max),
        ("loader.stall_ms_max", options.stall_ms_max),
    ];
    if let Some((name, _)) = positive.iter().find(|(_, value)| *value == 0) {
        return Err(Error::config(format!("{name} is 0; it must be at least 1")));
    }
    if options.threads > 1_024 || options.reads_in_flight > 65_536 || options.prefetch_batches > 65_536 {
        return Err(Error::config(format!(
            "loader.threads = {}, reads_in_flight = {} and prefetch_batches = {} are limited to 1,024, 65,536 and 65,536",
            options.threads, options.reads_in_flight, options.prefetch_batches
        )));
    }
    if set.catalog().is_empty() {
        return Err(Error::config(format!("the catalog of {} has no samples", set.catalog().source())));
    }
    Ok(())
}

pub(super) fn new_pipeline(recipe: &Recipe, set: &DataSet, limits: Limits) -> Result<Pipeline> {
    Pipeline::new(recipe, set.catalog().encoding(), limits).map_err(|e| Error::config(e.to_string()))
}

/// How many samples a thread takes at a time: enough that the lock costs nothing beside them, few enough that
/// the threads share every batch.
pub(super) fn claim_samples(set: &DataSet, batch: u32, threads: usize) -> Result<usize> {
    let mean = set.catalog().total_bytes()? / u64::from(set.catalog().len().max(1));
    let share = (batch as usize).div_ceil(threads);
    Ok((32_768 / mean.max(1)).clamp(1, share as u64) as usize)
}

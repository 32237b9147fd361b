//! What the loader tells its node before an epoch: whom it will ask for, and how every sample stands.
//!
//! A cache that keeps a sample until its next use pays for the whole time in between, so a sample counts by how surely
//! it will be wanted *and how soon*. Both are known in advance: selection knows who is likely to be chosen next, and
//! the order of an epoch is one seeded shuffle of all samples from which those that are not chosen are left out, so
//! everybody's place in the next epoch is known before anybody is chosen.

use super::Loader;
use super::cold::Cold;
use crate::Result;
use crate::access::{Access, Announcement};
use crate::node::Standing;
use gristmill_core::SampleId;
use gristmill_core::cache::cold::coldest;
use gristmill_core::plan::{Plan, Shape};

impl Loader {
    /// Tells the node of an epoch, and says which of its samples may be stood in for.
    pub(super) fn announce(
        &self,
        access: &dyn Access,
        plan: &Plan,
        epoch: u64,
        from_batch: u32,
    ) -> Result<Cold> {
        let samples = self.set.catalog().len();
        let order: Vec<u32> =
            (from_batch..plan.batches()).flat_map(|batch| plan.batch(batch)).map(|id| id.0).collect();
        let full = plan.samples() >= samples / self.options.shape.world;
        let standing = self.choice.as_ref().map(|choice| choice.standing());
        let cold = match (&standing, access.hot_share()) {
            (Some(standing), Some(hot_share)) if !full => {
                Cold::of(coldest(&order, &standing.score, hot_share), samples)
            }
            _ => Cold::default(),
        };
        let mut wanted = self.soon(epoch + 1)?;
        let mut score = vec![1.0; samples as usize];
        if let Some(standing) = standing {
            wanted.iter_mut().zip(&standing.wanted).for_each(|(soon, chance)| *soon *= chance);
            score = standing.score;
        }
        let both = score.into_iter().zip(wanted).enumerate();
        let standings =
            both.map(|(id, (score, wanted))| Standing { id: SampleId(id as u32), score, wanted }).collect();
        access.announce(Announcement { epoch, full, order, standings })?;
        Ok(cold)
    }

    /// How soon each sample would be asked for in an epoch that has it: 1 at the beginning, a third at the end.
    fn soon(&self, epoch: u64) -> Result<Vec<f32>> {
        let samples = self.set.catalog().len();
        let Shape { world, .. } = self.options.shape;
        let next = self.all(epoch)?;
        let value = |place: f32| 0.5 / (0.5 + place);
        if self.choice.is_some() {
            // Which rank will ask for it is not known before everybody is chosen.
            let shape = Shape::single(samples);
            let next = if world == 1 { next } else { next.reshaped(shape) };
            let mut soon = vec![0.0; samples as usize];
            let places = (0..next.batches()).flat_map(|batch| next.batch(batch));
            for (place, id) in places.enumerate() {
                soon[id.0 as usize] = value(place as f32 / samples as f32) / world as f32;
            }
            return Ok(soon);
        }
        let mut soon = vec![0.0; samples as usize];
        let share = next.samples().max(1) as f32;
        for (place, id) in (0..next.batches()).flat_map(|batch| next.batch(batch)).enumerate() {
            soon[id.0 as usize] = value(place as f32 / share);
        }
        Ok(soon)
    }
}

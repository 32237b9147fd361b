//! What the loader tells its node before an epoch: whom it will ask for, and how every sample stands.
//!
//! Within an epoch every sample is asked for once, so a hit is a sample that was still there when the epoch began:
//! what counts for a cache is how surely a sample will be wanted by the next epoch, not how soon in it. Selection knows
//! that chance; without one every sample is wanted, by whichever rank the next plan gives it to.

use super::Loader;
use super::cold::Cold;
use crate::Result;
use crate::access::{Access, Announcement};
use crate::node::Standing;
use gristmill_core::SampleId;
use gristmill_core::cache::cold::coldest;
use gristmill_core::plan::Plan;

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
                let probe = self.choice.as_ref().map(|choice| choice.probe()).unwrap_or_default();
                let cold = coldest(&order, &standing.score, hot_share).into_iter();
                Cold::of(cold.filter(|id| probe.binary_search(id).is_err()), samples)
            }
            _ => Cold::default(),
        };
        let (score, wanted) = match standing {
            Some(standing) => (standing.score, standing.wanted),
            None => (vec![1.0; samples as usize], self.wanted(epoch + 1)?),
        };
        let both = score.into_iter().zip(wanted).enumerate();
        let standings =
            both.map(|(id, (score, wanted))| Standing { id: SampleId(id as u32), score, wanted }).collect();
        access.announce(Announcement { epoch, full, order, standings })?;
        Ok(cold)
    }

    /// Whom this rank asks for in a plain epoch: 1, and 0 for those that are other ranks'.
    fn wanted(&self, epoch: u64) -> Result<Vec<f32>> {
        let samples = self.set.catalog().len() as usize;
        if self.options.shape.world == 1 {
            return Ok(vec![1.0; samples]);
        }
        if let Some(exchanger) = self.exchanger() {
            let mut wanted = vec![0.0; samples];
            exchanger.next_held().into_iter().for_each(|id| wanted[id as usize] = 1.0);
            return Ok(wanted);
        }
        let next = self.all(epoch)?;
        let mut wanted = vec![0.0; samples];
        let ids = (0..next.batches()).flat_map(|batch| next.batch(batch));
        ids.for_each(|id| wanted[id.0 as usize] = 1.0);
        Ok(wanted)
    }
}

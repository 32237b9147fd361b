//! From what was selected to the plan of an epoch: the order, where ranks hold slices each in its own, and stand-ins.

use super::{CLASSES_TOLD_MAX, Choice, Decided, FamilyUse, State};
use crate::{Error, Result};
use gristmill_core::exchange::{Active, LaidOut, Owners};
use gristmill_core::family::{StandInLimits, StandIns};
use gristmill_core::plan::{self, Plan, Shape, Uneven};

/// How often one sample may be trained again in an epoch.
const REPEATS_MAX: u32 = 2;

impl Choice {
    pub(super) fn lay_out(
        &self,
        state: &State,
        usual: Shape,
        shuffle: bool,
        owners: Option<&Owners>,
    ) -> Result<Decided> {
        let chosen = state.selector.chosen().ok_or_else(|| Error::config("no epoch has begun"))?;
        // An epoch that the guard asked for has every sample.
        let guarded = !chosen.summary.guard.is_empty();
        let how = self.relatives.as_ref().filter(|_| !guarded);
        let how = how.map(|relatives| (relatives, state.families_use));
        let always = state.selector.probe();
        let less = match how {
            Some((relatives, FamilyUse::Remove)) => state.selector.without_relatives(&relatives.families),
            _ => None,
        };
        let mut report = state.describe(&chosen.summary);
        let chosen = less.as_ref().unwrap_or(chosen);
        report.removed = report.kept - chosen.summary.kept;
        report.kept = chosen.summary.kept;
        report.for_classes = chosen.summary.for_classes;
        report.class_shares = state.selector.class_shares(&chosen.ids);
        report.class_shares.truncate(CLASSES_TOLD_MAX);
        let mut shape = chosen.shape(usual);
        let mut laid = LaidOut::default();
        let (mut order, weights) = match owners {
            Some(owners) => {
                let those = Active { ids: &chosen.ids, weights: &chosen.weights, always };
                laid = owners.lay_out(self.seed, chosen.epoch, shape, shuffle, Some(those));
                (std::mem::take(&mut laid.order), std::mem::take(&mut laid.weights))
            }
            None if shuffle => chosen.shuffled(self.seed),
            None => (chosen.ids.clone(), chosen.weights.clone()),
        };
        if plan::batches(order.len() as u32, shape) == 0 {
            // Too few samples for one whole batch, or for every rank to have one: a short batch, in which some come twice, is
            // better than an epoch without any.
            (shape.drop_last, shape.uneven) = (false, Uneven::Pad);
        }
        let mut holds = StandIns::default();
        if let Some((relatives, FamilyUse::Repeat)) = how {
            let limits = StandInLimits { held_bytes_max: relatives.held_bytes_max, repeats_max: REPEATS_MAX };
            holds = relatives.families.stand_ins(&order, shape, &self.sizes, limits, always)?;
            order = std::mem::take(&mut holds.served);
            report.stand_ins = holds.count;
        }
        let repeats = holds.count > 0 || order.len() > report.kept as usize;
        let plan = Plan::weighted(order, weights, shape)?;
        let plan = if repeats || laid.again > 0 { plan.with_repeats() } else { plan };
        Ok(Decided { plan, holds, report, laid, active: chosen.ids.clone() })
    }
}

#[cfg(test)]
mod tests {
    use crate::selection::{Choice, SelectionOptions};
    use gristmill_core::plan::{Shape, Uneven};
    use gristmill_core::score::Feedback;
    use gristmill_core::select::Selection;
    use proptest::prelude::*;

    proptest! {
        /// However few samples there are or are left, for however many ranks.
        #[test]
        fn no_epoch_is_without_a_batch(
            samples in 1_u32..40, world in 1_u32..9, batch in 1_u32..20, drop_last: bool, pad: bool, way in 0_usize..9,
        ) {
            let selection = Selection::named(Selection::NAMES[way]).unwrap();
            let options = SelectionOptions { selection, probe_share: 0.0, ..SelectionOptions::default() };
            let sizes = vec![100; samples as usize];
            let choice = Choice::new(&options, &vec![0; samples as usize], &sizes, 7, world).unwrap();
            let uneven = if pad { Uneven::Pad } else { Uneven::Drop };
            for epoch in 0..8 {
                let decided = choice.decide(epoch, Shape { batch, rank: world - 1, world, uneven, drop_last }, true).unwrap();
                prop_assert!(decided.plan.batches() > 0, "{} of {samples} in epoch {epoch}", decided.report.kept);
                let p = vec![0.95; decided.active.len()];
                let (p_rival, loss) = (vec![0.05; p.len()], vec![0.05; p.len()]);
                let said = Feedback { ids: &decided.active, p_true: &p, p_rival: &p_rival, loss: &loss, entropy: None };
                choice.feedback(&said).unwrap();
                choice.merge(&vec![choice.pending(); world as usize]).unwrap();
            }
        }
    }
}

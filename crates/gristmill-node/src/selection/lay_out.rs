//! From what was selected to the plan of an epoch: the order, where ranks hold slices each in its own, and stand-ins.

use super::{CLASSES_TOLD_MAX, Choice, Decided, FamilyUse, State};
use crate::{Error, Result};
use gristmill_core::exchange::{Active, LaidOut, Owners};
use gristmill_core::family::{StandInLimits, StandIns};
use gristmill_core::plan::{self, Plan, Shape};

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
            Some((relatives, FamilyUse::Remove)) => {
                Some(chosen.without_relatives(&relatives.families, self.seed, always))
            }
            _ => None,
        };
        let mut report = state.describe(&chosen.summary);
        let chosen = less.as_ref().unwrap_or(chosen);
        report.removed = report.kept - chosen.summary.kept;
        report.kept = chosen.summary.kept;
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
            // Too few samples for one whole batch: a short one is better than an epoch without any.
            shape.drop_last = false;
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

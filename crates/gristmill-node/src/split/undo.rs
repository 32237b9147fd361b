//! A split that made epochs longer is left out for a while: what was predicted may be wrong, the clock is not.
//!
//! The time that a sample takes in an epoch with a split stands beside that of the last epoch without. Deliberately not here:
//! the published policies, which are what they are, and why the prediction was wrong.

/// How much longer a split epoch may take: epochs differ by this much anyway.
const LONGER_MAX: f64 = 1.05;
/// Epochs for which the split is left out; twice as many each time.
const EPOCHS: u64 = 4;

/// What is remembered of epochs with a split and without.
#[derive(Debug, Clone, Default)]
pub(super) struct Undo {
    unsplit_s: Option<f64>,
    /// The epoch before which nothing is split, how many that were, and why.
    until: u64,
    epochs: u64,
    why: String,
}

impl Undo {
    /// Takes how long a sample took in an epoch that was read to its end.
    pub(super) fn took(&mut self, epoch: u64, each_s: f64, split: bool) {
        match self.unsplit_s {
            _ if !split => self.unsplit_s = Some(each_s),
            Some(unsplit_s) if each_s > unsplit_s * LONGER_MAX => {
                self.epochs = (self.epochs * 2).clamp(EPOCHS, 1 << 20);
                self.until = epoch.saturating_add(1 + self.epochs);
                let longer = (each_s / unsplit_s - 1.0) * 100.0;
                self.why = format!(
                    "epoch {epoch} took {longer:.0} % longer with a split than one without, so up to epoch {} nothing is split",
                    self.until
                );
            }
            _ => {}
        }
    }

    /// Why an epoch is not to be split, if it is not.
    pub(super) fn bars(&self, epoch: u64) -> Option<&str> {
        (epoch < self.until).then_some(self.why.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_made_epochs_longer_is_left_out_ever_longer() {
        let mut undo = Undo::default();
        undo.took(0, 3.0, true);
        assert_eq!(undo.bars(1), None, "there is nothing to compare with");
        undo.took(1, 2.0, false);
        undo.took(2, 2.08, true);
        assert_eq!(undo.bars(3), None, "epochs differ by that much");
        undo.took(3, 2.5, true);
        assert!(undo.bars(4).is_some_and(|why| why.contains("25 % longer") && why.contains("up to epoch 8")));
        assert!(undo.bars(7).is_some() && undo.bars(8).is_none());
        // Meanwhile the link became slow: what counts is the last epoch without a split.
        undo.took(7, 4.0, false);
        undo.took(8, 2.5, true);
        assert_eq!(undo.bars(9), None);
        undo.took(9, 5.0, true);
        assert!(undo.bars(17).is_some() && undo.bars(18).is_none(), "twice as long");
    }
}

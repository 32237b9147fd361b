//! How large gradients turned out to be that had been of a certain size at the visit before.
//!
//! What a sample was is not what it is: the model has moved, and a random crop shows another part of it. So the size
//! that counts for [`super::weighted`] is the one that such samples turn out to have, learned from the feedback itself.
//!
//! Sizes are counted in steps, four per halving. The easiest samples are spread over many steps and come rarely, so a
//! step of its own would have next to no visits just where skipping goes furthest. Believing the last size there is
//! what must not be done: under random crops the noise that skipping adds was then forty times what had been
//! allowed. So steps that know too little share what they know with their neighbours.
//!
//! Deliberately not here: what is done with a size.

/// Four steps per halving, down to gradients that are nothing.
const STEPS: usize = 96;
/// Fewer visits than this say too little: of easy samples few turn out hard, and those few are what counts.
const VISITS_MIN: u64 = 64;
/// One, in the whole numbers that squares are added up in: sums are then the same in any order.
const ONE: f64 = (1_u64 << 32) as f64;

/// Visits, and the sum of squares of the sizes found there, for each step of the size before.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Drift {
    pub(super) visits: Vec<u64>,
    pub(super) squares: Vec<u64>,
}

impl Drift {
    pub(super) fn new() -> Drift {
        Drift { visits: vec![0; STEPS], squares: vec![0; STEPS] }
    }

    /// The step of a size from 0 to 1: by its exponent and the two highest bits behind it.
    fn step(size: f32) -> usize {
        let below_one = 1.0_f32.to_bits().saturating_sub(size.clamp(0.0, 1.0).to_bits());
        ((below_one >> 21) as usize).min(STEPS - 1)
    }

    /// Notes a visit: the size before and the size now.
    pub(super) fn note(&mut self, before: f32, now: f32) {
        let step = Drift::step(before);
        self.visits[step] += 1;
        self.squares[step] += (f64::from(now) * f64::from(now) * ONE) as u64;
    }

    /// Lets half of what is known go, so that it follows the training. Squares go with their visits: the mean stays.
    pub(super) fn fade(&mut self) {
        for (visits, squares) in self.visits.iter_mut().zip(&mut self.squares) {
            let kept = *visits / 2;
            *squares = (u128::from(*squares) * u128::from(kept) / u128::from((*visits).max(1))) as u64;
            *visits = kept;
        }
    }

    /// What is to be expected; none before any sample was visited twice.
    pub(super) fn expected(&self) -> Option<Expected> {
        let mut of_step = [0.0; STEPS];
        // From the easiest on, in groups; what a group found is in its squares' mean.
        let (mut begin, mut mean) = (STEPS, None);
        let (mut visits, mut squares) = (0, 0);
        for step in (0..STEPS).rev() {
            visits += self.visits[step];
            squares += self.squares[step];
            if visits >= VISITS_MIN {
                let found = squares as f64 / ONE / visits as f64;
                of_step[step..begin].fill(found.sqrt() as f32);
                (begin, mean) = (step, Some(found));
                (visits, squares) = (0, 0);
            }
        }
        // What is left at the hard end: the visits that it lacks are as those of the group before it.
        let lacking = mean.map_or(0, |_| VISITS_MIN - visits);
        let known = (visits + lacking) as f64;
        if known > 0.0 {
            let found = (squares as f64 / ONE + lacking as f64 * mean.unwrap_or(0.0)) / known;
            of_step[..begin].fill(found.sqrt() as f32);
        }
        (known > 0.0).then_some(Expected { of_step })
    }
}

/// The size that is to be expected, for each step of the last one.
#[derive(Debug, Clone)]
pub(super) struct Expected {
    of_step: [f32; STEPS],
}

impl Expected {
    /// The size to be expected of a sample that had this one.
    pub(super) fn of(&self, last: f32) -> f32 {
        self.of_step[Drift::step(last)]
    }
}

#[cfg(test)]
mod tests {
    use super::{Drift, VISITS_MIN};

    /// So many visits of samples that had been of this size, one in `hard` of which is now 1, the others as before.
    fn visited(drift: &mut Drift, before: f32, visits: u64, hard: u64) {
        (0..visits).for_each(|i| drift.note(before, if i % hard == hard - 1 { 1.0 } else { before }));
    }

    #[test]
    fn a_step_with_visits_enough_is_what_its_samples_turned_out_to_be() {
        let mut drift = Drift::new();
        visited(&mut drift, 0.01, 10 * VISITS_MIN, 16);
        visited(&mut drift, 0.5, 10 * VISITS_MIN, u64::MAX);
        let expected = drift.expected().unwrap();
        assert!((expected.of(0.01) - 0.25).abs() < 0.01, "a sixteenth is hard: {}", expected.of(0.01));
        assert!((expected.of(0.5) - 0.5).abs() < 0.01, "{}", expected.of(0.5));
    }

    #[test]
    fn steps_with_few_visits_share_what_they_know_and_none_is_believed_to_be_as_it_was() {
        // Easy samples, each step with a handful of visits, a ninth of which turned out hard: as under random crops.
        let mut drift = Drift::new();
        for halving in 4..20 {
            visited(&mut drift, 0.5_f32.powi(halving), 27, 9);
        }
        let expected = drift.expected().unwrap();
        for halving in [4, 8, 12, 19, 23, 60] {
            let size = expected.of(0.5_f32.powi(halving));
            assert!((0.3..0.4).contains(&size), "2^-{halving}: {size}");
        }
        assert!((0.3..0.4).contains(&expected.of(1.0)), "nothing harder was seen: it is like them");
        // A few visits of hard ones do not go under among the easy ones.
        visited(&mut drift, 0.75, VISITS_MIN / 2, u64::MAX);
        let hard = drift.expected().unwrap().of(0.75);
        assert!((0.5..0.75).contains(&hard), "{hard}");
    }

    #[test]
    fn what_fades_keeps_its_mean() {
        // Three visits per epoch: half of an odd number of visits must not leave half of all squares.
        let mut drift = Drift::new();
        for _ in 0..40 {
            visited(&mut drift, 0.25, 3, u64::MAX);
            drift.fade();
            let size = drift.expected().unwrap().of(0.25);
            assert!((size - 0.25).abs() < 1e-3, "{size}");
        }
    }

    #[test]
    fn little_is_known_of_all_together_and_nothing_before_the_second_visit() {
        let mut drift = Drift::new();
        assert!(drift.expected().is_none());
        drift.note(0.125, 0.5);
        let expected = drift.expected().unwrap();
        assert!([0.0, 0.125, 1.0].iter().all(|&last| (expected.of(last) - 0.5).abs() < 1e-3));
        drift.fade();
        assert!(drift.expected().is_none(), "half of one visit is none");
    }
}

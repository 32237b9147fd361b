//! An axis: from values to places, with round ticks.

/// Maps values from `low` to `high` onto places from `from` to `to`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Axis {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
    step: f64,
}

impl Axis {
    /// An axis that shows all `values`, with about `ticks` ticks; `roomy` leaves some air beyond the outermost.
    pub(super) fn new(
        values: impl Iterator<Item = f64>,
        from: f64,
        to: f64,
        ticks: f64,
        roomy: bool,
    ) -> Axis {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(|value| value.is_finite()) {
            low = low.min(value);
            high = high.max(value);
        }
        if low > high {
            (low, high) = (0.0, 1.0);
        }
        if high - low < 1e-9 * low.abs().max(1e-3) {
            let air = (low.abs() * 0.05).max(0.5);
            (low, high) = (low - air, high + air);
        } else if roomy {
            let air = (high - low) * 0.06;
            (low, high) = (low - air, high + air);
        }
        Axis { low, high, from, to, step: round_step((high - low) / ticks) }
    }

    /// The place of a value.
    pub(super) fn at(&self, value: f64) -> f64 {
        self.from + (value - self.low) / (self.high - self.low) * (self.to - self.from)
    }

    /// The place where it ends.
    pub(super) fn end(&self) -> f64 {
        self.to
    }

    /// The distance of ticks.
    pub(super) fn step(&self) -> f64 {
        self.step
    }

    /// Round values that lie on the axis.
    pub(super) fn ticks(&self) -> impl Iterator<Item = f64> {
        let (step, first) = (self.step, (self.low / self.step - 1e-9).ceil());
        let count = ((self.high / step + 1e-9).floor() - first).clamp(0.0, 50.0) as u32;
        (0..=count).map(move |i| (first + f64::from(i)) * step)
    }
}

/// 1, 2 or 5 times a power of ten, at least as large as asked for.
fn round_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.log10().floor());
    let factors = [1.0, 2.0, 5.0, 10.0];
    factors
        .into_iter()
        .map(|factor| factor * power)
        .find(|step| *step >= least * 0.999)
        .unwrap_or(10.0 * power)
}

/// A tick's value with as many decimals as its step needs.
pub(super) fn shown(value: f64, step: f64) -> String {
    let decimals = (-step.log10().floor()).clamp(0.0, 9.0) as usize;
    let value = if value.abs() < step * 1e-6 { 0.0 } else { value };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        for (low, high, expect) in [
            (0.0, 10.0, "0 2 4 6 8 10"),
            (0.81, 0.93, "0.82 0.84 0.86 0.88 0.90 0.92"),
            (-3.0, 3.0, "-3 -2 -1 0 1 2 3"),
            (0.0, 1234.0, "0 200 400 600 800 1000 1200"),
        ] {
            let axis = Axis::new([low, high].into_iter(), 0.0, 100.0, 6.2, false);
            let ticks: Vec<String> = axis.ticks().map(|tick| shown(tick, axis.step())).collect();
            assert_eq!(ticks.join(" "), expect);
            assert!(axis.ticks().all(|tick| (-1e-6..=100.0 + 1e-6).contains(&axis.at(tick))));
        }
    }

    #[test]
    fn an_axis_of_one_value_or_none_has_a_length() {
        for values in [vec![], vec![5.0], vec![0.0, 0.0], vec![f64::NAN]] {
            let axis = Axis::new(values.into_iter(), 0.0, 100.0, 5.0, true);
            assert!(axis.at(5.0).is_finite() && axis.ticks().count() > 1);
        }
    }
}

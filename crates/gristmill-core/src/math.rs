//! Logarithms and powers that give the same bits everywhere.
//!
//! A system's own library may round `log2` differently in the last bit, and one bit can move a sample across a
//! threshold on one rank and not on another. These use additions, multiplications and divisions only, which every
//! machine rounds alike. Their error is below 1e-13 of the value, far below anything a decision looks at.
//!
//! Deliberately not here: anything a decision does not need.

use std::f64::consts::LN_2;

/// The base-2 logarithm of a positive number; minus infinity for 0 and what is not positive.
pub fn log2(x: f64) -> f64 {
    if x.is_nan() || x <= 0.0 {
        return f64::NEG_INFINITY;
    }
    if x.is_infinite() {
        return x;
    }
    // Numbers too small to have a leading one are lifted first.
    let (x, lifted) = if x < f64::MIN_POSITIVE { (x * (1_u64 << 54) as f64, 54.0) } else { (x, 0.0) };
    // x = 2^k z with z from FIRST to twice that, and z near one of 128 numbers whose logarithm is known.
    let above = x.to_bits().wrapping_sub(FIRST.to_bits());
    let k = (above as i64 >> 52) as f64;
    let z = f64::from_bits(x.to_bits().wrapping_sub(above & 0xfff << 52));
    let (inverse, log) = NEAR[(above >> 45) as usize % 128];
    // ln (1 + r) = r - r^2/2 + r^3/3 - ..., with r at most 1/128.
    let r = z * inverse - 1.0;
    let square = r * r;
    let (thirds, fifths) = (1.0 / 3.0 - r / 4.0, 1.0 / 5.0 - r / 6.0);
    let tail = thirds + square * (fifths + square * (1.0 / 7.0 - r / 8.0));
    k - lifted + log + (r + square * (r * tail - 0.5)) / LN_2
}

/// Where the numbers begin that a logarithm is reduced to: so that 1 has numbers on both sides.
const FIRST: f64 = 0.6875;

/// For each 128th part of the numbers from `FIRST` to twice that: one over a number near all of them, and its
/// logarithm. Around 1 it is 1 itself, so that logarithms near 0 lose nothing.
static NEAR: [(f64, f64); 128] = {
    let mut near = [(1.0, 0.0); 128];
    let mut i = 0;
    while i < 128 {
        let bits = FIRST.to_bits() + (i << 45);
        let (begin, end) = (f64::from_bits(bits), f64::from_bits(bits + (1 << 45)));
        if begin > 1.0 || end < 1.0 {
            let inverse = 2.0 / (begin + end);
            near[i as usize] = (inverse, -log2_near_one(inverse));
        }
        i += 1;
    }
    near
};

/// The base-2 logarithm of a number between 1/2 and 2, by the long way that a table is made with.
const fn log2_near_one(x: f64) -> f64 {
    // ln x = 2 (s + s^3/3 + s^5/5 + ...) with s = (x - 1) / (x + 1).
    let s = (x - 1.0) / (x + 1.0);
    let (mut series, mut n) = (0.0, 24);
    while n > 0 {
        n -= 1;
        series = series * s * s + 1.0 / (2 * n + 1) as f64;
    }
    2.0 * s * series / LN_2
}

/// Two to the power of `x`.
pub fn exp2(x: f64) -> f64 {
    if x.is_nan() || x >= 1_024.0 {
        return if x.is_nan() { x } else { f64::INFINITY };
    }
    if x < -1_022.0 {
        return 0.0;
    }
    let whole = x.round().clamp(-1_022.0, 1_023.0);
    let t = (x - whole) * LN_2;
    let series = (1..=15).rev().fold(1.0, |sum, n| 1.0 + sum * t / f64::from(n));
    series * f64::from_bits(((whole as i64 + 1_023) as u64) << 52)
}

/// A number that is not negative to the power of `exponent`.
pub fn power(base: f64, exponent: f64) -> f64 {
    if exponent == 0.0 { 1.0 } else { exp2(exponent * log2(base)) }
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    clippy::float_cmp,
    reason = "what must be exact is, and the rest is held to the library"
)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn exact_where_it_must_be() {
        for n in -1_022_i32..1_023 {
            assert_eq!(log2(2_f64.powi(n)), f64::from(n));
            assert_eq!(exp2(f64::from(n)), 2_f64.powi(n));
        }
        assert_eq!(
            (log2(0.0), log2(-1.0), log2(f64::NAN)),
            (f64::NEG_INFINITY, f64::NEG_INFINITY, f64::NEG_INFINITY)
        );
        assert_eq!((exp2(f64::NEG_INFINITY), exp2(1e9), exp2(0.0)), (0.0, f64::INFINITY, 1.0));
        assert_eq!((power(0.0, 2.0), power(0.0, 0.0), power(3.0, 1.0)), (0.0, 1.0, 3.0));
        assert!((log2(5e-324) + 1_074.0).abs() < 1e-9, "{}", log2(5e-324));
    }

    proptest! {
        #[test]
        fn near_the_system_library(x in 1e-300_f64..1e300, y in -1_000_f64..1_000.0, b in 0.0_f64..10.0, e in 0.01_f64..8.0) {
            prop_assert!((log2(x) - x.log2()).abs() <= 1e-13 * x.log2().abs().max(1e-2), "{x}");
            prop_assert!((exp2(y) - y.exp2()).abs() <= 1e-13 * y.exp2(), "{y}");
            prop_assert!((power(b, e) - b.powf(e)).abs() <= 1e-12 * b.powf(e).max(1e-300), "{b} {e}");
        }
    }
}

//! Logarithms and powers that give the same bits everywhere.
//!
//! A system's own library may round `log2` differently in the last bit, and one bit can move a sample across a
//! threshold on one rank and not on another. These use additions, multiplications and divisions only, which every
//! machine rounds alike. Their error is below 1e-14 of the value, far below anything a decision looks at.
//!
//! Deliberately not here: anything a decision does not need.

use std::f64::consts::{LN_2, SQRT_2};

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
    let bits = x.to_bits();
    let mut exponent = f64::from((bits >> 52) as i32 - 1_023);
    let mut mantissa = f64::from_bits((bits & ((1 << 52) - 1)) | (1_023 << 52));
    if mantissa > SQRT_2 {
        mantissa *= 0.5;
        exponent += 1.0;
    }
    // ln m = 2 (s + s^3/3 + s^5/5 + ...) with s = (m - 1) / (m + 1), at most 0.172 here.
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let square = s * s;
    let series = (0..12).rev().fold(0.0, |sum, n| sum * square + 1.0 / f64::from(2 * n + 1));
    exponent - lifted + 2.0 * s * series / LN_2
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

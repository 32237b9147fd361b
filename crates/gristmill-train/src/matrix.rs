//! Matrix products of `f32`, the one place that calls the product crate.
//!
//! A [`View`] is a matrix in someone else's numbers, row after row, or its transpose. Products run on the calling
//! thread alone, so that the loader's threads have room; and the crate's block sizes are fixed, so the same
//! processor features give the same bits.
//!
//! Deliberately not here: storage, shapes beyond two dimensions, any other operation.

/// A matrix of `rows` x `columns` in a slice.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View<'a> {
    numbers: &'a [f32],
    rows: usize,
    columns: usize,
    row_step: usize,
    column_step: usize,
}

impl<'a> View<'a> {
    /// The matrix whose rows lie one after the other in `numbers`.
    pub(crate) fn new(numbers: &'a [f32], rows: usize, columns: usize) -> View<'a> {
        assert_eq!(Some(numbers.len()), rows.checked_mul(columns), "a view covers its slice exactly");
        View { numbers, rows, columns, row_step: columns, column_step: 1 }
    }

    /// Rows and columns exchanged, without moving anything.
    pub(crate) fn transposed(self) -> View<'a> {
        View {
            rows: self.columns,
            columns: self.rows,
            row_step: self.column_step,
            column_step: self.row_step,
            ..self
        }
    }
}

/// Writes `a` times `b` to `out`, row after row.
#[expect(unsafe_code, reason = "the product crate takes pointers; every length is checked here")]
pub(crate) fn multiply(a: View<'_>, b: View<'_>, out: &mut [f32]) {
    assert_eq!(a.columns, b.rows, "the sides that meet are equal");
    assert_eq!(Some(out.len()), a.rows.checked_mul(b.columns), "the product fits its place exactly");
    if a.columns == 0 {
        out.fill(0.0);
        return;
    }
    // SAFETY: a view's `numbers` holds exactly rows * columns values and its steps visit each place once (they come
    // from `new`, possibly exchanged by `transposed`), so every read is inside. `out` has exactly a.rows * b.columns
    // values, is written row after row, and cannot overlap `a` or `b`, because it is borrowed mutably.
    unsafe {
        matrixmultiply::sgemm(
            a.rows,
            a.columns,
            b.columns,
            1.0,
            a.numbers.as_ptr(),
            a.row_step as isize,
            a.column_step as isize,
            b.numbers.as_ptr(),
            b.row_step as isize,
            b.column_step as isize,
            0.0,
            out.as_mut_ptr(),
            b.columns as isize,
            1,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Row after row of a matrix that a view shows.
    fn dense(view: View<'_>) -> Vec<f32> {
        let at = |r: usize, c: usize| view.numbers[r * view.row_step + c * view.column_step];
        (0..view.rows).flat_map(|r| (0..view.columns).map(move |c| at(r, c))).collect()
    }

    proptest! {
        #[test]
        fn products_equal_the_definition(
            rows in 0_usize..20, inner in 0_usize..20, columns in 0_usize..20, turned in 0_u8..4, seed in any::<u64>(),
        ) {
            let mut stream = gristmill_core::rng::Stream::from_key(seed);
            let mut draw = |n: usize| (0..n).map(|_| stream.unit() as f32 - 0.5).collect::<Vec<_>>();
            let (left, right) = (draw(rows * inner), draw(inner * columns));
            let a = if turned & 1 == 0 { View::new(&left, rows, inner) } else { View::new(&left, inner, rows).transposed() };
            let b = if turned & 2 == 0 { View::new(&right, inner, columns) } else { View::new(&right, columns, inner).transposed() };
            let mut out = vec![f32::NAN; rows * columns];
            multiply(a, b, &mut out);
            let (plain_a, plain_b) = (dense(a), dense(b));
            for r in 0..rows {
                for c in 0..columns {
                    let sum: f64 = (0..inner)
                        .map(|i| f64::from(plain_a[r * inner + i]) * f64::from(plain_b[i * columns + c]))
                        .sum();
                    prop_assert!((f64::from(out[r * columns + c]) - sum).abs() < 1e-5);
                }
            }
        }
    }
}

//! A zero-sum game with three rows, solved exactly.
//!
//! One side mixes columns (corners) so that the largest of three sums is small, the other puts prices on the rows so
//! that the cheapest column is dear; both reach the same value. An optimal mix needs at most three columns, and optimal
//! prices make as many columns equal, so trying every pair and triple finds both. There are a few dozen columns.

/// One figure per resource: link, upstream, local.
pub(super) type Point = [f64; 3];

/// The solution of a game.
#[derive(Debug, Clone)]
pub(super) struct Play {
    /// The columns that are mixed, and how much of each.
    pub(super) shares: Vec<(usize, f64)>,
    /// The largest of the mixed sums.
    pub(super) value: f64,
    /// The prices of the rows; they add up to one.
    pub(super) prices: Point,
}

/// The sum of products.
#[inline]
pub(super) fn dot(a: Point, b: Point) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

fn minus(a: Point, b: Point) -> Point {
    std::array::from_fn(|row| a[row] - b[row])
}

/// The best mix of columns and the best prices. There must be a column.
pub(super) fn play(columns: &[Point]) -> Play {
    let mut mix = Play { shares: Vec::new(), value: f64::INFINITY, prices: [0.0; 3] };
    let mut floor = f64::NEG_INFINITY;
    for row in 0..3 {
        dearer(columns, std::array::from_fn(|r| f64::from(u8::from(r == row))), &mut mix, &mut floor);
    }
    for (i, &a) in columns.iter().enumerate() {
        cheaper(&mut mix, &[(i, a, 1.0)]);
        for (j, &b) in columns.iter().enumerate().take(i) {
            for (r, s) in [(0, 1), (0, 2), (1, 2)] {
                let slope = (a[r] - a[s]) - (b[r] - b[s]);
                let share = (b[s] - b[r]) / slope;
                cheaper(&mut mix, &[(i, a, share), (j, b, 1.0 - share)]);
                let price = (b[s] - a[s]) / slope;
                let mut prices = [0.0; 3];
                (prices[r], prices[s]) = (price, 1.0 - price);
                dearer(columns, prices, &mut mix, &mut floor);
            }
            for (k, &c) in columns.iter().enumerate().take(j) {
                let (p, q) = (minus(a, c), minus(b, c));
                let cross = [p[1] * q[2] - p[2] * q[1], p[2] * q[0] - p[0] * q[2], p[0] * q[1] - p[1] * q[0]];
                let sum = cross[0] + cross[1] + cross[2];
                dearer(columns, cross.map(|x| x / sum), &mut mix, &mut floor);
                // All three sums equal: two linear equations for two shares.
                let (p1, p2, q1, q2) = (p[1] - p[0], p[2] - p[0], q[1] - q[0], q[2] - q[0]);
                let (c1, c2) = (c[0] - c[1], c[0] - c[2]);
                let determinant = p1 * q2 - p2 * q1;
                let x = (c1 * q2 - c2 * q1) / determinant;
                let y = (p1 * c2 - p2 * c1) / determinant;
                cheaper(&mut mix, &[(i, a, x), (j, b, y), (k, c, 1.0 - x - y)]);
            }
        }
    }
    mix
}

/// Takes a mix when it is one, and better. Shares that are not numbers are none.
fn cheaper(best: &mut Play, parts: &[(usize, Point, f64)]) {
    if !parts.iter().all(|&(_, _, share)| share > 0.0) {
        return;
    }
    let sum = |row: usize| parts.iter().map(|(_, column, share)| share * column[row]).sum::<f64>();
    let value = sum(0).max(sum(1)).max(sum(2));
    if value < best.value {
        best.value = value;
        best.shares = parts.iter().map(|&(column, _, share)| (column, share)).collect();
    }
}

/// Takes prices when they are not negative, and their cheapest column is dearer.
fn dearer(columns: &[Point], prices: Point, best: &mut Play, floor: &mut f64) {
    if !prices.iter().all(|&price| price >= 0.0) {
        return;
    }
    let mut least = f64::INFINITY;
    for &column in columns {
        least = least.min(dot(prices, column));
        if least <= *floor {
            return;
        }
    }
    (best.prices, *floor) = (prices, least);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn by_hand() {
        // One column; two that balance; three, one per row.
        let cases: [(&[Point], f64, usize); 4] = [
            (&[[3.0, 1.0, 2.0]], 3.0, 1),
            (&[[4.0, 0.0, 1.0], [0.0, 4.0, 1.0]], 2.0, 2),
            (&[[6.0, 0.0, 0.0], [0.0, 6.0, 0.0], [0.0, 0.0, 6.0]], 2.0, 3),
            (&[[6.0, 0.0, 0.0], [5.0, 5.0, 5.0], [1.0, 1.0, 1.0]], 1.0, 1),
        ];
        for (columns, value, mixed) in cases {
            let play = play(columns);
            assert!((play.value - value).abs() < 1e-12, "{columns:?} {play:?}");
            assert_eq!(play.shares.len(), mixed, "{columns:?}");
        }
    }

    proptest! {
        /// Neither side can do better: the cheapest column at the prices costs as much as the mix's largest sum.
        #[test]
        fn both_sides_reach_the_same_value(
            columns in prop::collection::vec(prop::array::uniform3(0.0_f64..10.0), 1..12)
        ) {
            let play = play(&columns);
            let floor = columns.iter().map(|&c| dot(play.prices, c)).fold(f64::INFINITY, f64::min);
            prop_assert!((play.value - floor).abs() < 1e-9, "{} {floor}", play.value);
            let shares: f64 = play.shares.iter().map(|(_, share)| share).sum();
            prop_assert!((shares - 1.0).abs() < 1e-9);
            prop_assert!((play.prices.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        }
    }
}

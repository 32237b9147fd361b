//! Where names go so that they cover neither each other nor the points.

/// How high a line of text is.
const LINE: f64 = 15.0;
/// Half of the room that a point takes.
const MARK: f64 = 7.0;

/// A rectangle; `top` is the smaller y.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Box2 {
    pub(super) left: f64,
    pub(super) top: f64,
    pub(super) right: f64,
    pub(super) bottom: f64,
}

impl Box2 {
    /// The area that two rectangles share.
    fn shared(self, other: Box2) -> f64 {
        let width = self.right.min(other.right) - self.left.max(other.left);
        let height = self.bottom.min(other.bottom) - self.top.max(other.top);
        width.max(0.0) * height.max(0.0)
    }

    /// The area that lies outside of `room`.
    fn outside(self, room: Box2) -> f64 {
        (self.right - self.left) * (self.bottom - self.top) - self.shared(room)
    }
}

/// A place for the name of each mark: beside it where there is room, else a little further off. `bars` are better left
/// uncovered, too.
pub(super) fn place(marks: &[(f64, f64)], bars: &[Box2], widths: &[f64], room: Box2) -> Vec<Box2> {
    let taken: Vec<Box2> = marks
        .iter()
        .map(|&(x, y)| Box2 { left: x - MARK, top: y - MARK, right: x + MARK, bottom: y + MARK })
        .collect();
    let mut placed: Vec<Box2> = Vec::new();
    for (&mark, &width) in marks.iter().zip(widths) {
        let cost = |label: &Box2| {
            let covered: f64 = taken.iter().chain(&placed).map(|other| label.shared(*other)).sum();
            let bars: f64 = bars.iter().map(|bar| label.shared(*bar)).sum();
            covered + 4.0 * label.outside(room) + 0.5 * bars
        };
        // The first of the best: those near and to the right come first.
        let best = candidates(mark, width)
            .map(|label| (cost(&label), label))
            .reduce(|best, next| if next.0 < best.0 - 1e-9 { next } else { best });
        placed.extend(best.map(|(_, label)| label));
    }
    placed
}

fn candidates((x, y): (f64, f64), width: f64) -> impl Iterator<Item = Box2> {
    let label = move |left: f64, middle: f64| Box2 {
        left,
        top: middle - LINE / 2.0,
        right: left + width,
        bottom: middle + LINE / 2.0,
    };
    [0.0, 10.0, 22.0, 36.0, 52.0].into_iter().flat_map(move |far| {
        let (beside, above) = (MARK + 3.0 + far * 0.3, MARK + LINE / 2.0 + far);
        [
            label(x + beside, y),
            label(x - beside - width, y),
            label(x - width / 2.0, y - above),
            label(x - width / 2.0, y + above),
            label(x + beside, y - above),
            label(x + beside, y + above),
            label(x - beside - width, y - above),
            label(x - beside - width, y + above),
        ]
    })
}

/// Heights near the wanted ones, at least `gap` apart, between `top` and `bottom` if they fit there.
pub(super) fn spread(wanted: &[f64], gap: f64, top: f64, bottom: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|&a, &b| wanted[a].total_cmp(&wanted[b]));
    let mut out = wanted.to_vec();
    let mut least = top;
    for &i in &order {
        out[i] = out[i].max(least);
        least = out[i] + gap;
    }
    let mut most = bottom;
    for &i in order.iter().rev() {
        out[i] = out[i].min(most);
        most = out[i] - gap;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_near_points_do_not_cover_each_other() {
        let marks = [(100.0, 100.0), (108.0, 104.0), (104.0, 96.0), (110.0, 100.0), (295.0, 100.0)];
        let room = Box2 { left: 0.0, top: 0.0, right: 300.0, bottom: 200.0 };
        let placed = place(&marks, &[], &[60.0; 5], room);
        for (i, a) in placed.iter().enumerate() {
            assert!(a.outside(room) < 1e-9, "{i} is outside");
            assert!(placed[..i].iter().all(|b| a.shared(*b) < 1e-9), "{i} covers another: {placed:?}");
        }
    }

    #[test]
    fn heights_are_spread_but_keep_their_order() {
        let heights = spread(&[100.0, 102.0, 50.0, 101.0, 199.0], 15.0, 0.0, 200.0);
        assert_eq!(heights, [100.0, 130.0, 50.0, 115.0, 199.0]);
        let low = spread(&[199.0, 200.0], 15.0, 0.0, 200.0);
        assert_eq!(low, [185.0, 200.0]);
    }
}

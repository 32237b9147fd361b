//! Small drawings of characters: bars and lines of a few cells, for terminals and for plain text alike.

/// The steps of a cell that is filled from below.
const STEPS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// A share as a bar of `width` cells.
pub(crate) fn bar(share: f64, width: usize) -> String {
    let full = (share.clamp(0.0, 1.0) * width as f64).round() as usize;
    format!("{}{}", "█".repeat(full), "░".repeat(width - full))
}

/// Shares of a whole, one character each, as a bar of `width` cells; what is left stays empty. A share that is there at
/// all has a cell as long as there is room.
pub(crate) fn parts(shares: &[(char, f64)], width: usize) -> String {
    let mut out = String::new();
    let (mut sum, mut used) = (0.0, 0);
    for &(cell, share) in shares {
        sum += if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
        let end =
            ((sum * width as f64).round() as usize).clamp(used + usize::from(share >= 0.01), width.max(used));
        out.extend(std::iter::repeat_n(cell, end.min(width).saturating_sub(used)));
        used = end.min(width).max(used);
    }
    out.extend(std::iter::repeat_n(' ', width - used));
    out
}

/// Numbers over time, one cell each, from 0 to `most`, or to the largest of them. What is not known is left out.
pub(crate) fn spark(values: &[Option<f64>], most: Option<f64>) -> String {
    let known = values.iter().flatten().copied().filter(|value| value.is_finite());
    let most = most.unwrap_or_else(|| known.fold(0.0, f64::max));
    let cell = |value: &Option<f64>| match value.filter(|value| value.is_finite()) {
        None => ' ',
        Some(value) if most > 0.0 => {
            let step = (value / most).clamp(0.0, 1.0) * (STEPS.len() - 1) as f64;
            STEPS[step.round() as usize]
        }
        Some(_) => STEPS[0],
    };
    values.iter().map(cell).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawings() {
        assert_eq!([bar(0.0, 4), bar(0.5, 4), bar(7.0, 4), bar(f64::NAN, 2)], ["░░░░", "██░░", "████", "░░"]);
        assert_eq!(spark(&[Some(0.0), Some(1.0), None, Some(2.0)], None), "▁▅ █");
        assert_eq!(spark(&[Some(0.5), Some(f64::NAN)], Some(1.0)), "▅ ");
        assert_eq!((spark(&[], None), spark(&[Some(0.0)], None)), (String::new(), "▁".to_string()));
        assert_eq!(parts(&[('a', 0.5), ('b', 0.25)], 8), "aaaabb  ");
        assert_eq!(parts(&[('a', 0.98), ('b', 0.02)], 8), "aaaaaaaa", "there is no room");
        assert_eq!(parts(&[('a', 0.02), ('b', 0.98)], 8), "abbbbbbb", "a little is seen, too");
        assert_eq!(parts(&[('a', f64::NAN), ('b', 9.0), ('c', 0.5)], 4), "bbbb");
    }
}

//! "Did you mean": the known name nearest to a mistyped one.

/// The known name that needs the fewest edits to become `typed`, if that is few enough to be a slip of the hand.
pub fn nearest<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let typed: Vec<char> = typed.chars().take(64).map(|c| c.to_ascii_lowercase()).collect();
    let limit = typed.len() / 3 + 1;
    known
        .into_iter()
        .map(|name| (edits(&typed, &name.chars().collect::<Vec<_>>()), name))
        .filter(|(edits, _)| *edits <= limit)
        .min()
        .map(|(_, name)| name)
}

/// Insertions, deletions and replacements that turn `a` into `b`.
fn edits(a: &[char], b: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(ca != cb);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_found_and_strangers_are_not() {
        let known = ["imagenet-train", "imagenet-eval", "cifar-train", "mnist"];
        for (typed, expect) in [
            ("imagenet-trian", Some("imagenet-train")),
            ("MNIST", Some("mnist")),
            ("minst", Some("mnist")),
            ("imagenet", None),
            ("zebra", None),
            ("", None),
        ] {
            assert_eq!(nearest(typed, known), expect, "{typed}");
        }
    }
}

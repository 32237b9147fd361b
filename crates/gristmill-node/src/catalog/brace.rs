//! Brace patterns, as shells have them and as `WebDataset` users write them.
//!
//! `train-{0000..0099}.tar` stands for a hundred names, `{a,b}-{0..9}.tar` for twenty. Braces do not nest.

use crate::{Error, Result};

/// Most names one pattern may stand for.
const NAMES_MAX: usize = 1_000_000;

/// All names that `pattern` stands for, in order; itself when it has no brace.
pub(super) fn expand(pattern: &str) -> Result<Vec<String>> {
    let mut names = vec![String::new()];
    let mut rest = pattern;
    while let Some(open) = rest.find('{') {
        let wrong = |why: &str| {
            Error::config(format!("the pattern {pattern:?} {why}"))
                .hint("write a range like {0000..0099} or a list like {a,b}")
        };
        let close = rest[open..].find('}').ok_or_else(|| wrong("has a { without a }"))? + open;
        let choices = choices(&rest[open + 1..close]).map_err(|why| wrong(&why))?;
        if names.len().saturating_mul(choices.len()) > NAMES_MAX {
            return Err(wrong(&format!("stands for more than {NAMES_MAX} names")));
        }
        let before = &rest[..open];
        names = names
            .iter()
            .flat_map(|name| choices.iter().map(move |choice| format!("{name}{before}{choice}")))
            .collect();
        rest = &rest[close + 1..];
    }
    Ok(names.into_iter().map(|name| name + rest).collect())
}

fn choices(inside: &str) -> Result<Vec<String>, String> {
    if inside.contains('{') {
        return Err("has braces within braces".into());
    }
    let Some((first, last)) = inside.split_once("..") else {
        let choices: Vec<String> = inside.split(',').map(Into::into).collect();
        return if choices.len() < 2 {
            Err(format!("has nothing to choose from in {{{inside}}}"))
        } else {
            Ok(choices)
        };
    };
    let number = |text: &str| {
        let digits = !text.is_empty() && text.len() <= 18 && text.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| text.parse::<u64>().ok()).flatten()
    };
    let (Some(from), Some(to)) = (number(first), number(last)) else {
        return Err(format!("has a range {{{inside}}} that is not of two numbers"));
    };
    if from > to {
        return Err(format!("has a range {{{inside}}} that runs backwards"));
    }
    if to - from >= NAMES_MAX as u64 {
        return Err(format!("stands for more than {NAMES_MAX} names"));
    }
    // As in a shell: a leading zero on either side asks for equally many digits.
    let padded = |text: &str| text.len() > 1 && text.starts_with('0');
    let width = if padded(first) || padded(last) { first.len().max(last.len()) } else { 0 };
    Ok((from..=to).map(|number| format!("{number:0width$}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_expand_as_in_a_shell() {
        for (pattern, names) in [
            ("a.tar", &["a.tar"][..]),
            ("t-{08..11}.tar", &["t-08.tar", "t-09.tar", "t-10.tar", "t-11.tar"]),
            ("{9..10}", &["9", "10"]),
            ("x{a,b}{0..1}", &["xa0", "xa1", "xb0", "xb1"]),
            ("x{a,}", &["xa", "x"]),
        ] {
            assert_eq!(expand(pattern).unwrap(), names, "{pattern}");
        }
    }

    #[test]
    fn wrong_patterns_are_refused_with_the_reason() {
        for (pattern, words) in [
            ("a{0..", "without a }"),
            ("a{3..1}", "runs backwards"),
            ("a{x..y}", "not of two numbers"),
            ("a{5}", "nothing to choose from"),
            ("a{{0..1},2}", "braces within braces"),
            ("{0..999999999}", "more than 1000000"),
            ("{0..999}{0..9999}", "more than 1000000"),
            ("{0..99999999999999999999}", "not of two numbers"),
        ] {
            let error = expand(pattern).unwrap_err().to_string();
            assert!(error.contains(words), "{pattern}: {error}");
        }
    }
}

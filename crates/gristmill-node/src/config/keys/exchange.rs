//! The settings of the exchange: which share of its slice a rank swaps with others, and where it holds it.

use super::{HOUR_MS, Key, bytes_to, format_bytes, shown, whole};
use crate::exchange::{Fraction, Hold};
use gristmill_core::exchange::{Choose, Form};

/// The largest message: lengths are in four bytes.
const MESSAGE_BYTES_MAX: u64 = (1 << 32) - 1;

/// Every setting of the exchange.
pub(super) const EXCHANGE: &[Key] = &[
    key!(
        "exchange.fraction",
        "each rank holds a slice of the data set and swaps this share of it with other ranks in every epoch",
        exchange_fraction,
        fraction,
        show_fraction
    ),
    key!(
        "exchange.hold",
        "where a rank holds its slice: in memory, or in a folder (of its own, made in this one) that outlives it",
        exchange.hold,
        hold,
        show_hold
    ),
    key!(
        "exchange.choose",
        "what a rank sends: any, rather what has high scores, what it has too much of by class, or of that what has high scores",
        exchange.choose,
        choose,
        |choose: &Choose| show(&Choose::NAMES, choose)
    ),
    key!(
        "exchange.form",
        "who sends to whom: everybody to somebody else, or as published, where a rank may draw itself",
        exchange.form,
        form,
        |form: &Form| show(&Form::NAMES, form)
    ),
    key!(
        "exchange.message_bytes_max",
        "the largest message between two ranks; a sample must fit into one",
        exchange.message_bytes_max,
        bytes_to::<1, MESSAGE_BYTES_MAX>,
        |bytes: &u64| format_bytes(*bytes)
    ),
    key!(
        "exchange.patience_ms",
        "how long a rank waits for another before that is an error",
        exchange.patience_ms,
        whole::<u64, 1, HOUR_MS>,
        shown
    ),
];

fn fraction(text: &str) -> Result<Option<Fraction>, String> {
    match text {
        "off" => Ok(None),
        "auto" => Ok(Some(Fraction::Auto)),
        _ => {
            let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
            let expected = || "a share from 0 to 1 such as 0.3, auto or off".into();
            share.map(|share| Some(Fraction::Fixed(share))).ok_or_else(expected)
        }
    }
}

#[expect(clippy::ref_option, reason = "all that show a value in the table have one shape")]
fn show_fraction(fraction: &Option<Fraction>) -> String {
    match fraction {
        None => "off".into(),
        Some(Fraction::Auto) => "auto".into(),
        Some(Fraction::Fixed(share)) => share.to_string(),
    }
}

fn hold(text: &str) -> Result<Hold, String> {
    match text {
        "" | "?" => Err("memory, or a folder such as /ssd/slice".into()),
        "memory" => Ok(Hold::Memory),
        folder => Ok(Hold::Folder(folder.into())),
    }
}

fn show_hold(hold: &Hold) -> String {
    match hold {
        Hold::Memory => "memory".into(),
        Hold::Folder(folder) => folder.display().to_string(),
    }
}

fn form(text: &str) -> Result<Form, String> {
    named(&Form::NAMES, text)
}

fn choose(text: &str) -> Result<Choose, String> {
    named(&Choose::NAMES, text)
}

fn named<T: Copy>(names: &[(&str, T)], text: &str) -> Result<T, String> {
    let found = names.iter().find(|(name, _)| *name == text);
    let all = || names.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    found.map(|(_, value)| *value).ok_or_else(|| format!("one of {}", all()))
}

fn show<T: PartialEq>(names: &[(&str, T)], value: &T) -> String {
    names.iter().find(|(_, known)| known == value).map_or("", |(name, _)| name).into()
}

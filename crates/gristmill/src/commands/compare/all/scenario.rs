//! The scenarios: what limits training in each, and what is promised there.

use anyhow::Result;
use gristmill_core::nearest::nearest;
use gristmill_node::Error;

/// How many times sooner than plain the steered run must be there where the link, or latency, is the limit.
const LINK_PROMISE: f64 = 4.0;
const LATENCY_PROMISE: f64 = 3.0;
/// How much of plain's time the steered run may take longer where nothing can be gained.
const COMPUTE_PROMISE: f64 = 0.99;
/// How much longer than the best that was set by hand.
pub(super) const HAND_PROMISE: f64 = 1.10;

/// What limits training.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scenario {
    /// The link to a node that holds pictures.
    Link,
    /// The latency of a store of small samples.
    Latency,
    /// The accelerator.
    Compute,
    /// A store that two jobs share.
    Jobs,
    /// A store that four ranks share.
    Ranks,
}

/// What is promised of the steered run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Promise {
    /// So many times sooner than plain; and than any technique alone, if that is said.
    Sooner { times: f64, than_any: bool },
    /// All epochs in not more than plain's time over this.
    NotSlower { times: f64 },
    /// Not more than this many times the best of the others.
    AsGood { times: f64 },
}

impl Scenario {
    pub(super) const ALL: [Scenario; 5] =
        [Scenario::Link, Scenario::Latency, Scenario::Compute, Scenario::Jobs, Scenario::Ranks];

    /// The letter that users type.
    pub(super) fn letter(self) -> &'static str {
        match self {
            Scenario::Link => "a",
            Scenario::Latency => "b",
            Scenario::Compute => "c",
            Scenario::Jobs => "d",
            Scenario::Ranks => "e",
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Scenario::Link => "link",
            Scenario::Latency => "latency",
            Scenario::Compute => "compute",
            Scenario::Jobs => "two jobs",
            Scenario::Ranks => "four ranks",
        }
    }

    /// Samples per second that the pretended accelerator of one job takes. Only where it is to be the limit is it a slow
    /// one: four times what a link brings would otherwise be about as much as it takes.
    pub(super) fn accelerator(self) -> f64 {
        match self {
            Scenario::Compute => 4_000.0,
            Scenario::Link | Scenario::Latency | Scenario::Jobs | Scenario::Ranks => 8_000.0,
        }
    }

    /// How slow the store is: time to the first byte, and reads per second, 0 for no limit.
    pub(super) fn store(self, latency_ms: u64) -> (u64, u64) {
        match self {
            Scenario::Link | Scenario::Compute => (0, 0),
            Scenario::Latency => (latency_ms, 0),
            Scenario::Jobs | Scenario::Ranks => (2, 3_000),
        }
    }

    pub(super) fn promise(self) -> Promise {
        match self {
            Scenario::Link => Promise::Sooner { times: LINK_PROMISE, than_any: true },
            Scenario::Latency => Promise::Sooner { times: LATENCY_PROMISE, than_any: false },
            Scenario::Compute => Promise::NotSlower { times: COMPUTE_PROMISE },
            Scenario::Jobs | Scenario::Ranks => Promise::AsGood { times: HAND_PROMISE },
        }
    }
}

/// Reads `a,b…`, each once, in the order of letters.
pub(super) fn parse(text: &str) -> Result<Vec<Scenario>> {
    let mut asked = Vec::new();
    for typed in text.split(',').map(str::trim).filter(|typed| !typed.is_empty()) {
        let found = Scenario::ALL.into_iter().find(|known| known.letter() == typed || known.name() == typed);
        let Some(found) = found else {
            let error = Error::config(format!("--scenario: {typed:?} is not one of a, b, c, d, e"));
            let near = nearest(typed, Scenario::ALL.map(Scenario::name));
            let near = Scenario::ALL.into_iter().find(|known| Some(known.name()) == near);
            let hint = near.map_or_else(
                || "a: link, b: latency, c: compute, d: two jobs, e: four ranks".to_string(),
                |near| format!("did you mean {} ({})?", near.letter(), near.name()),
            );
            return Err(error.hint(hint).into());
        };
        asked.push(found);
    }
    if asked.is_empty() {
        return Err(Error::config("--scenario names none").hint("name some of a, b, c, d, e").into());
    }
    Ok(Scenario::ALL.into_iter().filter(|known| asked.contains(known)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenarios_by_letter_or_name() {
        let letters = |text| parse(text).unwrap().into_iter().map(Scenario::letter).collect::<String>();
        assert_eq!(letters("c, a,c"), "ac");
        assert_eq!(letters("latency,two jobs"), "bd");
        for (text, words) in [("f", "a, b, c, d, e"), ("", "names none"), ("latncy", "latncy")] {
            assert!(parse(text).unwrap_err().to_string().contains(words), "{text}");
        }
    }
}

//! The configurations: a plain loop, each technique alone, everything set by hand, and everything steered.
//!
//! Each is a list of settings laid over those of the scenario, so that whatever a configuration is can be typed by anybody.

use super::scenario::Scenario;
use anyhow::Result;
use gristmill_core::nearest::nearest;
use gristmill_node::Error;

/// A setting and its value.
pub(super) type Setting = (&'static str, String);

/// Where the plain loop's batches are kept: two per worker, as a DataLoader has them.
const AHEAD_PER_WORKER: u32 = 2;
/// Reads in flight of who sets them by hand.
const HAND_READS: u32 = 64;
/// Finished batches ahead of who sets them by hand.
const HAND_AHEAD: u32 = 8;
/// How much is cached.
const CACHE: &str = "20%";
/// How much ranks swap that were told how much.
const FRACTION: &str = "0.3";

/// What is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Configuration {
    Plain,
    Selection,
    Cache,
    Split,
    Exchange,
    Hand,
    All,
}

use Configuration::{All, Cache, Exchange, Hand, Plain, Selection, Split};

impl Configuration {
    const EVERY: [Configuration; 7] = [Plain, Selection, Cache, Split, Exchange, Hand, All];

    pub(super) fn name(self) -> &'static str {
        match self {
            Plain => "plain",
            Selection => "selection",
            Cache => "cache",
            Split => "split",
            Exchange => "exchange",
            Hand => "hand",
            All => "all",
        }
    }

    /// Whether it is one technique on top of the plain loop.
    pub(super) fn is_alone(self) -> bool {
        matches!(self, Selection | Cache | Split | Exchange)
    }

    /// Whether there is anything of it in a scenario; why not, if there is not.
    pub(super) fn missing(self, scenario: Scenario) -> Option<&'static str> {
        match (self, scenario) {
            (Split, Scenario::Link) | (Exchange, Scenario::Ranks) => None,
            (Split, _) => Some("there is no node that could run ops"),
            (Exchange, _) => Some("there are no ranks that could exchange"),
            _ => None,
        }
    }

    /// The settings that make it, in this scenario.
    pub(super) fn settings(self, scenario: Scenario, workers: u32) -> Vec<Setting> {
        let (node, ranks) = (scenario == Scenario::Link, scenario == Scenario::Ranks);
        let whole = matches!(self, Hand | All);
        let used = |technique: Configuration| self == technique || whole;
        let pick = |used: bool, with: &str, without: &str| (if used { with } else { without }).to_string();
        let mut settings = vec![
            ("selection.kind", pick(used(Selection), "weighted", "uniform")),
            // A rank that holds its slice reads nothing twice.
            ("cache.size", pick(self == Cache || (whole && !ranks), CACHE, "off")),
            ("cache.policy", "foresight".to_string()),
            ("steer.mode", pick(self == All, "on", "off")),
        ];
        // What is set is pinned, so nothing is set that is to be steered.
        if node && self != All {
            settings.push(("split.policy", pick(used(Split), "best", "none")));
        }
        if ranks {
            let how = if used(Exchange) { FRACTION } else { "off" };
            settings.push(("exchange.fraction", pick(self == All, "auto", how)));
        }
        match self {
            All => {}
            Hand => settings.extend([
                ("store.reads_in_flight", HAND_READS.to_string()),
                ("loader.prefetch_batches", HAND_AHEAD.to_string()),
            ]),
            _ => settings.extend(naive(workers)),
        }
        settings
    }
}

/// What a DataLoader with so many workers has: each reads one sample at a time.
pub(super) fn naive(workers: u32) -> [Setting; 3] {
    [
        ("loader.threads", workers.to_string()),
        ("store.reads_in_flight", workers.to_string()),
        ("loader.prefetch_batches", workers.saturating_mul(AHEAD_PER_WORKER).to_string()),
    ]
}

/// Reads `name,name…` once each, plain first; nothing is all that any scenario has by itself.
pub(super) fn parse(text: Option<&str>) -> Result<Option<Vec<Configuration>>> {
    let Some(text) = text else { return Ok(None) };
    let mut asked = vec![Plain];
    for typed in text.split(',').map(str::trim).filter(|typed| !typed.is_empty()) {
        let found = Configuration::EVERY.into_iter().find(|known| known.name() == typed);
        let Some(found) = found else {
            let names = Configuration::EVERY.map(Configuration::name);
            let error =
                Error::config(format!("--configurations: {typed:?} is not one of {}", names.join(", ")));
            let hint = nearest(typed, names).map(|near| format!("did you mean {near:?}?"));
            return Err(error.hint(hint.unwrap_or_default()).into());
        };
        asked.push(found);
    }
    Ok(Some(Configuration::EVERY.into_iter().filter(|known| asked.contains(known)).collect()))
}

/// What is trained in a scenario, and what was left out with the reason why.
pub(super) fn of(
    scenario: Scenario,
    asked: Option<&[Configuration]>,
) -> (Vec<Configuration>, Vec<(Configuration, &'static str)>) {
    // What is set by hand is a measure only where that was promised.
    let by_hand = matches!(scenario, Scenario::Jobs | Scenario::Ranks);
    let usual = || Configuration::EVERY.into_iter().filter(|one| *one != Hand || by_hand).collect::<Vec<_>>();
    let asked = asked.map_or_else(usual, <[Configuration]>::to_vec);
    let left_out = asked.iter().filter_map(|one| Some((*one, one.missing(scenario)?))).collect();
    (asked.into_iter().filter(|one| one.missing(scenario).is_none()).collect(), left_out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(settings: &[Setting], key: &str) -> Option<String> {
        settings.iter().find(|(name, _)| *name == key).map(|(_, value)| value.clone())
    }

    #[test]
    fn a_technique_alone_is_plain_but_for_one_setting() {
        for scenario in Scenario::ALL {
            let (there, left_out) = of(scenario, None);
            assert!(there[0] == Plain && there.contains(&All), "{scenario:?}");
            assert_eq!(there.contains(&Split), scenario == Scenario::Link);
            assert!(left_out.iter().all(|(_, why)| !why.is_empty()));
            let plain = Plain.settings(scenario, 4);
            for one in there.into_iter().filter(|one| one.is_alone()) {
                let own = one.settings(scenario, 4);
                let differ = own.iter().zip(&plain).filter(|(own, plain)| own != plain).count();
                assert_eq!((own.len(), differ), (plain.len(), 1), "{one:?} in {scenario:?}");
            }
        }
    }

    #[test]
    fn only_all_is_steered_and_its_knobs_are_nobodys() {
        for scenario in Scenario::ALL {
            for one in Configuration::EVERY {
                let settings = one.settings(scenario, 4);
                let steered = value(&settings, "steer.mode").unwrap() == "on";
                assert_eq!(steered, one == All);
                assert_eq!(value(&settings, "store.reads_in_flight").is_none(), one == All);
            }
        }
    }

    #[test]
    fn configurations_by_name_and_plain_first() {
        let names = |text| {
            parse(Some(text)).unwrap().unwrap().into_iter().map(Configuration::name).collect::<Vec<_>>()
        };
        assert_eq!(names("all,cache,all"), ["plain", "cache", "all"]);
        assert_eq!(parse(None).unwrap(), None);
        assert!(parse(Some("chache")).unwrap_err().to_string().contains("chache"));
        let (there, left_out) = of(Scenario::Compute, Some(&[Plain, Split]));
        assert_eq!((there, left_out.len()), (vec![Plain], 1));
    }
}

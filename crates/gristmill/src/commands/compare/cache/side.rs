//! The sides of a comparison of caches: each a way to select samples and a way to keep them.

use gristmill_core::cache::Policy;
use gristmill_core::nearest::nearest;
use gristmill_core::select::Selection;
use gristmill_node::config::Settings;
use gristmill_node::node::NodeOptions;
use gristmill_node::selection::{FamilyUse, SelectionOptions};
use gristmill_node::{Error, Result};

/// What all others are compared with.
pub(super) const DEFAULT: &str = "default";
/// The product's own way.
pub(super) const OURS: &str = "ours";

/// A way to select with a way to keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Side {
    pub(super) name: &'static str,
    pub(super) selection: &'static str,
    /// None for no cache at all.
    pub(super) policy: Option<Policy>,
    pub(super) stand_ins: bool,
}

/// All of them, what they are compared with first.
const SIDES: [Side; 8] = [
    side(DEFAULT, "uniform", Some(Policy::Lru)),
    side("none", "uniform", None),
    side("base", "biggest-loser", Some(Policy::Lru)),
    side("ilfu", "iis", Some(Policy::Lfu)),
    side("quiver", "uniform", Some(Policy::Quiver)),
    side("static", "uniform", Some(Policy::Static)),
    Side { stand_ins: true, ..side("icache", "iis", Some(Policy::Score)) },
    side(OURS, "weighted", Some(Policy::Foresight)),
];

const fn side(name: &'static str, selection: &'static str, policy: Option<Policy>) -> Side {
    Side { name, selection, policy, stand_ins: false }
}

/// Reads `name,name…`; nothing is all of them. The default comes first whether it was typed or not.
pub(super) fn parse(text: Option<&str>) -> Result<Vec<Side>> {
    let Some(text) = text else { return Ok(SIDES.to_vec()) };
    let mut sides = vec![SIDES[0]];
    for typed in text.split(',').map(str::trim).filter(|typed| !typed.is_empty()) {
        let side = named(typed)?;
        if !sides.contains(&side) {
            sides.push(side);
        }
    }
    if text.trim().is_empty() {
        return Err(Error::config("--policies names no side").hint(format!("name some of {}", names())));
    }
    Ok(sides)
}

/// The side of this name.
pub(super) fn named(typed: &str) -> Result<Side> {
    SIDES.into_iter().find(|side| side.name == typed).ok_or_else(|| {
        let error = Error::config(format!("--policies: {typed:?} is not one of {}", names()));
        match nearest(typed, SIDES.iter().map(|side| side.name)) {
            Some(near) => error.hint(format!("did you mean {near:?}?")),
            None => error,
        }
    })
}

fn names() -> String {
    SIDES.map(|side| side.name).join(", ")
}

impl Side {
    /// How it selects; what is not its own is as in `usual`.
    pub(super) fn selection(&self, usual: &SelectionOptions) -> Result<SelectionOptions> {
        let selection = Selection::named(self.selection)?;
        Ok(SelectionOptions { selection, families: FamilyUse::Off, ..usual.clone() })
    }

    /// How its node works in front of `total_bytes` of samples; none without a cache.
    pub(super) fn node(
        &self,
        settings: &Settings,
        total_bytes: u64,
        seed: u64,
    ) -> Result<Option<NodeOptions>> {
        let Some(policy) = self.policy else { return Ok(None) };
        let usual = settings.node(total_bytes).ok_or_else(|| {
            Error::config("--size is not the size of a cache in this process")
                .hint("give a share such as 20% or a size such as 4GiB")
        })?;
        Ok(Some(NodeOptions { policy, stand_ins: self.stand_ins, seed, disk: None, ..usual }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_by_name() {
        let names = |text| parse(text).unwrap().into_iter().map(|side| side.name).collect::<Vec<_>>();
        assert_eq!(names(None).len(), SIDES.len());
        assert_eq!(names(Some("ours, none,ours")), ["default", "ours", "none"]);
        assert_eq!(names(Some("default")), ["default"]);
        for (text, word) in [("", "no side"), ("icash", "icache"), ("qqqqqqqq", "quiver")] {
            let error = parse(Some(text)).unwrap_err();
            let all = format!("{error} {}", error.remedy().unwrap_or_default());
            assert!(all.contains(word), "{all}");
        }
        for side in SIDES {
            side.selection(&SelectionOptions::default()).unwrap();
        }
    }
}

//! The settings of the steering: whether knobs are moved from epoch to epoch, and which.

use super::{KEYS, Key, share, shown};
use crate::config::{Config, Origin};
use crate::steer::Pins;
use crate::{Error, Result};

/// Whether knobs are moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SteerMode {
    /// They are.
    On,
    /// They are not.
    Off,
}

/// Which knobs the steering leaves alone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum PinRule {
    /// Those that somebody set.
    #[default]
    Auto,
    /// None: what is set is only where it begins.
    None,
    /// All.
    All,
    /// These.
    These(Pins),
}

/// Every setting of the steering.
pub(super) const STEER: &[Key] = &[
    key!(
        "steer.mode",
        "whether threads, reads, batches ahead and the split are moved from epoch to epoch, one at a time, to read faster",
        steer_mode,
        mode,
        |mode: &SteerMode| if *mode == SteerMode::On { "on" } else { "off" }.to_string()
    ),
    key!(
        "steer.pin",
        "which of them stay as they are set; auto pins those that somebody set, and none makes that only the start",
        steer_pin,
        pin,
        |rule: &PinRule| show_pin(*rule)
    ),
    key!(
        "steer.probe_share",
        "the share of samples that is never skipped, on which accuracy is watched; 0 watches nothing",
        probe_share,
        share,
        shown
    ),
];

impl Config {
    /// Refuses that one place pins some knobs and all of them. A mode that is set nearer than the pins just wins.
    pub(in crate::config) fn check_pins(&self) -> Result<()> {
        let origin = |name: &str| {
            KEYS.iter().zip(&self.origins).find(|(key, _)| key.name == name).map(|(_, origin)| match origin {
                Origin::Environment(_) => Origin::Environment(String::new()),
                other => other.clone(),
            })
        };
        let off = self.settings.steer_mode == SteerMode::Off;
        let some = matches!(self.settings.steer_pin, PinRule::None | PinRule::These(_));
        if off && some && origin("steer.mode") == origin("steer.pin") {
            return Err(Error::config(
                "steer.pin says which knobs may move, but steer.mode = \"off\" lets none move",
            )
            .hint("leave one of the two out"));
        }
        Ok(())
    }
}

fn mode(text: &str) -> std::result::Result<SteerMode, String> {
    match text {
        "on" => Ok(SteerMode::On),
        "off" => Ok(SteerMode::Off),
        _ => Err("on or off".into()),
    }
}

fn pin(text: &str) -> std::result::Result<PinRule, String> {
    match text {
        "auto" => return Ok(PinRule::Auto),
        "none" => return Ok(PinRule::None),
        "all" => return Ok(PinRule::All),
        _ => {}
    }
    let mut pins = Pins::default();
    for name in text.split(',').map(str::trim) {
        let names = || Pins::NAMES.map(|(name, _)| name).join(", ");
        *pins.named(name).ok_or_else(|| format!("auto, none, all, or some of {}", names()))? = true;
    }
    Ok(PinRule::These(pins))
}

fn show_pin(rule: PinRule) -> String {
    match rule {
        PinRule::Auto => "auto".into(),
        PinRule::None => "none".into(),
        PinRule::All => "all".into(),
        PinRule::These(mut pins) => {
            let pinned = |(name, _): &(&'static str, &str)| pins.named(name).is_some_and(|pinned| *pinned);
            let names = Pins::NAMES.into_iter().filter(pinned).map(|(name, _)| name);
            names.collect::<Vec<_>>().join(",")
        }
    }
}

//! What goes wrong, as it is written: `slow-disk:3:4`, `late-rank:0:1.5`, `lost-node:7:2`.

use gristmill_core::Invalid;
use gristmill_core::nearest::nearest;
use std::fmt;
use std::str::FromStr;

/// Something that goes wrong in a simulated training.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fault {
    /// The disk of a rank (without one, its way to the store) is slower by a factor, in every epoch.
    SlowDisk {
        /// Whose.
        rank: u32,
        /// How many times slower.
        factor: f64,
    },
    /// A rank begins every epoch later than the others.
    LateRank {
        /// Which.
        rank: u32,
        /// How much later.
        seconds: f64,
    },
    /// The node of a rank is lost in the middle of an epoch, with its disk.
    LostNode {
        /// Whose node.
        rank: u32,
        /// In which epoch.
        epoch: u64,
    },
}

const KINDS: [&str; 3] = ["slow-disk", "late-rank", "lost-node"];
const FORMS: &str = "write slow-disk:RANK:FACTOR, late-rank:RANK:SECONDS or lost-node:RANK:EPOCH";

impl Fault {
    /// The rank that it hits.
    pub fn rank(&self) -> u32 {
        match *self {
            Fault::SlowDisk { rank, .. } | Fault::LateRank { rank, .. } | Fault::LostNode { rank, .. } => {
                rank
            }
        }
    }

    pub(crate) fn check(&self, ranks: u32) -> Result<(), Invalid> {
        if self.rank() >= ranks {
            return Err(Invalid(format!("fault {self}: ranks are 0 to {}", ranks - 1)));
        }
        let sound = match *self {
            Fault::SlowDisk { factor, .. } => (1.0..=1e6).contains(&factor),
            Fault::LateRank { seconds, .. } => (0.0..=1e6).contains(&seconds),
            Fault::LostNode { .. } => true,
        };
        if sound {
            return Ok(());
        }
        let range =
            if matches!(self, Fault::SlowDisk { .. }) { "a factor from 1 to" } else { "a time from 0 to" };
        Err(Invalid(format!("fault {self}: the last part is not {range} 1000000")))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::SlowDisk { rank, factor } => write!(f, "slow-disk:{rank}:{factor}"),
            Fault::LateRank { rank, seconds } => write!(f, "late-rank:{rank}:{seconds}"),
            Fault::LostNode { rank, epoch } => write!(f, "lost-node:{rank}:{epoch}"),
        }
    }
}

impl FromStr for Fault {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Fault, Invalid> {
        let mut parts = text.trim().split(':');
        let (kind, rank, value) = (parts.next().unwrap_or(""), parts.next(), parts.next());
        if !KINDS.contains(&kind) {
            let meant = nearest(kind, KINDS).map_or(String::new(), |near| format!("; did you mean {near}?"));
            return Err(Invalid(format!("no fault is called {kind:?}{meant} ({FORMS})")));
        }
        let wrong = |what: &str| Invalid(format!("fault {text:?}: {what} ({FORMS})"));
        let (Some(rank), Some(value), None) = (rank, value, parts.next()) else {
            return Err(wrong("it has not two numbers after its name"));
        };
        let rank = rank.parse().map_err(|_| wrong(&format!("{rank:?} is not a rank")))?;
        let number = || value.parse::<f64>().ok().filter(|number| number.is_finite());
        Ok(match kind {
            "slow-disk" => {
                let factor = number().ok_or_else(|| wrong(&format!("{value:?} is not a factor")))?;
                Fault::SlowDisk { rank, factor }
            }
            "late-rank" => {
                let seconds = number().ok_or_else(|| wrong(&format!("{value:?} is not a time")))?;
                Fault::LateRank { rank, seconds }
            }
            _ => {
                let epoch = value.parse().map_err(|_| wrong(&format!("{value:?} is not an epoch")))?;
                Fault::LostNode { rank, epoch }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_what_is_shown() {
        for text in ["slow-disk:3:4", "late-rank:0:1.5", "lost-node:7:2"] {
            assert_eq!(text.parse::<Fault>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn nonsense_is_refused_with_the_right_forms() {
        for (text, words) in [
            ("slow-disc:1:2", "did you mean slow-disk"),
            ("fire:1:2", "no fault is called \"fire\""),
            ("", "no fault is called \"\""),
            ("slow-disk", "two numbers"),
            ("slow-disk:1", "two numbers"),
            ("slow-disk:1:2:3", "two numbers"),
            ("slow-disk:x:2", "\"x\" is not a rank"),
            ("slow-disk:1:NaN", "\"NaN\" is not a factor"),
            ("lost-node:1:-1", "\"-1\" is not an epoch"),
        ] {
            let said = text.parse::<Fault>().unwrap_err().0;
            assert!(said.contains(words) && said.contains("late-rank:RANK:SECONDS"), "{text}: {said}");
        }
        let checked = |text: &str| text.parse::<Fault>().unwrap().check(4);
        assert!(checked("slow-disk:4:2").unwrap_err().0.contains("ranks are 0 to 3"));
        assert!(checked("slow-disk:3:0.5").unwrap_err().0.contains("factor from 1"));
        assert!(checked("late-rank:3:-1").unwrap_err().0.contains("time from 0"));
        assert_eq!(checked("lost-node:3:0"), Ok(()));
    }
}

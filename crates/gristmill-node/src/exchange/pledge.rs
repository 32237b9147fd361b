//! The handshake: what ranks must have in common before they exchange anything.
//!
//! Every rank says what it works on and hears what all the others do. The answer is a function of all that was said, so
//! every rank comes to the same one: to go on, or the same error, which names the ranks that differ and in what.

use super::named;
use crate::{Error, Result};
use serde::{Deserialize, Serialize};

/// The largest pledge that is looked at.
const BYTES_MAX: usize = 64 << 10;

/// Where a slice stands: an epoch, and what names who holds what when it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Standing {
    pub(super) epoch: u64,
    pub(super) owners: u64,
}

/// What one rank says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Pledge {
    pub(super) rank: u32,
    /// What all ranks must have alike, each with its name.
    pub(super) facts: Vec<(String, String)>,
    /// What its slice has committed.
    pub(super) committed: Option<Standing>,
    /// What its slice could go on to if others have committed it.
    pub(super) prepared: Option<Standing>,
    /// The epoch at which the run was whose slice it has, if that is another run.
    pub(super) other: Option<u64>,
    /// What keeps it from going on at all.
    pub(super) trouble: Option<String>,
}

impl Pledge {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        // Strings and numbers alone: this cannot fail.
        serde_json::to_vec(self).unwrap_or_default()
    }
}

/// What a rank says at the handshake that could not even open its data set or read its settings: so that the others
/// hear of it instead of waiting.
pub fn refusal(rank: u32, why: &str) -> Vec<u8> {
    let trouble = Some(why.to_string());
    Pledge { rank, facts: Vec::new(), committed: None, prepared: None, other: None, trouble }.to_bytes()
}

/// Reads what all ranks said, and finds the first thing that keeps them from working together.
pub(super) fn agree(said: &[Vec<u8>], world: u32) -> Result<Vec<Pledge>> {
    if said.len() != world as usize {
        return Err(Error::config(format!("{} ranks came to an exchange between {world}", said.len()))
            .hint("start as many ranks as loader.world says"));
    }
    let read = |bytes: &Vec<u8>| -> Option<Pledge> {
        serde_json::from_slice(bytes.get(..).filter(|bytes| bytes.len() <= BYTES_MAX)?).ok()
    };
    let pledges: Vec<Option<Pledge>> = said.iter().map(read).collect();
    let ranks = |wrong: &dyn Fn(usize) -> bool| -> Vec<u32> {
        (0..said.len()).filter(|rank| wrong(*rank)).map(|rank| rank as u32).collect()
    };
    let unread = ranks(&|rank| pledges[rank].is_none());
    if !unread.is_empty() {
        return Err(Error::config(format!("{} cannot be understood", named(&unread)))
            .hint("run the same version of Gristmill on every rank"));
    }
    let pledges: Vec<Pledge> = pledges.into_iter().flatten().collect();
    if let Some((rank, trouble)) =
        pledges.iter().enumerate().find_map(|(rank, pledge)| Some((rank, pledge.trouble.as_ref()?)))
    {
        return Err(Error::config(format!("rank {rank} cannot take part in the exchange: {trouble}")));
    }
    let misplaced = ranks(&|rank| pledges[rank].rank as usize != rank);
    if !misplaced.is_empty() {
        return Err(Error::config(format!("{} goes by the number of another rank", named(&misplaced)))
            .hint("give every process its own loader.rank"));
    }
    for (at, (name, value)) in pledges[0].facts.iter().enumerate() {
        let differ =
            ranks(&|rank| pledges[rank].facts.get(at).is_none_or(|fact| fact.0 != *name || fact.1 != *value));
        if let Some(first) = differ.first() {
            let theirs = pledges[*first as usize].facts.get(at).map_or("nothing", |fact| fact.1.as_str());
            return Err(Error::config(format!(
                "the ranks do not work on the same thing: {name} is {value} on rank 0 but {theirs} on {}",
                named(&differ)
            ))
            .hint("start every rank with the same program, data set and settings"));
        }
    }
    Ok(pledges)
}

/// The newest epoch that anybody has committed, if every rank can get there: it committed it too, was about to, or can
/// compute it, which is asked once.
pub(super) fn resume(pledges: &[Pledge], computed: impl Fn(Standing) -> bool) -> Option<Standing> {
    let newest = pledges.iter().filter_map(|pledge| pledge.committed).max_by_key(|at| at.epoch)?;
    let behind = |pledge: &Pledge| {
        pledge.committed.is_none_or(|at| at.epoch != newest.epoch) && pledge.prepared != Some(newest)
    };
    let can_compute = pledges.iter().any(behind) && computed(newest);
    let there = |pledge: &Pledge| {
        let own = pledge.committed.filter(|at| at.epoch == newest.epoch);
        match own {
            Some(own) => own.owners == newest.owners,
            None => pledge.prepared == Some(newest) || can_compute,
        }
    };
    pledges.iter().all(there).then_some(newest)
}

/// Why a run that has slices begins anew, where [`resume`] finds nothing: for the report.
pub(super) fn anew(pledges: &[Pledge]) -> Option<String> {
    let newest = pledges.iter().filter_map(|pledge| pledge.committed).max_by_key(|at| at.epoch);
    if let Some(newest) = newest.filter(|at| at.epoch > 0) {
        let there = |pledge: &Pledge| pledge.committed == Some(newest) || pledge.prepared == Some(newest);
        let behind: Vec<u32> =
            pledges.iter().filter(|pledge| !there(pledge)).map(|pledge| pledge.rank).collect();
        return Some(format!(
            "slices are ready for epoch {}, but {} cannot get there without a saved state, so training began with epoch 0",
            newest.epoch,
            named(&behind)
        ));
    }
    let other = pledges.iter().filter_map(|pledge| pledge.other).max()?;
    Some(format!(
        "the slices are those of a run with another seed, number of ranks or exchange, ready for its epoch {other}; without \
         a saved state training began with epoch 0"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pledge(rank: u32, committed: Option<(u64, u64)>, prepared: Option<(u64, u64)>) -> Pledge {
        let standing = |(epoch, owners)| Standing { epoch, owners };
        Pledge {
            rank,
            facts: vec![("version".into(), "1".into()), ("seed".into(), "7".into())],
            committed: committed.map(standing),
            prepared: prepared.map(standing),
            other: None,
            trouble: None,
        }
    }

    #[test]
    fn ranks_that_differ_are_named_to_everybody() {
        let three = || (0..3).map(|rank| pledge(rank, None, None)).collect::<Vec<_>>();
        let error = |pledges: &[Pledge]| {
            let said: Vec<Vec<u8>> = pledges.iter().map(Pledge::to_bytes).collect();
            agree(&said, 3).err().map(|e| e.to_string()).unwrap_or_default()
        };
        assert_eq!(error(&three()), "");
        let mut wrong = three();
        wrong[2].facts[1].1 = "8".into();
        assert!(error(&wrong).contains("seed is 7 on rank 0 but 8 on rank 2"), "{}", error(&wrong));
        wrong[1].facts[1].1 = "9".into();
        assert!(error(&wrong).contains("ranks 1 and 2"));
        let mut wrong = three();
        wrong[1].facts.pop();
        assert!(error(&wrong).contains("nothing on rank 1"));
        let mut wrong = three();
        wrong[1].trouble = Some("its disk is gone".into());
        assert!(error(&wrong).contains("rank 1 cannot take part in the exchange: its disk is gone"));
        let said: Vec<Vec<u8>> = (0..3)
            .map(|rank| if rank == 2 { refusal(2, "no data") } else { three()[rank as usize].to_bytes() })
            .collect();
        assert!(
            agree(&said, 3)
                .is_err_and(|e| e.to_string().contains("rank 2 cannot take part in the exchange: no data"))
        );
        let mut wrong = three();
        wrong[1].rank = 2;
        assert!(error(&wrong).contains("rank 1 goes by the number of another rank"));
        let said: Vec<Vec<u8>> = three().iter().map(Pledge::to_bytes).collect();
        assert!(agree(&said[..2], 3).is_err_and(|e| e.to_string().contains("2 ranks came")));
        let said = [said[0].clone(), b"\xff nonsense".to_vec(), vec![b' '; BYTES_MAX + 1]];
        assert!(agree(&said, 3).is_err_and(|e| e.to_string().contains("ranks 1 and 2 cannot be understood")));
    }

    #[test]
    fn a_run_goes_on_where_everybody_can_be() {
        let at = |epoch, owners| Some(Standing { epoch, owners });
        for (ranks, pure, expect) in [
            ([(None, None), (None, None)], true, None),
            ([(Some((3, 5)), None), (Some((3, 5)), None)], false, at(3, 5)),
            // One died between the commits; it had prepared.
            ([(Some((4, 6)), None), (Some((3, 5)), Some((4, 6)))], false, at(4, 6)),
            ([(Some((4, 6)), None), (Some((3, 5)), Some((4, 9)))], false, None),
            // One lost its disk: it can only follow where all is computed.
            ([(Some((4, 6)), None), (None, None)], true, at(4, 6)),
            ([(Some((4, 6)), None), (None, None)], false, None),
            ([(Some((4, 6)), None), (Some((4, 7)), None)], true, None),
        ] {
            let pledges: Vec<Pledge> =
                ranks.iter().enumerate().map(|(rank, (c, p))| pledge(rank as u32, *c, *p)).collect();
            assert_eq!(resume(&pledges, |_| pure), expect, "{ranks:?}");
        }
    }

    #[test]
    fn a_run_that_begins_anew_says_why() {
        let three = |committed: [Option<(u64, u64)>; 3]| -> Vec<Pledge> {
            (0..3).map(|rank| pledge(rank, committed[rank as usize], None)).collect()
        };
        let at = Some((4, 6));
        for (pledges, expect) in [
            (three([None; 3]), None),
            (three([Some((0, 6)), None, None]), None),
            (three([at, None, at]), Some("ready for epoch 4, but rank 1 cannot get there")),
            (three([at, Some((3, 5)), Some((4, 7))]), Some("ready for epoch 4, but ranks 0 and 1 cannot")),
            (vec![Pledge { other: Some(7), ..pledge(0, None, None) }], Some("ready for its epoch 7")),
        ] {
            let said = anew(&pledges);
            let fits =
                expect.map_or(said.is_none(), |words| said.as_ref().is_some_and(|said| said.contains(words)));
            assert!(fits, "{said:?} instead of {expect:?}");
        }
    }
}

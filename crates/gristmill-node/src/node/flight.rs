//! One read for all who want the same sample at the same time.
//!
//! The first to ask leads: it reads and tells the others. A leader that is given up (its job was killed, its epoch
//! left early) tells nobody; whoever waited for it then asks again, and one of them leads.

use crate::Result;
use crate::node::Tier;
use bytes::Bytes;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// What a read gave.
pub(super) type Landed = Result<(Bytes, Tier)>;

/// The reads under way.
#[derive(Debug, Default)]
pub(super) struct Flights(Mutex<HashMap<u32, Vec<oneshot::Sender<Landed>>>>);

/// A seat in a flight.
#[derive(Debug)]
pub(super) enum Seat<'a> {
    /// The first: it must read.
    Lead(Lead<'a>),
    /// Another one reads; this hears of it, or of nothing if that one gives up.
    Follow(oneshot::Receiver<Landed>),
}

/// The duty to read one sample. Dropped without landing, it sends those who follow back to ask again.
#[derive(Debug)]
pub(super) struct Lead<'a> {
    flights: &'a Flights,
    id: u32,
    landed: bool,
}

impl Flights {
    fn lock(&self) -> MutexGuard<'_, HashMap<u32, Vec<oneshot::Sender<Landed>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a seat in the flight of a sample, or opens one.
    pub(super) fn board(&self, id: u32) -> Seat<'_> {
        let mut flights = self.lock();
        if let Some(others) = flights.get_mut(&id) {
            let (sender, receiver) = oneshot::channel();
            others.push(sender);
            return Seat::Follow(receiver);
        }
        flights.insert(id, Vec::new());
        Seat::Lead(Lead { flights: self, id, landed: false })
    }

    /// Leads the flight of a sample that nobody reads yet.
    pub(super) fn lead(&self, id: u32) -> Option<Lead<'_>> {
        let mut flights = self.lock();
        if flights.contains_key(&id) {
            return None;
        }
        flights.insert(id, Vec::new());
        Some(Lead { flights: self, id, landed: false })
    }
}

impl Lead<'_> {
    /// Which sample.
    pub(super) fn id(&self) -> u32 {
        self.id
    }

    /// Tells all who follow what came of it, and how many that were.
    pub(super) fn land(mut self, landed: &Landed) -> usize {
        let others = self.flights.lock().remove(&self.id).unwrap_or_default();
        self.landed = true;
        let count = others.len();
        for other in others {
            let copy = match landed {
                Ok((bytes, tier)) => Ok((bytes.clone(), *tier)),
                Err(error) => Err(error.again()),
            };
            // One that no longer waits needs no answer.
            let _ = other.send(copy);
        }
        count
    }
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        // After landing somebody else may lead already; otherwise dropping the senders wakes those who follow.
        if !self.landed {
            self.flights.lock().remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    #[test]
    fn who_follows_hears_what_the_leader_read() {
        let flights = Flights::default();
        let Seat::Lead(lead) = flights.board(7) else { panic!("nobody reads 7 yet") };
        let (Seat::Follow(first), Seat::Follow(second)) = (flights.board(7), flights.board(7)) else {
            panic!("7 is being read")
        };
        assert!(flights.lead(7).is_none() && flights.lead(8).is_some(), "8 was not being read");
        assert_eq!(lead.land(&Ok((Bytes::from_static(b"x"), Tier::Store))), 2);
        for heard in [first, second] {
            assert_eq!(futures::executor::block_on(heard).unwrap().unwrap().0, "x");
        }
        let Seat::Lead(lead) = flights.board(7) else { panic!("7 has landed") };
        let Seat::Follow(heard) = flights.board(7) else { panic!("7 is being read again") };
        lead.land(&Err(Error::corrupt("torn").hint("mend it")));
        assert!(matches!(flights.board(7), Seat::Lead(_)), "and is let go of only once");
        let error = futures::executor::block_on(heard).unwrap().unwrap_err();
        assert_eq!((error.to_string().as_str(), error.remedy()), ("torn", Some("mend it")));
    }

    #[test]
    fn a_leader_that_gives_up_leaves_the_lead_to_another() {
        let flights = Flights::default();
        let lead = flights.board(1);
        let Seat::Follow(heard) = flights.board(1) else { panic!("1 is being read") };
        drop(lead);
        assert!(futures::executor::block_on(heard).is_err());
        assert!(matches!(flights.board(1), Seat::Lead(_)));
    }
}

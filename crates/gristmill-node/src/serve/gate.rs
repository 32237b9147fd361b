//! How many may come in, and who has to go when too many stand in the door.
//!
//! A connection counts from when it is accepted until it is gone. At the limit the connection goes that has been in its
//! handshake for longest: one that says nothing cannot keep others out, since a real client is done in milliseconds.
//! When all are past their handshake, the new one is turned away.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// The door of a server.
#[derive(Debug)]
pub(super) struct Gate {
    inside: Arc<Inside>,
    limit: u64,
}

#[derive(Debug, Default)]
struct Inside {
    door: Mutex<Door>,
    evicted: AtomicU64,
    left: Notify,
}

#[derive(Debug, Default)]
struct Door {
    next: u64,
    open: u64,
    /// Those who have not finished their handshake, the oldest first.
    shaking: BTreeMap<u64, Arc<Notify>>,
}

/// One connection's place; it is given back when this is dropped.
#[derive(Debug)]
pub(super) struct Slot {
    inside: Arc<Inside>,
    number: u64,
    evict: Arc<Notify>,
}

impl Gate {
    pub(super) fn new(limit: u64) -> Gate {
        Gate { inside: Arc::default(), limit }
    }

    /// A place for one more, or `None` if there is no room and nobody to send away.
    pub(super) fn enter(&self) -> Option<Slot> {
        let mut door = self.inside.door();
        if door.open >= self.limit {
            let (_, evict) = door.shaking.pop_first()?;
            evict.notify_one();
            self.inside.evicted.fetch_add(1, Relaxed);
        }
        let (number, evict) = (door.next, Arc::new(Notify::new()));
        door.next += 1;
        door.open += 1;
        door.shaking.insert(number, evict.clone());
        drop(door);
        Some(Slot { inside: self.inside.clone(), number, evict })
    }

    /// How many are open.
    pub(super) fn open(&self) -> u64 {
        self.inside.door().open
    }

    /// How many were sent away to make room.
    pub(super) fn evicted(&self) -> u64 {
        self.inside.evicted.load(Relaxed)
    }

    /// Waits until none is open.
    pub(super) async fn empty(&self) {
        loop {
            let left = self.inside.left.notified();
            if self.open() == 0 {
                return;
            }
            left.await;
        }
    }
}

impl Inside {
    fn door(&self) -> MutexGuard<'_, Door> {
        self.door.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slot {
    /// The handshake is done: this one stays.
    pub(super) fn stay(&self) {
        self.inside.door().shaking.remove(&self.number);
    }

    /// Waits until this one has to go.
    pub(super) async fn evicted(&self) {
        self.evict.notified().await;
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut door = self.inside.door();
        door.shaking.remove(&self.number);
        door.open -= 1;
        drop(door);
        self.inside.left.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[test]
    fn the_oldest_in_the_door_goes_and_who_is_in_stays() {
        let gate = Gate::new(2);
        let (first, second) = (gate.enter().unwrap(), gate.enter().unwrap());
        first.stay();
        let third = gate.enter().unwrap();
        assert!(second.evicted().now_or_never().is_some() && first.evicted().now_or_never().is_none());
        drop(second);
        third.stay();
        assert!(gate.enter().is_none(), "all of them are in");
        drop(first);
        assert!(gate.enter().is_some());
        assert_eq!((gate.open(), gate.evicted()), (1, 1));
        drop(third);
        assert!(gate.empty().now_or_never().is_some());
    }
}

//! Evaluations in progress, which equal requests wait for.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
};

use parking_lot::Mutex;
use tokio::sync::watch;

use super::signature::Key;

/// The evaluations in progress, by key.
#[derive(Debug, Default)]
pub(super) struct Flights(Mutex<HashMap<Key, Flight>>);

#[derive(Debug)]
struct Flight {
    /// Whether the evaluation was completed. Closed if its call is cancelled.
    completed: watch::Receiver<bool>,
    /// Number of requests that have joined it.
    joined: usize,
}

/// Maximum number of requests that wait for one evaluation. Further requests do not wait.
const MAX_JOINED: usize = 1024;

/// The role of a request in the evaluation of its key.
#[derive(Debug)]
pub(crate) enum Joined {
    /// It evaluates, and others wait for it.
    Leads(Leader),
    /// It can wait for another one.
    Follows(Follower),
    /// It evaluates without others.
    Alone,
}

/// An evaluation that other requests wait for. If it is dropped before it is completed, a waiting request takes over.
#[derive(Debug)]
pub(crate) struct Leader {
    flights: Arc<Flights>,
    key: Key,
    completed: watch::Sender<bool>,
}

/// Waits for the evaluation of another request.
#[derive(Debug)]
pub(crate) struct Follower(watch::Receiver<bool>);

impl Flights {
    pub(super) fn join(self: &Arc<Self>, key: Key) -> Joined {
        match self.0.lock().entry(key) {
            Entry::Occupied(mut flight) => {
                let flight = flight.get_mut();
                if flight.joined == MAX_JOINED {
                    return Joined::Alone;
                }
                flight.joined += 1;
                Joined::Follows(Follower(flight.completed.clone()))
            }
            Entry::Vacant(vacant) => {
                let (sender, receiver) = watch::channel(false);
                vacant.insert(Flight { completed: receiver, joined: 0 });
                Joined::Leads(Leader { flights: self.clone(), key, completed: sender })
            }
        }
    }
}

impl Leader {
    /// Returns whether others wait.
    pub(crate) fn is_awaited(&self) -> bool {
        self.flights.0.lock().get(&self.key).is_some_and(|flight| flight.joined > 0)
    }

    /// Wakes the waiting requests: there is an answer, or a failure.
    pub(crate) fn complete(self) {
        // Later requests look up the answer before they wait.
        self.flights.0.lock().remove(&self.key);
        self.completed.send_replace(true);
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        if !*self.completed.borrow() {
            self.flights.0.lock().remove(&self.key);
        }
    }
}

impl Follower {
    /// Returns whether the evaluation was completed, rather than cancelled.
    pub(crate) async fn wait(mut self) -> bool {
        self.0.wait_for(|completed| *completed).await.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> Key {
        Key::of(b"key")
    }

    fn lead(flights: &Arc<Flights>) -> Leader {
        match flights.join(key()) {
            Joined::Leads(leader) => leader,
            other => panic!("{other:?}"),
        }
    }

    fn follow(flights: &Arc<Flights>) -> Follower {
        match flights.join(key()) {
            Joined::Follows(follower) => follower,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn followers_learn_whether_the_evaluation_was_completed() {
        let flights = Arc::<Flights>::default();
        let leader = lead(&flights);
        let (first, second) = (follow(&flights), follow(&flights));
        leader.complete();
        assert!(first.wait().await && second.wait().await);

        let leader = lead(&flights);
        let follower = follow(&flights);
        drop(leader);
        assert!(!follower.wait().await);
        lead(&flights);
    }

    #[tokio::test]
    async fn the_number_of_followers_is_bounded() {
        let flights = Arc::<Flights>::default();
        let _leader = lead(&flights);
        let _followers: Vec<_> = (0..MAX_JOINED).map(|_| follow(&flights)).collect();
        assert!(matches!(flights.join(key()), Joined::Alone));
    }
}

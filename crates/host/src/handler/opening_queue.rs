//! The queue of connections whose calls open handlers.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Connections whose openings took the same number of these have used as much as each other.
const STEP: Duration = Duration::from_millis(50);

/// A connection's used time decreases by a second for this many seconds without an opening.
const FORGOTTEN: u32 = 8;

/// Limits the openings at a time; each connection has at most one.
///
/// The connection whose openings took the least time is next. Among equals, such as connections that open their first handler, the
/// oldest and the newest alternate: a burst does not delay a connection that comes after it, and nobody waits for ever.
#[derive(Clone)]
pub(super) struct OpeningQueue(Arc<Mutex<Queue>>);

#[derive(Default)]
struct Queue {
    /// Openings that can begin at once.
    free: usize,
    connections: HashMap<u64, Connection>,
    /// Connections that wait and have no opening that goes on: by the steps that theirs took, then in the order of their arrival.
    order: BTreeSet<(u128, u64, u64)>,
    arrivals: u64,
    last_is_next: bool,
    /// The number of connections after the last sweep.
    swept: usize,
}

/// The state of a connection.
#[derive(Default)]
struct Connection {
    used: Duration,
    opens: bool,
    ended: Option<Instant>,
    waiting: VecDeque<oneshot::Sender<Opening>>,
}

impl Connection {
    /// Decreases the used time by the time since the last opening.
    fn forget(&mut self, now: Instant) {
        if let Some(ended) = self.ended.replace(now) {
            self.used = self.used.saturating_sub(now.duration_since(ended) / FORGOTTEN);
        }
    }
}

impl Queue {
    /// Removes connections without used time, when there are many.
    fn sweep(&mut self, now: Instant) {
        if self.connections.len() <= 2 * self.swept {
            return;
        }
        self.connections.retain(|_, known| {
            if known.opens || !known.waiting.is_empty() {
                return true;
            }
            known.forget(now);
            known.used > Duration::ZERO
        });
        self.swept = self.connections.len();
    }

    /// Adds an opening of a connection.
    fn add(&mut self, connection: u64, turn: oneshot::Sender<Opening>, now: Instant) {
        self.sweep(now);
        let known = self.connections.entry(connection).or_default();
        let is_first = known.waiting.is_empty() && !known.opens;
        known.waiting.push_back(turn);
        if is_first {
            known.forget(now);
            self.arrive(connection);
        }
    }

    fn arrive(&mut self, connection: u64) {
        let Some(known) = self.connections.get(&connection) else { return };
        self.arrivals += 1;
        self.order.insert((known.used.as_millis() / STEP.as_millis(), self.arrivals, connection));
    }

    /// Takes out the opening that begins next, if one can.
    fn next(&mut self) -> Option<(u64, oneshot::Sender<Opening>)> {
        while self.free > 0 {
            let first = *self.order.first()?;
            let last = *self.order.range(..(first.0 + 1, 0, 0)).next_back()?;
            self.last_is_next = !self.last_is_next;
            let next = if self.last_is_next { last } else { first };
            self.order.remove(&next);
            let known = self.connections.get_mut(&next.2)?;
            while let Some(turn) = known.waiting.pop_front() {
                if !turn.is_closed() {
                    known.opens = true;
                    self.free -= 1;
                    return Some((next.2, turn));
                }
            }
        }
        None
    }

    /// Notes that the opening of a connection has ended.
    fn end(&mut self, connection: u64, took: Duration, now: Instant) {
        self.free += 1;
        let Some(known) = self.connections.get_mut(&connection) else { return };
        known.opens = false;
        known.used += took;
        known.ended = Some(now);
        if !known.waiting.is_empty() {
            self.arrive(connection);
        }
    }
}

/// An opening that goes on until this is dropped.
pub(super) struct Opening {
    queue: OpeningQueue,
    connection: u64,
    began: Instant,
}

impl OpeningQueue {
    pub(super) fn new(openings: usize) -> Self {
        Self(Arc::new(Mutex::new(Queue { free: openings, ..Queue::default() })))
    }

    /// Waits for the turn of an opening of a connection.
    pub(super) async fn wait(&self, connection: u64) -> Option<Opening> {
        let (turn, next) = oneshot::channel();
        self.0.lock().add(connection, turn, Instant::now());
        self.begin();
        next.await.ok()
    }

    /// Begins as many openings as can.
    fn begin(&self) {
        loop {
            let Some((connection, turn)) = self.0.lock().next() else { return };
            // Ends at once if nobody waits for it any more.
            drop(turn.send(Opening { queue: self.clone(), connection, began: Instant::now() }));
        }
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        let now = Instant::now();
        self.queue.0.lock().end(self.connection, now.duration_since(self.began), now);
        self.queue.begin();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(1);

    /// A queue of one opening at a time, and what is still waited for.
    #[derive(Default)]
    struct Openings {
        queue: Queue,
        turns: Vec<oneshot::Receiver<Opening>>,
    }

    impl Openings {
        fn new() -> Self {
            Self { queue: Queue { free: 1, ..Queue::default() }, turns: Vec::new() }
        }

        fn add(&mut self, connection: u64, now: Instant) {
            let (turn, next) = oneshot::channel();
            self.turns.push(next);
            self.queue.add(connection, turn, now);
        }

        /// The connections whose openings begin one after the other, each of which takes this time.
        fn begin(&mut self, took: Duration, number: usize, now: Instant) -> Vec<u64> {
            let mut begin = || {
                let (connection, _) = self.queue.next()?;
                assert!(self.queue.next().is_none(), "one at a time");
                self.queue.end(connection, took, now);
                Some(connection)
            };
            (0..number).map_while(|_| begin()).collect()
        }
    }

    #[test]
    fn who_used_much_goes_behind_who_used_none() {
        let (mut openings, now) = (Openings::new(), Instant::now());
        for connection in 0..200 {
            openings.add(connection, now);
            openings.add(connection, now);
        }
        assert_eq!(openings.begin(LONG, 100, now).len(), 100);
        openings.add(1_000, now);
        assert!(openings.begin(Duration::ZERO, 2, now).contains(&1_000), "it came last");
        assert_eq!(openings.begin(LONG, 100, now).len(), 100);
        openings.add(1_000, now);
        assert_eq!(openings.begin(Duration::ZERO, 1, now), [1_000], "the others used a second each");
        assert_eq!(openings.begin(LONG, 1_000, now).len(), 199, "nobody is forgotten");
    }

    #[test]
    fn who_waits_goes_on_while_others_come() {
        let (mut openings, now) = (Openings::new(), Instant::now());
        for connection in 0..10 {
            openings.add(connection, now);
        }
        let mut begun = Vec::new();
        for connection in 10..30 {
            openings.add(connection, now);
            begun.extend(openings.begin(LONG, 1, now));
        }
        assert!((0..10).all(|connection| begun.contains(&connection)), "{begun:?}");
    }

    #[test]
    fn a_connection_has_one_opening_at_a_time() {
        let (mut openings, now) = (Openings::new(), Instant::now());
        openings.queue.free = 2;
        (0..3).for_each(|_| openings.add(1, now));
        assert_eq!(openings.queue.next().unwrap().0, 1);
        assert!(openings.queue.next().is_none());
        openings.add(2, now);
        assert_eq!(openings.queue.next().unwrap().0, 2);
    }

    #[test]
    fn what_was_used_is_forgotten_with_the_time() {
        let (mut openings, now) = (Openings::new(), Instant::now());
        openings.add(1, now);
        openings.begin(LONG, 1, now);
        for (pause, next) in [(LONG, 2), (LONG * FORGOTTEN * 2, 1)] {
            let later = now + pause;
            openings.add(1, later);
            openings.add(2, later);
            assert_eq!(openings.begin(LONG, 1, later)[0], next, "after {pause:?}");
            openings = Openings::new();
            openings.add(1, now);
            openings.begin(LONG, 1, now);
            openings.queue.last_is_next = true;
        }
    }

    #[test]
    fn connections_without_openings_are_forgotten() {
        let (mut openings, now) = (Openings::new(), Instant::now());
        for connection in 0..10_000 {
            openings.add(connection, now);
            openings.begin(Duration::ZERO, 1, now);
        }
        assert!(openings.queue.connections.len() < 10, "{}", openings.queue.connections.len());
    }

    #[tokio::test]
    async fn an_opening_that_nobody_waits_for_is_passed_over() {
        let queue = OpeningQueue::new(1);
        let first = queue.wait(1).await.unwrap();
        let abandoned = tokio::spawn({
            let queue = queue.clone();
            async move { queue.wait(2).await.is_some() }
        });
        tokio::task::yield_now().await;
        abandoned.abort();
        drop(first);
        assert!(queue.wait(3).await.is_some());
        assert_eq!(queue.0.lock().free, 1);
    }
}

//! The connections of one thread take turns: the one with the least work is next.

use std::{
    collections::{BTreeMap, HashMap},
    convert::Infallible,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};

/// A turn in which calls took this long ends.
pub(crate) const LENGTH: Duration = Duration::from_micros(250);

/// The maximum distance of a connection behind the latest turn: it waits at most for that much of every other one.
const MOST_BEHIND: Duration = LENGTH.saturating_mul(2);

/// Unread bytes that put a connection as far behind as it can be: some hundred small calls.
const LARGE_BACKLOG: usize = 16 << 10;

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The connections that wait for a turn on one thread.
///
/// A connection that had more to do when its turn ended goes behind the others, in proportion to its backlog. So a connection with few
/// calls is served at once, however many others are busy, and even if it calls more often than each of them has a turn. A clock, which
/// goes the slower the more connections wait, bounds how long a busy connection waits.
#[derive(Default)]
pub(crate) struct Turns {
    waiting: Mutex<Waiting>,
    /// The length of the queue.
    length: AtomicUsize,
    /// Wakes the task that gives the turns.
    giver: AtomicWaker,
}

struct Waiting {
    /// By their times on the clock, then in the order of their arrival.
    queue: BTreeMap<(Duration, u64), u64>,
    added: Vec<(Work, Arc<AtomicUsize>)>,
    clock: Duration,
    arrivals: u64,
    is_closed: bool,
}

impl Default for Waiting {
    fn default() -> Self {
        // So that idle connections, which go before others, are not before zero.
        let clock = LENGTH;
        Self { queue: BTreeMap::new(), added: Vec::new(), clock, arrivals: 0, is_closed: false }
    }
}

impl Waiting {
    /// Adds a connection with `backlog` bytes to read; 0 if it was idle.
    fn push(&mut self, id: u64, backlog: usize) {
        self.arrivals += 1;
        let time = match backlog {
            0 => self.clock.saturating_sub(LENGTH),
            _ => self.clock + MOST_BEHIND.mul_f64(backlog.min(LARGE_BACKLOG) as f64 / LARGE_BACKLOG as f64),
        };
        self.queue.insert((time, self.arrivals), id);
    }

    /// Takes out the next connection.
    fn pop(&mut self) -> Option<u64> {
        let ((time, _), id) = self.queue.pop_first()?;
        self.clock = self.clock.max(time);
        Some(id)
    }

    /// Advances the clock after a turn.
    fn advance(&mut self, took: Duration) {
        let waiting = u32::try_from(self.queue.len()).unwrap_or(u32::MAX);
        self.clock += took / waiting.saturating_add(1);
    }
}

impl fmt::Debug for Turns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turns").field("length", &self.length()).finish_non_exhaustive()
    }
}

impl Turns {
    /// Returns the task that gives the turns, and drops the connections when it is dropped.
    pub(crate) fn giver(self: &Arc<Self>) -> impl Future<Output = Infallible> + Send + 'static {
        Giver { turns: self.clone(), connections: HashMap::new(), ids: 0 }
    }

    /// Serves a connection. After each turn, `backlog` has the number of bytes that it had still to read; 0 if it had nothing to do.
    pub(crate) fn add(
        &self,
        connection: impl Future<Output = ()> + Send + 'static,
        backlog: Arc<AtomicUsize>,
    ) {
        let mut waiting = self.waiting.lock();
        if !waiting.is_closed {
            waiting.added.push((Box::pin(connection), backlog));
        }
        drop(waiting);
        self.giver.wake();
    }

    /// Returns how many connections wait for a turn.
    pub(crate) fn length(&self) -> usize {
        self.length.load(Relaxed)
    }
}

/// The task that gives turns.
struct Giver {
    turns: Arc<Turns>,
    connections: HashMap<u64, Served>,
    ids: u64,
}

/// A connection that is being served.
struct Served {
    work: Work,
    backlog: Arc<AtomicUsize>,
    wakes: Arc<Wakes>,
}

/// Puts a connection into the queue.
struct Wakes {
    id: u64,
    turns: Arc<Turns>,
    state: Mutex<State>,
}

/// The state of a connection.
#[derive(Clone, Copy)]
enum State {
    Idle,
    /// It is in the queue.
    Waits,
    HasTurn {
        needs_another: bool,
    },
}

impl Wakes {
    fn wait(&self, state: &mut State, backlog: usize) {
        *state = State::Waits;
        let mut waiting = self.turns.waiting.lock();
        waiting.push(self.id, backlog);
        self.turns.length.store(waiting.queue.len(), Relaxed);
    }

    fn end_turn(&self, took: Duration, backlog: usize) {
        self.turns.waiting.lock().advance(took);
        let mut state = self.state.lock();
        match *state {
            // Without more to do, an answer is ready to be written, or something came meanwhile.
            State::HasTurn { needs_another: true } => self.wait(&mut state, backlog),
            _ => *state = State::Idle,
        }
    }
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut state = self.state.lock();
        match &mut *state {
            State::HasTurn { needs_another } => *needs_another = true,
            State::Waits => {}
            State::Idle => {
                self.wait(&mut state, 0);
                drop(state);
                self.turns.giver.wake();
            }
        }
    }
}

impl Giver {
    /// Takes the next connection out of the queue, after adding new ones to it.
    fn next(&mut self) -> Option<u64> {
        let mut waiting = self.turns.waiting.lock();
        for (work, backlog) in std::mem::take(&mut waiting.added) {
            self.ids += 1;
            let (turns, state) = (self.turns.clone(), Mutex::new(State::Waits));
            let wakes = Arc::new(Wakes { id: self.ids, turns, state });
            self.connections.insert(self.ids, Served { work, backlog, wakes });
            // Behind connections that had a turn.
            waiting.push(self.ids, 1);
        }
        let next = waiting.pop();
        self.turns.length.store(waiting.queue.len(), Relaxed);
        next
    }
}

impl Future for Giver {
    type Output = Infallible;

    /// Gives one turn: the runtime looks for events, and does what else there is to do, in between.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Infallible> {
        self.turns.giver.register(context.waker());
        let Some(id) = self.next() else { return Poll::Pending };
        // There may be another one.
        context.waker().wake_by_ref();
        let Some(Served { work, backlog, wakes }) = self.connections.get_mut(&id) else {
            return Poll::Pending;
        };
        *wakes.state.lock() = State::HasTurn { needs_another: false };
        let waker = Waker::from(wakes.clone());
        let start = time_of_thread();
        let polled = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(&mut Context::from_waker(&waker))));
        wakes.end_turn(time_of_thread().saturating_sub(start), backlog.load(Relaxed));
        if polled.is_err() {
            tracing::error!("serving a connection panicked");
        }
        if !matches!(polled, Ok(Poll::Pending)) {
            self.connections.remove(&id);
        }
        Poll::Pending
    }
}

/// The processor time of this thread: while others occupy the processor, nobody uses their turn.
fn time_of_thread() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

impl Drop for Giver {
    fn drop(&mut self) {
        let mut waiting = self.turns.waiting.lock();
        waiting.is_closed = true;
        let added = std::mem::take(&mut waiting.added);
        drop(waiting);
        drop(added);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::future::{pending, poll_fn};

    use super::*;

    const CALL: Duration = Duration::from_micros(20);

    /// Gives a number of turns of a full length to connections that never rest.
    fn turns_of_busy(waiting: &mut Waiting, number: usize) -> Vec<u64> {
        let turn = |_| {
            let id = waiting.pop().unwrap();
            waiting.advance(LENGTH);
            waiting.push(id, LARGE_BACKLOG);
            id
        };
        (0..number).map(turn).collect()
    }

    #[test]
    fn who_rests_after_each_call_is_next_however_often_it_calls() {
        let mut waiting = Waiting::default();
        (1..51).for_each(|id| waiting.push(id, LARGE_BACKLOG));
        for turns in [0, 1, 50, 20].into_iter().cycle().take(200) {
            turns_of_busy(&mut waiting, turns);
            waiting.push(0, 0);
            assert_eq!(waiting.pop().unwrap(), 0);
            waiting.advance(CALL);
        }
    }

    #[test]
    fn who_has_less_to_do_waits_for_less_than_a_round() {
        let mut waiting = Waiting::default();
        (1..101).for_each(|id| waiting.push(id, LARGE_BACKLOG));
        for _ in 0..10 {
            turns_of_busy(&mut waiting, 230);
            waiting.push(0, LARGE_BACKLOG / 10);
            let waited =
                std::iter::from_fn(|| Some(turns_of_busy(&mut waiting, 1)[0])).take_while(|id| *id != 0);
            assert!(waited.count() < 30);
            waiting.queue.retain(|_, id| *id != 0);
        }
    }

    #[test]
    fn who_never_rests_has_turns_although_others_do() {
        let mut waiting = Waiting::default();
        waiting.push(0, LARGE_BACKLOG);
        for call in 1.. {
            waiting.push(call, 0);
            let id = waiting.pop().unwrap();
            waiting.advance(CALL);
            if id == 0 {
                break;
            }
            assert!(call < 1_000, "the clock does not reach it");
        }
    }

    #[test]
    fn those_who_never_rest_have_as_many_turns_as_each_other() {
        let mut waiting = Waiting::default();
        waiting.push(0, LARGE_BACKLOG);
        turns_of_busy(&mut waiting, 1_000);
        // It was idle meanwhile, or is new.
        waiting.push(1, 0);
        waiting.push(2, 1);
        let turns = turns_of_busy(&mut waiting, 30);
        for id in 0..3 {
            assert!((9..=12).contains(&turns.iter().filter(|turn| **turn == id).count()), "{turns:?}");
        }
    }

    #[test]
    fn the_clock_goes_on_with_each_turn() {
        let turns = Arc::<Turns>::default();
        let mut giver = Box::pin(turns.giver());
        turns.add(
            poll_fn(|context| {
                context.waker().wake_by_ref();
                let start = time_of_thread();
                while time_of_thread().saturating_sub(start) < LENGTH {}
                Poll::Pending
            }),
            Arc::default(),
        );
        for _ in 0..10 {
            let _ = giver.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        }
        assert!(turns.waiting.lock().clock >= LENGTH * 10);
        assert_eq!(turns.length(), 1);
    }

    #[test]
    fn a_panic_ends_its_connection_and_no_other() {
        let turns = Arc::<Turns>::default();
        let mut giver = Box::pin(turns.giver());
        let turn = Arc::new(AtomicUsize::new(0));
        let counted = turn.clone();
        turns.add(async { panic!("in a connection") }, Arc::default());
        turns.add(
            poll_fn(move |context| {
                counted.fetch_add(1, Relaxed);
                context.waker().wake_by_ref();
                Poll::Pending
            }),
            Arc::default(),
        );
        for _ in 0..4 {
            let _ = giver.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        }
        assert_eq!(turn.load(Relaxed), 3);
    }

    #[test]
    fn connections_are_dropped_with_what_gives_them_turns() {
        let turns = Arc::<Turns>::default();
        let mut giver = Box::pin(turns.giver());
        let held = Arc::new(());
        for _ in 0..2 {
            let held = held.clone();
            turns.add(
                async move {
                    pending::<()>().await;
                    drop(held);
                },
                Arc::default(),
            );
            let _ = giver.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        }
        assert_eq!(Arc::strong_count(&held), 3);
        turns.add(
            {
                let held = held.clone();
                async move { drop(held) }
            },
            Arc::default(),
        );
        drop(giver);
        assert_eq!(Arc::strong_count(&held), 1);
        turns.add(async move { drop(held) }, Arc::default());
        assert_eq!(turns.length(), 0);
    }
}

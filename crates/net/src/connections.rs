//! The open connections of a port with their calls, and which of them are evicted when there are too many.

#[cfg(test)]
mod tests;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    fmt,
    net::IpAddr,
    sync::{
        Arc, Weak,
        atomic::{
            AtomicBool, AtomicU64, AtomicUsize,
            Ordering::{Relaxed, SeqCst},
        },
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    sync::{Notify, Semaphore, oneshot},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

#[cfg(feature = "tls")]
use crate::jwt::RefusedTokens;
use crate::{Limit, LimitHits, workers::WorkerRef};

/// Periods for which unwritten answers are counted apart.
const PERIODS: usize = 4;

/// Connections younger than this are evicted last: their clients may be about to call.
const YOUTH: Duration = Duration::from_secs(1);

/// A connection that called within this time, in milliseconds, is evicted after others.
const LATELY: u64 = 1_000;

/// The longest time for which the result of a search for the busiest connection is used again to refuse calls.
const SEARCH_INTERVAL: Duration = Duration::from_millis(5);

/// Calls that all connections of a port may begin at a time, divided among them; each may begin [`LEAST_CALLS`].
const CALLS: usize = 65_536;

/// The least number of calls that a connection may begin at a time.
const LEAST_CALLS: usize = 64;

/// The stage of a call that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The server waits for the client: for the rest of the request, or for messages of a stream.
    Waiting,
    /// The call is being answered.
    Working,
}

/// The open connections of one port.
#[derive(Debug)]
pub(crate) struct Connections {
    open: Mutex<HashMap<u64, Arc<ConnectionState>>>,
    /// How many are open.
    count: AtomicUsize,
    /// Signals that a connection has had its first turn, or has ended.
    pub(crate) changed: Notify,
    hits: Arc<LimitHits>,
    start: Instant,
    period: AtomicUsize,
    /// The last search for the busiest connection, by resource.
    searched: [Mutex<Option<Search>>; 3],
    /// Connections that were closed to make room, until their last call is dropped.
    cut_off: Mutex<Vec<Weak<ConnectionState>>>,
    /// Bytes of evicted calls, until they are released.
    evicted_bytes: AtomicUsize,
}

/// The result of a search.
#[derive(Clone, Copy, Debug)]
struct Search {
    at: Instant,
    /// The amount that the busiest connection held.
    most: usize,
    /// The amount that closed connections and evicted calls still held.
    releasing: usize,
}

/// The state of one connection that its port and its calls share.
#[derive(Debug)]
pub(crate) struct ConnectionState {
    id: u64,
    address: Option<IpAddr>,
    port: Arc<Connections>,
    opened: Instant,
    /// `None` for a connection that belongs to no port.
    worker: Option<WorkerRef>,
    /// Whether the connection has had a turn: what its client sent before is not seen.
    had_turn: AtomicBool,
    /// Whether the HTTP/2 preface has arrived.
    greeted: AtomicBool,
    /// Milliseconds from the start of the port to the last call, counted from 1; 0 before the first call.
    last_call: AtomicU64,
    /// Whether it has a session or a stream, and is exempt from idle eviction (at most half of all connections are).
    kept: AtomicBool,
    /// The queue in which its large calls wait.
    pub(crate) large_calls: Arc<Semaphore>,
    /// Bytes of large requests and answers.
    bytes: AtomicUsize,
    /// Answers that are not written yet, by the period in which they were given.
    unwritten: [AtomicUsize; PERIODS],
    calls: Mutex<PendingCalls>,
    /// How many calls it may begin at a time, as SETTINGS announced when it was opened.
    pub(crate) max_begun: usize,
    /// Calls that nobody has worked on.
    begun: AtomicUsize,
    /// The numbers of `calls` by their stage, for searches.
    pending: [AtomicUsize; 2],
    #[cfg(feature = "tls")]
    pub(crate) refused_tokens: RefusedTokens,
    /// Ends the connection by GOAWAY.
    pub(crate) drain: CancellationToken,
    /// Ends the connection at once.
    pub(crate) cut: CancellationToken,
}

/// The calls of a connection that had to wait at least once, oldest first, by their stage.
#[derive(Debug, Default)]
struct PendingCalls {
    next: u64,
    by_stage: [BTreeMap<u64, PendingCall>; 2],
}

/// A call that can be ended.
#[derive(Debug)]
struct PendingCall {
    evict: oneshot::Sender<Limit>,
    holder: Arc<dyn Evictable>,
}

/// Releases its share when it is evicted, even if nobody polls it.
pub(crate) trait Evictable: fmt::Debug + Send + Sync {
    /// Is called once.
    fn on_evicted(&self);
}

impl PendingCalls {
    fn of(&mut self, stage: Stage) -> &mut BTreeMap<u64, PendingCall> {
        &mut self.by_stage[stage as usize]
    }
}

/// A resource that the connections share.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Resource {
    Waiting,
    Working,
    Bytes,
}

impl Connections {
    pub(crate) fn new(hits: Arc<LimitHits>) -> Arc<Self> {
        Arc::new(Self {
            open: Mutex::default(),
            count: AtomicUsize::new(0),
            changed: Notify::new(),
            hits,
            start: Instant::now(),
            period: AtomicUsize::new(0),
            searched: Default::default(),
            cut_off: Mutex::default(),
            evicted_bytes: AtomicUsize::new(0),
        })
    }

    /// Adds a connection.
    pub(crate) fn open(
        self: &Arc<Self>,
        id: u64,
        address: Option<IpAddr>,
        worker: WorkerRef,
    ) -> OpenConnection {
        let state = Arc::new(ConnectionState::new(id, address, self.clone(), Some(worker)));
        self.insert(state.clone());
        OpenConnection(state)
    }

    /// Adds a connection without a worker.
    #[cfg(test)]
    pub(crate) fn add(self: &Arc<Self>, id: u64) -> Arc<ConnectionState> {
        let connection = Arc::new(ConnectionState::new(id, None, self.clone(), None));
        self.insert(connection.clone());
        connection
    }

    fn insert(&self, connection: Arc<ConnectionState>) {
        let mut open = self.open.lock();
        open.insert(connection.id, connection);
        self.count.store(open.len(), Relaxed);
    }

    pub(crate) fn count(&self) -> usize {
        self.count.load(Relaxed)
    }

    /// Returns how many calls another connection may begin at a time. It falls with the number of connections, so that a proxy's may
    /// begin many.
    fn calls_of_another(&self) -> usize {
        (CALLS / (self.count() + 1)).max(LEAST_CALLS)
    }

    /// Returns the number of connections from an address.
    pub(crate) fn count_from(&self, address: IpAddr) -> usize {
        self.open.lock().values().filter(|connection| connection.address == Some(address)).count()
    }

    pub(crate) fn hit(&self, limit: Limit) {
        self.hits.count(limit);
    }

    /// Evicts idle connections to make room for a new one; returns whether there was one. [`Silence`] defines the order; within
    /// a kind, the longest idle or the largest backlog comes first. Connections younger than [`YOUTH`] come last, unless most are
    /// young. Connections that wait for their first turn are not known to be idle. Exempt connections are spared, up to half of all.
    /// Connections that sent data are spared while others have been cut off or wait for their first turn: room, or silent connections,
    /// will follow.
    pub(crate) fn end_silent(&self) -> bool {
        let open = self.open.lock();
        let now = Instant::now();
        // A flood of them would displace everybody else.
        let spares_young =
            2 * open.values().filter(|connection| connection.is_young(now)).count() <= open.len();
        let (mut silent, mut kept, mut is_unsettled) = (Vec::new(), Vec::new(), false);
        for connection in open.values() {
            is_unsettled |= connection.is_unsettled();
            let Some((silence, since)) = connection.silence() else { continue };
            let group = if connection.kept.load(Relaxed) { &mut kept } else { &mut silent };
            group.push(((spares_young && connection.is_young(now), silence), since, connection.id));
        }
        // Sessions on all connections would keep everybody else out.
        let excess = kept.len().saturating_sub(open.len() / 2);
        if excess > 0 {
            kept.select_nth_unstable(excess - 1);
            silent.extend_from_slice(&kept[..excess]);
        }
        let Some(&(least, ..)) = silent.iter().min() else { return false };
        if is_unsettled && least.1 != Silence::NoPreface {
            return false;
        }
        // Many at once while strangers hold connections, so that the search pays.
        let number = match least.1 {
            Silence::NoPreface | Silence::NeverCalled => (open.len() / 64).max(1),
            Silence::Idle | Silence::Busy => 1,
        };
        silent.retain(|(rank, ..)| *rank == least);
        if silent.len() > number {
            silent.select_nth_unstable(number);
            silent.truncate(number);
        }
        for (.., id) in &silent {
            let Some(connection) = open.get(id) else { continue };
            self.hits.count(Limit::Connections);
            match least.1 {
                Silence::NoPreface => connection.cut.cancel(),
                Silence::NeverCalled | Silence::Idle | Silence::Busy => connection.drain.cancel(),
            }
        }
        true
    }

    /// Begins a new period, and cuts off connections with answers that the peer has not read for two whole periods.
    pub(crate) fn next_period(&self) {
        let period = self.period.fetch_add(1, Relaxed) + 1;
        for connection in self.open.lock().values() {
            if connection.unwritten[(period + 1) % PERIODS].load(Relaxed) > 0 {
                self.hits.count(Limit::WriteTimeout);
                connection.cut.cancel();
            }
        }
    }

    /// The connection that holds most of a resource, and how much.
    fn busiest(&self, resource: Resource) -> Option<(usize, Arc<ConnectionState>)> {
        let open = self.open.lock();
        let held = open.values().map(|connection| (connection.holds(resource), connection));
        held.max_by_key(|(held, _)| *held).map(|(held, connection)| (held, connection.clone()))
    }

    /// Returns how much connections that were cut off, and calls that were ended, still hold.
    fn releasing(&self, resource: Resource) -> usize {
        let mut releasing = match resource {
            Resource::Bytes => self.evicted_bytes.load(Relaxed),
            Resource::Waiting | Resource::Working => 0,
        };
        self.cut_off.lock().retain(|connection| {
            let Some(connection) = connection.upgrade() else { return false };
            releasing += connection.has(resource);
            true
        });
        releasing
    }
}

/// Why a connection is idle, in eviction order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Silence {
    NoPreface,
    NeverCalled,
    Idle,
    /// The last call was within [`LATELY`]: more may have come that the connection has not read.
    Busy,
}

impl ConnectionState {
    fn new(id: u64, address: Option<IpAddr>, port: Arc<Connections>, worker: Option<WorkerRef>) -> Self {
        Self {
            id,
            address,
            max_begun: port.calls_of_another(),
            port,
            opened: Instant::now(),
            worker,
            had_turn: AtomicBool::new(false),
            greeted: AtomicBool::new(false),
            last_call: AtomicU64::new(0),
            kept: AtomicBool::new(false),
            large_calls: Arc::new(Semaphore::new(1)),
            bytes: AtomicUsize::new(0),
            unwritten: Default::default(),
            calls: Mutex::default(),
            begun: AtomicUsize::new(0),
            pending: Default::default(),
            #[cfg(feature = "tls")]
            refused_tokens: RefusedTokens::default(),
            drain: CancellationToken::new(),
            cut: CancellationToken::new(),
        }
    }

    /// The state of a connection that belongs to no port.
    pub(crate) fn detached() -> Arc<Self> {
        Arc::new(Self::new(0, None, Connections::new(Arc::default()), None))
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Counts a call that nobody has worked on, until the guard is dropped. Returns `None` beyond the limit, which counts as a hit.
    pub(crate) fn begin(self: &Arc<Self>) -> Option<Begun> {
        let begun = Begun(self.clone());
        if self.begun.fetch_add(1, Relaxed) < self.max_begun {
            return Some(begun);
        }
        self.hit(Limit::Calls);
        None
    }

    pub(crate) fn worker(&self) -> Option<&WorkerRef> {
        self.worker.as_ref()
    }

    pub(crate) fn hit(&self, limit: Limit) {
        self.port.hit(limit);
    }

    #[cfg(test)]
    pub(crate) fn hits(&self, limit: Limit) -> u64 {
        self.port.hits.get(limit)
    }

    pub(crate) fn set_had_turn(&self) {
        self.had_turn.store(true, Relaxed);
        self.port.changed.notify_one();
    }

    pub(crate) fn set_greeted(&self) {
        self.greeted.store(true, Relaxed);
    }

    pub(crate) fn is_greeted(&self) -> bool {
        self.greeted.load(Relaxed)
    }

    /// Notes that a call is being answered.
    pub(crate) fn set_called(&self) {
        self.last_call.store(self.now(), Relaxed);
    }

    /// Milliseconds from the start of the port, counted from 1.
    fn now(&self) -> u64 {
        u64::try_from(self.port.start.elapsed().as_millis()).unwrap_or(u64::MAX).saturating_add(1)
    }

    pub(crate) fn keep(&self) {
        self.kept.store(true, Relaxed);
    }

    /// Returns whether it is about to end, or to show whether it is idle.
    fn is_unsettled(&self) -> bool {
        self.cut.is_cancelled() || !self.had_turn.load(Relaxed)
    }

    /// Returns why the connection is idle, and its order within this kind; `None` while it is in use.
    fn silence(&self) -> Option<(Silence, (Reverse<usize>, u64))> {
        let (is_ending, had_turn) =
            (self.drain.is_cancelled() || self.cut.is_cancelled(), self.had_turn.load(Relaxed));
        if is_ending || !had_turn {
            return None;
        }
        let last_call = self.last_call.load(Relaxed);
        let nothing = Reverse(0);
        match last_call {
            // Connections are numbered in the order of their ages.
            _ if !self.is_greeted() => Some((Silence::NoPreface, (nothing, self.id))),
            _ if self.holds(Resource::Working) > 0 => None,
            0 => Some((Silence::NeverCalled, (nothing, self.id))),
            _ if self.now().saturating_sub(last_call) >= LATELY => {
                Some((Silence::Idle, (nothing, last_call)))
            }
            _ => {
                let backlog = self.worker.as_ref().map_or(0, WorkerRef::backlog);
                Some((Silence::Busy, (Reverse(backlog), last_call)))
            }
        }
    }

    fn is_young(&self, now: Instant) -> bool {
        now.duration_since(self.opened) < YOUTH
    }

    /// Returns the amount that can be evicted: nothing of a closed connection, and no bytes of calls that never had to wait.
    fn holds(&self, resource: Resource) -> usize {
        let is_busy = matches!(resource, Resource::Bytes)
            && self.has(Resource::Waiting) + self.has(Resource::Working) == 0;
        if self.cut.is_cancelled() || is_busy { 0 } else { self.has(resource) }
    }

    fn has(&self, resource: Resource) -> usize {
        match resource {
            Resource::Waiting => self.pending(Stage::Waiting).load(Relaxed),
            Resource::Working => self.pending(Stage::Working).load(Relaxed) + self.unwritten(),
            Resource::Bytes => self.bytes.load(Relaxed),
        }
    }

    fn pending(&self, stage: Stage) -> &AtomicUsize {
        &self.pending[stage as usize]
    }

    fn unwritten(&self) -> usize {
        self.unwritten.iter().map(|period| period.load(Relaxed)).sum()
    }

    /// Makes room for `amount` of a resource whose use exceeds the limit by `excess`. The connection that holds the most loses a call,
    /// or is closed if its peer does not read answers. Returns false if this connection would then hold the most. Evicts nothing if
    /// enough is already being released.
    pub(crate) fn make_room(&self, resource: Resource, amount: usize, excess: usize, limit: Limit) -> bool {
        let mine = self.has(resource) + amount;
        let mut searched = self.port.searched[resource as usize].lock();
        if let Some(last) = *searched
            && last.at.elapsed() < SEARCH_INTERVAL
            && mine >= last.most
        {
            return excess <= last.releasing;
        }
        let releasing = self.port.releasing(resource);
        let Some((most, busiest)) = self.port.busiest(resource) else { return false };
        *searched = Some(Search { at: Instant::now(), most, releasing });
        drop(searched);
        if excess <= releasing {
            return true;
        }
        if mine >= most {
            return false;
        }
        let evicted = match resource {
            Resource::Waiting => busiest.evict(Stage::Waiting, limit),
            Resource::Working => busiest.evict(Stage::Working, limit),
            Resource::Bytes => busiest.evict(Stage::Waiting, limit) || busiest.evict(Stage::Working, limit),
        };
        if !evicted && busiest.unwritten() > 0 && !busiest.cut.is_cancelled() {
            self.hit(limit);
            self.port.cut_off.lock().push(Arc::downgrade(&busiest));
            busiest.cut.cancel();
        }
        true
    }

    /// Ends the newest call in a stage.
    fn evict(&self, stage: Stage, limit: Limit) -> bool {
        loop {
            let newest = self.calls.lock().of(stage).pop_last();
            let Some((_, call)) = newest else { return false };
            self.pending(stage).fetch_sub(1, Relaxed);
            // Fails for a call that ends just now.
            if call.evict.send(limit).is_ok() {
                call.holder.on_evicted();
                self.hit(limit);
                return true;
            }
        }
    }

    /// Registers a call that has to wait, so that it can be evicted for calls on other connections. An eviction notifies `holder`.
    pub(crate) fn register(
        self: &Arc<Self>,
        stage: Stage,
        holder: Arc<dyn Evictable>,
    ) -> (Registered, oneshot::Receiver<Limit>) {
        let (evict, evicted) = oneshot::channel();
        let mut calls = self.calls.lock();
        let id = calls.next;
        calls.next += 1;
        calls.of(stage).insert(id, PendingCall { evict, holder });
        self.pending(stage).fetch_add(1, Relaxed);
        drop(calls);
        (Registered { connection: self.clone(), stage, id }, evicted)
    }

    pub(crate) fn add_bytes(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn remove_bytes(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Relaxed);
    }

    /// Counts bytes of a call that was ended.
    pub(crate) fn add_evicted_bytes(&self, bytes: usize) {
        self.port.evicted_bytes.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn remove_evicted_bytes(&self, bytes: usize) {
        self.port.evicted_bytes.fetch_sub(bytes, Relaxed);
    }

    /// Counts an answer until the result is passed to [`set_written`](Self::set_written).
    pub(crate) fn add_unwritten(&self) -> usize {
        let period = self.port.period.load(Relaxed) % PERIODS;
        self.unwritten[period].fetch_add(1, SeqCst);
        period
    }

    pub(crate) fn set_written(&self, period: usize) {
        self.unwritten[period].fetch_sub(1, SeqCst);
    }
}

/// A call that nobody has worked on yet, until this is dropped.
#[derive(Debug)]
pub(crate) struct Begun(Arc<ConnectionState>);

impl Drop for Begun {
    fn drop(&mut self) {
        self.0.begun.fetch_sub(1, Relaxed);
    }
}

/// A call that can be evicted, until this is dropped.
#[derive(Debug)]
pub(crate) struct Registered {
    connection: Arc<ConnectionState>,
    stage: Stage,
    id: u64,
}

impl Drop for Registered {
    fn drop(&mut self) {
        // Dropped after the lock is released.
        let removed = self.connection.calls.lock().of(self.stage).remove(&self.id);
        if removed.is_some() {
            self.connection.pending(self.stage).fetch_sub(1, Relaxed);
        }
        drop(removed);
    }
}

/// A connection in [`Connections`] until it is dropped.
#[derive(Debug)]
pub(crate) struct OpenConnection(pub(crate) Arc<ConnectionState>);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        let port = &self.0.port;
        let mut open = port.open.lock();
        open.remove(&self.0.id);
        port.count.store(open.len(), Relaxed);
        drop(open);
        port.changed.notify_one();
    }
}

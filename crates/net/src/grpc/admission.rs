use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
};

use bytes::Bytes;
use tonic::Status;

use crate::{
    Limit,
    connections::{ConnectionState, Registered, Resource, Stage},
    workers::WorkerRef,
};

/// Bytes of a call that count as part of its slot, so that small calls need not be weighed.
pub const FREE_BYTES: usize = 4096;

/// What all calls of a server share. When a part is used up, calls of the connection that holds the most of it give way to those
/// of others.
#[derive(Debug)]
pub(super) struct Pools {
    working: Pool,
    waiting: Pool,
    memory: Pool,
}

#[derive(Debug)]
struct Pool {
    limit: Limit,
    resource: Resource,
    max: usize,
    used: AtomicUsize,
}

impl Pool {
    fn new(limit: Limit, resource: Resource, max: usize) -> Self {
        Self { limit, resource, max, used: AtomicUsize::new(0) }
    }

    /// Takes `amount` for a call on a connection.
    fn take(&self, amount: usize, connection: &ConnectionState) -> Result<(), Status> {
        let used = self.used.fetch_add(amount, Relaxed) + amount;
        if used <= self.max || connection.make_room(self.resource, amount, used - self.max, self.limit) {
            return Ok(());
        }
        self.release(amount);
        connection.hit(self.limit);
        Err(self.limit.exhausted())
    }

    fn release(&self, amount: usize) {
        self.used.fetch_sub(amount, Relaxed);
    }
}

impl Pools {
    pub(super) fn new(working: usize, waiting: usize, memory: usize) -> Self {
        Self {
            working: Pool::new(Limit::Calls, Resource::Working, working),
            waiting: Pool::new(Limit::WaitingCalls, Resource::Waiting, waiting),
            memory: Pool::new(Limit::Memory, Resource::Bytes, memory),
        }
    }
}

/// What one call holds until it is dropped, which is when its answer is written.
#[derive(Debug)]
pub(super) struct Admitted {
    pools: Arc<Pools>,
    connection: Arc<ConnectionState>,
    works: AtomicBool,
    /// Bytes of its request and its answer.
    bytes: AtomicUsize,
}

impl Admitted {
    pub(super) fn new(pools: Arc<Pools>, connection: Arc<ConnectionState>) -> Self {
        Self { pools, connection, works: AtomicBool::new(false), bytes: AtomicUsize::new(0) }
    }

    /// Returns the worker of the connection.
    pub(super) fn worker(&self) -> Option<&WorkerRef> {
        self.connection.worker()
    }

    /// Takes a slot for a call whose request has arrived.
    pub(super) fn begin_work(&self) -> Result<(), Status> {
        self.pools.working.take(1, &self.connection)?;
        self.works.store(true, Relaxed);
        self.connection.set_called();
        Ok(())
    }

    /// Counts bytes that the call holds.
    pub(super) fn add_bytes(&self, bytes: usize) -> Result<(), Status> {
        let before = self.bytes.fetch_add(bytes, Relaxed);
        let large = (before + bytes).saturating_sub(FREE_BYTES.max(before));
        if large > 0 {
            self.connection.add_bytes(large);
            if let Err(refusal) = self.pools.memory.take(large, &self.connection) {
                self.connection.remove_bytes(large);
                self.bytes.fetch_sub(bytes, Relaxed);
                return Err(refusal);
            }
        }
        Ok(())
    }

    /// Takes a place for a call that the client has not sent completely.
    pub(super) fn wait(&self) -> Result<WaitingPlace, Status> {
        self.pools.waiting.take(1, &self.connection)?;
        Ok(WaitingPlace { pools: self.pools.clone() })
    }

    /// Awaits a stage of the call. If the call has to give way to those of others meanwhile, it fails with the limit's refusal.
    pub(super) async fn unless_evicted<T>(
        &self,
        stage: Stage,
        work: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, Status> {
        let (_registered, evicted) = self.register(stage);
        tokio::select! {
            biased;
            done = work => done,
            Ok(limit) = evicted => Err(limit.exhausted()),
        }
    }

    pub(super) fn register(&self, stage: Stage) -> (Registered, tokio::sync::oneshot::Receiver<Limit>) {
        self.connection.register(stage)
    }

    pub(super) fn keep_connection(&self) {
        self.connection.keep();
    }

    pub(super) fn hit(&self, limit: Limit) {
        self.connection.hit(limit);
    }

    /// Makes the call count until its answer is written.
    pub(super) fn until_written(self, answer: Bytes) -> Bytes {
        let period = self.connection.add_unwritten();
        Bytes::from_owner(Unwritten { answer, admitted: self, period })
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        if *self.works.get_mut() {
            self.pools.working.release(1);
        }
        let large = self.bytes.get_mut().saturating_sub(FREE_BYTES);
        if large > 0 {
            self.pools.memory.release(large);
            self.connection.remove_bytes(large);
        }
    }
}

/// A place among the calls that wait for their clients.
#[derive(Debug)]
pub(super) struct WaitingPlace {
    pools: Arc<Pools>,
}

impl Drop for WaitingPlace {
    fn drop(&mut self) {
        self.pools.waiting.release(1);
    }
}

/// An answer that is not written yet.
struct Unwritten {
    answer: Bytes,
    admitted: Admitted,
    period: usize,
}

impl AsRef<[u8]> for Unwritten {
    fn as_ref(&self) -> &[u8] {
        &self.answer
    }
}

impl Drop for Unwritten {
    fn drop(&mut self) {
        self.admitted.connection.set_written(self.period);
    }
}

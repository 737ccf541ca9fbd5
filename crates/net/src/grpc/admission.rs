use bytes::Bytes;
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
};

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tonic::Status;

use crate::{
    Limit,
    answer_body::until_written,
    connections::{ConnectionState, Evictable, Resource, Stage},
    workers::WorkerRef,
};

/// Bytes of a call that count as part of its slot, so that small calls need not be weighed.
pub const FREE_BYTES: usize = 4096;

/// The resources that all calls of a server share. When one is used up, the connection that holds the most of it loses calls.
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

    #[cfg(test)]
    pub(super) fn memory_in_use(&self) -> usize {
        self.memory.used.load(Relaxed)
    }
}

/// What one call holds until it is dropped, which is when its answer is written.
#[derive(Debug)]
pub(super) struct Admitted {
    pools: Arc<Pools>,
    connection: Arc<ConnectionState>,
    works: AtomicBool,
    /// Bytes of its request, of data derived from it, and of its answer.
    bytes: AtomicUsize,
    /// Bytes of data derived from its request.
    expanded: AtomicUsize,
    large: Mutex<LargeBytes>,
}

/// The weighed part of a call's bytes.
#[derive(Debug, Default)]
struct LargeBytes {
    bytes: usize,
    /// Whether the call was evicted and is about to release them.
    evicted: bool,
}

impl Admitted {
    pub(super) fn new(pools: Arc<Pools>, connection: Arc<ConnectionState>) -> Self {
        Self {
            pools,
            connection,
            works: AtomicBool::new(false),
            bytes: AtomicUsize::new(0),
            expanded: AtomicUsize::new(0),
            large: Mutex::default(),
        }
    }

    /// Returns the worker of the connection.
    pub(super) fn worker(&self) -> Option<&WorkerRef> {
        self.connection.worker()
    }

    /// Returns the queue of the connection's large calls.
    pub(super) fn large_calls(&self) -> Arc<Semaphore> {
        self.connection.large_calls.clone()
    }

    /// Takes a slot for a call whose request has arrived.
    pub(super) fn begin_work(&self) -> Result<(), Status> {
        self.pools.working.take(1, &self.connection)?;
        self.works.store(true, Relaxed);
        self.set_called();
        Ok(())
    }

    /// Notes that the connection is in use.
    pub(super) fn set_called(&self) {
        self.connection.set_called();
    }

    /// Counts bytes that the call holds.
    pub(super) fn add_bytes(&self, bytes: usize) -> Result<(), Status> {
        let before = self.bytes.fetch_add(bytes, Relaxed);
        let added = large(before + bytes) - large(before);
        if added > 0 {
            if let Err(refusal) = self.pools.memory.take(added, &self.connection) {
                self.bytes.fetch_sub(bytes, Relaxed);
                return Err(refusal);
            }
            let mut large = self.large.lock();
            large.bytes += added;
            if large.evicted {
                self.connection.add_evicted_bytes(added)
            } else {
                self.connection.add_bytes(added)
            }
        }
        Ok(())
    }

    /// Releases the data derived from the request.
    pub(super) fn release_expanded(&self) {
        self.remove_bytes(self.expanded.swap(0, Relaxed));
    }

    /// Releases bytes that were counted.
    pub(super) fn remove_bytes(&self, bytes: usize) {
        let before = self.bytes.fetch_sub(bytes, Relaxed);
        self.release_large(large(before) - large(before - bytes));
    }

    fn release_large(&self, bytes: usize) {
        if bytes > 0 {
            self.pools.memory.release(bytes);
            let mut large = self.large.lock();
            large.bytes -= bytes;
            if large.evicted {
                self.connection.remove_evicted_bytes(bytes)
            } else {
                self.connection.remove_bytes(bytes)
            }
        }
    }

    /// Takes a place for a call that the client has not sent completely.
    pub(super) fn wait(&self) -> Result<WaitingPlace, Status> {
        self.pools.waiting.take(1, &self.connection)?;
        Ok(WaitingPlace { pools: self.pools.clone() })
    }

    /// Awaits a stage of the call. If the call is evicted meanwhile, it fails with the error of the limit.
    pub(super) async fn unless_evicted<T>(
        self: &Arc<Self>,
        stage: Stage,
        work: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, Status> {
        let (_registered, mut evicted) = self.connection.register(stage, self.clone());
        tokio::select! {
            biased;
            done = work => {
                // A call that was evicted meanwhile already counts as releasing its share.
                evicted.close();
                evicted.try_recv().map_or(done, |limit| Err(limit.exhausted()))
            }
            Ok(limit) = &mut evicted => Err(limit.exhausted()),
        }
    }

    pub(super) fn keep_connection(&self) {
        self.connection.keep();
    }

    pub(super) fn hit(&self, limit: Limit) {
        self.connection.hit(limit);
    }

    /// Makes the call count until its answer is written.
    pub(super) fn until_written(self: Arc<Self>, answer: Bytes) -> Bytes {
        until_written(self.connection.clone(), answer, self)
    }
}

impl Evictable for Admitted {
    /// Moves its bytes from the share of its connection to the bytes that are being released.
    fn on_evicted(&self) {
        let mut large = self.large.lock();
        if !std::mem::replace(&mut large.evicted, true) {
            self.connection.remove_bytes(large.bytes);
            self.connection.add_evicted_bytes(large.bytes);
        }
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        if *self.works.get_mut() {
            self.pools.working.release(1);
        }
        let bytes = *self.bytes.get_mut();
        self.release_large(large(bytes));
    }
}

/// The part of a call's bytes that is weighed.
fn large(bytes: usize) -> usize {
    bytes.saturating_sub(FREE_BYTES)
}

/// The memory that one call takes from the server's.
#[derive(Clone, Debug)]
pub struct CallMemory(Arc<Admitted>);

impl CallMemory {
    pub(super) fn new(call: Arc<Admitted>) -> Self {
        Self(call)
    }

    /// Takes memory for data derived from the request, until the call is answered. Returns false beyond the limit, which counts as a
    /// hit.
    pub fn take(&self, bytes: usize) -> bool {
        let taken = self.0.add_bytes(bytes).is_ok();
        if taken {
            self.0.expanded.fetch_add(bytes, Relaxed);
        }
        taken
    }

    /// Returns the bytes taken by [`take`](Self::take) and [`resize`](Self::resize).
    pub fn taken(&self) -> usize {
        self.0.expanded.load(Relaxed)
    }

    /// Takes or releases memory until it has taken `bytes` in all.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED beyond the limit, which counts as a hit.
    pub fn resize(&self, bytes: usize) -> Result<(), Status> {
        let taken = self.taken();
        match bytes.checked_sub(taken) {
            Some(more) => self.0.add_bytes(more)?,
            None => self.0.remove_bytes(taken - bytes),
        }
        self.0.expanded.store(bytes, Relaxed);
        Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    fn call(pools: &Arc<Pools>) -> Arc<Admitted> {
        Arc::new(Admitted::new(pools.clone(), ConnectionState::detached()))
    }

    #[test]
    fn memory_of_what_is_made_of_a_request_is_shared_by_all_calls_until_the_answer() {
        let pools = Arc::new(Pools::new(9, 9, 10_000));
        let used = || pools.memory_in_use();
        let (first, second) = (call(&pools), call(&pools));
        let memory = CallMemory::new(first.clone());
        assert!(first.add_bytes(1_000).is_ok());
        assert!(memory.take(3_000), "within the slot");
        assert_eq!(used(), 0);
        assert!(memory.take(9_000));
        assert_eq!(used(), 13_000 - FREE_BYTES);
        assert!(!CallMemory::new(second.clone()).take(9_000), "none is left");
        assert_eq!(second.connection.hits(Limit::Memory), 1);
        assert_eq!(used(), 13_000 - FREE_BYTES);
        first.release_expanded();
        assert_eq!(used(), 0);
        assert!(CallMemory::new(second.clone()).take(9_000));
        drop(second);
        assert_eq!(used(), 0, "a call that ends without an answer releases it, too");
    }
}

use http::Extensions;
use std::{
    collections::BTreeMap,
    convert::Infallible,
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::metrics::StreamMetrics;
use mixer_adapter_core::framework::setters;
use mixer_adapter_net::{Bucket, Rate};

/// Limits of a service on its clients.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServiceOptions {
    /// The maximum number of open and waiting streams. Beyond it, a stream of the connection with the most streams is
    /// closed; if no connection has more, the new stream fails with RESOURCE_EXHAUSTED.
    pub max_streams: usize,
    /// Rate of new streams; further ones wait. Connections with few streams go first.
    pub new_streams: Rate,
    /// The longest message in bytes; a longer one ends its stream.
    pub max_message_size: usize,
}

impl ServiceOptions {
    /// Returns the options of a source, which has many sinks.
    pub(crate) fn of_source(max_message_size: usize) -> Self {
        let new_streams = Rate { burst: 100, every: Duration::from_millis(10) };
        Self { max_streams: 10_000, new_streams, max_message_size }
    }
}

setters!(ServiceOptions { max_streams: usize, new_streams: Rate, max_message_size: usize });

/// The number of streams of one connection that are open or wait to be: an extension of its requests.
#[derive(Clone, Debug, Default)]
pub(super) struct ConnectionStreams(Arc<AtomicUsize>);

/// Counts a stream of a connection until it is dropped.
#[derive(Debug)]
struct CountedStream(ConnectionStreams);

impl ConnectionStreams {
    /// Counts one more stream. Returns the number before, too.
    fn add(&self) -> (CountedStream, usize) {
        let before = self.0.fetch_add(1, Relaxed);
        (CountedStream(self.clone()), before)
    }
}

impl Drop for CountedStream {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Relaxed);
    }
}

/// An admitted stream, until it is dropped or evicted.
#[derive(Debug)]
pub(crate) struct AdmittedStream {
    evicted: CancellationToken,
    _place: TakenPlace,
    _counted: CountedStream,
}

impl AdmittedStream {
    /// Waits until the stream is evicted for a stream of a connection with fewer, and returns its status.
    pub(crate) async fn evicted(&self) -> Status {
        self.evicted.cancelled().await;
        Status::resource_exhausted(
            "too many streams are open, and its connection has more than others; try again later",
        )
    }
}

/// Admits new streams by the limits of a service.
#[derive(Debug)]
pub(crate) struct Admission {
    free: Arc<Semaphore>,
    queue: Arc<Mutex<Queue>>,
    /// Locked by the waiting stream that admits those in the queue.
    rate: tokio::sync::Mutex<Bucket>,
    metrics: &'static StreamMetrics,
}

/// The number of other streams on its connection when it came, and its number in the order of arrival.
type Place = (usize, u64);

/// The open streams, and the streams that wait for the rate.
///
/// Streams of connections with the fewest streams go first, alternately the oldest and the newest of them. So neither
/// many waiting connections nor a flood of new connections can use up the rate.
#[derive(Debug, Default)]
struct Queue {
    waiting: BTreeMap<Place, Admitting>,
    open: BTreeMap<Place, Admitting>,
    arrivals: u64,
    newest_is_next: bool,
}

/// A stream that waits or is open.
#[derive(Debug)]
struct Admitting {
    permit: OwnedSemaphorePermit,
    admitted: CancellationToken,
    evicted: CancellationToken,
}

/// The place of a stream, in the queue or open. Dropping it frees the place, so that waiting is cancel safe.
#[derive(Debug)]
struct TakenPlace {
    queue: Arc<Mutex<Queue>>,
    place: Place,
}

impl Admission {
    pub(crate) fn new(options: &ServiceOptions, metrics: &'static StreamMetrics) -> Self {
        Self {
            free: Arc::new(Semaphore::new(options.max_streams.min(Semaphore::MAX_PERMITS))),
            queue: Arc::default(),
            rate: tokio::sync::Mutex::new(Bucket::new(options.new_streams)),
            metrics,
        }
    }

    /// Waits until a new stream may open. `extensions` belong to its request.
    pub(crate) async fn enter(&self, extensions: &Extensions) -> Result<AdmittedStream, Status> {
        let streams = extensions.get::<ConnectionStreams>().cloned().unwrap_or_default();
        self.enter_from(&streams).await
    }

    async fn enter_from(&self, streams: &ConnectionStreams) -> Result<AdmittedStream, Status> {
        let (counted, others) = streams.add();
        let [admitted, evicted] = [CancellationToken::new(), CancellationToken::new()];
        let place = self.queue(others, &admitted, &evicted).ok_or_else(|| self.refused())?;
        tokio::select! {
            biased;
            () = evicted.cancelled() => Err(self.refused()),
            () = admitted.cancelled() => Ok(AdmittedStream { evicted, _place: place, _counted: counted }),
            never = self.admit_all() => match never {},
        }
    }

    /// Takes a place in the queue. At the limit, it evicts a stream of a connection with more streams.
    fn queue(
        &self,
        others: usize,
        admitted: &CancellationToken,
        evicted: &CancellationToken,
    ) -> Option<TakenPlace> {
        let mut queue = self.queue.lock();
        let free = self.free.clone().try_acquire_owned().ok();
        let permit = free.or_else(|| evict(&mut queue.waiting, others)).or_else(|| {
            let permit = evict(&mut queue.open, others)?;
            self.metrics.refused();
            Some(permit)
        })?;
        queue.arrivals += 1;
        let place = (others, queue.arrivals);
        let (admitted, evicted) = (admitted.clone(), evicted.clone());
        queue.waiting.insert(place, Admitting { permit, admitted, evicted });
        Some(TakenPlace { queue: self.queue.clone(), place })
    }

    /// Admits the streams in the queue at the rate, until the stream that waits for this is admitted itself.
    async fn admit_all(&self) -> Infallible {
        let mut rate = self.rate.lock().await;
        loop {
            if let Some(at) = rate.wait(Instant::now().into_std()) {
                tokio::time::sleep_until(at.into()).await;
            }
            if !self.queue.lock().admit_next() {
                return pending().await;
            }
            rate.take(Instant::now().into_std());
        }
    }

    fn refused(&self) -> Status {
        self.metrics.refused();
        Status::resource_exhausted("too many streams are open or wait; try again later")
    }

    /// Admits one request. It counts like a stream until the permit is dropped, but not for the rate of new streams.
    pub(crate) fn request(&self) -> Result<OwnedSemaphorePermit, Status> {
        self.free.clone().try_acquire_owned().map_err(|_| {
            self.metrics.refused();
            Status::resource_exhausted("too many requests are being answered; try again later")
        })
    }
}

impl Queue {
    /// Admits the next stream. Returns whether there was one.
    fn admit_next(&mut self) -> bool {
        let Some((place, next)) = self.next() else { return false };
        next.admitted.cancel();
        self.open.insert(place, next);
        true
    }

    /// Takes the stream that is admitted next.
    fn next(&mut self) -> Option<(Place, Admitting)> {
        let (fewest, _) = *self.waiting.first_key_value()?.0;
        self.newest_is_next = !self.newest_is_next;
        if self.newest_is_next {
            let newest = *self.waiting.range(..=(fewest, u64::MAX)).next_back()?.0;
            return self.waiting.remove_entry(&newest);
        }
        self.waiting.pop_first()
    }
}

/// Ends the stream that came when its connection had the most others, if these are more than this number. Returns its permit.
fn evict(streams: &mut BTreeMap<Place, Admitting>, others: usize) -> Option<OwnedSemaphorePermit> {
    let last = streams.last_entry().filter(|last| last.key().0 > others)?.remove();
    last.evicted.cancel();
    Some(last.permit)
}

impl Drop for TakenPlace {
    fn drop(&mut self) {
        let mut queue = self.queue.lock();
        queue.waiting.remove(&self.place);
        queue.open.remove(&self.place);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tokio::task::JoinHandle;
    use tonic::Code;

    use super::*;
    use crate::stream::metrics::SOURCE;

    const EVERY: Duration = Duration::from_millis(10);

    /// An admission that admits one stream at once.
    fn admission(max_streams: usize) -> Arc<Admission> {
        let new_streams = Rate { burst: 1, every: EVERY };
        let options = ServiceOptions { max_streams, new_streams, max_message_size: 0 };
        Arc::new(Admission::new(&options, &SOURCE))
    }

    type Entering = JoinHandle<Result<AdmittedStream, Status>>;

    /// A new stream, which has a place in the queue when this returns.
    async fn enter(admission: &Arc<Admission>, connection: &ConnectionStreams) -> Entering {
        let (admission, connection) = (admission.clone(), connection.clone());
        let entering = tokio::spawn(async move { admission.enter_from(&connection).await });
        tokio::task::yield_now().await;
        entering
    }

    /// Returns after how many intervals of the rate a stream is admitted.
    async fn intervals(entering: Entering) -> u128 {
        let start = Instant::now();
        entering.await.unwrap().unwrap();
        start.elapsed().as_millis().div_ceil(EVERY.as_millis())
    }

    async fn is_refused(entering: Entering) -> bool {
        entering.await.unwrap().is_err_and(|status| status.code() == Code::ResourceExhausted)
    }

    #[tokio::test(start_paused = true)]
    async fn streams_of_one_connection_do_not_delay_those_of_others() {
        let (admission, attacker) = (admission(10_000), ConnectionStreams::default());
        let mut waiting = Vec::new();
        for _ in 0..500 {
            waiting.push(enter(&admission, &attacker).await);
        }
        for _ in 0..3 {
            let honest = enter(&admission, &ConnectionStreams::default()).await;
            assert!(intervals(honest).await <= 2);
        }
        assert!(intervals(waiting.remove(499)).await > 400);
    }

    #[tokio::test(start_paused = true)]
    async fn connections_that_wait_do_not_delay_new_ones() {
        let admission = admission(10_000);
        let mut waiting = Vec::new();
        for _ in 0..500 {
            waiting.push(enter(&admission, &ConnectionStreams::default()).await);
        }
        let honest = enter(&admission, &ConnectionStreams::default()).await;
        assert!(intervals(honest).await <= 3);
    }

    #[tokio::test(start_paused = true)]
    async fn new_connections_do_not_delay_those_that_wait() {
        let admission = admission(10_000);
        let _open = enter(&admission, &ConnectionStreams::default()).await;
        let honest = enter(&admission, &ConnectionStreams::default()).await;
        let newer = admission.clone();
        tokio::spawn(async move {
            let mut waiting = Vec::new();
            loop {
                waiting.push(enter(&newer, &ConnectionStreams::default()).await);
                tokio::time::sleep(EVERY / 3).await;
            }
        });
        assert!(intervals(honest).await <= 3);
    }

    #[tokio::test(start_paused = true)]
    async fn beyond_the_limit_open_streams_end_in_favour_of_those_of_connections_with_fewer() {
        let (admission, attacker) = (admission(3), ConnectionStreams::default());
        let mut open = Vec::new();
        for _ in 0..3 {
            open.push(enter(&admission, &attacker).await.await.unwrap().unwrap());
        }
        assert!(is_refused(enter(&admission, &attacker).await).await, "it has the most");
        let mut honest = Vec::new();
        for _ in 0..2 {
            let connection = ConnectionStreams::default();
            honest.push(enter(&admission, &connection).await.await.unwrap().unwrap());
            assert_eq!(open.pop().unwrap().evicted().await.code(), Code::ResourceExhausted);
        }
        assert!(is_refused(enter(&admission, &ConnectionStreams::default()).await).await, "all have one");
        let first = &open[0];
        assert!(tokio::time::timeout(EVERY, first.evicted()).await.is_err(), "it stays");
        drop((open, honest));
        assert_eq!(admission.free.available_permits(), 3);
        assert!(admission.queue.lock().open.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn beyond_the_limit_streams_that_wait_give_way_to_those_of_connections_with_fewer() {
        let (admission, attacker) = (admission(4), ConnectionStreams::default());
        let open = enter(&admission, &attacker).await.await.unwrap().unwrap();
        let (first, second) = (enter(&admission, &attacker).await, enter(&admission, &attacker).await);
        let third = enter(&admission, &attacker).await;
        assert!(is_refused(enter(&admission, &attacker).await).await, "it has the most");
        let honest = enter(&admission, &ConnectionStreams::default()).await;
        assert!(is_refused(third).await);
        let honest = honest.await.unwrap().unwrap();
        // A client that gives up makes room.
        second.abort();
        let next = enter(&admission, &attacker).await;
        let admitted = (first.await.unwrap().unwrap(), next.await.unwrap().unwrap());
        drop((open, admitted, honest));
        assert_eq!((attacker.0.load(Relaxed), admission.free.available_permits()), (0, 4));
    }
}

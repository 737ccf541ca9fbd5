use std::{
    collections::BTreeMap,
    convert::Infallible,
    future::pending,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use http::Extensions;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, oneshot},
    time::Instant,
};
use tonic::Status;

use super::metrics::StreamMetrics;
use mixer_adapter_core::framework::setters;
use mixer_adapter_net::{Bucket, Rate};

/// Limits of a service on its clients.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServiceOptions {
    /// Streams at a time, open or waiting to be; one more is RESOURCE_EXHAUSTED.
    pub max_streams: usize,
    /// Rate of new streams; further ones wait. Connections with few streams go first.
    pub new_streams: Rate,
    /// The longest message in bytes; a longer one ends its stream.
    pub max_message_size: usize,
}

setters!(ServiceOptions { max_streams: usize, new_streams: Rate, max_message_size: usize });

/// The number of streams of one connection that are open or wait to be: an extension of its requests.
#[derive(Clone, Debug, Default)]
pub(super) struct ConnectionStreams(Arc<AtomicUsize>);

/// A stream that counts as one of its connection until this is dropped.
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

/// A stream that may be open until this is dropped.
#[derive(Debug)]
pub(crate) struct AdmittedStream {
    _permit: OwnedSemaphorePermit,
    _counted: CountedStream,
}

/// Admits new streams by the limits of a service.
#[derive(Debug)]
pub(crate) struct Admission {
    free: Arc<Semaphore>,
    queue: Mutex<Queue>,
    /// Locked by the waiting stream that admits those in the queue.
    rate: tokio::sync::Mutex<Bucket>,
    metrics: &'static StreamMetrics,
}

/// The number of other streams on its connection when it came, and its number in the order of arrival.
type Place = (usize, u64);

/// The streams that wait for the rate.
///
/// Those of connections with the fewest streams go first: of them alternately the one that came first and the one that came last. So neither
/// a client with many connections that wait nor one that opens new connections all the time takes all of the rate.
#[derive(Debug, Default)]
struct Queue {
    waiting: BTreeMap<Place, Waiting>,
    arrivals: u64,
    newest_is_next: bool,
}

/// A stream in the queue, which receives its permit when it is admitted. It is refused when this is dropped.
#[derive(Debug)]
struct Waiting {
    permit: OwnedSemaphorePermit,
    admitted: oneshot::Sender<OwnedSemaphorePermit>,
}

/// A place in the queue, until this is dropped: a client that gives up has taken nothing.
#[derive(Debug)]
struct QueuedPlace<'a> {
    queue: &'a Mutex<Queue>,
    place: Place,
}

impl Admission {
    pub(crate) fn new(options: &ServiceOptions, metrics: &'static StreamMetrics) -> Self {
        Self {
            free: Arc::new(Semaphore::new(options.max_streams.min(Semaphore::MAX_PERMITS))),
            queue: Mutex::default(),
            rate: tokio::sync::Mutex::new(Bucket::new(options.new_streams)),
            metrics,
        }
    }

    /// Waits until a new stream may open. The extensions are those of its request.
    pub(crate) async fn enter(&self, extensions: &Extensions) -> Result<AdmittedStream, Status> {
        let streams = extensions.get::<ConnectionStreams>().cloned().unwrap_or_default();
        self.enter_from(&streams).await
    }

    async fn enter_from(&self, streams: &ConnectionStreams) -> Result<AdmittedStream, Status> {
        let (counted, others) = streams.add();
        let (_place, admitted) = self.queue(others).ok_or_else(|| self.refused())?;
        tokio::select! {
            biased;
            permit = admitted => match permit {
                Ok(permit) => Ok(AdmittedStream { _permit: permit, _counted: counted }),
                Err(_) => Err(self.refused()),
            },
            never = self.admit_all() => match never {},
        }
    }

    /// Takes a place in the queue. If there are as many streams as may be, a stream of a connection that has more gives way.
    fn queue(&self, others: usize) -> Option<(QueuedPlace<'_>, oneshot::Receiver<OwnedSemaphorePermit>)> {
        let mut queue = lock(&self.queue);
        let permit = self.free.clone().try_acquire_owned().ok().or_else(|| queue.displace(others))?;
        queue.arrivals += 1;
        let place = (others, queue.arrivals);
        let (sender, admitted) = oneshot::channel();
        queue.waiting.insert(place, Waiting { permit, admitted: sender });
        Some((QueuedPlace { queue: &self.queue, place }, admitted))
    }

    /// Admits the streams in the queue at the rate, until the stream that waits for this is admitted itself.
    async fn admit_all(&self) -> Infallible {
        let mut rate = self.rate.lock().await;
        loop {
            if let Some(at) = rate.wait(Instant::now().into_std()) {
                tokio::time::sleep_until(at.into()).await;
            }
            let Some(next) = lock(&self.queue).next() else { return pending().await };
            rate.take(Instant::now().into_std());
            // A client that has given up meanwhile drops its permit.
            let _ = next.admitted.send(next.permit);
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
    /// Takes the stream that is admitted next.
    fn next(&mut self) -> Option<Waiting> {
        let (fewest, _) = *self.waiting.first_key_value()?.0;
        self.newest_is_next = !self.newest_is_next;
        if self.newest_is_next {
            let newest = *self.waiting.range(..=(fewest, u64::MAX)).next_back()?.0;
            return self.waiting.remove(&newest);
        }
        self.waiting.pop_first().map(|(_, next)| next)
    }

    /// Refuses the last stream, if it came when its connection had more than this number of others. Returns its permit.
    fn displace(&mut self, others: usize) -> Option<OwnedSemaphorePermit> {
        let last = self.waiting.last_entry().filter(|last| last.key().0 > others)?;
        Some(last.remove().permit)
    }
}

impl Drop for QueuedPlace<'_> {
    fn drop(&mut self) {
        lock(self.queue).waiting.remove(&self.place);
    }
}

fn lock(queue: &Mutex<Queue>) -> MutexGuard<'_, Queue> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

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
        assert!(is_refused(enter(&admission, &ConnectionStreams::default()).await).await, "all are open");
        drop((open, admitted, honest));
        assert_eq!((attacker.0.load(Relaxed), admission.free.available_permits()), (0, 4));
    }
}

//! The scrapes in progress, each of which holds the values of a metric.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use parking_lot::Mutex;

use mixer_adapter_core::metrics::events;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch},
    time::{sleep, timeout},
};

/// The maximum number of scrapes at a time.
pub(super) const MAX_SCRAPES: usize = 4;
/// The longest time of a scrape.
pub(super) const MAX_TIME: Duration = Duration::from_secs(60);
/// The time after which a scrape gives way to one that waits.
const SLOW: Duration = Duration::from_secs(5);
/// How long a scrape waits for others: so long that those in progress at its begin are slow.
const MAX_WAIT: Duration = Duration::from_secs(6);

type Lines = Box<dyn Iterator<Item = String> + Send>;

/// Limits the scrapes in progress.
#[derive(Clone, Debug)]
pub(super) struct Scrapes {
    free: Arc<Semaphore>,
    /// The number of scrapes that wait.
    waiting: watch::Sender<usize>,
}

/// A page that is read.
pub(super) struct Scrape {
    page: Arc<Mutex<Option<Unread>>>,
    /// Dropped at the end.
    _end: oneshot::Sender<()>,
}

/// The rest of a page.
struct Unread {
    lines: Lines,
    _permit: OwnedSemaphorePermit,
}

/// The reason why a page breaks off.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the page was not read in time")]
pub(super) struct ScrapeError;

/// A scrape that waits, until this is dropped.
struct WaitingScrape<'a>(&'a watch::Sender<usize>);

impl Default for Scrapes {
    fn default() -> Self {
        Self { free: Arc::new(Semaphore::new(MAX_SCRAPES)), waiting: watch::Sender::new(0) }
    }
}

impl Scrapes {
    /// Begins a scrape that may take `time`. Returns `None` if others are in progress for too long.
    pub(super) async fn begin(
        &self,
        page: &(dyn Fn() -> Lines + Send + Sync),
        time: Duration,
    ) -> Option<Scrape> {
        let waiting = WaitingScrape::new(&self.waiting);
        let Ok(Ok(permit)) = timeout(MAX_WAIT, self.free.clone().acquire_owned()).await else {
            events("prometheus", "scrapes_refused").add(1);
            return None;
        };
        drop(waiting);
        let page = Arc::new(Mutex::new(Some(Unread { lines: page(), _permit: permit })));
        let (end, ended) = oneshot::channel();
        tokio::spawn(cut_off(Arc::downgrade(&page), ended, self.waiting.subscribe(), time));
        Some(Scrape { page, _end: end })
    }
}

/// Ends a scrape that takes more than `time`, or gives way to one that waits: its reader may not take anything that would show this.
async fn cut_off(
    page: Weak<Mutex<Option<Unread>>>,
    ended: oneshot::Receiver<()>,
    mut waiting: watch::Receiver<usize>,
    time: Duration,
) {
    let gives_way = async {
        sleep(SLOW).await;
        // An error is the end of the server.
        let _ = waiting.wait_for(|waiting| *waiting > 0).await;
    };
    tokio::select! {
        biased;
        _ = ended => return,
        () = gives_way => {}
        () = sleep(time) => {}
    }
    if let Some(page) = page.upgrade()
        && page.lock().take().is_some()
    {
        events("prometheus", "scrapes_cut_off").add(1);
    }
}

impl Scrape {
    /// Returns the next line; `None` at the end.
    pub(super) fn next(&self) -> Result<Option<String>, ScrapeError> {
        let mut page = self.page.lock();
        page.as_mut().map(|unread| unread.lines.next()).ok_or(ScrapeError)
    }
}

impl<'a> WaitingScrape<'a> {
    fn new(waiting: &'a watch::Sender<usize>) -> Self {
        waiting.send_modify(|waiting| *waiting += 1);
        Self(waiting)
    }
}

impl Drop for WaitingScrape<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|waiting| *waiting -= 1);
    }
}

//! The scrapes in progress. Each holds the values of a metric.

use std::{
    pin::pin,
    sync::{Arc, Weak},
    time::Duration,
};

use mixer_adapter_core::metrics::{Events, Metrics};
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, OwnedSemaphorePermit, Semaphore},
    time::{sleep, timeout},
};
use tokio_util::task::AbortOnDropHandle;

/// The maximum number of scrapes at a time.
pub(super) const MAX_SCRAPES: usize = 4;
/// The longest time of a scrape.
pub(super) const MAX_TIME: Duration = Duration::from_secs(60);
/// The time after which a scrape ends if another one waits.
const SLOW: Duration = Duration::from_secs(5);
/// How many seconds a scrape waits for others: those in progress when it comes are slow by then.
const MAX_WAIT: u32 = 7;

pub(super) type Lines = Box<dyn Iterator<Item = String> + Send>;

/// Limits the scrapes in progress.
#[derive(Clone)]
pub(super) struct Scrapes {
    free: Arc<Semaphore>,
    /// Notifies slow scrapes that another one waits.
    waits: Arc<Notify>,
    refused: Events,
    cut_off: Events,
}

/// A scrape in progress.
pub(super) struct Scrape {
    page: Arc<Mutex<Option<Unread>>>,
    _limit: AbortOnDropHandle<()>,
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

impl Scrapes {
    pub(super) fn new(metrics: &Metrics) -> Self {
        Self {
            free: Arc::new(Semaphore::new(MAX_SCRAPES)),
            waits: Arc::default(),
            refused: metrics.events("scrapes_refused"),
            cut_off: metrics.events("scrapes_cut_off"),
        }
    }

    /// Begins a scrape that may take `time`. Returns `None` if others are in progress for too long.
    pub(super) async fn begin(
        &self,
        page: &(dyn Fn() -> Lines + Send + Sync),
        time: Duration,
    ) -> Option<Scrape> {
        let mut permit = pin!(self.free.clone().acquire_owned());
        for _ in 0..MAX_WAIT {
            if let Ok(permit) = timeout(Duration::from_secs(1), permit.as_mut()).await {
                let page = Arc::new(Mutex::new(Some(Unread { lines: page(), _permit: permit.ok()? })));
                let limit = tokio::spawn(self.clone().limit(Arc::downgrade(&page), time));
                return Some(Scrape { page, _limit: AbortOnDropHandle::new(limit) });
            }
            self.waits.notify_waiters();
        }
        self.refused.add(1);
        None
    }

    /// Drops a page that is not read within `time`, or that is slow while another scrape waits. Its reader may never poll it again.
    async fn limit(self, page: Weak<Mutex<Option<Unread>>>, time: Duration) {
        let is_in_the_way = async {
            sleep(SLOW).await;
            self.waits.notified().await;
        };
        let _ = timeout(time, is_in_the_way).await;
        if let Some(page) = page.upgrade()
            && page.lock().take().is_some()
        {
            self.cut_off.add(1);
        }
    }
}

impl Scrape {
    /// Returns the next line; `None` at the end.
    pub(super) fn next(&self) -> Result<Option<String>, ScrapeError> {
        self.page.lock().as_mut().map(|unread| unread.lines.next()).ok_or(ScrapeError)
    }
}

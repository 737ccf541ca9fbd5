//! Serves the page on a separate thread, so that neither a long page nor a slow scraper stalls calls.

use std::{
    fmt, io, iter,
    net::{SocketAddr, TcpListener},
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, HeaderName, Method, Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body::{Body, Frame};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::Incoming;
use mixer_adapter_core::metrics::Metrics;
use mixer_adapter_net::{Connection, ConnectionLimits, HttpService, Listener, Protocol, Workers};
use tokio::runtime::{Builder, Handle};
use tokio_util::sync::{CancellationToken, DropGuard};
use tower::service_fn;

use super::{
    page,
    scrape::{Lines, MAX_SCRAPES, MAX_TIME, Scrape, ScrapeError, Scrapes},
};

/// The path of the page, as in the original.
const PATH: &str = "/metrics";
/// The timeout of the scraper, in seconds.
const TIMEOUT: HeaderName = HeaderName::from_static("x-prometheus-scrape-timeout-seconds");

const LIMITS: ConnectionLimits = ConnectionLimits {
    protocol: Protocol::Http1 { header_timeout: Duration::from_secs(10) },
    max_connections: 64,
    max_connections_per_peer: None,
    handshake_timeout: Duration::from_secs(10),
    write_timeout: Duration::from_secs(30),
    // Prometheus reconnects.
    max_age: Some(Duration::from_secs(300)),
    grace: Duration::ZERO,
    long_answers: true,
};

/// A running server; it stops when this is dropped.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    pub(super) runtime: Handle,
    stop: Option<DropGuard>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves at IP:PORT the lines that `page` returns; port 0 takes a free port.
    pub(super) fn start<L>(
        address: &str,
        metrics: &Metrics,
        page: impl Fn() -> L + Send + Sync + 'static,
    ) -> io::Result<Self>
    where
        L: Iterator<Item = String> + Send + 'static,
    {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let listener = {
            let _entered = runtime.enter();
            Listener::from(tokio::net::TcpListener::from_std(listener)?)
        };
        let service = PageService::new(metrics, move || Box::new(page()));
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let thread = thread::Builder::new().name("prometheus".to_owned()).spawn(move || {
            runtime.block_on(async {
                listener
                    .serve(LIMITS, &Workers::here(), move |connection| service.on(connection), stopped)
                    .await;
            });
        })?;
        tracing::info!("Prometheus endpoint on http://{address}{PATH}");
        Ok(Self { address, runtime: handle, stop: Some(stop.drop_guard()), thread: Some(thread) })
    }
}

impl Drop for Server {
    /// Waits for the thread, so that the address is free afterwards: at most as long as a part of a page takes to write.
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread of the Prometheus endpoint panicked");
        }
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Server({})", self.address)
    }
}

/// The minimum size of a part of a page in bytes, except the last one.
const PART: usize = 64 << 10;

type Page = UnsyncBoxBody<Bytes, ScrapeError>;

/// Answers scrapes with the page.
#[derive(Clone)]
struct PageService {
    page: Arc<dyn Fn() -> Lines + Send + Sync>,
    scrapes: Scrapes,
}

impl PageService {
    fn new(metrics: &Metrics, page: impl Fn() -> Lines + Send + Sync + 'static) -> Self {
        Self { page: Arc::new(page), scrapes: Scrapes::new(metrics) }
    }

    /// Returns the service on one connection.
    fn on(&self, connection: &Connection) -> impl HttpService + use<> {
        let (service, connection) = (self.clone(), connection.clone());
        service_fn(move |request: Request<Incoming>| {
            let (service, connection) = (service.clone(), connection.clone());
            let (path, method) = (request.uri().path().to_owned(), request.method().clone());
            let timeout = scrape_timeout(request.headers());
            async move {
                let (status, page) = service.answer(path, method, timeout).await;
                let response = Response::builder().status(status).header(CONTENT_TYPE, page::CONTENT_TYPE);
                response.body(connection.until_written(page))
            }
        })
    }

    async fn answer(self, path: String, method: Method, timeout: Duration) -> (StatusCode, Page) {
        match (&*path, &method) {
            (PATH, &Method::GET | &Method::HEAD) => match self.scrapes.begin(&*self.page, timeout).await {
                Some(scrape) => (StatusCode::OK, parts(scrape).boxed_unsync()),
                None => {
                    let reason = format!("{MAX_SCRAPES} scrapes are in progress, which is the maximum\n");
                    (StatusCode::SERVICE_UNAVAILABLE, text(reason))
                }
            },
            (PATH, _) => (StatusCode::METHOD_NOT_ALLOWED, text("GET only\n")),
            _ => (StatusCode::NOT_FOUND, text(format!("metrics are on {PATH}\n"))),
        }
    }
}

fn text(text: impl Into<Bytes>) -> Page {
    Full::new(text.into()).map_err(|never| match never {}).boxed_unsync()
}

/// Returns the body of a page. Its parts are made when the former ones have been written.
fn parts(scrape: Scrape) -> impl Body<Data = Bytes, Error = ScrapeError> {
    let mut scrape = Some(scrape);
    StreamBody::new(stream::iter(iter::from_fn(move || {
        let mut part = String::new();
        while part.len() < PART {
            match scrape.as_ref()?.next() {
                Ok(Some(line)) => part.push_str(&line),
                Ok(None) => {
                    scrape = None;
                    break;
                }
                Err(error) => {
                    scrape = None;
                    return Some(Err(error));
                }
            }
        }
        (!part.is_empty()).then(|| Ok(Frame::data(part.into())))
    })))
}

/// Returns how long a scraper may take to read the page.
fn scrape_timeout(headers: &HeaderMap) -> Duration {
    let seconds = headers.get(TIMEOUT).and_then(|value| value.to_str().ok()?.parse().ok());
    let timeout = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    timeout.unwrap_or(MAX_TIME).min(MAX_TIME)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn service() -> PageService {
        PageService::new(&Metrics::default(), || Box::new(iter::repeat_n("line\n".to_owned(), 2 * PART / 5)))
    }

    async fn scrape(service: &PageService) -> (StatusCode, Page) {
        service.clone().answer(PATH.to_owned(), Method::GET, MAX_TIME).await
    }

    #[tokio::test]
    async fn a_page_is_written_in_parts() {
        let (_, mut page) = scrape(&service()).await;
        let mut sizes = Vec::new();
        while let Some(Ok(part)) = page.frame().await {
            sizes.extend(part.into_data().map(|part| part.len()));
        }
        assert!(sizes.iter().all(|size| *size < PART + 5), "{sizes:?}");
        assert_eq!(sizes.iter().sum::<usize>(), 2 * PART / 5 * 5);
    }

    #[tokio::test(start_paused = true)]
    async fn a_page_that_is_not_read_in_time_breaks_off() {
        let (_, mut page) = scrape(&service()).await;
        assert!(page.frame().await.is_some_and(|part| part.is_ok()));
        tokio::time::sleep(MAX_TIME * 2).await;
        assert!(page.frame().await.is_some_and(|part| part.is_err()));
        assert!(page.frame().await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn readers_that_are_slow_give_way_to_scrapes_that_wait() {
        let service = service();
        let mut pages = Vec::new();
        for _ in 0..MAX_SCRAPES {
            pages.push(scrape(&service).await.1);
        }
        let (status, mut page) = scrape(&service).await;
        assert_eq!(status, StatusCode::OK);
        for slow in &mut pages {
            assert!(slow.frame().await.is_some_and(|part| part.is_err()));
        }
        while page.frame().await.is_some() {}
    }

    #[test]
    fn the_timeout_of_the_scraper_counts_up_to_the_longest() {
        let timeout = |value: &'static str| {
            scrape_timeout(&HeaderMap::from_iter([(TIMEOUT, HeaderValue::from_static(value))]))
        };
        assert_eq!(timeout("7.5"), Duration::from_millis(7500));
        for other in ["1e9", "-1", "NaN", "x"] {
            assert_eq!(timeout(other), MAX_TIME, "{other}");
        }
        assert_eq!(scrape_timeout(&HeaderMap::new()), MAX_TIME);
    }
}

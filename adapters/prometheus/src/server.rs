//! Serves the page, on a thread of its own: neither a long page nor a slow scraper stalls calls.

use std::{
    convert::Infallible,
    fmt,
    future::{Ready, ready},
    io, iter,
    net::{SocketAddr, TcpListener},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    thread::{self, JoinHandle},
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body::{Body, Frame};
use mixer_adapter_net::{AnswerBody, Connection, ConnectionLimits, Listener, Protocol, Workers};
use tokio::{
    runtime::{Builder, Handle},
    sync::{OwnedSemaphorePermit, Semaphore},
};
use tokio_util::sync::{CancellationToken, DropGuard};
use tower_service::Service;

use super::page;

/// The path of the page, as in the original.
const PATH: &str = "/metrics";

const LIMITS: ConnectionLimits = ConnectionLimits {
    protocol: Protocol::Http1 { header_timeout: Duration::from_secs(10) },
    max_connections: 64,
    max_connections_per_peer: None,
    handshake_timeout: Duration::from_secs(10),
    write_timeout: Duration::from_secs(30),
    // Prometheus reconnects.
    max_age: Some(Duration::from_secs(300)),
    grace: Duration::ZERO,
};

/// A running server; it stops when this is dropped.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    runtime: Handle,
    stop: Option<DropGuard>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves at IP:PORT the lines that `page` returns; port 0 takes a free port.
    pub(super) fn start<L>(address: &str, page: impl Fn() -> L + Send + Sync + 'static) -> io::Result<Self>
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
        let page = move || -> Lines { Box::new(page()) };
        let service = PageService { page: Arc::new(page), free: Arc::new(Semaphore::new(MAX_SCRAPES)) };
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let thread = thread::Builder::new().name("prometheus".to_owned()).spawn(move || {
            runtime.block_on(async {
                let on_connection = move |connection: &Connection| OnConnection {
                    service: service.clone(),
                    connection: connection.clone(),
                };
                listener.serve(LIMITS, &Workers::here(), on_connection, stopped).await;
            });
        })?;
        tracing::info!("Prometheus endpoint on http://{address}{PATH}");
        Ok(Self { address, runtime: handle, stop: Some(stop.drop_guard()), thread: Some(thread) })
    }

    pub(super) fn runtime(&self) -> &Handle {
        &self.runtime
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

/// The maximum number of scrapes at a time: each holds the values of a metric.
const MAX_SCRAPES: usize = 4;

/// The least size of a part of a page in bytes, but for the last one.
const PART: usize = 64 << 10;

type Lines = Box<dyn Iterator<Item = String> + Send>;

/// Answers scrapes with the page.
#[derive(Clone)]
struct PageService {
    page: Arc<dyn Fn() -> Lines + Send + Sync>,
    /// The scrapes that may begin.
    free: Arc<Semaphore>,
}

impl PageService {
    fn answer(&self, path: &str, method: &Method) -> (StatusCode, Page) {
        match (path, method) {
            (PATH, &Method::GET | &Method::HEAD) => match self.free.clone().try_acquire_owned() {
                Ok(permit) => (StatusCode::OK, Page { lines: Some(((self.page)(), Some(permit))) }),
                Err(_) => {
                    let reason = format!("{MAX_SCRAPES} scrapes are in progress, which is the maximum\n");
                    (StatusCode::SERVICE_UNAVAILABLE, Page::text(reason))
                }
            },
            (PATH, _) => (StatusCode::METHOD_NOT_ALLOWED, Page::text("GET only\n".to_owned())),
            _ => (StatusCode::NOT_FOUND, Page::text(format!("metrics are on {PATH}\n"))),
        }
    }
}

/// The service on one connection.
#[derive(Clone)]
struct OnConnection {
    service: PageService,
    connection: Connection,
}

impl<B> Service<Request<B>> for OnConnection {
    type Response = Response<AnswerBody<Page>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (status, page) = self.service.answer(request.uri().path(), request.method());
        let mut response = Response::new(self.connection.until_written(page));
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static(page::CONTENT_TYPE));
        ready(Ok(response))
    }
}

/// The body of a response. Its parts are made when the former ones have been written.
struct Page {
    /// With the permit of the scrape; `None` at the end.
    lines: Option<(Lines, Option<OwnedSemaphorePermit>)>,
}

impl Page {
    fn text(text: String) -> Self {
        Self { lines: Some((Box::new(iter::once(text)), None)) }
    }
}

impl Body for Page {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some((lines, _)) = &mut self.lines else { return Poll::Ready(None) };
        let mut part = String::new();
        while part.len() < PART {
            match lines.next() {
                Some(line) => part.push_str(&line),
                None => {
                    self.lines = None;
                    break;
                }
            }
        }
        Poll::Ready((!part.is_empty()).then(|| Ok(Frame::data(part.into()))))
    }

    fn is_end_stream(&self) -> bool {
        self.lines.is_none()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    fn service() -> PageService {
        let page = || -> Lines { Box::new(iter::repeat_n("line\n".to_owned(), 2 * PART / 5)) };
        PageService { page: Arc::new(page), free: Arc::new(Semaphore::new(MAX_SCRAPES)) }
    }

    #[tokio::test]
    async fn a_page_is_written_in_parts() {
        let (_, mut page) = service().answer(PATH, &Method::GET);
        let mut sizes = Vec::new();
        while let Some(Ok(part)) = page.frame().await {
            sizes.extend(part.into_data().map(|part| part.len()));
        }
        assert!(sizes.iter().all(|size| *size < PART + 5), "{sizes:?}");
        assert_eq!(sizes.iter().sum::<usize>(), 2 * PART / 5 * 5);
    }

    #[tokio::test]
    async fn scrapes_at_the_same_time_are_limited_until_they_are_read() {
        let service = service();
        let status = || service.answer(PATH, &Method::GET).0;
        let mut pages: Vec<_> = (0..MAX_SCRAPES).map(|_| service.answer(PATH, &Method::GET).1).collect();
        assert_eq!(status(), StatusCode::SERVICE_UNAVAILABLE);
        let page = &mut pages[0];
        while page.frame().await.is_some() {}
        assert_eq!(status(), StatusCode::OK);
    }
}

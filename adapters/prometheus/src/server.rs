//! Serves the page, on a thread of its own: neither a long page nor a slow scraper stalls calls.

use std::{
    convert::Infallible,
    fmt, io,
    net::{SocketAddr, TcpListener},
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    runtime::{Builder, Handle},
    sync::{Semaphore, oneshot},
};

use super::page;

/// Where the page is, as in the original.
const PATH: &str = "/metrics";
/// How many scrapers are served at a time; others wait.
const CONNECTIONS: usize = 64;
/// How long a scraper may take to ask.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection lives, whatever its scraper does; Prometheus makes a new one.
const CONNECTION_AGE: Duration = Duration::from_secs(300);
/// How long to wait before connections are taken again when one could not be.
const BREATH: Duration = Duration::from_millis(100);

pub(super) type Page = Arc<dyn Fn() -> String + Send + Sync>;

/// A running server; it ends when this is dropped.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    runtime: Handle,
    stop: Option<oneshot::Sender<Infallible>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves at IP:PORT; port 0 takes a free port.
    pub(super) fn start(address: &str, page: Page) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let thread = thread::Builder::new().name("prometheus".to_owned()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    // Nothing is ever sent: the sender going away is the signal.
                    _ = stopped => {}
                    error = serve(listener, page) => tracing::error!("metrics are served no more: {error}"),
                }
            });
        })?;
        tracing::info!("metrics of the adapter prometheus are on http://{address}{PATH}");
        Ok(Self { address, runtime: handle, stop: Some(stop), thread: Some(thread) })
    }

    pub(super) fn runtime(&self) -> &Handle {
        &self.runtime
    }
}

impl Drop for Server {
    /// Waits for the thread, so that the address is free afterwards: at most as long as one page takes to write.
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that serves metrics panicked");
        }
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Server({})", self.address)
    }
}

/// Takes connections; ends only if it cannot begin.
async fn serve(listener: TcpListener, page: Page) -> io::Error {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return error,
    };
    let free = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        // The semaphore is never closed, so that there always is a permit to wait for.
        let permit = free.clone().acquire_owned().await.ok();
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!("a scraper could not connect: {error}");
                tokio::time::sleep(BREATH).await;
                continue;
            }
        };
        let page = page.clone();
        let answer = service_fn(move |request| {
            let response = answer(&request, &page);
            async { Ok::<_, Infallible>(response) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(REQUEST_TIMEOUT)
            .serve_connection(TokioIo::new(stream), answer);
        tokio::spawn(async move {
            if let Ok(Err(error)) = tokio::time::timeout(CONNECTION_AGE, connection).await {
                tracing::debug!("a scraper's connection ended: {error}");
            }
            drop(permit);
        });
    }
}

fn answer(request: &Request<Incoming>, page: &Page) -> Response<Full<Bytes>> {
    let (status, text) = match (request.uri().path(), request.method()) {
        (PATH, &Method::GET | &Method::HEAD) => (StatusCode::OK, page()),
        (PATH, _) => (StatusCode::METHOD_NOT_ALLOWED, "GET only\n".to_owned()),
        _ => (StatusCode::NOT_FOUND, format!("metrics are on {PATH}\n")),
    };
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static(page::CONTENT_TYPE));
    response
}

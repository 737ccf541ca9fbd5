//! Serves the page, on a thread of its own: neither a long page nor a slow scraper stalls calls.

use std::{
    convert::Infallible,
    fmt,
    future::{Ready, ready},
    io,
    net::{SocketAddr, TcpListener},
    sync::Arc,
    task::{Context, Poll},
    thread::{self, JoinHandle},
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body_util::Full;
use mixer_adapter_net::{ConnectionLimits, Listener, Protocol, Workers};
use tokio::runtime::{Builder, Handle};
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
    /// Serves at IP:PORT; port 0 takes a free port.
    pub(super) fn start(
        address: &str,
        page: impl Fn() -> String + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let listener = {
            let _entered = runtime.enter();
            Listener::from(tokio::net::TcpListener::from_std(listener)?)
        };
        let service = PageService(Arc::new(page));
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let thread = thread::Builder::new().name("prometheus".to_owned()).spawn(move || {
            runtime.block_on(async {
                listener.serve(LIMITS, &Workers::here(), move |_| service.clone(), stopped).await;
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
    /// Waits for the thread, so that the address is free afterwards: at most as long as one page takes to write.
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

/// Answers scrapes with the page.
#[derive(Clone)]
struct PageService(Arc<dyn Fn() -> String + Send + Sync>);

impl<B> Service<Request<B>> for PageService {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (status, text) = match (request.uri().path(), request.method()) {
            (PATH, &Method::GET | &Method::HEAD) => (StatusCode::OK, (self.0)()),
            (PATH, _) => (StatusCode::METHOD_NOT_ALLOWED, "GET only\n".to_owned()),
            _ => (StatusCode::NOT_FOUND, format!("metrics are on {PATH}\n")),
        };
        let mut response = Response::new(Full::from(text));
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static(page::CONTENT_TYPE));
        ready(Ok(response))
    }
}

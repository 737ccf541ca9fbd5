use std::{
    net::{SocketAddr, TcpListener},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread,
};

use axum::Router;
use bytes::Bytes;
use http::{Request, StatusCode, request::Parts};

/// An HTTP service on a free port of this machine, for adapters that ask one.
///
/// It runs on its own thread until the test program ends, so that a test without a runtime can start one.
///
/// ```
/// use mixer_adapter::testing::FakeService;
///
/// let service = FakeService::start(|request| match request.uri().query() {
///     Some("name=bob") => (200, r#"{"allowed": true}"#),
///     _ => (503, ""),
/// });
/// let config = format!("url: '{}'", service.url("/users"));
/// # assert!(config.starts_with("url: 'http://127.0.0.1:"));
/// assert_eq!(service.request_count(), 0);
/// ```
#[derive(Clone, Debug)]
pub struct FakeService {
    address: SocketAddr,
    requests: Arc<AtomicUsize>,
}

impl FakeService {
    /// Starts a service that answers each request with the status and the body that `answer` returns. The connection of a request
    /// for which `answer` panics is closed without an answer.
    ///
    /// # Panics
    /// This machine has no free port or thread.
    pub fn start<B: Into<Bytes>>(
        answer: impl Fn(&Request<Bytes>) -> (u16, B) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("the address of a listener");
        let (requests, answer) = (Arc::<AtomicUsize>::default(), Arc::new(answer));
        let count = requests.clone();
        let respond = async move |parts: Parts, body: Bytes| {
            count.fetch_add(1, SeqCst);
            let (status, body) = answer(&Request::from_parts(parts, body));
            (StatusCode::from_u16(status).expect("a status of HTTP"), body.into())
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        thread::spawn(move || {
            runtime.block_on(async {
                listener.set_nonblocking(true)?;
                let listener = tokio::net::TcpListener::from_std(listener)?;
                axum::serve(listener, Router::new().fallback(respond)).await
            })
        });
        Self { address, requests }
    }

    /// Returns the URL of a path, which begins with `/`.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Returns the number of requests so far.
    pub fn request_count(&self) -> usize {
        self.requests.load(SeqCst)
    }
}

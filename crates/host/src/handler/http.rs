//! The HTTP client of adapters.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use http::{Request, Version, uri::Scheme};
use prost::bytes::Bytes;
use tokio::runtime::Handle as Runtime;

use mixer_adapter_core::{
    adapter::{Access, FileLocation, Http},
    framework::{HttpTransport, Repeatable, SendFuture, TransportError, UnsendableError},
};
use mixer_adapter_net::{
    HttpClient, HttpError, HttpPool,
    tls::{Client, ClientOptions, SystemClient, TlsError},
};

/// The longest answer in bytes.
const MAX_ANSWER: usize = 1 << 20;

/// Returns a client for a part of the server, whose connections run on `runtime`.
pub fn http_client(tls: SystemClient, runtime: Runtime) -> Http {
    let access = Access::unrestricted();
    let transport = Transport::new(Arc::new(tls), access.clone(), runtime);
    Http::new(Some(Arc::new(transport)), access)
}

/// Sends the requests of a handler, whose connections are its own: other configurations may reach other addresses.
#[derive(Debug)]
pub(super) struct Transport {
    system: Arc<SystemClient>,
    access: Access,
    runtime: Runtime,
    /// By whether they use TLS, and HTTP/2.
    pools: [[OnceLock<HttpPool>; 2]; 2],
}

impl Transport {
    pub(super) fn new(system: Arc<SystemClient>, access: Access, runtime: Runtime) -> Self {
        Self { system, access, runtime, pools: Default::default() }
    }

    fn pool(&self, is_secure: bool, is_http2: bool) -> Result<HttpPool, TlsError> {
        let pool = &self.pools[usize::from(is_secure)][usize::from(is_http2)];
        if let Some(pool) = pool.get() {
            return Ok(pool.clone());
        }
        let mut client = HttpClient::new(Duration::MAX, MAX_ANSWER);
        if is_secure {
            client = client.with_tls(self.system.get()?);
        }
        if self.access.is_limited() {
            let access = self.access.clone();
            client = client.with_address_filter(move |host, address| access.allows_address(host, address));
        }
        let new = if is_http2 { HttpPool::http2 } else { HttpPool::new };
        Ok(pool.get_or_init(|| new(client, self.runtime.clone())).clone())
    }
}

impl HttpTransport for Transport {
    fn send(&self, request: Request<Bytes>, timeout: Duration) -> SendFuture {
        let is_secure = request.uri().scheme() == Some(&Scheme::HTTPS);
        let pool = self.pool(is_secure, request.version() == Version::HTTP_2);
        let may_repeat = request.extensions().get::<Repeatable>().is_some();
        Box::pin(async move { pool?.send(request, timeout, may_repeat).await.map_err(marked) })
    }

    fn with_authorities(&self, file: FileLocation) -> Result<Arc<dyn HttpTransport>, TransportError> {
        let options = ClientOptions { authorities: Some(file.path.clone()), ..ClientOptions::default() };
        let client = Client::load_with(options, Box::new(move |_| file.read()))?;
        let system = Arc::new(SystemClient::from(client));
        Ok(Arc::new(Self::new(system, self.access.clone(), self.runtime.clone())))
    }
}

/// Marks the error of a request that cannot be sent later either.
fn marked(error: HttpError) -> TransportError {
    if error.is_unsendable() { Box::new(UnsendableError(error.into())) } else { error.into() }
}

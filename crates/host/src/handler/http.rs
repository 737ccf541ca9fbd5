//! The HTTP client of adapters.

use std::time::Duration;

use http::{Request, uri::Scheme};
use prost::bytes::Bytes;

use mixer_adapter_core::{
    adapter::Access,
    framework::{HttpTransport, SendFuture},
};
use mixer_adapter_net::{HttpClient, tls::SystemClient};

/// The longest answer in bytes.
const MAX_ANSWER: usize = 1 << 20;

/// Sends the requests of all adapters.
#[derive(Debug, Default)]
pub(super) struct Transport {
    tls: SystemClient,
}

impl HttpTransport for Transport {
    fn send(&self, request: Request<Bytes>, access: Access, timeout: Duration) -> SendFuture {
        let mut client = HttpClient::new(timeout, MAX_ANSWER);
        if request.uri().scheme() == Some(&Scheme::HTTPS) {
            match self.tls.get() {
                Ok(tls) => client = client.with_tls(tls),
                Err(error) => return Box::pin(async { Err(error.into()) }),
            }
        }
        if access.is_limited() {
            client = client.with_address_filter(move |host, address| access.allows_address(host, address));
        }
        Box::pin(async move { Ok(client.send(request).await?) })
    }
}

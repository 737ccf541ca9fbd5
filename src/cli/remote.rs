//! A server that a command calls.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::uri::PathAndQuery;
use prost::Message;
use tokio::{runtime::Handle, time::Instant};
use tonic::Status;

use mixer_adapter_config::proto::istio::policy::v1beta1::Connection;
use mixer_adapter_engine::remote::{Options, RemoteAdapter};

/// One connection to a server.
#[derive(Clone, Debug)]
pub(super) struct Remote(Arc<RemoteAdapter>);

impl Remote {
    /// Connects to `HOST:PORT`, without TLS. An error says why it cannot.
    pub(super) async fn connect(address: &str) -> Result<Self, Status> {
        let connection = Connection { address: address.to_owned(), ..Connection::default() };
        let adapter = RemoteAdapter::new(&connection, &Options::default(), &Handle::current())
            .map_err(|error| Status::invalid_argument(error.to_string()))?;
        adapter.ready().await?;
        Ok(Self(Arc::new(adapter)))
    }

    /// Calls a method with an encoded request; the answer is encoded, too. The server is told the timeout, and it holds
    /// whether or not the server keeps to it.
    pub(super) async fn call(
        &self,
        method: &PathAndQuery,
        request: Bytes,
        timeout: Option<Duration>,
    ) -> Result<Bytes, Status> {
        // A timeout too far away for the clock is none.
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        self.0.call(method, request, deadline).await
    }

    /// Calls a method with messages known when this was compiled.
    pub(super) async fn rpc<Answer: Message + Default>(
        &self,
        method: &'static str,
        request: &impl Message,
        timeout: Option<Duration>,
    ) -> Result<Answer, Status> {
        let answer =
            self.call(&PathAndQuery::from_static(method), request.encode_to_vec().into(), timeout).await?;
        Answer::decode(answer)
            .map_err(|error| Status::internal(format!("the answer cannot be decoded: {error}")))
    }
}

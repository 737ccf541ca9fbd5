//! The gRPC client of commands.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::uri::PathAndQuery;
use prost::Message;
use tokio::{runtime::Handle, time::Instant};
use tonic::Status;

use mixer_adapter_config::proto::istio::policy::v1beta1::Connection;
use mixer_adapter_engine::remote::{Options, RemoteAdapter};

/// A connection to a server.
#[derive(Clone, Debug)]
pub(super) struct RpcClient(Arc<RemoteAdapter>);

impl RpcClient {
    /// Connects to `HOST:PORT` or `unix:/PATH`, without TLS.
    pub(super) async fn connect(address: &str) -> Result<Self, Status> {
        let connection = Connection { address: address.to_owned(), ..Connection::default() };
        let adapter = RemoteAdapter::new(&connection, &Options::default(), &Handle::current())
            .map_err(|error| Status::invalid_argument(error.to_string()))?;
        adapter.ready().await?;
        Ok(Self(Arc::new(adapter)))
    }

    /// Calls a method with an encoded request and returns the encoded response. The timeout is sent to the server, and is
    /// enforced here, too.
    pub(super) async fn call(
        &self,
        method: &PathAndQuery,
        request: Bytes,
        timeout: Option<Duration>,
    ) -> Result<Bytes, Status> {
        // A timeout beyond the range of the clock is no timeout.
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        self.0.call(method, request, deadline).await
    }

    /// Calls a method with typed messages.
    pub(super) async fn rpc<Answer: Message + Default>(
        &self,
        method: &'static str,
        request: &impl Message,
        timeout: Option<Duration>,
    ) -> Result<Answer, Status> {
        let answer =
            self.call(&PathAndQuery::from_static(method), request.encode_to_vec().into(), timeout).await?;
        Answer::decode(answer).map_err(|error| Status::internal(format!("cannot decode the answer: {error}")))
    }
}

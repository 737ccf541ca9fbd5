//! The gRPC client of commands.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{header::AUTHORIZATION, uri::PathAndQuery};
use prost::Message;
use tokio::{runtime::Handle, time::Instant};
use tonic::{Code, Status};

use super::{
    rpc_error::RpcError,
    server_args::{AUTHENTICATE, ClientSecurity, ServerArgs},
};
use mixer_adapter_config::proto::istio::policy::v1beta1::Connection;
use mixer_adapter_engine::remote::{ClientTls, Options, RemoteAdapter};

/// A connection to a server.
#[derive(Clone, Debug)]
pub(super) struct RpcClient {
    server: Arc<RemoteAdapter>,
    address: String,
    security: ClientSecurity,
    /// The longest time of a call.
    timeout: Option<Duration>,
}

impl RpcClient {
    /// Connects to a server. The timeout of each call is sent to the server, and is enforced here, too.
    pub(super) async fn connect(server: &ServerArgs, timeout: Option<Duration>) -> anyhow::Result<Self> {
        let address = server.address.clone();
        let security = server.security.open(&address)?;
        let connection = Connection { address: address.clone(), ..Connection::default() };
        let tls = security.tls.clone();
        let options = Options::default()
            .tls(tls.map(|client| ClientTls { client, server_name: security.server_name.clone() }))
            .token(security.token.clone().map(|token| (AUTHORIZATION, token)));
        let connected = async {
            let server = RemoteAdapter::new(&connection, &options, &Handle::current())
                .map_err(|error| Status::invalid_argument(error.to_string()))?;
            server.ready().await.map(|()| server)
        };
        match connected.await {
            Ok(server) => Ok(Self { server: Arc::new(server), address, security, timeout }),
            Err(status) => {
                let hint = security.hint(&address, status.message()).await;
                let hint = hint.unwrap_or_else(|| CONNECT_HINT.to_owned());
                Err(RpcError::of_step("connecting", &status).with_hint(hint).into())
            }
        }
    }

    /// Calls a method with an encoded request and returns the encoded response.
    pub(super) async fn call(&self, method: &PathAndQuery, request: Bytes) -> Result<Bytes, Status> {
        // A timeout beyond the range of the clock is no timeout.
        let deadline = self.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let answer = self.server.call(method, request, deadline).await;
        let Err(status) = &answer else { return answer };
        let hint = match status.code() {
            // A TLS server refuses plaintext, or a client without a certificate, only after the connection was made.
            Code::Unavailable => self.security.hint(&self.address, status.message()).await,
            Code::Unauthenticated => Some(AUTHENTICATE.to_owned()),
            _ => None,
        };
        match hint {
            Some(hint) => Err(Status::new(status.code(), format!("{}: {hint}", status.message()))),
            None => answer,
        }
    }

    /// Calls a method with typed messages.
    pub(super) async fn rpc<Answer: Message + Default>(
        &self,
        method: &'static str,
        request: &impl Message,
    ) -> Result<Answer, Status> {
        let answer = self.call(&PathAndQuery::from_static(method), request.encode_to_vec().into()).await?;
        Answer::decode(answer).map_err(|error| Status::internal(format!("cannot decode the answer: {error}")))
    }
}

const CONNECT_HINT: &str = "start a server with `serve`, or give the address of another one";

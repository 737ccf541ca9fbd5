//! Adapters elsewhere: a connection to a server of adapters, used as a real Mixer uses it.

use std::time::Duration;

use bytes::{Buf as _, BufMut as _, Bytes};
use http::uri::PathAndQuery;
use prost::Message;
use tonic::{
    Code, Request, Status,
    client::Grpc,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
    transport::{Channel, Endpoint},
};

/// How long connecting may take where nothing else is said.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// One connection to a server of adapters. A real Mixer keeps one a handler (mixer-wire.md, fact 12).
#[derive(Clone, Debug)]
pub struct RemoteAdapter {
    channel: Channel,
}

impl RemoteAdapter {
    /// Connects to `HOST:PORT`, without TLS. An error is UNAVAILABLE and says why.
    pub async fn connect(address: &str) -> Result<Self, Status> {
        let unavailable = |error: tonic::transport::Error| {
            let mut cause: &dyn std::error::Error = &error;
            while let Some(deeper) = cause.source() {
                cause = deeper;
            }
            Status::unavailable(format!("cannot connect to {address}: {cause}"))
        };
        let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(unavailable)?;
        let channel = endpoint.connect_timeout(CONNECT_TIMEOUT).tcp_nodelay(true).connect().await;
        Ok(Self { channel: channel.map_err(unavailable)? })
    }

    /// Calls a method with an encoded request; the answer is encoded, too. A timeout travels to the server as
    /// `grpc-timeout`, and is DEADLINE_EXCEEDED here whether or not the server keeps to it.
    pub async fn call(
        &self,
        method: PathAndQuery,
        request: Bytes,
        timeout: Option<Duration>,
    ) -> Result<Bytes, Status> {
        let mut request = Request::new(request);
        let Some(timeout) = timeout else { return self.unary(method, request).await };
        request.set_timeout(timeout);
        let start = tokio::time::Instant::now();
        match self.unary(method, request).await {
            // What the channel makes of a timeout of its own.
            Err(status) if status.code() == Code::Cancelled && start.elapsed() >= timeout => {
                Err(Status::deadline_exceeded(format!("no answer within {timeout:?}")))
            }
            answer => answer,
        }
    }

    /// Calls a method with messages known when this was compiled.
    pub async fn rpc<Answer: Message + Default>(
        &self,
        method: &'static str,
        request: &impl Message,
        timeout: Option<Duration>,
    ) -> Result<Answer, Status> {
        let method = PathAndQuery::from_static(method);
        let answer = self.call(method, request.encode_to_vec().into(), timeout).await?;
        Answer::decode(answer)
            .map_err(|error| Status::internal(format!("the answer cannot be decoded: {error}")))
    }

    async fn unary(&self, method: PathAndQuery, request: Request<Bytes>) -> Result<Bytes, Status> {
        let mut grpc = Grpc::new(self.channel.clone());
        grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
        Ok(grpc.unary(request, method, Encoded).await?.into_inner())
    }
}

/// Messages that are encoded already.
#[derive(Clone, Copy, Debug)]
struct Encoded;

impl Codec for Encoded {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Encoded {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(message);
        Ok(())
    }
}

impl Decoder for Encoded {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}

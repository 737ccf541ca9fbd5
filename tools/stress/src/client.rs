//! HTTP/2 as an attacker uses it: streams that are begun, bodies that do not end, answers that are not read.

use std::net::SocketAddr;

use anyhow::Context as _;
use bytes::{BufMut as _, Bytes, BytesMut};
use h2::{RecvStream, SendStream, client::SendRequest};
use http::{Request, Response};
use prost::Message;
use tokio::net::TcpStream;
use tonic::{Code, Status};

/// One connection. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    requests: SendRequest<Bytes>,
    token: Option<&'static str>,
}

/// A call whose answer has not been awaited.
pub(crate) struct Started {
    pub(crate) response: h2::client::ResponseFuture,
    /// Keeps the stream open.
    pub(crate) _body: SendStream<Bytes>,
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> anyhow::Result<Self> {
        Self::with_window(address, 1 << 20).await
    }

    /// Connects, and lets the server send at most `window` bytes of each answer.
    pub(crate) async fn with_window(address: SocketAddr, window: u32) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (client, connection) =
            h2::client::Builder::new().initial_window_size(window).handshake(stream).await?;
        tokio::spawn(async move {
            // Calls on the connection report its error.
            let _ = connection.await;
        });
        Ok(Self { requests: client, token: None })
    }

    /// Shows a token with each call.
    pub(crate) fn with_token(self, token: Option<&'static str>) -> Self {
        Self { token, ..self }
    }

    /// Sends the headers of a call and `body`, and leaves the stream open unless `end`.
    pub(crate) async fn start(&self, path: &str, body: Bytes, end: bool) -> anyhow::Result<Started> {
        let mut client = self.requests.clone().ready().await?;
        let mut request = Request::post(format!("http://localhost{path}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        if let Some(token) = self.token {
            request = request.header("authorization", token);
        }
        let request = request.body(())?;
        let (response, mut stream) = client.send_request(request, false)?;
        if end || !body.is_empty() {
            stream.send_data(body, end)?;
        }
        Ok(Started { response, _body: stream })
    }

    /// Calls a unary method.
    pub(crate) async fn call<A: Message + Default>(
        &self,
        path: &str,
        request: &impl Message,
    ) -> anyhow::Result<Result<A, Status>> {
        self.send(path, framed(&request.encode_to_vec())).await
    }

    /// Calls a unary method with a framed message.
    pub(crate) async fn send<A: Message + Default>(
        &self,
        path: &str,
        frame: Bytes,
    ) -> anyhow::Result<Result<A, Status>> {
        let response = self.start(path, frame, true).await?.response.await?;
        read(response).await
    }
}

async fn read<A: Message + Default>(response: Response<RecvStream>) -> anyhow::Result<Result<A, Status>> {
    let (head, mut body) = response.into_parts();
    let mut received = BytesMut::new();
    while let Some(data) = body.data().await {
        let data = data?;
        body.flow_control().release_capacity(data.len())?;
        received.extend_from_slice(&data);
    }
    let trailers = body.trailers().await?;
    let status = Status::from_header_map(&head.headers)
        .or_else(|| trailers.as_ref().and_then(Status::from_header_map))
        .with_context(|| format!("no gRPC status in an answer of HTTP {}", head.status))?;
    match status.code() {
        Code::Ok => Ok(Ok(A::decode(received.get(5..).unwrap_or_default())?)),
        _ => Ok(Err(status)),
    }
}

/// Puts the prefix of gRPC before a message.
pub(crate) fn framed(message: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(message.len() + 5);
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    frame.put_slice(message);
    frame.freeze()
}

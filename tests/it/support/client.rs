use std::{net::SocketAddr, time::Duration};

use bytes::{BufMut as _, Bytes, BytesMut};
use h2::client::SendRequest;
use http::{HeaderMap, Request, Response};
use mixer_adapter::{
    prost::{Message, Name},
    proto::Any,
    tonic::{Code, Status},
};
use mixer_adapter_engine::proto::istio::mixer::adapter::model::v1beta1::{
    CloseSessionRequest, CloseSessionResponse, CreateSessionRequest, CreateSessionResponse, ValidateRequest,
    ValidateResponse,
};
use tokio::{net::TcpStream, task::AbortHandle};
use tokio_util::sync::CancellationToken;

const BACKEND: &str = "/istio.mixer.adapter.model.v1beta1.InfrastructureBackend";

/// One HTTP/2 connection, on which bytes are sent as they are given. Clones share it.
#[derive(Clone)]
pub struct Client {
    requests: SendRequest<Bytes>,
    connection: AbortHandle,
    ended: CancellationToken,
}

/// What a call got instead of an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientError {
    /// UNAVAILABLE where the connection or the stream broke.
    pub code: Code,
    pub message: String,
}

impl Client {
    pub async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let (requests, connection) = h2::client::handshake(stream).await.unwrap();
        let ended = CancellationToken::new();
        let guard = ended.clone().drop_guard();
        let connection = tokio::spawn(async move {
            let _guard = guard;
            // The calls on the connection report its error.
            let _ = connection.await;
        });
        Self { requests, connection: connection.abort_handle(), ended }
    }

    /// A unary call with messages of their types.
    pub async fn call<Answer: Message + Default>(
        &self,
        path: &str,
        request: &impl Message,
    ) -> Result<Answer, ClientError> {
        self.send(path, &request.encode_to_vec()).await.map(|answer| Answer::decode(answer).unwrap())
    }

    /// A unary call with the bytes of a message.
    pub async fn send(&self, path: &str, message: &[u8]) -> Result<Bytes, ClientError> {
        self.exchange(post(path), framed(message)).await
    }

    /// A unary call whose caller waits so long.
    pub async fn send_within(
        &self,
        path: &str,
        message: &[u8],
        timeout: Duration,
    ) -> Result<Bytes, ClientError> {
        let mut request = post(path);
        let timeout = format!("{}m", timeout.as_millis());
        request.headers_mut().insert("grpc-timeout", timeout.parse().unwrap());
        self.exchange(request, framed(message)).await
    }

    /// A request with a body as it is given; the message of the answer.
    pub async fn exchange(&self, request: Request<()>, body: Bytes) -> Result<Bytes, ClientError> {
        let (head, body, trailers) = self.raw(request, body).await.map_err(broken)?;
        let mut status = [Some(head.headers()), trailers.as_ref()].into_iter().flatten();
        match status.find_map(Status::from_header_map) {
            None => Err(ClientError { code: Code::Unknown, message: format!("HTTP {}", head.status()) }),
            Some(status) if status.code() == Code::Ok => Ok(body.slice(5..)),
            Some(status) => Err(ClientError { code: status.code(), message: status.message().to_owned() }),
        }
    }

    /// A request of whose body only the beginning is ever sent.
    pub async fn exchange_unfinished(
        &self,
        request: Request<()>,
        body: &'static [u8],
    ) -> Result<(), ClientError> {
        let mut requests = self.requests.clone().ready().await.map_err(broken)?;
        let (response, mut stream) = requests.send_request(request, false).map_err(broken)?;
        stream.send_data(Bytes::from_static(body), false).map_err(broken)?;
        let head = response.await.map_err(broken)?;
        match Status::from_header_map(head.headers()) {
            None => Ok(()),
            Some(status) => Err(ClientError { code: status.code(), message: status.message().to_owned() }),
        }
    }

    /// Head, body and trailers as they came.
    pub async fn raw(
        &self,
        request: Request<()>,
        body: Bytes,
    ) -> Result<(Response<()>, Bytes, Option<HeaderMap>), h2::Error> {
        let mut requests = self.requests.clone().ready().await?;
        let (response, mut stream) = requests.send_request(request, false)?;
        stream.send_data(body, true)?;
        let (head, mut body) = response.await?.into_parts();
        let mut received = BytesMut::new();
        while let Some(data) = body.data().await {
            let data = data?;
            body.flow_control().release_capacity(data.len())?;
            received.extend_from_slice(&data);
        }
        let trailers = body.trailers().await?;
        Ok((Response::from_parts(head, ()), received.freeze(), trailers))
    }

    pub async fn create_session(&self, request: CreateSessionRequest) -> CreateSessionResponse {
        self.call(&format!("{BACKEND}/CreateSession"), &request).await.unwrap()
    }

    pub async fn validate(&self, request: ValidateRequest) -> ValidateResponse {
        self.call(&format!("{BACKEND}/Validate"), &request).await.unwrap()
    }

    pub async fn close_session(&self, id: &str) -> CloseSessionResponse {
        let request = CloseSessionRequest { session_id: id.to_owned() };
        self.call(&format!("{BACKEND}/CloseSession"), &request).await.unwrap()
    }

    /// Breaks the connection off.
    pub fn break_off(&self) {
        self.connection.abort();
    }

    /// Waits until the connection has ended.
    pub async fn ended(&self) {
        self.ended.cancelled().await;
    }
}

/// A gRPC request as a real Mixer sends it (docs/behaviour/adapter-calls.md#http-headers-of-a-call).
pub fn post(path: &str) -> Request<()> {
    Request::post(format!("http://localhost{path}"))
        .header("content-type", "application/grpc")
        .header("user-agent", "grpc-go/1.23.0")
        .header("te", "trailers")
        .body(())
        .unwrap()
}

/// A message with the prefix that gRPC puts before it.
pub fn framed(message: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(message.len() + 5);
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).unwrap());
    frame.put_slice(message);
    frame.freeze()
}

/// A message in an Any, as configuration is sent.
pub fn any<M: Message + Name>(message: &M) -> Option<Any> {
    Some(Any { type_url: M::type_url(), value: message.encode_to_vec().into() })
}

fn broken(error: h2::Error) -> ClientError {
    ClientError { code: Code::Unavailable, message: error.to_string() }
}

//! The server of xDS over HTTP: `POST /v3/discovery:TYPE` (docs/behaviour/xds.md#rest).

use std::{convert::Infallible, error::Error, io::Read as _, sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    extract::{Path, Request, State},
    response::{IntoResponse as _, Response},
    routing::post,
};
use bytes::{Bytes, BytesMut};
use flate2::read::MultiGzDecoder;
use futures_util::{StreamExt as _, stream};
use http::{
    HeaderMap, HeaderValue, StatusCode,
    header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, ORIGIN},
};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use prost::Message as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout, timeout_at};
use tonic::{Code, Status};

use super::{
    BODY_TIMEOUT,
    fetch::{Fetched, Query},
    node::sink_id,
};
use crate::{
    proto::envoy::service::discovery::v3::DiscoveryRequest,
    stream::{
        listen::peer_name,
        metrics::SOURCE,
        source::{
            method::Served,
            pushed::Pushed,
            status::{PeerStatus, WatchStatus},
        },
        type_url::collection_of,
    },
    types::Types,
    xds::{json_expansion, rest_path},
};
use mixer_adapter_config::{MAX_TEXT, truncate};
use mixer_adapter_core::framework::json::{JsonError, read_json_of_peer};
use mixer_adapter_net::grpc::expansion;

/// The longest time an answer is held back for news.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

const JSON: &str = "application/json";
const PROTOBUF: &str = "application/x-protobuf";

#[derive(Clone)]
struct Rest {
    served: Served,
    /// The bytes that all requests may hold, while they arrive and while they wait for changes.
    memory: Arc<Semaphore>,
    v2: bool,
}

/// The bytes of all requests, as a multiple of the longest message.
const MEMORY: usize = 4;
/// The bytes that are decompressed at a time.
const CHUNK: usize = 64 << 10;

/// The paths of REST beside other services.
pub(super) fn mount(router: Router, served: Served) -> Router {
    let memory = served.max_message_size.saturating_mul(MEMORY).min(Semaphore::MAX_PERMITS);
    let memory = Arc::new(Semaphore::new(memory));
    let rest = Rest { served, memory, v2: false };
    let older = Rest { v2: true, ..rest.clone() };
    let router = router.route("/v2/{discovery}", post(answer).with_state(older));
    router.route("/v3/{discovery}", post(answer).with_state(rest))
}

/// Why a request is refused.
#[derive(Debug, thiserror::Error)]
enum RestError {
    #[error("requests of web pages are refused")]
    WebPage,
    #[error("there is no {0}; write the path like /v3/discovery:clusters")]
    Path(String),
    #[error("{0:?} names no known type; {1}other types need a type_url in the request")]
    NoType(String, String),
    #[error(
        "{path:?} is for {expected}, not for the type_url {type_url:?} of the request; leave it out, or write its own path"
    )]
    OtherType { path: String, expected: String, type_url: String },
    #[error("the content type is not {JSON} or {PROTOBUF}")]
    ContentType,
    #[error("the content encoding is not gzip")]
    Encoding,
    #[error("the body is not valid gzip: {0}")]
    Gzip(std::io::Error),
    #[error("the body has more than {0} bytes")]
    TooLong(usize),
    #[error("the body did not arrive in {BODY_TIMEOUT:?}")]
    Timeout,
    #[error("the body broke off: {0}")]
    Body(Box<dyn Error + Send + Sync>),
    #[error("the body is not a DiscoveryRequest: {0}")]
    Json(#[from] serde_json::Error),
    #[error("the body is not a DiscoveryRequest: {0}")]
    Field(#[from] JsonError),
    #[error("the body is not a DiscoveryRequest: {0}")]
    Protobuf(#[from] prost::DecodeError),
    #[error("requests hold too much memory; try again later")]
    Memory,
    #[error("{}", .0.message())]
    Status(#[from] Status),
}

impl RestError {
    fn code(&self) -> StatusCode {
        match self {
            Self::WebPage => StatusCode::FORBIDDEN,
            Self::Path(_) => StatusCode::NOT_FOUND,
            Self::ContentType | Self::Encoding => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::TooLong(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Timeout => StatusCode::REQUEST_TIMEOUT,
            Self::Memory => StatusCode::TOO_MANY_REQUESTS,
            Self::Status(status) if status.code() == Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
            Self::Status(status) if status.code() == Code::Unimplemented => StatusCode::GONE,
            Self::Gzip(_)
            | Self::NoType(..)
            | Self::OtherType { .. }
            | Self::Body(_)
            | Self::Json(_)
            | Self::Field(_)
            | Self::Protobuf(_)
            | Self::Status(_) => StatusCode::BAD_REQUEST,
        }
    }
}

/// How a message is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encoding {
    Json,
    Protobuf,
}

impl Encoding {
    fn of(headers: &HeaderMap) -> Result<Self, RestError> {
        let given = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        match given.split(';').next().unwrap_or_default().trim() {
            JSON => Ok(Self::Json),
            PROTOBUF | "application/protobuf" => Ok(Self::Protobuf),
            _ => Err(RestError::ContentType),
        }
    }

    /// Estimates by how many bytes the decoded form of a request exceeds its body.
    fn expansion(self, body: &[u8]) -> usize {
        match self {
            Self::Json => json_expansion(body),
            Self::Protobuf => expansion(body),
        }
    }

    fn read(self, body: Bytes, v2: bool) -> Result<DiscoveryRequest, RestError> {
        // The fields have the same numbers.
        let message =
            if v2 { "envoy.api.v2.DiscoveryRequest" } else { "envoy.service.discovery.v3.DiscoveryRequest" };
        match (self, Types::default().find(message)) {
            (Self::Json, Some(descriptor)) => {
                // A client may know of more fields.
                let message = read_json_of_peer(&descriptor, serde_json::from_slice(&body)?)?;
                Ok(DiscoveryRequest::decode(&*message.encode_to_vec())?)
            }
            _ => Ok(DiscoveryRequest::decode(body)?),
        }
    }

    /// Writes a response. The request is admitted until it has been written.
    fn write(self, fetched: Fetched, admitted: OwnedSemaphorePermit) -> Response {
        let (content_type, parts) = match self {
            Self::Protobuf => {
                let Pushed { message, shared } = fetched.into_pushed();
                (PROTOBUF, vec![message.encode_to_vec().into(), shared])
            }
            Self::Json => (JSON, fetched.into_json().to_vec()),
        };
        let length: usize = parts.iter().map(Bytes::len).sum();
        let parts = stream::iter(parts).map(move |part| {
            let _written_while_admitted = &admitted;
            Ok::<_, Infallible>(part)
        });
        let headers = [(CONTENT_TYPE, content_type), (CONTENT_LENGTH, &length.to_string())];
        (headers, Body::from_stream(parts)).into_response()
    }
}

/// Answers a request as soon as resources have changed; 304 after the timeout.
async fn answer(State(rest): State<Rest>, Path(path): Path<String>, request: Request) -> Response {
    match rest.respond(&path, request).await {
        Ok(response) => response,
        Err(error) => (error.code(), format!("{error}\n")).into_response(),
    }
}

impl Rest {
    async fn respond(self, path: &str, request: Request) -> Result<Response, RestError> {
        let name = path.strip_prefix(rest_path::PREFIX).ok_or_else(|| RestError::Path(path.to_owned()))?;
        // A page that somebody visits must not read the configuration; browsers name its origin.
        if request.headers().contains_key(ORIGIN) || request.headers().contains_key("sec-fetch-site") {
            return Err(RestError::WebPage);
        }
        let encoding = Encoding::of(request.headers())?;
        let deadline = Instant::now() + patience(request.headers());
        let admitted = self.served.admission.request()?;
        let (mut parts, body) = request.into_parts();
        let extensions = std::mem::take(&mut parts.extensions);
        let peer =
            peer_name(&tonic::Request::from_parts(tonic::metadata::MetadataMap::new(), extensions, ()));
        let mut held = self.hold(0)?;
        let received = self.receive(body, &mut held);
        let body = timeout(BODY_TIMEOUT, received).await.map_err(|_| RestError::Timeout)??;
        let body = self.decompress(body, &parts.headers, &mut held)?;
        let size = body.len();
        held.merge(self.hold(encoding.expansion(&body))?);
        let mut request = encoding.read(body, self.v2)?;
        request.type_url = self.type_url(name, request.type_url)?;
        let collection = collection_of(&request.type_url).as_str().to_owned();
        SOURCE.received(&collection, size);
        let client = request.node.as_ref().map(sink_id).unwrap_or_default();
        self.served.source.check_version(&request.type_url, &client.id)?;
        let mut query = Query::of(&request)?;
        let _listed = self.served.source.list(PeerStatus {
            peer,
            id: client.id,
            annotations: client.annotations,
            collections: [(collection, watch(&request))].into(),
            ..PeerStatus::default()
        });
        // What waits holds the query alone.
        drop((request, parts, held));
        let _held = self.hold(query.size())?;
        let mut catalogue = self.served.source.changes();
        loop {
            let current = catalogue.borrow_and_update().clone();
            if let Some(fetched) = query.answer(&current) {
                return Ok(encoding.write(fetched, admitted));
            }
            drop(current);
            tokio::select! {
                changed = timeout_at(deadline, catalogue.changed()) => if !matches!(changed, Ok(Ok(()))) {
                    return Ok(StatusCode::NOT_MODIFIED.into_response());
                },
                () = self.served.source.closed.cancelled() => {
                    return Ok(StatusCode::SERVICE_UNAVAILABLE.into_response());
                }
            }
        }
    }

    /// Returns the requested type: from the path or, if the path names no known type, from the request.
    fn type_url(&self, name: &str, own: String) -> Result<String, RestError> {
        let path = format!("{}{name}", rest_path::PREFIX);
        match rest_path::type_url(name, self.v2) {
            None if own.is_empty() => {
                let hint = rest_path::similar(name).map(|known| format!("did you mean {known}? "));
                Err(RestError::NoType(path, hint.unwrap_or_default()))
            }
            Some(of_path) if own.is_empty() => Ok(of_path),
            Some(expected) if collection_of(&expected) != collection_of(&own) => {
                Err(RestError::OtherType { path, expected, type_url: own })
            }
            _ => Ok(own),
        }
    }

    /// Reserves memory of requests, in bytes, until the permit is dropped.
    fn hold(&self, bytes: usize) -> Result<OwnedSemaphorePermit, RestError> {
        let bytes = u32::try_from(bytes).map_err(|_| RestError::Memory)?;
        self.memory.clone().try_acquire_many_owned(bytes).map_err(|_| RestError::Memory)
    }

    /// Reads a body as it arrives.
    async fn receive(&self, body: Body, held: &mut OwnedSemaphorePermit) -> Result<Bytes, RestError> {
        let mut limited = Limited::new(body, self.served.max_message_size);
        let mut bytes = BytesMut::new();
        while let Some(frame) = limited.frame().await {
            let frame = frame.map_err(|error| {
                if error.is::<LengthLimitError>() {
                    RestError::TooLong(self.served.max_message_size)
                } else {
                    RestError::Body(error)
                }
            })?;
            let data = frame.into_data().unwrap_or_default();
            held.merge(self.hold(data.len())?);
            bytes.extend_from_slice(&data);
        }
        Ok(bytes.freeze())
    }

    /// A body as it was before its client compressed it.
    fn decompress(
        &self,
        body: Bytes,
        headers: &HeaderMap,
        held: &mut OwnedSemaphorePermit,
    ) -> Result<Bytes, RestError> {
        match headers.get(CONTENT_ENCODING).map(HeaderValue::as_bytes) {
            None | Some(b"identity") => return Ok(body),
            Some(b"gzip") => {}
            Some(_) => return Err(RestError::Encoding),
        }
        let mut decoder = MultiGzDecoder::new(&*body);
        let mut bytes = Vec::new();
        loop {
            // A few bytes may stand for very many.
            let read = (&mut decoder).take(CHUNK as u64).read_to_end(&mut bytes).map_err(RestError::Gzip)?;
            if read == 0 {
                return Ok(bytes.into());
            }
            if bytes.len() > self.served.max_message_size {
                return Err(RestError::TooLong(self.served.max_message_size));
            }
            held.merge(self.hold(read)?);
        }
    }
}

/// Returns the client's state as stated in the request.
fn watch(request: &DiscoveryRequest) -> WatchStatus {
    let accepted = Some(&request.version_info).filter(|version| !version.is_empty()).cloned();
    let refused = request.error_detail.as_ref();
    let refused = refused.map(|error| (request.response_nonce.clone(), truncate(&error.message, MAX_TEXT)));
    WatchStatus { accepted, refused }
}

/// How long a client waits for news: as it says by `Prefer: wait=SECONDS`, or by Envoy's header of the timeout of its request.
fn patience(headers: &HeaderMap) -> Duration {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let preferred = text("prefer")
        .and_then(|prefer| prefer.split(',').find_map(|part| part.trim().strip_prefix("wait=")));
    let preferred = preferred.and_then(|seconds| seconds.parse().ok()).map(Duration::from_secs);
    let expected = text("x-envoy-expected-rq-timeout-ms").and_then(|millis| millis.parse().ok());
    // The rest is for the way back.
    let expected = expected.map(|millis| Duration::from_millis(millis).mul_f64(0.8));
    preferred.or(expected).unwrap_or(LONGEST_WAIT).min(LONGEST_WAIT)
}

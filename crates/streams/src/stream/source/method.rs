use std::{convert::Infallible, sync::Arc};

use axum::routing::{MethodRouter, any};
use bytes::Bytes;
use futures_util::{Stream, stream::unfold};
use http::{HeaderMap, HeaderValue, header::CONTENT_TYPE};
use http_body::Frame;
use http_body_util::StreamBody;
use prost::Message;
use tokio::sync::mpsc;
use tonic::{
    Request, Status, Streaming,
    body::Body,
    codec::{Codec as _, CompressionEncoding},
    metadata::MetadataValue,
};
use tonic_prost::ProstCodec;

use super::{
    dialogue::Dialogue,
    driver::{ConfigServer, ExchangeLimits},
    pushed::Pushed,
};
use crate::stream::{
    admission::{Admission, ServiceOptions},
    listen::peer_name,
    metrics::SOURCE,
};
use mixer_adapter_net::{
    Rate,
    grpc::{CallMemory, limit_message},
};

/// Where sources say which version of their program they are.
const VERSION: &str = "config.source.version";
const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");

/// A source, behind the limits of its services.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    pub(crate) source: ConfigServer,
    pub(crate) admission: Arc<Admission>,
    pub(crate) max_message_size: usize,
}

impl Served {
    pub(crate) fn new(source: &ConfigServer, options: &ServiceOptions) -> Self {
        let admission = Arc::new(Admission::new(options, &SOURCE));
        Self { source: source.clone(), admission, max_message_size: options.max_message_size }
    }

    /// Returns a method of gRPC whose streams run the state machines that `dialogue` creates, with a rate of requests
    /// per stream.
    ///
    /// A push that is not shared is encoded in separate memory. In tonic's codec, a stream holds a buffer for its longest
    /// message, and the first push may contain all resources.
    pub(crate) fn streams<D: Dialogue<Request: Default> + 'static>(
        &self,
        requests: Rate,
        dialogue: impl Fn(&ConfigServer) -> D + Clone + Send + Sync + 'static,
    ) -> MethodRouter {
        let served = self.clone();
        any(move |request: axum::extract::Request| {
            let (served, dialogue) = (served.clone(), dialogue(&served.source));
            async move {
                let opened = served.open(request, requests, dialogue).await;
                opened.unwrap_or_else(|refusal| limit_message(refusal).into_http())
            }
        })
    }

    /// Admits a stream, and serves it in a new task.
    async fn open<D: Dialogue<Request: Default> + 'static>(
        self,
        request: axum::extract::Request,
        requests: Rate,
        dialogue: D,
    ) -> Result<http::Response<Body>, Status> {
        let encoding = match request.headers().get("grpc-encoding").map(HeaderValue::as_bytes) {
            None | Some(b"identity") => None,
            Some(b"gzip") => Some(CompressionEncoding::Gzip),
            Some(other) => {
                let encoding = String::from_utf8_lossy(other);
                let mut status = Status::unimplemented(format!("grpc-encoding {encoding} is not served"));
                status
                    .metadata_mut()
                    .insert("grpc-accept-encoding", MetadataValue::from_static("identity,gzip"));
                return Err(status);
            }
        };
        let admitted = self.admission.enter(request.extensions()).await?;
        let memory = request.extensions().get::<CallMemory>().cloned();
        let decoder = ProstCodec::<D::Push, D::Request>::default().decoder();
        let request = Request::from_http(request);
        let peer = peer_name(&request);
        let received =
            Streaming::new_request(decoder, request.into_inner(), encoding, Some(self.max_message_size));
        tracing::info!(peer, "sink connected");
        let limits = ExchangeLimits { requests, memory, admitted: Some(admitted) };
        let (pushes, outgoing) = mpsc::channel(1);
        let source = self.source;
        tokio::spawn(async move {
            let ended = source.exchange(dialogue, peer.clone(), received, pushes, limits).await;
            let status = &ended.status;
            tracing::info!(peer, code = ?status.code(), message = status.message(), "stream of sink closed");
        });
        let mut response = http::Response::new(Body::new(StreamBody::new(frames(outgoing))));
        response.headers_mut().insert(CONTENT_TYPE, GRPC);
        response.headers_mut().insert(VERSION, HeaderValue::from_static(env!("CARGO_PKG_VERSION")));
        Ok(response)
    }
}

/// Encoded pushes, then the status of the stream.
fn frames<P: Message>(
    pushes: mpsc::Receiver<Result<Pushed<P>, Status>>,
) -> impl Stream<Item = Result<Frame<Bytes>, Infallible>> {
    unfold(Some((pushes, Bytes::new())), |state| async {
        let (mut pushes, shared) = state?;
        if !shared.is_empty() {
            return Some((Ok(Frame::data(shared)), Some((pushes, Bytes::new()))));
        }
        let (next, rest) = match pushes.recv().await {
            Some(Ok(push)) => {
                let [own, shared] = push.into_frame();
                (Frame::data(own), Some((pushes, shared)))
            }
            Some(Err(status)) => (Frame::trailers(trailers(status)), None),
            None => (Frame::trailers(trailers(Status::ok(""))), None),
        };
        Some((Ok(next), rest))
    })
}

fn trailers(status: Status) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    let status = limit_message(status);
    if status.add_header(&mut trailers).is_err() {
        // Its text cannot be a header.
        trailers.insert(Status::GRPC_STATUS, HeaderValue::from(i32::from(status.code())));
    }
    trailers
}

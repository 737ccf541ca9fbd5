//! Polling over HTTP: xDS without a stream (docs/behaviour/xds.md#rest).

use std::{collections::BTreeMap, error::Error, time::Duration};

use bytes::Bytes;
use futures_util::{StreamExt as _, stream::FuturesUnordered};
use http::{
    Request, StatusCode,
    header::{AUTHORIZATION, CONTENT_TYPE},
};
use prost::Message as _;
use prost_reflect::DynamicMessage;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status};

use super::{node::XdsClient, response, sotw::Sotw};
use crate::{
    proto::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse},
    stream::{
        metrics::SINK,
        peer::Peer,
        redial::Ended,
        sink::{
            connect::with_stream,
            dialect::Dialect as _,
            driver::{Requests, Sink, Stream},
        },
    },
    types::Types,
    xds::{json_expansion, rest_path},
};
use mixer_adapter_core::framework::setters;
use mixer_adapter_net::{
    HttpError,
    grpc::{CallMemory, StreamMemory},
    random,
};

/// The options of polling a server, in the terms of Envoy's `ApiConfigSource`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PollOptions {
    /// The delay between the end of one round of requests and the next, with a jitter of up to a quarter.
    pub refresh_delay: Duration,
    /// The timeout of an answer. A server may delay it until it has news.
    pub request_timeout: Duration,
}

setters!(PollOptions { refresh_delay: Duration, request_timeout: Duration });

impl Default for PollOptions {
    fn default() -> Self {
        Self { refresh_delay: Duration::from_secs(10), request_timeout: Duration::from_secs(60) }
    }
}

/// The longest answer in bytes.
const MAX_ANSWER: usize = 64 << 20;
/// The time for which the first requests of a sink are collected.
const GATHER: Duration = Duration::from_millis(10);

/// Polls a server for everything that a sink subscribes to, each type separately, until `stop` is cancelled. Answers
/// that arrive or are decoded take `memory`; one beyond it is refused.
pub async fn poll(
    sink: Sink,
    server: Peer,
    client: impl Into<XdsClient>,
    options: PollOptions,
    memory: StreamMemory,
    stop: CancellationToken,
) {
    let client = client.into();
    let polling = async {
        while !stop.is_cancelled() {
            let (own, client, memory) = (server.clone(), client.clone(), memory.clone());
            let Ended { status, .. } =
                with_stream(sink.clone(), server.to_string(), stop.clone(), |stream, requests| {
                    exchange(own, client, options, memory, stream, requests)
                })
                .await;
            tracing::warn!(%server, %status, "stream ended; requesting everything again");
            sleep(options.refresh_delay).await;
        }
    };
    tokio::select! {
        () = server.watching(polling) => {}
        () = stop.cancelled() => {}
    }
}

/// A polled type.
struct Polled {
    /// The next request.
    request: DiscoveryRequest,
    /// The time when it is sent; `None` while one is unanswered.
    due: Option<Instant>,
}

async fn exchange(
    server: Peer,
    client: XdsClient,
    options: PollOptions,
    memory: StreamMemory,
    stream: Stream,
    mut requests: Requests,
) -> Status {
    let mut dialect = Sotw::new(client);
    let mut types: BTreeMap<String, Polled> = BTreeMap::new();
    let mut answers = FuturesUnordered::new();
    let mut last_logged = String::new();
    loop {
        let next = types.values().filter_map(|polled| polled.due).min();
        tokio::select! {
            request = requests.recv() => match request {
                Some(Ok(request)) => {
                    // A new subscription is not delayed.
                    let is_new = request.response_nonce.is_empty();
                    for request in dialect.on_request(request) {
                        enqueue(&mut types, request, is_new.then(|| Instant::now() + GATHER));
                    }
                }
                Some(Err(status)) => return status,
                None => return Status::aborted("the sink is gone"),
            },
            () = async { sleep_until(next.unwrap_or_else(Instant::now)).await }, if next.is_some() => {
                let now = Instant::now();
                for polled in types.values_mut().filter(|polled| polled.due.is_some_and(|due| due <= now)) {
                    polled.due = None;
                    let (server, request, trace) = (server.clone(), polled.request.clone(), stream.trace().clone());
                    let memory = memory.for_message();
                    answers.push(async move {
                        trace.sent(&request);
                        let answer = send(&server, &request, options.request_timeout, &memory).await;
                        (request.type_url, answer, memory)
                    });
                }
            }
            Some((type_url, answer, _held_until_it_is_handled)) = answers.next() => {
                if let Some(polled) = types.get_mut(&type_url) {
                    polled.due = Some(Instant::now() + options.refresh_delay.mul_f64(1.0 + 0.25 * random()));
                }
                let received = match answer {
                    Ok(Some(response)) => {
                        stream.health().recovered();
                        stream.trace().received(&response);
                        dialect.on_response(response)
                    }
                    Ok(None) => {
                        stream.health().recovered();
                        continue;
                    }
                    Err(error) => {
                        if matches!(error.downcast_ref(), Some(HttpError::NoMemory)) {
                            SINK.not_received(Code::ResourceExhausted);
                        }
                        let error = format!("{type_url}: {error}");
                        stream.health().failed(&Status::unavailable(error.as_str()));
                        // Logged once, not each time.
                        if last_logged != error {
                            tracing::warn!(%server, error, "polling failed; the last configuration stays in use");
                            last_logged = error;
                        }
                        continue;
                    }
                };
                for reply in received.replies {
                    enqueue(&mut types, reply, None);
                }
                if let Some(push) = received.push {
                    stream.received(push).await;
                }
            }
        }
    }
}

/// Sets the next request of a type, for that time or when the type is due before. A new type is due immediately.
fn enqueue(types: &mut BTreeMap<String, Polled>, request: DiscoveryRequest, at: Option<Instant>) {
    let polled = types
        .entry(request.type_url.clone())
        .or_insert_with(|| Polled { request: request.clone(), due: Some(Instant::now()) });
    polled.request = request;
    if let (Some(due), Some(at)) = (&mut polled.due, at) {
        *due = at.min(*due);
    }
}

/// Sends one request. `None` is an answer without news. The answer takes `memory`.
pub(crate) async fn send(
    server: &Peer,
    request: &DiscoveryRequest,
    timeout: Duration,
    memory: &CallMemory,
) -> Result<Option<DiscoveryResponse>, Box<dyn Error + Send + Sync>> {
    let descriptor = Types::spoken("envoy.service.discovery.v3.DiscoveryRequest")
        .ok_or("the type DiscoveryRequest is not known")?;
    let message = DynamicMessage::decode(descriptor, &*request.encode_to_vec())?;
    let body = Bytes::from(serde_json::to_vec(&message)?);
    let (client, url) = server.http(timeout, MAX_ANSWER, memory.clone(), &rest_path::path(&request.type_url));
    // Until then the server may wait for news; the margin is for the response.
    let patience = format!("wait={}", timeout.mul_f64(0.8).as_secs());
    let mut post =
        Request::post(url?).header(CONTENT_TYPE, "application/json").header("prefer", patience).body(body)?;
    post.headers_mut().extend(server.authorization()?.map(|value| (AUTHORIZATION, value)));
    let answer = client.send(post).await?;
    match answer.status() {
        StatusCode::OK => {
            if !memory.take(json_expansion(answer.body())) {
                return Err(HttpError::NoMemory.into());
            }
            let json = serde_json::from_slice(answer.body())
                .map_err(|error| format!("the answer is not JSON: {error}"))?;
            let response = response::of_json(json)?;
            let type_url =
                if response.type_url.is_empty() { request.type_url.clone() } else { response.type_url };
            Ok(Some(DiscoveryResponse { type_url, ..response }))
        }
        StatusCode::NOT_MODIFIED => Ok(None),
        other => Err(format!("the answer is {other}").into()),
    }
}

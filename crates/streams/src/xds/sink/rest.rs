//! Polling over HTTP: xDS without a stream (docs/behaviour/xds.md#rest).

use std::{
    collections::{BTreeMap, btree_map::Entry},
    error::Error,
    time::Duration,
};

use bytes::Bytes;
use futures_util::{
    FutureExt as _, StreamExt as _,
    future::BoxFuture,
    stream::{BoxStream, FuturesUnordered, unfold},
};
use http::{
    Request, StatusCode,
    header::{AUTHORIZATION, CONTENT_TYPE},
};
use prost::Message as _;
use prost_reflect::DynamicMessage;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status};

use super::{node::XdsClient, response, sotw_messages::Sotw};
use crate::{
    proto::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse},
    stream::{
        metrics::SINK,
        peer::Peer,
        redial::{DialOptions, redial},
        sink::{
            connect::with_stream,
            driver::{Sink, Stream},
            exchange::exchange,
        },
    },
    types::Types,
    xds::{json_expansion, rest_path},
};
use mixer_adapter_core::framework::settings;
use mixer_adapter_net::{
    HttpError,
    grpc::{CallMemory, StreamMemory},
    random,
};

settings! {
    /// The options of polling a server, in the terms of Envoy's `ApiConfigSource`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub struct PollOptions {
        /// The delay between the end of one round of requests and the next, with a jitter of up to a quarter.
        refresh_delay: Duration = Duration::from_secs(10),
        /// The timeout of an answer. A server may delay it until it has news.
        request_timeout: Duration = Duration::from_secs(60),
    }
}

/// The longest answer in bytes.
const MAX_ANSWER: usize = 64 << 20;

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
    let delay = options.refresh_delay;
    let redialing = DialOptions { first_wait: delay, longest_wait: delay, ..DialOptions::default() };
    let polling = redial(&server, &redialing, stop, |stop| {
        let (server, client, memory) = (server.clone(), client.clone(), memory.clone());
        with_stream(sink.clone(), server.to_string(), stop, move |stream, requests| {
            let served = stream.clone();
            exchange(stream, requests, Sotw::new(client), move |requests| {
                let poller = Poller {
                    server,
                    options,
                    memory,
                    stream: served,
                    requests,
                    types: BTreeMap::new(),
                    answers: FuturesUnordered::new(),
                    last_logged: String::new(),
                    _held: None,
                };
                unfold(poller, |mut poller| async { Some((Ok(poller.next().await?), poller)) }).boxed()
            })
        })
        .boxed()
    });
    server.watching(polling).await;
}

/// A polled type.
struct Polled {
    /// The next request.
    request: DiscoveryRequest,
    /// The time when it is sent; `None` while one is unanswered.
    due: Option<Instant>,
}

/// A type, the answer of the server, and the memory of the answer.
type Answer = (String, Result<Option<DiscoveryResponse>, Box<dyn Error + Send + Sync>>, CallMemory);

/// Polls the types that are requested on one stream.
struct Poller {
    server: Peer,
    options: PollOptions,
    memory: StreamMemory,
    stream: Stream,
    requests: BoxStream<'static, DiscoveryRequest>,
    types: BTreeMap<String, Polled>,
    answers: FuturesUnordered<BoxFuture<'static, Answer>>,
    last_logged: String,
    /// The memory of the last response, until it is handled.
    _held: Option<CallMemory>,
}

impl Poller {
    /// Returns the next response with news; `None` after the last request.
    async fn next(&mut self) -> Option<DiscoveryResponse> {
        self._held = None;
        loop {
            let next = self.types.values().filter_map(|polled| polled.due).min();
            tokio::select! {
                request = self.requests.next() => self.enqueue(request?),
                () = async { sleep_until(next.unwrap_or_else(Instant::now)).await }, if next.is_some() => {
                    self.send_due();
                }
                Some((type_url, answer, memory)) = self.answers.next() => {
                    if let Some(response) = self.answered(&type_url, answer) {
                        self._held = Some(memory);
                        return Some(response);
                    }
                }
            }
        }
    }

    /// Sets the next request of a type. A new type is requested at once, an answer is sent with the next request.
    fn enqueue(&mut self, request: DiscoveryRequest) {
        match self.types.entry(request.type_url.clone()) {
            Entry::Vacant(place) => _ = place.insert(Polled { request, due: Some(Instant::now()) }),
            Entry::Occupied(mut polled) => polled.get_mut().request = request,
        }
    }

    /// Sends the requests that are due.
    fn send_due(&mut self) {
        let (now, timeout) = (Instant::now(), self.options.request_timeout);
        for polled in self.types.values_mut().filter(|polled| polled.due.is_some_and(|due| due <= now)) {
            polled.due = None;
            let (server, request) = (self.server.clone(), polled.request.clone());
            let memory = self.memory.for_message();
            self.answers.push(
                async move {
                    let answer = send(&server, &request, timeout, &memory).await;
                    (request.type_url, answer, memory)
                }
                .boxed(),
            );
        }
    }

    /// Schedules the next request of a type after an answer. Returns the response, if there is news.
    fn answered(
        &mut self,
        type_url: &str,
        answer: Result<Option<DiscoveryResponse>, Box<dyn Error + Send + Sync>>,
    ) -> Option<DiscoveryResponse> {
        if let Some(polled) = self.types.get_mut(type_url) {
            let delay = self.options.refresh_delay.mul_f64(1.0 + 0.25 * random());
            polled.due = Some(Instant::now() + delay);
        }
        let error = match answer {
            Ok(response) => {
                self.stream.health().recovered();
                return response;
            }
            Err(error) => error,
        };
        if matches!(error.downcast_ref(), Some(HttpError::NoMemory)) {
            SINK.not_received(Code::ResourceExhausted);
        }
        let error = format!("{type_url}: {error}");
        self.stream.health().failed(&Status::unavailable(error.as_str()));
        // Logged once, not each time.
        if self.last_logged != error {
            tracing::warn!(server = %self.server, error, "polling failed; the last configuration stays in use");
            self.last_logged = error;
        }
        None
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

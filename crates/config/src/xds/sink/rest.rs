//! Polling over HTTP: xDS without a stream (docs/behaviour/xds.md#rest).

use std::{collections::BTreeMap, error::Error, time::Duration};

use bytes::Bytes;
use http::{Request, StatusCode, header::CONTENT_TYPE};
use prost::Message as _;
use prost_reflect::DynamicMessage;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::{Sotw, response};
use crate::{
    Types,
    proto::envoy::{
        config::core::v3::Node,
        service::discovery::v3::{DiscoveryRequest, DiscoveryResponse},
    },
    stream::{
        Peer, collection_of,
        redial::Ended,
        sink::{
            Dialect as _, Sink,
            connect::with_stream,
            driver::{Requests, Stream},
        },
    },
};
use mixer_adapter_net::random;

/// The interval of polling.
pub const REFRESH: Duration = Duration::from_secs(10);
/// How long an answer may take. A server may delay it until it has news.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The longest answer in bytes.
const MAX_ANSWER: usize = 64 << 20;
/// How long the first requests of a sink are collected.
const GATHER: Duration = Duration::from_millis(10);

/// The names of Envoy's types in paths.
const PATHS: [(&str, &str); 8] = [
    ("envoy.config.cluster.v3.Cluster", "clusters"),
    ("envoy.config.endpoint.v3.ClusterLoadAssignment", "endpoints"),
    ("envoy.config.listener.v3.Listener", "listeners"),
    ("envoy.config.route.v3.RouteConfiguration", "routes"),
    ("envoy.config.route.v3.ScopedRouteConfiguration", "scoped-routes"),
    ("envoy.service.runtime.v3.Runtime", "runtime"),
    ("envoy.extensions.transport_sockets.tls.v3.Secret", "secrets"),
    ("envoy.config.core.v3.TypedExtensionConfig", "extension_configs"),
];

/// The path for a type. That of a type that is not Envoy's ends in the last segment of the collection: `/v3/discovery:rules`.
fn path(type_url: &str) -> String {
    let collection = collection_of(type_url);
    let known = PATHS.iter().find(|(message, _)| *message == collection.as_str()).map(|(_, name)| *name);
    let name = known.or_else(|| collection.as_str().rsplit('/').next()).unwrap_or_default();
    format!("/v3/discovery:{name}")
}

/// Polls a server for everything that a sink subscribes to, one type after the other, at intervals of `refresh` and up to a quarter
/// more at random, until `stop` is cancelled.
pub async fn poll(sink: Sink, server: Peer, node: Node, refresh: Duration, stop: CancellationToken) {
    let polling = async {
        while !stop.is_cancelled() {
            let (own, node) = (server.clone(), node.clone());
            let exchange = |stream, requests| exchange(own, node, refresh, stream, requests);
            let Ended { status, .. } =
                with_stream(sink.clone(), server.to_string(), stop.clone(), exchange).await;
            tracing::warn!(%server, %status, "stream ended; requesting everything again");
            sleep(refresh).await;
        }
    };
    tokio::select! {
        () = server.watching(polling) => {}
        () = stop.cancelled() => {}
    }
}

async fn exchange(
    server: Peer,
    node: Node,
    refresh: Duration,
    stream: Stream,
    mut requests: Requests,
) -> Status {
    let mut dialect = Sotw::new(node);
    // The next request of each type URL.
    let mut next: BTreeMap<String, DiscoveryRequest> = BTreeMap::new();
    let mut at = Instant::now() + GATHER;
    let mut last_logged = String::new();
    loop {
        tokio::select! {
            request = requests.recv() => match request {
                Some(Ok(request)) => {
                    // A new subscription is not delayed.
                    if request.response_nonce.is_empty() {
                        at = at.min(Instant::now() + GATHER);
                    }
                    let requests = dialect.on_request(request);
                    next.extend(requests.into_iter().map(|request| (request.type_url.clone(), request)));
                }
                Some(Err(status)) => return status,
                None => return Status::aborted("the sink is gone"),
            },
            () = sleep_until(at) => {
                at = Instant::now() + refresh.mul_f64(1.0 + 0.25 * random());
                for request in next.clone().into_values() {
                    let received = match send(&server, &request).await {
                        Ok(Some(response)) => dialect.on_response(response),
                        Ok(None) => continue,
                        Err(error) => {
                            let error = format!("{}: {error}", request.type_url);
                            // Logged once, not each time.
                            if last_logged != error {
                                tracing::warn!(%server, error, "polling failed; the last configuration stays in use");
                                last_logged = error;
                            }
                            continue;
                        }
                    };
                    for reply in received.replies {
                        // The next type URL of a collection is requested at once.
                        if !next.contains_key(&reply.type_url) {
                            at = Instant::now();
                        }
                        next.insert(reply.type_url.clone(), reply);
                    }
                    if let Some(push) = received.push {
                        stream.received(push).await;
                    }
                }
            }
        }
    }
}

/// Sends one request. `None` is an answer without news.
async fn send(
    server: &Peer,
    request: &DiscoveryRequest,
) -> Result<Option<DiscoveryResponse>, Box<dyn Error + Send + Sync>> {
    let descriptor = Types::spoken("envoy.service.discovery.v3.DiscoveryRequest")
        .ok_or("the type DiscoveryRequest is not known")?;
    let message = DynamicMessage::decode(descriptor, &*request.encode_to_vec())?;
    let body = Bytes::from(serde_json::to_vec(&message)?);
    let (client, url) = server.http(TIMEOUT, MAX_ANSWER, &path(&request.type_url));
    let post = Request::post(url?).header(CONTENT_TYPE, "application/json").body(body)?;
    let answer = client.send(post).await?;
    match answer.status() {
        StatusCode::OK => {
            let json = serde_json::from_slice(answer.body())
                .map_err(|error| format!("the answer is not JSON: {error}"))?;
            let response = response::of_json(json)?;
            let type_url = match response.type_url.is_empty() {
                true => request.type_url.clone(),
                false => response.type_url,
            };
            Ok(Some(DiscoveryResponse { type_url, ..response }))
        }
        StatusCode::NOT_MODIFIED => Ok(None),
        other => Err(format!("the answer is {other}").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_envoy_have_its_paths_and_others_the_name_of_their_collection() {
        assert_eq!(path("type.googleapis.com/envoy.config.cluster.v3.Cluster"), "/v3/discovery:clusters");
        assert_eq!(path("config.istio.io/v1alpha2/rule"), "/v3/discovery:rules");
        assert_eq!(path("core/v1/Service"), "/v3/discovery:Service");
    }
}

//! Asking now and then, over HTTP: the form of xDS without a stream (docs/behaviour/xds.md#rest).

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;
use http::{
    Request, StatusCode,
    header::{CONNECTION, CONTENT_TYPE, HOST},
};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::rt::TokioIo;
use prost::Message as _;
use prost_reflect::DynamicMessage;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::{Dialect, Sotw, response};
use crate::{
    Types,
    mcp::{
        Peer,
        redial::Ended,
        sink::{
            Sink,
            dial::attended,
            driver::{Requests, Stream},
        },
    },
    proto::envoy::{
        config::core::v3::Node,
        service::discovery::v3::{DiscoveryRequest, DiscoveryResponse},
    },
    xds::collection_of,
};
use mixer_adapter_net::random;

/// How often a server is asked.
pub const REFRESH: Duration = Duration::from_secs(10);
/// How long an answer may take. A server may hold it back until there is news.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The longest answer in bytes.
const LARGEST: usize = 64 << 20;
/// How long the first questions of a sink are gathered.
const GATHER: Duration = Duration::from_millis(10);

/// What the types of Envoy are called in paths.
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

/// The path to ask for a type at. Of what is not Envoy's, the last segment of the collection: `/v3/discovery:rules`.
fn path(type_url: &str) -> String {
    let collection = collection_of(type_url);
    let known = PATHS.iter().find(|(message, _)| *message == collection.as_str()).map(|(_, name)| *name);
    let name = known.or_else(|| collection.as_str().rsplit('/').next()).unwrap_or_default();
    format!("/v3/discovery:{name}")
}

/// Asks a server for everything a sink wants, one type after the other, so often, and a little less often by chance; until told to stop.
pub async fn poll(sink: Sink, server: Peer, node: Node, refresh: Duration, stop: CancellationToken) {
    let polling = async {
        while !stop.is_cancelled() {
            let (own, node) = (server.clone(), node.clone());
            let speak = |stream, requests| speak(own, node, refresh, stream, requests);
            let Ended { status, .. } = attended(sink.clone(), server.to_string(), stop.clone(), speak).await;
            tracing::warn!(%server, %status, "everything is asked for anew");
            sleep(refresh).await;
        }
    };
    tokio::select! {
        () = server.watching(polling) => {}
        () = stop.cancelled() => {}
    }
}

async fn speak(
    server: Peer,
    node: Node,
    refresh: Duration,
    stream: Stream,
    mut requests: Requests,
) -> Status {
    let mut dialect = Sotw::new(node);
    // Type URL to what is said next.
    let mut next: BTreeMap<String, DiscoveryRequest> = BTreeMap::new();
    let mut at = Instant::now() + GATHER;
    let mut told = String::new();
    loop {
        tokio::select! {
            request = requests.recv() => match request {
                Some(Ok(request)) => {
                    // A question is not put off.
                    if request.response_nonce.is_empty() {
                        at = at.min(Instant::now() + GATHER);
                    }
                    let said = dialect.said(request);
                    next.extend(said.into_iter().map(|request| (request.type_url.clone(), request)));
                }
                Some(Err(status)) => return status,
                None => return Status::aborted("the sink is gone"),
            },
            () = sleep_until(at) => {
                at = Instant::now() + refresh.mul_f64(1.0 + 0.25 * random());
                for request in next.clone().into_values() {
                    let answer = match timeout(TIMEOUT, post(&server, &request)).await {
                        Ok(answer) => answer,
                        Err(_) => Err(format!("no answer within {TIMEOUT:?}")),
                    };
                    let heard = match answer {
                        Ok(Some(response)) => dialect.heard(response),
                        Ok(None) => continue,
                        Err(reason) => {
                            let reason = format!("{}: {reason}", request.type_url);
                            // Told once, not each time.
                            if told != reason {
                                tracing::warn!(%server, "what there is stays in use: {reason}");
                                told = reason;
                            }
                            continue;
                        }
                    };
                    for reply in heard.replies {
                        // The next type URL of a collection is asked for at once.
                        if !next.contains_key(&reply.type_url) {
                            at = Instant::now();
                        }
                        next.insert(reply.type_url.clone(), reply);
                    }
                    if let Some(push) = heard.push {
                        stream.received(push).await;
                    }
                }
            }
        }
    }
}

/// Asks once. `None` is no news.
async fn post(server: &Peer, request: &DiscoveryRequest) -> Result<Option<DiscoveryResponse>, String> {
    let descriptor =
        Types::spoken("envoy.service.discovery.v3.DiscoveryRequest").ok_or("it cannot be asked")?;
    let message = DynamicMessage::decode(descriptor, &*request.encode_to_vec());
    let message = message.map_err(|error| error.to_string())?;
    let body = serde_json::to_vec(&message).map_err(|error| error.to_string())?;
    let asked = Request::post(path(&request.type_url))
        .header(HOST, server.address())
        .header(CONTENT_TYPE, "application/json")
        .header(CONNECTION, "close")
        .body(Full::new(Bytes::from(body)))
        .map_err(|error| error.to_string())?;
    let stream = server.stream().await.map_err(|error| format!("cannot connect: {error}"))?;
    let (mut sender, driver) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| error.to_string())?;
    let answered = async {
        let response = sender.send_request(asked).await.map_err(|error| error.to_string())?;
        let status = response.status();
        let body = Limited::new(response.into_body(), LARGEST).collect().await;
        Ok::<_, String>((status, body.map_err(|error| error.to_string())?.to_bytes()))
    };
    let mut answered = std::pin::pin!(answered);
    let (status, body) = tokio::select! {
        answered = answered.as_mut() => answered?,
        // The connection may end before its last answer was read.
        _ = driver => answered.await?,
    };
    match status {
        StatusCode::OK => {
            let json =
                serde_json::from_slice(&body).map_err(|error| format!("the answer is no JSON: {error}"))?;
            let response = response::of_json(json)?;
            let type_url = match response.type_url.is_empty() {
                true => request.type_url.clone(),
                false => response.type_url,
            };
            Ok(Some(DiscoveryResponse { type_url, ..response }))
        }
        StatusCode::NOT_MODIFIED => Ok(None),
        other => Err(format!("the answer is {other}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_types_of_envoy_have_their_paths_and_others_the_name_of_their_collection() {
        assert_eq!(path("type.googleapis.com/envoy.config.cluster.v3.Cluster"), "/v3/discovery:clusters");
        assert_eq!(path("config.istio.io/v1alpha2/rule"), "/v3/discovery:rules");
        assert_eq!(path("core/v1/Service"), "/v3/discovery:Service");
    }
}

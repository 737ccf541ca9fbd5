use std::{
    collections::BTreeMap,
    future::{pending, ready},
    mem,
    time::Duration,
};

use futures_util::{FutureExt as _, StreamExt as _, TryFutureExt as _, TryStreamExt as _, stream::BoxStream};
use http::uri::PathAndQuery;
use prost::Message;
use tokio::{sync::mpsc, time::timeout};
use tonic::{Code, Response, Status, client::Grpc};

use super::{
    CertifyError, Check, Outcome, Protocol, Violation,
    response_rules::{BODIES, INCREMENTAL, REMOVED, Rules, VERSIONS},
    server_rules::{NAMES, NONCE, REPEATED, ServerRules, TYPE, VERSION},
};
use crate::{
    mcp::source::{CHANGES, METHOD, WHOLE},
    proto::{
        envoy::{
            config::core::v3::Node,
            service::discovery::v3::{
                DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
            },
        },
        istio::mcp::v1alpha1::{
            IncrementalMeshConfigRequest, IncrementalMeshConfigResponse, MeshConfigRequest,
            MeshConfigResponse, RequestResources, Resources, SinkNode,
        },
    },
    stream::{
        listen::outbox,
        peer::{Peer, PeerChannel, open},
        shorthand::Shorthand,
        sink::dialect::Variant,
    },
    xds::sink::rest::send as request_over_http,
};
use mixer_adapter_core::{framework::setters, proto};
use mixer_adapter_net::grpc::StreamMemory;

/// The parameters of the checks of a server.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Certification {
    /// The protocol.
    pub protocol: Protocol,
    /// The types or collections to request, as on the wire.
    pub type_urls: Vec<String>,
    /// The node of the client.
    pub node: Node,
    /// The timeout of an answer.
    pub patience: Duration,
    /// The time for which a server without news has to be silent.
    pub silence: Duration,
}

setters!(Certification { patience: Duration, silence: Duration });

impl Certification {
    /// Creates checks of these types or collections by a client with that node. The timeout of an answer is 5 s, and a
    /// silence lasts 0.5 s.
    pub fn new(protocol: Protocol, type_urls: Vec<String>, node: Node) -> Self {
        Self {
            protocol,
            type_urls,
            node,
            patience: Duration::from_secs(5),
            silence: Duration::from_millis(500),
        }
    }
}

const ANSWERED: &str = "the first request for a type is answered";
const SILENT: &str = "what is acknowledged is not sent again";
const STALE: &str = "a request with a stale nonce is not answered";
const REFUSED: &str = "what is rejected is not sent again";
const NAMED: &str = "names are answered with their resources, and new names, too";
const RESUMED: &str = "a client that has all resources is sent none";
const MISSING: &str = "a name that does not exist is answered with its removal";
const AGAIN: &str = "a name that is subscribed to again is sent again";
const UNKNOWN: &str = "an unknown collection is answered, or refused with INVALID_ARGUMENT";

/// A nonce that no server uses.
const NO_NONCE: &str = "certify-stale";
/// A name that no resource has.
const NO_NAME: &str = "certify/missing";
/// A collection that does not exist.
const NO_COLLECTION: &str = "certify/v1/missing";

/// Runs the checks of a server against it, and reports on each. Checks that a server does not allow are skipped.
///
/// # Errors
/// The server cannot be reached.
pub async fn certify(server: &Peer, of: &Certification) -> Result<Vec<Check>, CertifyError> {
    let reached = timeout(of.patience, server.reach())
        .await
        .map_err(|_| CertifyError::Timeout(server.clone(), of.patience))?;
    reached.map_err(|error| CertifyError::Connect(server.clone(), error))?;
    let mut probe = Probe { server, of, type_url: String::new(), violations: Vec::new(), checks: Vec::new() };
    for type_url in &of.type_urls {
        probe.type_url.clone_from(type_url);
        probe.of_type().await;
    }
    probe.several_types().await;
    if of.protocol == Protocol::Mcp {
        probe.unknown_collection().await;
    }
    Ok(probe.finish())
}

struct Probe<'a> {
    server: &'a Peer,
    of: &'a Certification,
    /// The type that is checked.
    type_url: String,
    /// Violations of the rules for all responses, with the types.
    violations: Vec<(String, Violation)>,
    checks: Vec<Check>,
}

/// A request, with the fields in which checks differ.
#[derive(Clone, Debug, Default)]
struct ProbeRequest {
    type_url: String,
    names: Vec<String>,
    version: String,
    nonce: String,
    refused: bool,
    known: BTreeMap<String, String>,
}

/// A stream of checks.
struct Session {
    protocol: Protocol,
    requests: mpsc::Sender<(ProbeRequest, Node)>,
    responses: BoxStream<'static, Result<Reply, Status>>,
    node: Node,
    /// The type of the last request.
    asked: String,
    rules: ServerRules,
}

impl Session {
    async fn send(&mut self, ask: ProbeRequest) {
        self.asked.clone_from(&ask.type_url);
        self.rules.sent(&Shorthand {
            type_url: ask.type_url.clone(),
            names: ask.names.clone(),
            nonce: ask.nonce.clone(),
            ..Shorthand::default()
        });
        // The end of a stream is reported where its answer is awaited.
        let _ = self.requests.send((ask, self.node.clone())).await;
    }
}

/// A response, the violations in its content, and the versions of its resources.
#[derive(Clone, Debug)]
struct Reply {
    shorthand: Shorthand,
    violations: Vec<Violation>,
    versions: BTreeMap<String, String>,
}

impl Reply {
    fn of<R: Rules>(response: R) -> Self {
        Self {
            violations: response.violations(),
            versions: response.versions(),
            shorthand: response.shorthand(),
        }
    }

    /// Returns whether a resource of that name is in it.
    fn has(&self, name: &str) -> bool {
        self.shorthand.names.iter().any(|known| known == name)
    }

    /// Returns the request that accepts it.
    fn accepted(&self, request: ProbeRequest) -> ProbeRequest {
        let Shorthand { version, nonce, .. } = self.shorthand.clone();
        ProbeRequest { version, nonce, ..request }
    }
}

impl Probe<'_> {
    async fn of_type(&mut self) {
        let Some((mut session, first)) = self.begin(self.ask(&[]), ANSWERED).await else {
            return;
        };
        self.push(ANSWERED, Outcome::Passed);
        session.send(first.accepted(self.ask(&[]))).await;
        self.is_silent(&mut session, SILENT, &first).await;
        if !self.of.protocol.is_delta() && self.of.protocol != Protocol::Rest {
            let stale = ProbeRequest { nonce: NO_NONCE.to_owned(), ..first.accepted(self.ask(&[])) };
            session.send(stale).await;
            self.is_silent(&mut session, STALE, &first).await;
        }
        drop(session);
        if let Some((mut session, first)) = self.begin(self.ask(&[]), REFUSED).await {
            let nonce = first.shorthand.nonce.clone();
            session.send(ProbeRequest { nonce, refused: true, ..self.ask(&[]) }).await;
            self.is_silent(&mut session, REFUSED, &first).await;
        }
        if matches!(self.of.protocol, Protocol::Xds(..) | Protocol::Rest) {
            self.names(&first).await;
        }
        if self.of.protocol.is_delta() {
            self.resumed(&first).await;
        }
        if matches!(self.of.protocol, Protocol::Xds(_, Variant::Delta)) {
            self.subscriptions(&first).await;
        }
    }

    /// Returns a request for names of the type.
    fn ask(&self, names: &[&str]) -> ProbeRequest {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        ProbeRequest { type_url: self.type_url.clone(), names, ..ProbeRequest::default() }
    }

    /// Checks subscriptions to resources by name, and then to one more.
    async fn names(&mut self, first: &Reply) {
        let names: Vec<&str> =
            first.shorthand.names.iter().map(String::as_str).filter(|name| !name.is_empty()).collect();
        let [one, other, ..] = names[..] else {
            return self.skip(NAMED, "there are fewer than two resources");
        };
        let Some((mut session, reply)) = self.begin(self.ask(&[one]), NAMED).await else { return };
        if !reply.has(one) {
            return self.push(NAMED, Outcome::Failed(format!("{one:?} is not in the answer to its name")));
        }
        let both: &[&str] = if self.of.protocol.is_delta() { &[other] } else { &[one, other] };
        session.send(reply.accepted(self.ask(both))).await;
        let answer = self.next(&mut session, self.of.patience).await;
        let silence = Outcome::Failed(format!("no answer to the new name {other:?}"));
        self.judge(NAMED, answer, silence, |reply| {
            Outcome::of(reply.has(other), || format!("{other:?} is not in the answer to its name"))
        });
    }

    /// Checks a first request with the versions of all resources.
    async fn resumed(&mut self, first: &Reply) {
        let known = first.versions.clone();
        if known.is_empty() || known.values().any(String::is_empty) {
            self.skip(RESUMED, "there are no resources with versions");
        } else if let Some(mut session) = self.open(RESUMED).await {
            session.send(ProbeRequest { known, ..self.ask(&[]) }).await;
            let answer = self.next(&mut session, self.of.silence).await;
            self.judge(RESUMED, answer, Outcome::Passed, |Reply { shorthand, .. }| {
                Outcome::of(shorthand.names.is_empty(), || format!("{} resources", shorthand.names.len()))
            });
        }
    }

    /// Checks names on delta streams: a missing name, and a name that is subscribed again.
    async fn subscriptions(&mut self, first: &Reply) {
        if let Some((_, reply)) = self.begin(self.ask(&[NO_NAME]), MISSING).await {
            let is_removed = reply.shorthand.removed.iter().any(|name| name == NO_NAME);
            self.push(MISSING, Outcome::of(is_removed, || "an answer without the name".to_owned()));
        }
        let Some(name) = first.shorthand.names.first() else {
            return self.skip(AGAIN, "there are no resources");
        };
        if let Some((mut session, reply)) = self.begin(self.ask(&[name]), AGAIN).await {
            let nonce = reply.shorthand.nonce.clone();
            session.send(ProbeRequest { nonce, ..self.ask(&[]) }).await;
            session.send(self.ask(&[name])).await;
            let answer = self.next(&mut session, self.of.patience).await;
            self.judge(AGAIN, answer, Outcome::Failed("no answer".to_owned()), |reply| {
                Outcome::of(reply.has(name), || format!("an answer without {name:?}"))
            });
        }
    }

    /// Requests two types on one stream, whose responses have to have different nonces.
    async fn several_types(&mut self) {
        let is_of_one_type =
            matches!(self.of.protocol, Protocol::Rest | Protocol::Aggregated(Variant::Delta));
        let [one, other, ..] = &self.of.type_urls[..] else { return };
        if is_of_one_type {
            return;
        }
        let Some(mut session) = self.open(ANSWERED).await else { return };
        for type_url in [one, other] {
            self.type_url.clone_from(type_url);
            session.send(self.ask(&[])).await;
            self.next(&mut session, self.of.patience).await;
        }
    }

    async fn unknown_collection(&mut self) {
        NO_COLLECTION.clone_into(&mut self.type_url);
        let Some(mut session) = self.open(UNKNOWN).await else { return };
        session.send(self.ask(&[])).await;
        match self.next(&mut session, self.of.patience).await {
            Some(Err(status)) if status.code() == Code::InvalidArgument => {
                self.push(UNKNOWN, Outcome::Passed);
            }
            answer => {
                self.judge(UNKNOWN, answer, Outcome::Failed("no answer".to_owned()), |_| Outcome::Passed);
            }
        }
    }

    /// Opens a stream with that request, and waits for its answer. Without one, the check fails.
    async fn begin(&mut self, ask: ProbeRequest, check: &'static str) -> Option<(Session, Reply)> {
        let mut session = self.open(check).await?;
        session.send(ask).await;
        let observed = match self.next(&mut session, self.of.patience).await {
            Some(Ok(reply)) => return Some((session, reply)),
            Some(Err(status)) => ended(&status),
            None => format!("no answer within {:?}", self.of.patience),
        };
        self.push(check, Outcome::Failed(observed));
        None
    }

    async fn open(&mut self, check: &'static str) -> Option<Session> {
        let session = Session::open(self.server, self.of).await;
        session.map_err(|status| self.push(check, Outcome::Failed(ended(&status)))).ok()
    }

    async fn next(&mut self, session: &mut Session, patience: Duration) -> Option<Result<Reply, Status>> {
        let reply = timeout(patience, session.responses.next()).await.ok()?;
        let reply = reply.unwrap_or_else(|| Err(Status::ok("the server ended it")));
        let reply = reply.map(|reply| session.typed(reply));
        if let Ok(reply) = &reply {
            let violations = session.rules.received(&reply.shorthand).into_iter();
            let violations = violations.chain(reply.violations.iter().cloned());
            self.violations.extend(violations.map(|violation| (self.type_url.clone(), violation)));
        }
        Some(reply)
    }

    /// Fails a check if the server repeats a response. Changed resources may be sent.
    async fn is_silent(&mut self, session: &mut Session, check: &'static str, last: &Reply) {
        let answer = self.next(session, self.of.silence).await;
        self.judge(check, answer, Outcome::Passed, |Reply { shorthand, .. }| {
            if shorthand.version != last.shorthand.version && !shorthand.version.is_empty() {
                return Outcome::Skipped("the configuration changed meanwhile".to_owned());
            }
            Outcome::Failed(format!("a response of {} resources", shorthand.names.len()))
        });
    }

    /// Records the result of an answer: `verdict` on a response, and `silence` without an answer.
    fn judge(
        &mut self,
        rule: &'static str,
        answer: Option<Result<Reply, Status>>,
        silence: Outcome,
        verdict: impl FnOnce(&Reply) -> Outcome,
    ) {
        let outcome = match answer {
            None => silence,
            Some(Ok(reply)) => verdict(&reply),
            Some(Err(status)) => Outcome::Failed(ended(&status)),
        };
        self.push(rule, outcome);
    }

    fn skip(&mut self, rule: &'static str, reason: &str) {
        self.push(rule, Outcome::Skipped(reason.to_owned()));
    }

    fn push(&mut self, rule: &'static str, outcome: Outcome) {
        self.checks.push(Check { rule, type_url: self.type_url.clone(), outcome });
    }

    /// A result for each rule, the first failure of each.
    fn finish(mut self) -> Vec<Check> {
        let rules: &[&str] = match self.of.protocol {
            Protocol::Rest => &[TYPE, VERSION, NAMES, REPEATED, BODIES],
            Protocol::Mcp => &[NONCE, TYPE, VERSION, NAMES, REPEATED, BODIES, INCREMENTAL, REMOVED],
            delta if delta.is_delta() => &[NONCE, TYPE, NAMES, BODIES, VERSIONS],
            _ => &[NONCE, TYPE, VERSION, NAMES, REPEATED, BODIES],
        };
        let answered = self.checks.iter().any(|check| check.outcome == Outcome::Passed);
        for &rule in rules {
            let found = self.violations.iter().find(|(_, violation)| violation.rule == rule);
            self.type_url = found.map(|(type_url, _)| type_url.clone()).unwrap_or_default();
            let outcome = match found {
                Some((_, violation)) => Outcome::Failed(violation.observed.clone()),
                None if answered => Outcome::Passed,
                None => Outcome::Skipped("there was no response".to_owned()),
            };
            self.push(rule, outcome);
        }
        let mut results: Vec<Check> = Vec::new();
        for check in self.checks {
            match results.iter_mut().find(|known| known.rule == check.rule) {
                None => results.push(check),
                Some(known) if known.outcome.severity() < check.outcome.severity() => *known = check,
                Some(_) => {}
            }
        }
        results
    }
}

impl Outcome {
    /// Returns a success, or a failure with the observation.
    fn of(passed: bool, observed: impl FnOnce() -> String) -> Self {
        if passed { Self::Passed } else { Self::Failed(observed()) }
    }

    /// Returns the order of outcomes of several types: a failure, then a success, then a check that was not possible.
    fn severity(&self) -> u8 {
        match self {
            Self::Skipped(_) => 0,
            Self::Passed => 1,
            Self::Failed(_) => 2,
        }
    }
}

fn ended(status: &Status) -> String {
    format!("the stream ended with {:?}: {}", status.code(), status.message())
}

impl Session {
    async fn open(server: &Peer, of: &Certification) -> Result<Self, Status> {
        let (requests, asks) = mpsc::channel(8);
        let grpc = async {
            let channel = timeout(of.patience, server.connect()).await.map_err(|_| {
                Status::deadline_exceeded(format!("no connection within {:?}", of.patience))
            })??;
            Ok::<_, Status>(Grpc::new(channel).max_decoding_message_size(MAX_RESPONSE))
        };
        let path = PathAndQuery::from_static;
        let responses = match of.protocol {
            Protocol::Rest => poll(server.clone(), of.patience, asks),
            Protocol::Mcp => exchange::<_, Resources>(grpc.await?, path(METHOD), asks, mcp),
            Protocol::Aggregated(Variant::Sotw) => {
                exchange::<_, MeshConfigResponse>(grpc.await?, path(WHOLE), asks, aggregated)
            }
            Protocol::Aggregated(Variant::Delta) => {
                let request = aggregated_delta;
                exchange::<_, IncrementalMeshConfigResponse>(grpc.await?, path(CHANGES), asks, request)
            }
            Protocol::Xds(api, variant @ Variant::Sotw) => {
                exchange::<_, DiscoveryResponse>(grpc.await?, api.path(variant), asks, sotw)
            }
            Protocol::Xds(api, variant @ Variant::Delta) => {
                exchange::<_, DeltaDiscoveryResponse>(grpc.await?, api.path(variant), asks, delta)
            }
        };
        Ok(Self {
            protocol: of.protocol,
            requests,
            responses,
            node: of.node.clone(),
            asked: String::new(),
            rules: ServerRules::new(of.protocol),
        })
    }

    /// Returns a response with its type. Responses of `IncrementalAggregatedResources` have none, but their stream has
    /// a single type.
    fn typed(&self, mut reply: Reply) -> Reply {
        if self.protocol == Protocol::Aggregated(Variant::Delta) {
            reply.shorthand.type_url.clone_from(&self.asked);
        }
        reply
    }
}

/// Sends requests over HTTP, each in place of the unanswered one. An answer without news is silence.
fn poll(
    server: Peer,
    patience: Duration,
    mut asks: mpsc::Receiver<(ProbeRequest, Node)>,
) -> BoxStream<'static, Result<Reply, Status>> {
    let (replies, responses) = mpsc::channel(8);
    tokio::spawn(async move {
        let mut answer = pending().boxed();
        loop {
            let answered = tokio::select! {
                () = replies.closed() => return,
                ask = asks.recv() => {
                    let Some((ask, node)) = ask else { return };
                    let (server, request) = (server.clone(), sotw(ask, node));
                    let memory = StreamMemory::new(usize::MAX).for_message();
                    answer = async move { request_over_http(&server, &request, patience, &memory).await }.boxed();
                    continue;
                }
                answered = &mut answer => answered,
            };
            answer = pending().boxed();
            let reply = match answered {
                Ok(None) => continue,
                Ok(Some(response)) => Ok(Reply::of(response)),
                Err(error) => Err(Status::unknown(error.to_string())),
            };
            if replies.send(reply).await.is_err() {
                return;
            }
        }
    });
    outbox(responses).boxed()
}

/// Opens a stream of one protocol for requests, and returns the responses. The first error is the last item.
fn exchange<Q, P>(
    grpc: Grpc<PeerChannel>,
    path: PathAndQuery,
    asks: mpsc::Receiver<(ProbeRequest, Node)>,
    to_request: fn(ProbeRequest, Node) -> Q,
) -> BoxStream<'static, Result<Reply, Status>>
where
    Q: Message + 'static,
    P: Rules + Message + Default + 'static,
{
    let requests = outbox(asks).map(move |(ask, node)| to_request(ask, node));
    open::<_, _, P>(grpc, path, requests)
        .map_ok(Response::into_inner)
        .try_flatten_stream()
        .map_ok(Reply::of)
        .scan(false, |has_failed, reply| {
            let had_failed = mem::replace(has_failed, reply.is_err());
            ready((!had_failed).then_some(reply))
        })
        .boxed()
}

/// The longest response in bytes.
const MAX_RESPONSE: usize = 64 << 20;

fn refusal(refused: bool) -> Option<proto::Status> {
    let message = "rejected by a check of the server".to_owned();
    refused.then_some(proto::Status { code: Code::InvalidArgument as i32, message, details: Vec::new() })
}

fn sink_node(node: Node) -> Option<SinkNode> {
    Some(SinkNode { id: node.id, ..SinkNode::default() })
}

fn mcp(ask: ProbeRequest, node: Node) -> RequestResources {
    RequestResources {
        sink_node: sink_node(node),
        collection: ask.type_url,
        response_nonce: ask.nonce,
        error_detail: refusal(ask.refused),
        ..RequestResources::default()
    }
}

fn aggregated(ask: ProbeRequest, node: Node) -> MeshConfigRequest {
    MeshConfigRequest {
        version_info: ask.version,
        sink_node: sink_node(node),
        type_url: ask.type_url,
        response_nonce: ask.nonce,
        error_detail: refusal(ask.refused),
    }
}

fn aggregated_delta(ask: ProbeRequest, node: Node) -> IncrementalMeshConfigRequest {
    IncrementalMeshConfigRequest {
        sink_node: sink_node(node),
        type_url: ask.type_url,
        initial_resource_versions: ask.known.into_iter().collect(),
        response_nonce: ask.nonce,
        error_detail: refusal(ask.refused),
    }
}

fn sotw(ask: ProbeRequest, node: Node) -> DiscoveryRequest {
    DiscoveryRequest {
        version_info: ask.version,
        node: Some(node),
        resource_names: ask.names,
        type_url: ask.type_url,
        response_nonce: ask.nonce,
        error_detail: refusal(ask.refused),
    }
}

fn delta(ask: ProbeRequest, node: Node) -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest {
        node: Some(node),
        type_url: ask.type_url,
        resource_names_subscribe: ask.names,
        initial_resource_versions: ask.known,
        response_nonce: ask.nonce,
        error_detail: refusal(ask.refused),
        ..DeltaDiscoveryRequest::default()
    }
}

//! A collector that decodes what it receives by the published descriptors of OpenTelemetry: those of the crate opentelemetry-proto 0.33.1
//! (Apache-2.0), without profiles.

use std::{
    convert::Infallible,
    fs,
    net::SocketAddr,
    sync::{Arc, LazyLock, Mutex},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use mixer_adapter_net::{
    Stream,
    tls::{self, KeyPair, ServerOptions},
};
use prost_reflect::{DescriptorPool, DynamicMessage};
use serde_json::{Map, Value as Json};
use test_pki::{Authority, Files};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    runtime::Runtime,
};

use crate::support::{eventually, recorder::Recorder};

static DESCRIPTORS: LazyLock<DescriptorPool> =
    LazyLock::new(|| DescriptorPool::decode(&include_bytes!("opentelemetry.binpb")[..]).unwrap());

/// A collector on a free port.
pub(super) struct Collector {
    pub(super) url: String,
    receiver: Receiver,
    runtime: Runtime,
    /// CA certificates, if the collector has TLS.
    pub(super) authorities: Option<tempfile::NamedTempFile>,
    _files: Files,
}

enum Receiver {
    Grpc(Recorder),
    Http(Arc<Mutex<Vec<(String, Bytes)>>>),
}

/// A span, a log record or a metric, with the attributes of its resource. Attributes are objects: `{"code": 200}`.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) resource: Json,
    pub(super) item: Json,
}

impl Item {
    pub(super) fn service(&self) -> &str {
        self.resource["service.name"].as_str().unwrap_or_default()
    }

    pub(super) fn name(&self) -> &str {
        self.item["name"].as_str().unwrap_or_default()
    }
}

impl Collector {
    /// A collector of gRPC.
    pub(super) fn grpc() -> Self {
        Self::grpc_on("127.0.0.1:0")
    }

    pub(super) fn grpc_on(address: &str) -> Self {
        let recorder = Recorder::start_on(address, |_| Ok(Vec::new()));
        let url = format!("http://{}", recorder.address);
        Self {
            url,
            receiver: Receiver::Grpc(recorder),
            runtime: runtime(),
            authorities: None,
            _files: Files::new(),
        }
    }

    /// A collector of gRPC, whose certificate is issued by an authority.
    pub(super) fn secure(authority: &Authority) -> Self {
        let collector = Self::grpc();
        let behind = collector.url.trim_start_matches("http://").parse().unwrap();
        let address = collector.runtime.block_on(secured(authority, &collector._files, behind));
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), authority.pem()).unwrap();
        Self { url: format!("https://{address}"), authorities: Some(file), ..collector }
    }

    /// A collector of HTTP.
    pub(super) fn http() -> Self {
        let (runtime, received) = (runtime(), Arc::<Mutex<Vec<_>>>::default());
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        runtime.spawn(serve_http(listener, received.clone()));
        let receiver = Receiver::Http(received);
        Self { url, receiver, runtime, authorities: None, _files: Files::new() }
    }

    /// The requests so far: their paths and bodies.
    pub(super) fn requests(&self) -> Vec<(String, Bytes)> {
        match &self.receiver {
            Receiver::Grpc(recorder) => {
                recorder.calls().into_iter().map(|call| (call.path, call.message)).collect()
            }
            Receiver::Http(received) => received.lock().unwrap().clone(),
        }
    }

    /// What has arrived.
    pub(super) fn items(&self) -> Vec<Item> {
        self.requests().iter().flat_map(|(path, body)| items(path, body)).collect()
    }

    /// What has arrived as soon as it is enough.
    pub(super) fn items_until(&self, is_enough: impl Fn(&[Item]) -> bool) -> Vec<Item> {
        eventually("the collector has received it", || Some(self.items()).filter(|items| is_enough(items)))
    }

    /// Runs a client.
    pub(super) fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

async fn serve_http(listener: TcpListener, received: Arc<Mutex<Vec<(String, Bytes)>>>) {
    while let Ok((stream, _)) = listener.accept().await {
        let received = received.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            let received = received.clone();
            async move {
                let path = request.uri().path().to_owned();
                assert_eq!(request.headers()["content-type"], "application/x-protobuf");
                let body = request.into_body().collect().await.unwrap().to_bytes();
                received.lock().unwrap().push((path, body));
                Ok::<_, Infallible>(Response::new(Full::new(Bytes::new())))
            }
        });
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

/// An address with TLS in front of another one, until the runtime ends.
async fn secured(authority: &Authority, files: &Files, behind: SocketAddr) -> SocketAddr {
    let own = authority.issue(&["127.0.0.1"]);
    let file = |name, content: &str| files.write(name, content).into();
    let identity =
        KeyPair { certificate: file("cert.pem", &own.certificate), key: file("key.pem", &own.key) };
    let options =
        ServerOptions { identity, client_authorities: None, optional_certificates: false, http1: false };
    let tls = tls::Server::load(options).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let tls = tls.clone();
            tokio::spawn(async move {
                let accepted = tls.accept(Stream::Left(stream), Duration::from_secs(10)).await;
                // A client that does not trust the certificate ends the handshake.
                let Ok((mut stream, _)) = accepted else { return };
                let mut behind = TcpStream::connect(behind).await.unwrap();
                let _ = copy_bidirectional(&mut stream, &mut behind).await;
            });
        }
    });
    address
}

/// Decodes a request.
fn items(path: &str, body: &Bytes) -> Vec<Item> {
    let (signal, message, resources, scopes, items) = match path {
        "/v1/traces" | "/opentelemetry.proto.collector.trace.v1.TraceService/Export" => {
            ("trace", "Trace", "resourceSpans", "scopeSpans", "spans")
        }
        "/v1/logs" | "/opentelemetry.proto.collector.logs.v1.LogsService/Export" => {
            ("logs", "Logs", "resourceLogs", "scopeLogs", "logRecords")
        }
        "/v1/metrics" | "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export" => {
            ("metrics", "Metrics", "resourceMetrics", "scopeMetrics", "metrics")
        }
        _ => panic!("{path} is not of the protocol"),
    };
    let name = format!("opentelemetry.proto.collector.{signal}.v1.Export{message}ServiceRequest");
    let descriptor = DESCRIPTORS.get_message_by_name(&name).unwrap();
    let request = DynamicMessage::decode(descriptor, body.clone()).unwrap();
    let request = simplified(serde_json::to_value(&request).unwrap());
    let list = |value: &Json, field: &str| value[field].as_array().cloned().unwrap_or_default();
    let mut found = Vec::new();
    for of_resource in list(&request, resources) {
        for of_scope in list(&of_resource, scopes) {
            assert_eq!(of_scope["scope"]["name"], "mixer-adapter");
            for item in list(&of_scope, items) {
                found.push(Item { resource: of_resource["resource"]["attributes"].clone(), item });
            }
        }
    }
    found
}

/// Turns lists of attributes into objects, and values of the protocol into those of JSON.
fn simplified(value: Json) -> Json {
    match value {
        Json::Object(fields) => {
            let simplify = |(name, value): (String, Json)| match (name.as_str(), value) {
                ("attributes", Json::Array(pairs)) => (name, Json::Object(pairs.iter().map(pair).collect())),
                ("body", value) => (name, any_value(&value)),
                (_, value) => (name, simplified(value)),
            };
            Json::Object(fields.into_iter().map(simplify).collect())
        }
        Json::Array(elements) => Json::Array(elements.into_iter().map(simplified).collect()),
        other => other,
    }
}

fn pair(pair: &Json) -> (String, Json) {
    (pair["key"].as_str().unwrap().to_owned(), any_value(&pair["value"]))
}

fn any_value(value: &Json) -> Json {
    let (kind, value) = value.as_object().unwrap().iter().next().unwrap();
    match kind.as_str() {
        "intValue" => value.as_str().unwrap().parse::<i64>().unwrap().into(),
        "kvlistValue" => {
            Json::Object(value["values"].as_array().unwrap().iter().map(pair).collect::<Map<_, _>>())
        }
        _ => value.clone(),
    }
}

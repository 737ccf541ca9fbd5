//! The messages that the table of attributes is tested with, as the real Envoy sends them.
//!
//! `RECORD=1 cargo test -p mixer-adapters --test it envoy_services:: messages` writes the file anew.

use std::{
    fs,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use mixer_adapter::{
    prost::Message as _,
    prost_types::{Struct, Value, value::Kind},
};
use mixer_adapter_envoy::proto::envoy::service::{
    accesslog::v3::StreamAccessLogsMessage,
    auth::v3::{CheckRequest, CheckResponse, OkHttpResponse, check_response::HttpResponse},
    ratelimit::v3::{RateLimitRequest, RateLimitResponse, rate_limit_response::Code},
};
use regex::Regex;
use serde_json::{Value as Json, json};
use test_pki::{Authority, Certified, Files, Issuer};

use super::{
    connections::exchange,
    mesh::{bootstrap, configured},
    support::{
        envoy::{Envoy, is_there},
        eventually,
        http::echo,
        recorder::Recorder,
    },
};

/// Rules that read a body, a token, headers and entries of descriptors, for what `envoy-config` prints.
const CONFIG: &str = r#"
kind: handler
metadata: {name: limits, namespace: istio-system}
spec: {compiledAdapter: memquota, params: {quotas: [{name: per-user, maxAmount: 2}]}}
---
kind: instance
metadata: {name: per-user, namespace: istio-system}
spec:
  compiledTemplate: quota
  params: {dimensions: {user: 'ratelimit.descriptor["user"]', path: request.path}}
---
kind: rule
metadata: {name: limits, namespace: istio-system}
spec: {actions: [{handler: limits, instances: [per-user]}]}
---
kind: handler
metadata: {name: log, namespace: istio-system}
spec: {compiledAdapter: stdio}
---
kind: instance
metadata: {name: entry, namespace: istio-system}
spec:
  compiledTemplate: logentry
  params:
    severity: '"info"'
    timestamp: request.time
    variables:
      body: request.body | request.auth.principal | ""
      tag: 'request.headers["x-tag"] | ""'
      cache: 'response.headers["x-cache"] | ""'
---
kind: rule
metadata: {name: log, namespace: istio-system}
spec: {actions: [{handler: log, instances: [entry]}]}
"#;

/// What an Envoy of a mesh has in its bootstrap.
const NODE: &str = r#"
node:
  id: sidecar~10.0.0.9~shop-1.shop~shop.svc.cluster.local
  cluster: shop
  metadata:
    NAME: shop-1
    NAMESPACE: shop
    WORKLOAD_NAME: shop
    OWNER: kubernetes://apis/apps/v1/namespaces/shop/deployments/shop
    labels: {app: shop}
"#;

/// A filter that verifies tokens by `$KEYS`, and one that tries a policy.
const FILTERS: &str = r#"
          - name: envoy.filters.http.jwt_authn
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication
              providers:
                tests:
                  issuer: https://issuer.example.com
                  payload_in_metadata: payload
                  local_jwks: {inline_string: '$KEYS'}
              rules: [{match: {prefix: /token}, requires: {provider_name: tests}}]
          - name: envoy.filters.http.rbac
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.rbac.v3.RBAC
              shadow_rules: {action: DENY, policies: {trial: {permissions: [{header: {name: x-trial, present_match: true}}], principals: [{any: true}]}}}
"#;

const GOOD: &str = "spiffe://cluster.local/ns/shop/sa/good";
const FRONT: &str = "spiffe://cluster.local/ns/shop/sa/front";

const CHECK: &str = "/envoy.service.auth.v3.Authorization/Check";
const LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
const LOG: &str = "/envoy.service.accesslog.v3.AccessLogService/StreamAccessLogs";

fn file() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../crates/envoy/src/attributes/tests/recorded.jsonl")
}

/// An Envoy whose calls are recorded, and a client with a certificate.
struct Recording {
    envoy: Envoy,
    recorder: Recorder,
    denies: Arc<AtomicBool>,
    authority: Authority,
    client: Certified,
    issuer: Issuer,
    _files: Files,
    seen: usize,
    /// Name, method and message of what was recorded.
    messages: Vec<(&'static str, &'static str, Vec<u8>)>,
}

impl Recording {
    fn start(flags: &[&str]) -> Self {
        let (files, authority) = (Files::new(), Authority::new());
        let front = authority.issue(&["localhost", FRONT]);
        let client = authority.issue(&[GOOD]);
        let chain = files.write("cert.pem", &front.certificate);
        let key = files.write("key.pem", &front.key);
        let authorities = files.write("ca.pem", &authority.pem());
        let listener = ["--listener-cert-file", &chain, "--listener-key-file", &key];
        let clients = ["--listener-client-ca-file", &authorities];
        let denies = Arc::<AtomicBool>::default();
        let recorder = Recorder::start({
            let denies = denies.clone();
            move |path| Ok(answer(path, denies.load(Relaxed)))
        });
        let (config, upstream) = (configured(CONFIG), echo());
        let common = ["--config", config.path().to_str().unwrap(), "--upstream", &upstream];
        let text = bootstrap(&recorder.address, &[&common[..], &listener, &clients, flags].concat());
        let issuer = Issuer::new("tests");
        let keys = json!({ "keys": [issuer.jwk()] }).to_string();
        let envoy = Envoy::start(&format!("{NODE}{}", changed(&text).replace("$KEYS", &keys)));
        Self {
            envoy,
            recorder,
            denies,
            authority,
            client,
            issuer,
            _files: files,
            seen: 0,
            messages: Vec::new(),
        }
    }

    /// Sends a request over TLS, and records what Envoy sends for it to methods, in this order.
    fn send(&mut self, request: &str, messages: &[(&'static str, &'static str)]) {
        let _ = exchange(&self.envoy.listener("front"), &self.authority, &self.client, request);
        self.record(messages);
    }

    fn record(&mut self, messages: &[(&'static str, &'static str)]) {
        let mut calls = eventually("Envoy has called", || {
            let calls = self.recorder.calls().split_off(self.seen);
            (calls.len() >= messages.len()).then_some(calls)
        });
        self.seen += calls.len();
        // Calls of different methods come in any order.
        for (name, method) in messages {
            let call = calls.iter().position(|call| call.path == *method).expect(name);
            self.messages.push((name, method, calls.remove(call).message.to_vec()));
        }
        assert!(calls.is_empty(), "{calls:?}");
    }
}

/// A bootstrap with what only some installations of Envoy have.
fn changed(bootstrap: &str) -> String {
    let replace = |text: String, from: &str, to: &str| text.replace(from, to);
    let text = replace(
        bootstrap.to_owned(),
        "          http_filters:\n",
        &format!("          http_filters:{FILTERS}"),
    );
    let text = replace(
        text,
        "log_name: mixer-adapter\n",
        "log_name: mixer-adapter\n                custom_tags: [{tag: my.count, literal: {value: '7'}}]\n",
    );
    let headers = "response_headers_to_add: [{header: {key: grpc-status, value: '5'}}, {header: {key: grpc-message, value: nothing}}]";
    let metadata = "metadata: {filter_metadata: {mixer_adapter: {my.count: 5}}}";
    // Each entry of a log is sent at once, in a message of its own.
    let text = replace(text, "buffer_size_bytes: 65536", "buffer_size_bytes: 0");
    let text = replace(
        text,
        "  clusters:\n",
        "  clusters:\n  - {name: away, type: STATIC, connect_timeout: 1s, load_assignment: {cluster_name: away}}\n",
    );
    replace(
        text,
        "routes: [{match: {prefix: /, grpc: {}}, route: {cluster: upstream_grpc}}, {match: {prefix: /}, route: {cluster: upstream}}]",
        &format!(
            "routes: [{{match: {{prefix: /away}}, route: {{cluster: away}}}}, \
             {{match: {{prefix: /grpc}}, route: {{cluster: upstream}}, {headers}}}, \
             {{match: {{prefix: /}}, route: {{cluster: upstream}}, {metadata}}}]"
        ),
    )
}

fn answer(path: &str, denies: bool) -> Vec<u8> {
    let text = |text: &str| Value { kind: Some(Kind::StringValue(text.to_owned())) };
    if path == LIMIT {
        return RateLimitResponse { overall_code: Code::Ok.into(), ..RateLimitResponse::default() }
            .encode_to_vec();
    }
    if path != CHECK {
        return Vec::new();
    }
    // As the server answers: docs/envoy/answers.md#the-decision.
    let (code, outcome) = if denies { (7, "denied") } else { (0, "allowed") };
    let mut fields =
        vec![("decision_id", text("d-1")), ("outcome", text(outcome)), ("rules", text("paths.rule.shop"))];
    if denies {
        let number = Value { kind: Some(Kind::NumberValue(7.0)) };
        fields.extend([("code", number), ("message", text("paths.handler.shop:not here"))]);
    }
    let fields = fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let own = Value { kind: Some(Kind::StructValue(Struct { fields })) };
    CheckResponse {
        status: Some(mixer_adapter::proto::google::rpc::Status { code, ..Default::default() }),
        http_response: (!denies).then(|| HttpResponse::OkResponse(OkHttpResponse::default())),
        dynamic_metadata: Some(Struct { fields: [("mixer_adapter".to_owned(), own)].into() }),
    }
    .encode_to_vec()
}

/// Orders the headers, which are the entries of a map.
fn in_order(mut request: CheckRequest) -> CheckRequest {
    let context = request.attributes.as_mut().and_then(|attributes| attributes.request.as_mut());
    if let Some(http) = context.and_then(|request| request.http.as_mut()) {
        http.headers.sort();
    }
    request
}

/// What a message says, but for numbers, ids, tokens and certificates, which differ each time.
fn shape(method: &str, message: &[u8]) -> String {
    let text = match method {
        CHECK => format!("{:#?}", in_order(CheckRequest::decode(message).unwrap())),
        LIMIT => format!("{:#?}", RateLimitRequest::decode(message).unwrap()),
        _ => format!("{:#?}", StreamAccessLogsMessage::decode(message).unwrap()),
    };
    let id = Regex::new("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}").unwrap();
    let text = id.replace_all(&text, "ID");
    let text = Regex::new("Bearer [^\"]+").unwrap().replace_all(&text, "TOKEN");
    let certificate = Regex::new("(?s)-----BEGIN.*?END[^-]*-----|%2[BF]|-----BEGIN[^\"]*").unwrap();
    let text = certificate.replace_all(&text, "CERTIFICATE");
    Regex::new("-?[0-9]+").unwrap().replace_all(&text, "N").into_owned()
}

#[test]
fn messages_are_those_that_the_table_of_attributes_is_tested_with() {
    if !is_there() {
        return;
    }
    let mut http = Recording::start(&["--namespace", "shop", "--descriptor", "user=x-user"]);
    let claims = json!({ "iss": "https://issuer.example.com", "sub": "user-1", "aud": ["shop", "api"], "azp": "app", "groups": ["a", "b"] });
    let token = http.issuer.issue(&claims);
    let request = format!(
        "POST /token/a;b/c?key=k-1&x=1&x=2 HTTP/1.1\r\nhost: Shop.example.com:8443\r\nauthorization: Bearer {token}\r\n\
         user-agent: tests/1\r\nreferer: https://example.com/from\r\nx-forwarded-for: 10.1.2.3\r\nx-request-id: chosen\r\n\
         cookie: a=1\r\ncookie: b=2\r\nx-tag: one\r\nx-tag: two\r\nx-user: user-1\r\nx-trial: 1\r\ncontent-length: 5\r\n\r\nhello"
    );
    http.send(&request, &[("request", CHECK), ("rate limit", LIMIT), ("log of a request", LOG)]);
    http.denies.store(true, Relaxed);
    let get =
        |path: &str, headers: &str| format!("GET {path} HTTP/1.1\r\nhost: shop.example.com\r\n{headers}\r\n");
    http.send(&get("/denied", ""), &[("least request", CHECK), ("log of a denied request", LOG)]);
    http.denies.store(false, Relaxed);
    let grpc = "content-type: application/grpc\r\nte: trailers\r\n";
    http.send(&get("/grpc/Method", grpc), &[("request of gRPC", CHECK), ("log of gRPC", LOG)]);
    http.send(&get("/away", ""), &[("request without an upstream", CHECK), ("log without an upstream", LOG)]);

    let mut tcp = Recording::start(&["--tcp"]);
    tcp.send(
        &get("/over/tcp", ""),
        &[("log of a new connection", LOG), ("connection", CHECK), ("log of a connection", LOG)],
    );

    let messages: Vec<_> = http.messages.into_iter().chain(tcp.messages).collect();
    let lines: String = messages
        .iter()
        .map(|(name, method, message)| {
            json!({"name": name, "method": method, "message": BASE64.encode(message)}).to_string() + "\n"
        })
        .collect();
    if std::env::var_os("RECORD").is_some() {
        fs::write(file(), &lines).unwrap();
    }
    let recorded = fs::read_to_string(file()).unwrap();
    let recorded: Vec<Json> = recorded.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(recorded.len(), messages.len());
    for ((name, method, message), recorded) in messages.iter().zip(&recorded) {
        assert_eq!((&recorded["name"], &recorded["method"]), (&json!(name), &json!(method)));
        let known = BASE64.decode(recorded["message"].as_str().unwrap()).unwrap();
        // Whether the first entry of a connection has the principal depends on when the handshake ends.
        if *name != "log of a new connection" {
            assert_eq!(shape(method, message), shape(method, &known), "{name}");
        }
    }
}

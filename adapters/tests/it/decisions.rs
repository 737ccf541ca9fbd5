//! The id and the metadata of a decision, in the messages that Envoy receives.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicI32, Ordering::Relaxed},
};

use crate::support::{Server, binary, eventually, recorder::Recorder};
use mixer_adapter::{
    prost::Message as _,
    prost_types::{Struct, Value, value::Kind},
    proto::Status,
    tonic::transport::{Channel, Endpoint},
};
use mixer_adapter_envoy::proto::envoy::{
    extensions::common::ratelimit::v3::{RateLimitDescriptor, rate_limit_descriptor::Entry},
    service::{
        auth::v3::{
            AttributeContext, CheckRequest, CheckResponse,
            attribute_context::{HttpRequest, Request},
            authorization_client::AuthorizationClient,
            check_response::HttpResponse,
        },
        ratelimit::v3::{
            RateLimitRequest, RateLimitResponse, rate_limit_service_client::RateLimitServiceClient,
        },
    },
};

/// Denies `/admin`, and limits users.
const CONFIG: &str = r#"
kind: handler
metadata: {name: paths, namespace: istio-system}
spec: {compiledAdapter: listchecker, params: {overrides: [/admin], blacklist: true}}
---
kind: instance
metadata: {name: path, namespace: istio-system}
spec: {compiledTemplate: listentry, params: {value: request.url_path}}
---
kind: rule
metadata: {name: paths, namespace: istio-system}
spec: {actions: [{handler: paths, instances: [path]}]}
---
kind: handler
metadata: {name: limits, namespace: istio-system}
spec: {compiledAdapter: memquota, params: {quotas: [{name: per-user, maxAmount: 2, validDuration: 60s}]}}
---
kind: instance
metadata:
  name: per-user
  namespace: istio-system
  annotations: {mixer-adapter/dimensions-in-metadata: 'true'}
spec: {compiledTemplate: quota, params: {dimensions: {user: 'ratelimit.descriptor["user"] | request.headers["x-user"]'}}}
---
kind: rule
metadata: {name: limits, namespace: istio-system}
spec: {actions: [{handler: limits, instances: [per-user]}]}
"#;

struct Envoy {
    _server: Server,
    runtime: tokio::runtime::Runtime,
    channel: Channel,
    directory: tempfile::TempDir,
}

impl Envoy {
    fn start(flags: &[&str]) -> Self {
        Self::start_with(CONFIG, flags)
    }

    fn start_with(config_text: &str, flags: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let config = directory.path().join("config.yaml");
        std::fs::write(&config, config_text).unwrap();
        let log = std::fs::File::create(directory.path().join("log")).unwrap();
        let ports = ["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
        let mut serve = binary();
        serve.args(ports).args(["--log", "warn,mixer_adapter_envoy=debug", "--config"]).arg(&config);
        let server = Server::spawn(serve.args(flags).stderr(log)).0;
        server.until("/readyz", "\r\n\r\nready");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let endpoint = Endpoint::from_shared(format!("http://{}", server.grpc)).unwrap();
        let channel = runtime.block_on(endpoint.connect()).unwrap();
        Self { _server: server, runtime, channel, directory }
    }

    fn check(&self, path: &str) -> CheckResponse {
        self.try_check(path).unwrap()
    }

    fn try_check(&self, path: &str) -> Result<CheckResponse, tonic::Status> {
        let http = HttpRequest {
            path: path.to_owned(),
            headers: vec![mixer_adapter_envoy::proto::header_entry("x-user", "alice")],
            ..HttpRequest::default()
        };
        let request = Some(Request { time: None, http: Some(http) });
        let attributes = Some(AttributeContext { request, ..AttributeContext::default() });
        let mut client = AuthorizationClient::new(self.channel.clone());
        let answer = self.runtime.block_on(client.check(CheckRequest { attributes }));
        answer.map(tonic::Response::into_inner)
    }

    fn limit(&self, entries: &[(&str, &str)]) -> RateLimitResponse {
        let entries = entries.iter().map(|(key, value)| Entry { key: (*key).into(), value: (*value).into() });
        let descriptor = RateLimitDescriptor { entries: entries.collect(), ..RateLimitDescriptor::default() };
        let request =
            RateLimitRequest { domain: "per-user".to_owned(), descriptors: vec![descriptor], hits_addend: 0 };
        let mut client = RateLimitServiceClient::new(self.channel.clone());
        self.runtime.block_on(client.should_rate_limit(request)).unwrap().into_inner()
    }
}

/// The value at a path in metadata, below the key of this server.
fn value<'m>(metadata: Option<&'m Struct>, path: &[&str]) -> Option<&'m Kind> {
    let mut value: &Value = metadata?.fields.get("mixer_adapter")?;
    for name in path {
        let Some(Kind::StructValue(fields)) = &value.kind else { return None };
        value = fields.fields.get(*name)?;
    }
    value.kind.as_ref()
}

/// The text at a path in metadata.
fn text(metadata: Option<&Struct>, path: &[&str]) -> Option<String> {
    match value(metadata, path) {
        Some(Kind::StringValue(text)) => Some(text.clone()),
        _ => None,
    }
}

#[test]
fn metadata_has_the_rules_and_the_dimensions_of_quotas_for_descriptors() {
    let envoy = Envoy::start(&[]);
    let allowed = envoy.check("/shop").dynamic_metadata;
    let field = |path: &[&str]| text(allowed.as_ref(), path);
    assert_eq!(field(&["outcome"]).as_deref(), Some("allowed"));
    assert_eq!(field(&["rules"]).as_deref(), Some("paths.rule.istio-system"));
    assert_eq!(field(&["dimensions", "per-user", "user"]).as_deref(), Some("alice"));
    let denied = envoy.check("/admin").dynamic_metadata;
    let field = |path: &[&str]| text(denied.as_ref(), path);
    assert_eq!(field(&["outcome"]).as_deref(), Some("denied"));
    assert_eq!(field(&["rules"]).as_deref(), Some("paths.rule.istio-system"));
    assert_eq!(field(&["dimensions", "per-user", "user"]), None, "a denied request is not limited");
}

/// The answer of an external authorization server, with metadata of these names and values.
pub(crate) fn answer_with_metadata(code: i32, metadata: &[(&str, &str)]) -> Vec<u8> {
    let value = |text: &str| Value { kind: Some(Kind::StringValue(text.to_owned())) };
    let fields = metadata.iter().map(|(name, text)| ((*name).to_owned(), value(text))).collect();
    let answer = CheckResponse {
        status: Some(Status { code, ..Status::default() }),
        dynamic_metadata: Some(Struct { fields }),
        ..CheckResponse::default()
    };
    answer.encode_to_vec()
}

/// The instance of the rules that ask external authorization servers.
const REQUEST: &str = "kind: instance
metadata: {name: request, namespace: istio-system}
spec: {compiledTemplate: authorization, params: {action: {path: request.path}}}
";

/// A rule that asks an external authorization server.
fn asking(name: &str, server: &Recorder, condition: &str) -> String {
    format!(
        "---
kind: handler
metadata: {{name: {name}, namespace: istio-system}}
spec: {{compiledAdapter: extauthz, params: {{url: 'http://{}', timeout: 10s}}}}
---
kind: rule
metadata: {{name: {name}, namespace: istio-system}}
spec: {{match: '{condition}', actions: [{{handler: {name}, instances: [request]}}]}}
",
        server.address
    )
}

#[test]
fn metadata_of_adapters_is_beside_that_of_the_server() {
    let answer = Arc::new(Mutex::new(Vec::new()));
    let first_answer = answer.clone();
    let first = Recorder::start(move |_| Ok(first_answer.lock().unwrap().clone()));
    let second = Recorder::start(|_| Ok(answer_with_metadata(0, &[("user", "bob"), ("team", "shop")])));
    let rules = asking("first", &first, "true") + &asking("second", &second, "request.path == \"/both\"");
    let envoy = Envoy::start_with(&format!("{REQUEST}{rules}"), &[]);
    let set = |code: i32, metadata: &[(&str, &str)]| {
        *answer.lock().unwrap() = answer_with_metadata(code, metadata);
    };
    let own = |metadata: &Option<Struct>, name: &str| match &metadata.as_ref().unwrap().fields.get(name)?.kind
    {
        Some(Kind::StringValue(text)) => Some(text.clone()),
        other => panic!("{other:?}"),
    };
    set(0, &[("user", "alice"), ("mixer_adapter", "forged")]);
    let allowed = envoy.check("/both").dynamic_metadata;
    // The first action's value of a name applies.
    assert_eq!(["user", "team"].map(|name| own(&allowed, name).unwrap()), ["alice", "shop"]);
    assert_eq!(text(allowed.as_ref(), &["outcome"]).as_deref(), Some("allowed"));
    set(7, &[("user", "alice")]);
    let denied = envoy.check("/one");
    assert_eq!(own(&denied.dynamic_metadata, "user").as_deref(), Some("alice"));
    assert_eq!(text(denied.dynamic_metadata.as_ref(), &["outcome"]).as_deref(), Some("denied"));
    assert_eq!(denied.status.unwrap().details, [], "clients do not receive it");
    // 16 KiB with the name and the lengths, and a byte more.
    let longest = "x".repeat((16 << 10) - 15);
    set(0, &[("user", &longest)]);
    assert_eq!(own(&envoy.check("/one").dynamic_metadata, "user"), Some(longest.clone()));
    set(0, &[("user", &format!("{longest}x"))]);
    let failed = envoy.try_check("/one").unwrap_err();
    assert_eq!(failed.code(), tonic::Code::Unavailable);
    assert!(failed.message().contains("16385 bytes of metadata; the limit is 16384"), "{failed}");
    // A denial remains one.
    set(7, &[("user", &format!("{longest}x"))]);
    let denied = envoy.check("/one");
    assert_eq!(denied.status.unwrap().code, 7);
    assert_eq!(own(&denied.dynamic_metadata, "user"), None);
    let failures = text(denied.dynamic_metadata.as_ref(), &["failures"]).unwrap();
    assert!(failures.contains("16385 bytes of metadata; the limit is 16384"), "{failures}");
}

#[test]
fn metadata_of_all_adapters_together_are_limited() {
    let code = Arc::new(AtomicI32::new(0));
    let servers: Vec<Recorder> = (0..5)
        .map(|number| {
            let code = code.clone();
            // 16 KiB with the name and the lengths.
            let (name, value) = (format!("n{number:03}"), "x".repeat((16 << 10) - 15));
            Recorder::start(move |_| Ok(answer_with_metadata(code.load(Relaxed), &[(&name, &value)])))
        })
        .collect();
    let rules = servers.iter().enumerate().map(|(number, server)| {
        let condition = if number < 4 { "true" } else { "request.path == \"/five\"" };
        asking(&format!("server-{number}"), server, condition)
    });
    let envoy = Envoy::start_with(&format!("{REQUEST}{}", rules.collect::<String>()), &[]);
    let longest = envoy.check("/four").dynamic_metadata.unwrap();
    assert_eq!(longest.fields.len(), 5, "those of the adapters, and that of the server");
    let failed = envoy.try_check("/five").unwrap_err();
    assert_eq!(failed.code(), tonic::Code::Unavailable);
    assert!(failed.message().contains("81920 bytes of metadata; the limit is 65536"), "{failed}");
    code.store(7, Relaxed);
    assert_eq!(envoy.check("/five").status.unwrap().code, 7);
}

#[test]
fn metadata_has_the_use_of_the_cache_and_the_life_and_the_key_of_the_answer() {
    let envoy = Envoy::start(&["--cached-checks", "all"]);
    for outcome in ["miss", "hit"] {
        let metadata = envoy.check("/shop?x=1").dynamic_metadata;
        let field = |name: &str| value(metadata.as_ref(), &["cache", name]);
        assert_eq!(field("outcome"), Some(&Kind::StringValue(outcome.to_owned())));
        // The answers of listchecker are valid for 300 s by default.
        let Some(Kind::NumberValue(seconds)) = field("valid_for_seconds") else { panic!("{metadata:?}") };
        assert!((200.0..=300.0).contains(seconds), "{seconds}");
        let Some(Kind::ListValue(names)) = field("key") else { panic!("{metadata:?}") };
        let has = |name: &str| {
            names.values.iter().any(|value| value.kind == Some(Kind::StringValue(name.to_owned())))
        };
        assert!(has("request.url_path") && has("request.headers[x-user]"), "{names:?}");
        assert!(!has("request.path"), "{names:?}");
    }
    for flags in [&["--envoy-check-cache", "0"][..], &[]] {
        let without = Envoy::start(flags).check("/shop").dynamic_metadata;
        assert_eq!(value(without.as_ref(), &["cache"]), None);
    }
}

#[test]
fn one_id_joins_a_check_its_quotas_and_log_lines() {
    let envoy = Envoy::start(&["--envoy-decision-header", "X-Decision-Id"]);
    let check = envoy.check("/shop");
    let id = text(check.dynamic_metadata.as_ref(), &["decision_id"]).unwrap();
    let Some(HttpResponse::OkResponse(allowed)) = check.http_response else { panic!() };
    for headers in [&allowed.headers, &allowed.response_headers_to_add] {
        let header = headers.first().unwrap().header.as_ref().unwrap();
        assert_eq!((header.key.as_str(), &header.value), ("x-decision-id", &id));
    }
    let limited = envoy.limit(&[("user", "alice"), ("decision_id", &id)]);
    assert_eq!(text(limited.dynamic_metadata.as_ref(), &["decision_id"]).as_ref(), Some(&id));
    assert!(limited.response_headers_to_add.is_empty(), "the check has set the header");
    for line in ["a request was checked", "a rate limit was determined"] {
        eventually(line, || {
            let log = std::fs::read_to_string(envoy.directory.path().join("log")).unwrap();
            log.lines().any(|logged| logged.contains(line) && logged.contains(&id)).then_some(())
        });
    }
    // Without a check the quota has an id of its own.
    let limited = envoy.limit(&[("user", "alice"), ("decision_id", "forged\n")]);
    let own = text(limited.dynamic_metadata.as_ref(), &["decision_id"]).unwrap();
    assert_ne!(own, "forged\n");
    for headers in [&limited.response_headers_to_add, &limited.request_headers_to_add] {
        assert_eq!((headers[0].key.as_str(), &headers[0].value), ("x-decision-id", &own));
    }
}

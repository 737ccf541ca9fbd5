//! The services of Envoy, called by the real one with the bootstrap that `envoy-config` prints.
#![allow(clippy::unwrap_used)]

mod support;

use serde_json::Value as Json;
use support::{
    Server,
    envoy::{Envoy, is_there},
    eventually,
    http::{HttpResponse, echo, request},
    run,
};

/// Denies paths on a list.
const PATHS: &str = r#"
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
"#;

/// An Envoy in front of an upstream, with our server behind its filters.
struct Mesh {
    server: Server,
    envoy: Envoy,
    _config: tempfile::TempDir,
}

impl Mesh {
    fn start(config: &str, serve: &[&str], envoy_config: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("config.yaml"), config).unwrap();
        let directory = folder.path().to_str().unwrap().to_owned();
        let server = Server::start(&[&["--config", &directory], serve].concat());
        server.until("/readyz", "\r\n\r\nready");
        let envoy = Envoy::start(&bootstrap(&server.grpc, envoy_config));
        Self { server, envoy, _config: folder }
    }

    fn get(&self, path: &str, headers: &[&str]) -> HttpResponse {
        request(&self.envoy.listener("front"), "GET", path, headers)
    }

    /// The value of a series on the server's metrics page.
    fn metric(&self, series: &str) -> String {
        let page = self.server.get("/metrics");
        let line = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{series} is not in {page}")).to_owned()
    }
}

/// The bootstrap for a server, in front of a new upstream.
fn bootstrap(server: &str, flags: &[&str]) -> String {
    let upstream = echo();
    let common =
        ["envoy-config", "--envoy-listen", "127.0.0.1:0", "--address", server, "--upstream", &upstream];
    let ran = run(&[&common, flags].concat());
    assert_eq!(ran.code, 0, "{ran:?}");
    ran.stdout
}

#[test]
fn a_request_is_allowed_or_denied_by_the_rules() {
    if !is_there() {
        return;
    }
    let mesh = Mesh::start(PATHS, &[], &[]);
    let allowed = mesh.get("/shop?x=1", &[]);
    assert_eq!(allowed.status, 200);
    assert!(allowed.body.starts_with("GET /shop?x=1 HTTP/1.1\n"), "{}", allowed.body);
    let denied = mesh.get("/admin?x=1", &[]);
    assert_eq!(denied.status, 403);
    assert_eq!(denied.body, "PERMISSION_DENIED:paths.istio-system:/admin is blacklisted");
    assert_eq!(mesh.metric(r#"mixer_checks_total{outcome="allowed"}"#), "1");
    assert_eq!(mesh.metric(r#"mixer_checks_total{outcome="denied"}"#), "1");
    // Spellings of the path, which this Envoy normalizes.
    for path in ["//admin", "/shop/../admin", "/%61dmin"] {
        assert_eq!(mesh.get(path, &[]).status, 403, "{path}");
    }
}

#[test]
fn a_grpc_caller_is_denied_with_the_exact_code_and_the_message() {
    if !is_there() {
        return;
    }
    let mesh = Mesh::start(PATHS, &[], &[]);
    let denied = mesh.get("/admin", &["content-type: application/grpc"]);
    assert_eq!(denied.status, 200);
    assert_eq!(denied.header("grpc-status"), Some("7"));
    let message = "PERMISSION_DENIED:paths.istio-system:/admin is blacklisted";
    assert_eq!(denied.header("grpc-message"), Some(message));
    let web = mesh.get("/admin", &["content-type: application/grpc-web"]);
    assert_eq!((web.status, web.header("grpc-status")), (403, Some("7")));
    assert_eq!((web.header("grpc-message"), web.body.as_str()), (Some(message), message));
}

#[test]
fn an_allowed_request_has_the_changes_of_the_rules() {
    if !is_there() {
        return;
    }
    let rule = r#"
kind: rule
metadata: {name: changes, namespace: istio-system}
spec:
  requestHeaderOperations:
  - {name: x-user, values: ['request.headers["x-id"] | "nobody"']}
  - {name: x-list, values: ['"b"'], operation: APPEND}
  - {name: x-new, values: ['"1"'], operation: APPEND}
  - {name: x-secret, operation: REMOVE}
  - {name: ?user, values: ['"a&b"']}
  responseHeaderOperations:
  - {name: x-answer, values: ['"yes"']}
  - {name: set-cookie, values: ['"a=1"', '"b=2"'], operation: APPEND}
"#;
    let mesh = Mesh::start(&format!("{PATHS}{rule}"), &[], &[]);
    let allowed = mesh.get("/?x=1", &["x-id: alice", "x-user: forged", "x-list: a", "x-secret: s"]);
    assert_eq!(allowed.status, 200);
    for line in ["x-user: alice\n", "x-list: a,b\n", "x-new: 1\n"] {
        assert!(allowed.body.contains(line), "{line}: {}", allowed.body);
    }
    assert!(allowed.body.starts_with("GET /?x=1&user=a%26b HTTP/1.1\n"), "{}", allowed.body);
    assert!(!allowed.body.contains("x-secret") && !allowed.body.contains("forged"), "{}", allowed.body);
    assert_eq!(allowed.header("x-answer"), Some("yes"));
    assert_eq!(allowed.all("set-cookie"), ["a=1", "b=2"]);
    // A value with a control character cannot be sent by a client, but made by a rule: see the unit tests.
}

/// A rule whose condition cannot be evaluated without an API key.
const CONDITION: &str = r#"
kind: rule
metadata: {name: condition, namespace: istio-system}
spec: {match: 'request.api_key == "a"', actions: [{handler: paths, instances: [path]}]}
"#;

#[test]
fn a_request_that_cannot_be_checked_is_treated_by_the_failure_mode_and_never_allowed_by_us() {
    if !is_there() {
        return;
    }
    let config = format!("{PATHS}{CONDITION}");
    let with = ["x-api-key: b"];
    for (serve, envoy, with_header, without_header) in [
        (&[][..], &[][..], 200, 503),
        (&["--envoy-failure", "error-response"], &[], 200, 503),
        (&[], &["--failure-mode-allow"], 200, 200),
        (&["--on-match-error", "open"], &[], 200, 200),
        (&["--on-match-error", "closed"], &[], 200, 503),
    ] {
        let mesh = Mesh::start(&config, serve, envoy);
        assert_eq!(mesh.get("/", &with).status, with_header, "{serve:?} {envoy:?}");
        assert_eq!(mesh.get("/", &[]).status, without_header, "{serve:?} {envoy:?}");
        let outcome = if serve.contains(&"--on-match-error") { "0" } else { "1" };
        assert_eq!(mesh.metric(r#"mixer_checks_total{outcome="failed"}"#), outcome, "{serve:?} {envoy:?}");
    }
}

#[test]
fn while_the_server_is_away_the_failure_mode_decides() {
    if !is_there() {
        return;
    }
    for (flags, status) in [(&[][..], 503), (&["--failure-mode-allow"], 200)] {
        // A port that was free a moment ago.
        let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let envoy = Envoy::start(&bootstrap(&nobody, flags));
        assert_eq!(request(&envoy.listener("front"), "GET", "/", &[]).status, status, "{flags:?}");
    }
}

/// Two requests a minute for each user.
const LIMIT: &str = r#"
kind: handler
metadata: {name: limits, namespace: istio-system}
spec: {compiledAdapter: memquota, params: {quotas: [{name: per-user, maxAmount: 2, validDuration: 60s}]}}
---
kind: instance
metadata: {name: per-user, namespace: istio-system}
spec: {compiledTemplate: quota, params: {dimensions: {user: 'ratelimit.descriptor["user"]'}}}
---
kind: rule
metadata: {name: limits, namespace: istio-system}
spec: {actions: [{handler: limits, instances: [per-user]}]}
---
"#;

#[test]
fn a_rate_is_limited_by_a_quota_and_the_client_is_shown_the_rest() {
    if !is_there() {
        return;
    }
    let mesh = Mesh::start(LIMIT, &[], &["--rate-limit", "per-user", "--descriptor", "user=x-user"]);
    for remaining in ["1", "0"] {
        let allowed = mesh.get("/", &["x-user: alice"]);
        assert_eq!(allowed.status, 200);
        assert_eq!(allowed.header("x-ratelimit-limit"), Some("2, 2;w=60"));
        assert_eq!(allowed.header("x-ratelimit-remaining"), Some(remaining));
    }
    let limited = mesh.get("/", &["x-user: alice"]);
    assert_eq!(limited.status, 429);
    assert_eq!(limited.header("x-ratelimit-remaining"), Some("0"));
    // When the first of both requests is a minute old.
    let seconds: u64 = limited.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=60).contains(&seconds), "{seconds}");
    assert_eq!(limited.header("x-ratelimit-reset"), limited.header("retry-after"));
    assert_eq!(mesh.get("/", &["x-user: bob"]).status, 200);
    // Without the header Envoy sends no descriptor and makes no call.
    assert_eq!(mesh.get("/", &[]).status, 200);
    assert_eq!(mesh.metric(r#"envoy_rate_limits_total{outcome="ok"}"#), "3");
    assert_eq!(mesh.metric(r#"envoy_rate_limits_total{outcome="over_limit"}"#), "1");
}

#[test]
fn a_rate_without_a_quota_is_not_limited_and_one_that_cannot_be_determined_is_an_error() {
    if !is_there() {
        return;
    }
    let flags = ["--rate-limit", "unknown", "--descriptor", "user=x-user"];
    let mesh = Mesh::start(LIMIT, &[], &flags);
    assert_eq!(mesh.get("/", &["x-user: alice"]).status, 200);
    assert_eq!(mesh.metric(r#"envoy_rate_limits_total{outcome="unmatched"}"#), "1");

    // A dimension that descriptors do not have.
    let config = LIMIT.replace(r#"ratelimit.descriptor["user"]"#, "source.user");
    let flags = ["--rate-limit", "per-user", "--descriptor", "user=x-user"];
    let mesh = Mesh::start(&config, &[], &flags);
    assert_eq!(mesh.get("/", &["x-user: alice"]).status, 503);
    assert_eq!(mesh.metric(r#"envoy_rate_limits_total{outcome="failed"}"#), "1");
}

#[test]
fn each_request_is_reported_with_its_decision() {
    if !is_there() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("log");
    let log = format!(
        r#"
kind: handler
metadata: {{name: log, namespace: istio-system}}
spec: {{compiledAdapter: stdio, params: {{logStream: FILE, outputPath: "{}", outputAsJson: true}}}}
---
kind: instance
metadata: {{name: entry, namespace: istio-system}}
spec:
  compiledTemplate: logentry
  params:
    severity: '"info"'
    timestamp: request.time
    variables:
      path: request.path
      code: response.code | 0
      flags: context.proxy_error_code
      denied: check.error_code | 0
      decision: check.decision_id | "none"
---
kind: rule
metadata: {{name: log, namespace: istio-system}}
spec: {{actions: [{{handler: log, instances: [entry]}}]}}
"#,
        file.display()
    );
    let mut mesh = Mesh::start(&format!("{PATHS}{log}"), &[], &[]);
    for _ in 0..20 {
        mesh.get("/shop", &[]);
    }
    mesh.get("/admin", &[]);
    eventually("all entries are received", || (mesh.metric("envoy_log_entries_total") == "21").then_some(()));
    assert_eq!(mesh.metric("envoy_log_streams"), "1");
    // What is queued is reported before the server ends.
    mesh.server.signal("TERM");
    eventually("the server has ended", || mesh.server.child.try_wait().unwrap());
    let text = std::fs::read_to_string(&file).unwrap();
    let mut entries: Vec<Json> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(entries.len(), 21, "{text}");
    let denied = entries.iter().position(|entry| entry["path"] == "/admin").unwrap();
    let denied = entries.remove(denied);
    let values = (&denied["code"], &denied["flags"], &denied["denied"]);
    assert_eq!(values, (&403.into(), &"UAEX".into(), &7.into()), "{denied}");
    assert!(entries.iter().all(|entry| entry["code"] == 200 && entry["flags"] == "-"), "{text}");
    let mut ids: Vec<&str> = entries.iter().map(|entry| entry["decision"].as_str().unwrap()).collect();
    ids.push(denied["decision"].as_str().unwrap());
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 21, "{text}");
}

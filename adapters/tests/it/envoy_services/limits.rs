//! Rate limits.

use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use super::{
    mesh::Mesh,
    support::{
        debian::Redis,
        envoy::is_there,
        eventually,
        http::{HttpConnection, echo, request},
    },
};

/// Two requests a minute for each user.
pub(crate) const LIMIT: &str = r#"
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
    assert_eq!(mesh.metric(r#"mixer_adapter_envoy_rate_limits_total{outcome="ok"}"#), "3");
    assert_eq!(mesh.metric(r#"mixer_adapter_envoy_rate_limits_total{outcome="over_limit"}"#), "1");
}

/// The limit, with a form for requests past it.
fn formed(form: &str) -> String {
    let rule = "kind: rule\nmetadata: {name: limits, namespace: istio-system}";
    let annotated = "kind: rule\nmetadata:\n  name: limits\n  namespace: istio-system\n  annotations:\n    mixer-adapter/denial: |\n";
    let formed = LIMIT.replace(rule, &format!("{annotated}      {form}"));
    assert_ne!(formed, LIMIT);
    formed
}

#[test]
fn a_request_past_a_limit_is_answered_in_the_form_of_the_rule() {
    if !is_there() {
        return;
    }
    let form = r#"{headers: {x-limited: '"by user"'}, json: {error: {code: denial.code, message: denial.message}, user: 'ratelimit.descriptor["user"]', retry: true}}"#;
    let mesh = Mesh::start(&formed(form), &[], &["--descriptor", "user=x-user"]);
    for _ in 0..2 {
        let allowed = mesh.get("/", &["x-user: alice"]);
        assert_eq!((allowed.status, allowed.header("x-limited")), (200, None));
    }
    let limited = mesh.get("/", &["x-user: alice"]);
    assert_eq!((limited.status, limited.all("content-type")), (429, vec!["application/json"]));
    assert_eq!(
        (limited.header("x-limited"), limited.header("retry-after").is_some()),
        (Some("by user"), true)
    );
    let error = json!({"code": "RESOURCE_EXHAUSTED", "message": "the limit of per-user is reached"});
    let expected = json!({"error": error, "user": "alice", "retry": true});
    assert_eq!(serde_json::from_str::<Json>(&limited.body).unwrap(), expected);
    assert_eq!(mesh.get("/", &["x-user: bob"]).status, 200);
}

#[test]
fn a_request_past_a_limit_is_refused_also_without_the_value_of_a_form() {
    if !is_there() {
        return;
    }
    let mesh = Mesh::start(&formed("body: source.name"), &[], &["--descriptor", "user=x-user"]);
    let statuses = [(); 3].map(|()| mesh.get("/", &["x-user: alice"]).status);
    assert_eq!(statuses, [200, 200, 429]);
}

/// Each Envoy has a server of its own, and the servers have one Redis.
#[test]
fn three_envoys_pass_1000_of_1800_requests_of_a_limit_in_redis() {
    if !is_there() {
        return;
    }
    let Some(redis) = Redis::start() else { return };
    let in_redis = format!("redisquota, params: {{url: 'redis://127.0.0.1:{}', timeout: 1s, ", redis.port());
    let config = LIMIT
        .replace("memquota, params: {", &in_redis)
        .replace("maxAmount: 2, validDuration: 60s", "maxAmount: 1000, validDuration: 3600s");
    let flags = ["--rate-limit", "per-user", "--descriptor", "user=x-user"];
    let meshes = [(); 3].map(|()| Mesh::start(&config, &[], &flags));
    let statuses = std::thread::scope(|scope| {
        let clients = meshes.iter().cycle().take(6).map(|mesh| {
            scope.spawn(|| {
                let mut connection = HttpConnection::open(&mesh.front());
                (0..300).map(|_| connection.get("/", &["x-user: alice"]).status).collect::<Vec<_>>()
            })
        });
        let clients: Vec<_> = clients.collect();
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect::<Vec<_>>()
    });
    let count = |status| statuses.iter().filter(|known| **known == status).count();
    assert_eq!((count(200), count(429)), (1000, 800), "{statuses:?}");
}

/// Envoy sends a descriptor only with all its headers: the key of one quota must not be in the descriptor of another.
#[test]
fn each_of_two_quotas_limits_requests_with_its_header_alone() {
    if !is_there() {
        return;
    }
    let by_key = LIMIT.replace("per-user", "per-key").replace(
        r#"{user: 'ratelimit.descriptor["user"]'}"#,
        r#"{key: 'ratelimit.descriptor["key"] | "none"'}"#,
    );
    let by_key = by_key
        .replace("name: limits", "name: limits-of-keys")
        .replace("handler: limits", "handler: limits-of-keys");
    let flags = ["--descriptor", "user=x-user", "--descriptor", "key=x-key"];
    let mesh = Mesh::start(&format!("{LIMIT}{by_key}"), &[], &flags);
    let statuses = |headers: &[&str]| -> Vec<u16> { (0..3).map(|_| mesh.get("/", headers).status).collect() };
    assert_eq!(statuses(&["x-user: alice", "x-key: one"]), [200, 200, 429]);
    assert_eq!(statuses(&["x-key: two"]), [200, 200, 429], "without the header of the other quota");
    assert_eq!(statuses(&[]), [200, 200, 429], "all requests without a key have one limit");
}

#[test]
fn a_rate_without_a_quota_is_not_limited_and_one_that_cannot_be_determined_is_an_error() {
    if !is_there() {
        return;
    }
    let flags = ["--rate-limit", "unknown", "--descriptor", "user=x-user"];
    let mesh = Mesh::start(LIMIT, &[], &flags);
    assert_eq!(mesh.get("/", &["x-user: alice"]).status, 200);
    assert_eq!(mesh.metric(r#"mixer_adapter_envoy_rate_limits_total{outcome="unmatched"}"#), "1");

    // A dimension that descriptors do not have.
    let config = LIMIT.replace(r#"ratelimit.descriptor["user"]"#, "source.user");
    let mesh = Mesh::start(&config, &[], &["--rate-limit", "per-user"]);
    assert_eq!(mesh.get("/", &["x-user: alice"]).status, 503);
    assert_eq!(mesh.metric(r#"mixer_adapter_envoy_rate_limits_total{outcome="failed"}"#), "1");
}

/// The resolution at which memquota counts grants.
const TICK: Duration = Duration::from_millis(100);

#[test]
fn a_limited_client_gets_the_second_at_which_the_limit_ends() {
    if !is_there() {
        return;
    }
    let mesh = Mesh::start(LIMIT, &[], &["--descriptor", "user=x-user"]);
    let front = mesh.front();
    let get = || request(&front, "GET", "/", &["x-user: alice"]);
    let before_first = Instant::now();
    get();
    let after_first = Instant::now();
    get();
    let before_limited = Instant::now();
    let limited = get();
    let after_limited = Instant::now();
    assert_eq!(limited.status, 429);
    // The first request's grant ends a minute after it; the time until then is in whole seconds, rounded up.
    let window = Duration::from_secs(60);
    let earliest = window.saturating_sub(after_limited - before_first).as_secs_f64().ceil();
    let latest = (window.saturating_sub(before_limited - after_first) + TICK).as_secs_f64().ceil();
    let retry_after: f64 = limited.header("retry-after").unwrap().parse().unwrap();
    assert!((earliest..=latest).contains(&retry_after), "{retry_after} is not in {earliest}..={latest}");
}

#[test]
fn a_caller_does_not_avoid_a_limit_with_the_id_of_an_earlier_request() {
    if !is_there() {
        return;
    }
    let mesh = Mesh::start(LIMIT, &["--trust-request-id"], &["--descriptor", "user=x-user"]);
    let statuses = [(); 3].map(|()| mesh.get("/", &["x-user: alice", "x-request-id: chosen"]).status);
    assert_eq!(statuses, [200, 200, 429]);
}

/// Adds limits for callers with certain headers to the printed one: one looks, one gives back.
fn with_hits(bootstrap: String) -> String {
    let limit = |header: &str, hits: &str| {
        format!(
            "              - actions:\n                - {{request_headers: {{descriptor_key: user, header_name: {header}}}}}\n                hits_addend: {hits}\n"
        )
    };
    let limits =
        [limit("x-look", "{number: 0}"), limit("x-return", "{number: 1, is_negative_hits: true}")].concat();
    bootstrap
        .replace("              rate_limit_service:", &format!("{limits}              rate_limit_service:"))
}

#[test]
fn hits_can_be_none_and_negative() {
    if !is_there() {
        return;
    }
    let mesh = Mesh::start_before(LIMIT, &[], &["--descriptor", "user=x-user"], &echo(), with_hits);
    let remaining = |header: &str| {
        let response = mesh.get("/", &[header]);
        let remaining: u32 = response.header("x-ratelimit-remaining").unwrap().parse().unwrap();
        (response.status, remaining)
    };
    assert_eq!(remaining("x-look: alice"), (200, 2));
    assert_eq!(remaining("x-user: alice"), (200, 1));
    assert_eq!(remaining("x-look: alice"), (200, 1));
    assert_eq!(remaining("x-user: alice"), (200, 0));
    assert_eq!(remaining("x-look: alice"), (429, 0));
    assert_eq!(remaining("x-user: alice"), (429, 0));
    assert_eq!(remaining("x-return: alice"), (200, 1));
    assert_eq!(remaining("x-user: alice"), (200, 0));
}

/// A thousand bytes a minute for each user.
const BYTES: &str = r#"
kind: handler
metadata: {name: limits, namespace: istio-system}
spec: {compiledAdapter: memquota, params: {quotas: [{name: bytes, maxAmount: 1000, validDuration: 60s}]}}
---
kind: instance
metadata: {name: bytes, namespace: istio-system}
spec: {compiledTemplate: quota, params: {dimensions: {user: 'ratelimit.descriptor["user"]'}}}
---
kind: rule
metadata: {name: limits, namespace: istio-system}
spec: {actions: [{handler: limits, instances: [bytes]}]}
"#;

#[test]
fn bytes_of_responses_are_counted_when_they_have_been_sent_also_past_the_limit() {
    if !is_there() {
        return;
    }
    let mesh = Mesh::start(BYTES, &[], &["--descriptor", "user=x-user", "--count-response-bytes", "bytes"]);
    let counted = |calls: usize| {
        let granted =
            || mesh.metric(r#"mixer_adapter_envoy_rate_limits_total{outcome="ok"}"#) == calls.to_string();
        eventually("the bytes are counted", || granted().then_some(()));
    };
    let long = format!("/{}", "x".repeat(600));
    let first = mesh.get(&long, &["x-user: alice"]);
    assert_eq!((first.status, first.header("x-ratelimit-remaining")), (200, Some("1000")));
    counted(2);
    let second = mesh.get(&long, &["x-user: alice"]);
    let left = (1000 - first.body.len()).to_string();
    assert_eq!((second.status, second.header("x-ratelimit-remaining")), (200, Some(left.as_str())));
    counted(4);
    assert!(first.body.len() + second.body.len() > 1000);
    assert_eq!(mesh.get(&long, &["x-user: alice"]).status, 429);
    assert_eq!(mesh.get(&long, &["x-user: bob"]).status, 200);
}

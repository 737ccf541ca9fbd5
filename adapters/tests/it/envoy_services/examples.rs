//! The configurations of examples/configurations, behind Envoy with the bootstrap for each.

use std::{collections::BTreeSet, fs, path::Path};

use super::{
    mesh::bootstrap,
    support::{
        Server, binary,
        envoy::{Envoy, is_there},
        http::{HttpResponse, echo, head, raw},
    },
};

/// An example with the flags of `envoy-config` that its comments name.
struct Example {
    name: &'static str,
    flags: &'static [&'static str],
    requests: &'static [Expected],
    /// A handler that receives an access log for each request.
    logged_by: Option<&'static str>,
}

/// A request, the status of its response, and a part of that.
struct Expected {
    method: &'static str,
    path: &'static str,
    headers: &'static [&'static str],
    body: &'static str,
    status: u16,
    contains: &'static str,
}

const fn expected(
    method: &'static str,
    path: &'static str,
    headers: &'static [&'static str],
    status: u16,
    contains: &'static str,
) -> Expected {
    Expected { method, path, headers, body: "", status, contains }
}

const fn posted(body: &'static str, status: u16, contains: &'static str) -> Expected {
    Expected { method: "POST", path: "/", headers: &[], body, status, contains }
}

const fn example(
    name: &'static str,
    flags: &'static [&'static str],
    requests: &'static [Expected],
    logged_by: Option<&'static str>,
) -> Example {
    Example { name, flags, requests, logged_by }
}

const EXAMPLES: [Example; 18] = [
    // A client without a certificate has no namespace.
    example("allow-namespaces", &[], &[expected("GET", "/", &[], 403, "is not whitelisted")], None),
    // No service listens there.
    example(
        "ask-decision-service",
        &[],
        &[
            expected("GET", "/todos", &[], 503, "the decision service made no decision"),
            expected("GET", "/healthz", &[], 200, ""),
        ],
        None,
    ),
    // No service listens there.
    example(
        "ask-opa",
        &[],
        &[
            expected("GET", "/orders", &[], 503, "the authorization service made no decision"),
            expected("GET", "/healthz", &[], 200, ""),
        ],
        None,
    ),
    example(
        "authorize-envoy",
        &[],
        &[
            expected("GET", "/", &["x-api-key: 4f2a9c"], 200, ""),
            expected("GET", "/?api_key=b81d07", &[], 200, ""),
            expected("GET", "/", &["x-api-key: 4f2a9d"], 403, ""),
            expected("GET", "/", &[], 403, ""),
            expected("GET", "/healthz", &[], 200, ""),
            expected("OPTIONS", "/", &[], 200, ""),
        ],
        None,
    ),
    example(
        "cel-rule",
        &[],
        &[
            expected("GET", "/", &[], 200, ""),
            expected("DELETE", "/", &[], 403, "only administrators may write"),
        ],
        None,
    ),
    example(
        "deny-paths",
        &[],
        &[
            expected("GET", "/admin", &[], 403, ""),
            expected("GET", "/admin?x=1", &[], 403, ""),
            expected("GET", "//admin", &[], 403, ""),
            expected("GET", "/x/../admin?", &[], 403, ""),
            expected("GET", "/internal/x", &[], 403, ""),
            expected("GET", "/administrators", &[], 200, ""),
        ],
        None,
    ),
    // Equal denials of other paths are cached each for itself.
    example(
        "denial-responses",
        &[],
        &[
            expected(
                "GET",
                "/account?a=b&c",
                &[],
                302,
                "(location: https://login.example.com/?return=%2Faccount%3Fa%3Db%26c)",
            ),
            expected(
                "POST",
                "/api/a",
                &[],
                403,
                r#""message":"the API is read-only"},"path":"/api/a","retry":false}"#,
            ),
            expected("POST", "/api/b", &[], 403, r#""path":"/api/b""#),
            expected("POST", "/api/a", &[], 403, r#""path":"/api/a""#),
            expected("POST", "/api/c", &[], 403, "(content-type: application/json)"),
            expected("POST", "/api/c", &["content-type: application/grpc"], 200, "(grpc-status: 7)"),
            expected("GET", "/api/a", &[], 200, ""),
        ],
        None,
    ),
    example(
        "deny-tools",
        &[],
        &[
            posted(r#"{"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "search"}}"#, 200, ""),
            posted(
                r#"{"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "drop\u005ftable"}}"#,
                403,
                "drop_table is blacklisted",
            ),
            posted(r#"{"jsonrpc": "2.0", "id": 1, "result": {}}"#, 200, ""),
            posted(r#"[{"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "search"}}]"#, 503, ""),
            posted(
                r#"{"jsonrpc": "2.0", "Method": "tools/call", "params": {"name": "drop_table"}}"#,
                503,
                "",
            ),
            posted("method=tools/call", 503, ""),
            posted("", 503, ""),
            expected("GET", "/", &[], 200, ""),
        ],
        None,
    ),
    example(
        "header-operations",
        &[],
        &[
            expected("GET", "/", &["x-caller: admin"], 200, "\nx-caller: anonymous\n"),
            expected("GET", "/", &[], 200, "(x-served-by: shop.example.com)"),
        ],
        None,
    ),
    example(
        "limit-models",
        &["--descriptor", "model=x-llm-model"],
        &[
            posted(r#"{"model": "small", "max_tokens": 4096}"#, 200, "\nx-llm-model: small\n"),
            posted(r#"{"model": "large"}"#, 200, "(x-ratelimit-limit: 10, 10;w=60)"),
            posted(r#"{"model": "small", "max_tokens": 4097}"#, 403, "at most 4096 tokens"),
            posted(r#"{"model": "small", "max_tokens": "many"}"#, 503, ""),
            posted(r#"{"model": "huge"}"#, 403, "huge is not whitelisted"),
            posted(r#"{"model": "small", "model": "huge"}"#, 503, ""),
            posted(r#"{"max_tokens": 1}"#, 503, ""),
        ],
        None,
    ),
    example("log-to-stdout", &[], &[expected("GET", "/", &[], 200, "")], Some("log.handler.istio-system")),
    example("namespaces", &[], &[expected("GET", "/drafts", &[], 200, "")], None),
    example(
        "namespaces",
        &["--namespace", "shop"],
        &[expected("GET", "/drafts", &[], 403, ""), expected("GET", "/", &[], 200, "")],
        None,
    ),
    example(
        "namespaces",
        &["--namespace", "legacy"],
        &[expected("GET", "/", &[], 503, "moved to the shop")],
        None,
    ),
    example(
        "prometheus-metrics",
        &[],
        &[expected("GET", "/", &[], 200, "")],
        Some("metrics.handler.istio-system"),
    ),
    example(
        "quota-by-user",
        &["--descriptor", "user=x-user,plan=x-plan"],
        &[
            expected("GET", "/", &["x-user: mallory"], 429, "(x-ratelimit-limit: 0, 0;w=3600)"),
            expected("GET", "/", &["x-user: alice"], 200, "(x-ratelimit-remaining: 99)"),
            expected("GET", "/", &["x-user: alice", "x-plan: pro"], 200, "(x-ratelimit-remaining: 999)"),
            expected("GET", "/", &[], 200, "(x-ratelimit-remaining: 99)"),
            expected("GET", "/", &["x-other: a"], 200, "(x-ratelimit-remaining: 98)"),
        ],
        None,
    ),
    // A server that has never reached the Redis grants nothing.
    example(
        "rate-limit-by-key",
        &["--descriptor", "key=x-api-key"],
        &[expected("GET", "/", &["x-api-key: a"], 429, "")],
        None,
    ),
    example(
        "rate-limit-by-header",
        &["--descriptor", "tenant=x-tenant"],
        &[
            expected("GET", "/", &["x-tenant: a"], 200, "(x-ratelimit-limit: 10, 10;w=1)"),
            expected("GET", "/", &[], 200, "(x-ratelimit-limit: 10, 10;w=1)"),
        ],
        None,
    ),
];

/// The headers and the body of a response.
fn text(response: &HttpResponse) -> String {
    let headers = response.headers.iter().map(|(name, value)| format!("({name}: {value})\n"));
    headers.collect::<String>() + &response.body
}

#[test]
fn every_example_does_behind_envoy_what_its_comments_say() {
    if !is_there() {
        return;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("examples/configurations");
    for Example { name, flags, requests, logged_by } in EXAMPLES {
        let directory = root.join(name);
        let config = ["--config", directory.to_str().unwrap()];
        let ports = ["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--log", "error"];
        let mut serve = binary();
        serve.env("MIXER_ADAPTER_PROMETHEUS_LISTEN", "127.0.0.1:0").args(ports).args(config);
        serve.args(["--cached-checks", "all"]);
        let (server, _) = Server::spawn(&mut serve);
        server.until("/readyz", "\r\n\r\nready");
        let upstream = echo();
        let flags = [&config, &["--upstream", &upstream], flags].concat();
        let envoy = Envoy::start(&bootstrap(&server.grpc, &flags));
        let front = envoy.listener("front");
        for Expected { method, path, headers, body, status, contains } in requests {
            let length = format!("content-length: {}", body.len());
            let headers = [headers, &[length.as_str()][..]].concat();
            let response = raw(&front, &format!("{}{body}", head(method, path, &headers)));
            assert!(
                response.status == *status && text(&response).contains(contains),
                "{name}: {method} {path} {headers:?} {body}: {response:?} is not {status} with {contains:?}"
            );
        }
        if let Some(handler) = logged_by {
            let series = format!("mixer_adapter_handler_calls_total{{handler=\"{handler}\",code=\"OK\"}}");
            server.until("/metrics", &format!("\n{series} {}\n", requests.len()));
        }
    }
    let tested: BTreeSet<&str> = EXAMPLES.iter().map(|example| example.name).collect();
    let entries = fs::read_dir(root).unwrap().map(|entry| entry.unwrap());
    let folders = entries.filter(|entry| entry.path().is_dir());
    let folders: BTreeSet<_> = folders.map(|entry| entry.file_name().into_string().unwrap()).collect();
    assert!(folders.iter().map(String::as_str).eq(tested), "{folders:?}");
}

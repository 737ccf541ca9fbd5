//! External authorization of HTTP requests.

use mixer_adapter_core::prost::Message as _;
use mixer_adapter_core::{
    adapter::{Check, Code},
    proto::{CheckResult, istio::policy::v1beta1::DirectHttpResponse},
};

use super::{
    mesh::{Mesh, PATHS},
    support::{
        envoy::is_there,
        eventually,
        http::{echo, raw},
        recorder::Recorder,
        run,
    },
};

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
    assert_eq!(mesh.metric(r#"mixer_adapter_checks_total{outcome="allowed"}"#), "1");
    assert_eq!(mesh.metric(r#"mixer_adapter_checks_total{outcome="denied"}"#), "1");
    // Spellings of the path, which this Envoy normalizes.
    for path in ["//admin", "/shop/../admin", "/%61dmin"] {
        assert_eq!(mesh.get(path, &[]).status, 403, "{path}");
    }
}

#[test]
fn where_envoy_does_not_normalize_paths_rules_see_what_the_upstream_sees() {
    if !is_there() {
        return;
    }
    let as_sent = |bootstrap: String| {
        let normalizing = ["normalize_path:", "merge_slashes:", "path_with_escaped_slashes_action:"];
        let line = |line: &&str| !normalizing.iter().any(|field| line.trim_start().starts_with(field));
        let lines: Vec<&str> = bootstrap.lines().filter(line).collect();
        assert_eq!(bootstrap.lines().count() - lines.len(), normalizing.len(), "{bootstrap}");
        lines.join("\n")
    };
    // A parser of URLs would take `host` for an authority, decode, or resolve each of them to another path.
    let paths = [
        "//host/admin",
        "///admin",
        "/%2fadmin",
        "/admin%2F",
        "/%61dmin",
        "/admin%3fx",
        "/admin;a=b",
        "/;/admin",
        "/shop/../admin",
        "/./admin",
        "/admin/.",
        "/admin\\",
        "/http://host/admin",
    ];
    let mesh = Mesh::start_before(PATHS, &[], &[], &echo(), as_sent);
    for path in paths {
        let allowed = mesh.get(&format!("{path}?x=1"), &[]);
        let seen = format!("GET {path}?x=1 HTTP/1.1\n");
        assert!(allowed.status == 200 && allowed.body.starts_with(&seen), "{path}: {allowed:?}");
    }
    let quoted: Vec<String> = paths.iter().map(|path| format!("'{path}'")).collect();
    mesh.configure(&PATHS.replace("[/admin]", &format!("[{}]", quoted.join(", "))));
    eventually("the configuration is used", || (mesh.get(paths[0], &[]).status == 403).then_some(()));
    for path in paths {
        let denied = mesh.get(&format!("{path}?x=1"), &[]);
        let body = format!("PERMISSION_DENIED:paths.istio-system:{path} is blacklisted");
        assert_eq!((denied.status, denied.body), (403, body), "{path}");
    }
}

#[test]
fn equal_requests_are_answered_from_the_cache() {
    if !is_there() {
        return;
    }
    for (flags, is_cached) in [
        (["--cached-checks", "all"], true),
        (["--envoy-check-cache", "0"], false),
        (["--cached-checks", "costly"], false),
    ] {
        let mesh = Mesh::start(PATHS, &flags, &[]);
        // The rule reads the path without the query.
        for path in ["/admin?x=1", "/admin?x=2"] {
            assert_eq!(mesh.get(path, &[]).status, 403, "{path}");
        }
        let page = mesh.server.get("/metrics");
        let is_counted = ["miss", "hit"].map(|outcome| {
            page.contains(&format!("\nmixer_adapter_check_cache_requests_total{{outcome=\"{outcome}\"}} 1\n"))
        });
        assert_eq!(is_counted, [is_cached; 2], "{page}");
        let status = mesh.server.get("/status");
        let is_shown = [r#""hits":1,"#, r#""misses":1,"#].map(|part| status.contains(part));
        assert_eq!(is_shown, [is_cached; 2], "{status}");
        assert_eq!(status.contains(r#""bypassed":2,"#), flags[1] == "costly", "{status}");
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

#[test]
fn a_client_cannot_choose_the_id_of_its_request() {
    if !is_there() {
        return;
    }
    let mesh = Mesh::start(PATHS, &[], &[]);
    let echoed = mesh.get("/", &["x-request-id: chosen"]).body;
    assert!(echoed.contains("\nx-request-id: ") && !echoed.contains("chosen"), "{echoed}");
}

#[test]
fn behind_the_filter_of_grpc_web_envoy_translates_the_denial() {
    if !is_there() {
        return;
    }
    let with_grpc_web = |bootstrap: String| {
        let check = "          - name: envoy.filters.http.ext_authz\n";
        let web = "          - name: envoy.filters.http.grpc_web\n            typed_config: {\"@type\": \
                   type.googleapis.com/envoy.extensions.filters.http.grpc_web.v3.GrpcWeb}\n";
        bootstrap.replace(check, &format!("{web}{check}"))
    };
    let mesh = Mesh::start_before(PATHS, &[], &[], &echo(), with_grpc_web);
    let denied = mesh.get("/admin", &["content-type: application/grpc-web"]);
    assert_eq!((denied.status, denied.header("grpc-status")), (403, Some("7")), "{denied:?}");
}

#[test]
fn a_denial_has_the_status_the_body_the_headers_and_the_cookies_of_the_adapter() {
    if !is_there() {
        return;
    }
    let headers = [("set-cookie", "a=1,b=2"), ("x-reason", "closed"), ("content-length", "1")];
    let response = DirectHttpResponse {
        code: 418,
        body: "closed for repair".to_owned(),
        headers: headers.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
    };
    let check = Check::deny(Code::PermissionDenied, "closed").with_direct_response(&response);
    let answer = CheckResult::from(check).encode_to_vec();
    let adapter = Recorder::start(move |_| Ok(answer.clone()));
    let config = run(&["manifest", "denier", "--handler-example", "--address", &adapter.address]).stdout;
    let rule = "---\nkind: rule\nmetadata: {name: closed, namespace: istio-system}\n\
                spec: {match: request.url_path == \"/closed\", actions: [{handler: denier, instances: [denier-checknothing]}]}\n";
    let config: String = config
        .split("---\n")
        .filter(|document| !document.contains("kind: rule"))
        .collect::<Vec<_>>()
        .join("---\n");
    let mesh = Mesh::start(&format!("{config}{rule}"), &[], &[]);
    let denied = mesh.get("/closed", &[]);
    assert_eq!((denied.status, denied.body.as_str()), (418, "closed for repair"), "{denied:?}");
    assert_eq!(denied.all("set-cookie"), ["a=1", "b=2"]);
    assert_eq!(denied.header("x-reason"), Some("closed"));
    assert_eq!(mesh.get("/open", &[]).status, 200);
}

/// The rules for the handlers in the documentation of denier.
const RESPONSES: &str = r#"
---
kind: instance
metadata: {name: nothing, namespace: istio-system}
spec: {compiledTemplate: checknothing, params: {}}
---
kind: rule
metadata: {name: moved, namespace: istio-system}
spec: {match: request.url_path == "/moved", actions: [{handler: moved, instances: [nothing]}]}
---
kind: rule
metadata: {name: teapot, namespace: istio-system}
spec: {match: request.url_path == "/teapot", actions: [{handler: teapot, instances: [nothing]}]}
"#;

#[test]
fn a_denier_redirects_or_answers_with_a_body() {
    if !is_there() {
        return;
    }
    let readme = include_str!("../../../denier/README.md");
    let handlers = readme.split("```yaml\n").skip(1).map(|block| block.split("```").next().unwrap());
    let handlers = handlers.collect::<Vec<_>>().join("---\n");
    let mesh = Mesh::start(&format!("{handlers}{RESPONSES}"), &[], &[]);
    let moved = mesh.get("/moved", &[]);
    assert_eq!((moved.status, moved.header("location")), (302, Some("https://new.example.com/")));
    let teapot = mesh.get("/teapot", &[]);
    assert_eq!((teapot.status, &*teapot.body), (418, r#"{"error": "teapot"}"#));
    assert_eq!(teapot.header("content-type"), Some("application/json"));
    let details = mesh.get("/teapot", &["content-type: application/grpc"]);
    assert!(details.header("grpc-status-details-bin").is_some(), "{details:?}");
    assert_eq!(mesh.get("/", &[]).status, 200);
}

/// Denies bodies on a list.
const BODIES: &str = r#"
kind: handler
metadata: {name: bodies, namespace: istio-system}
spec: {compiledAdapter: listchecker, params: {overrides: [bad], blacklist: true}}
---
kind: instance
metadata: {name: body, namespace: istio-system}
spec: {compiledTemplate: listentry, params: {value: request.body | "none"}}
---
kind: rule
metadata: {name: bodies, namespace: istio-system}
spec: {actions: [{handler: bodies, instances: [body]}]}
"#;

#[test]
fn a_body_that_the_rules_read_is_sent() {
    if !is_there() {
        return;
    }
    let mesh = Mesh::start(BODIES, &[], &[]);
    let post = "POST / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 3\r\n\r\nbad";
    let denied = raw(&mesh.front(), post);
    let body = "PERMISSION_DENIED:bodies.istio-system:bad is blacklisted";
    assert_eq!((denied.status, denied.body.as_str()), (403, body));
}

#[test]
fn no_query_passes_the_sample() {
    if !is_there() {
        return;
    }
    let mesh = Mesh::start(include_str!("../../../config/sample.yaml"), &[], &[]);
    for (path, status) in [("/", 200), ("/admin", 403), ("/admin?", 403), ("/admin?x=1", 403)] {
        assert_eq!(mesh.get(path, &[]).status, status, "{path}");
    }
}

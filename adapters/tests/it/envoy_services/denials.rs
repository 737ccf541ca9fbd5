//! Requests that one rule denies while another part of their check fails.

use std::sync::{
    Arc, Mutex,
    mpsc::{SyncSender, sync_channel},
};

use super::{
    mesh::{Mesh, PATHS, nobody},
    support::{envoy::is_there, recorder::Recorder, run},
};

/// Rules that fail for requests with a header, between two that deny paths. `$AWAY` and `$SILENT` are addresses of adapters.
const FAILING: &str = r#"
kind: instance
metadata: {name: bare, namespace: istio-system}
spec: {template: checknothing, params: {}}
---
kind: handler
metadata: {name: away, namespace: istio-system}
spec: {adapter: denier, connection: {address: "$AWAY"}}
---
kind: handler
metadata: {name: silent, namespace: istio-system}
spec: {adapter: denier, connection: {address: "$SILENT"}}
---
kind: rule
metadata: {name: condition, namespace: istio-system}
spec: {match: 'ip(request.headers["x-ip"] | "10.0.0.1") == ip("10.0.0.2")', actions: [{handler: away, instances: [bare]}]}
---
kind: rule
metadata: {name: away, namespace: istio-system}
spec: {match: 'request.headers["x-part"] == "away"', actions: [{handler: away, instances: [bare]}]}
---
kind: rule
metadata: {name: silent, namespace: istio-system}
spec: {match: 'request.headers["x-part"] == "silent"', actions: [{handler: silent, instances: [bare]}]}
---
kind: handler
metadata: {name: late, namespace: istio-system}
spec: {compiledAdapter: listchecker, params: {overrides: [/late], blacklist: true}}
---
kind: rule
metadata: {name: late, namespace: istio-system}
spec: {actions: [{handler: late, instances: [path]}]}
---
"#;

/// An adapter that does not answer while the other end of the channel exists.
fn silent() -> (Recorder, SyncSender<()>) {
    let (open, closed) = sync_channel::<()>(1);
    let closed = Arc::new(Mutex::new(closed));
    let recorder = Recorder::start(move |_| {
        let _ = closed.lock().unwrap().recv();
        Err((14, "closed"))
    });
    (recorder, open)
}

#[test]
fn a_client_cannot_turn_a_denial_into_a_failure_that_the_failure_mode_allows() {
    if !is_there() {
        return;
    }
    let (adapter, open) = silent();
    let failing = FAILING.replace("$AWAY", &nobody()).replace("$SILENT", &adapter.address);
    let config = format!("{}\n---\n{PATHS}{failing}", run(&["manifest", "denier"]).stdout);
    let closed = ["--on-match-error", "closed", "--on-adapter-error", "closed", "--on-timeout", "closed"];
    let allow = ["--failure-mode-allow"];
    for (serve, envoy, failed) in [
        (&[][..], &[][..], 503),
        (&[], &allow, 200),
        (&closed, &allow, 503),
        (&["--envoy-failure", "error-response"], &allow, 200),
    ] {
        let mesh = Mesh::start(&config, serve, envoy);
        for header in ["x-ip: bad", "x-part: away", "x-part: silent"] {
            for (path, handler) in [("/admin", "paths"), ("/late", "late")] {
                let denied = mesh.get(path, &[header]);
                let body = format!("PERMISSION_DENIED:{handler}.istio-system:{path} is blacklisted");
                assert_eq!((denied.status, denied.body), (403, body), "{serve:?} {envoy:?} {header}");
            }
        }
        for header in ["x-ip: bad", "x-part: away"] {
            assert_eq!(mesh.get("/shop", &[header]).status, failed, "{serve:?} {envoy:?} {header}");
        }
        assert_eq!(mesh.get("/shop", &[]).status, 200, "{serve:?} {envoy:?}");
    }
    drop(open);
}

//! With a cache the answers are those without it.

use std::time::Duration;

use mixer_adapter_engine::build::BuildOptions;
use proptest::prelude::*;
use tokio::{runtime::Builder, time::advance};

use crate::backend::{Attributes, Subject};

/// Rules whose answers depend on different attributes of different requests, on keys of a map and on its absence.
const RULES: &str = r#"
kind: instance
metadata: {name: path}
spec: {template: listentry, params: {value: request.path}}
---
kind: instance
metadata: {name: user}
spec: {template: listentry, params: {value: 'request.headers["user"] | request.headers["x-user"] | "nobody"'}}
---
kind: instance
metadata: {name: named}
spec: {template: listentry, params: {value: 'request.headers[request.path] | "unnamed"'}}
---
kind: rule
metadata: {name: paths}
spec:
  match: request.path != "/open"
  actions: [{handler: h, instances: [path]}]
---
kind: rule
metadata: {name: users}
spec:
  match: (request.method | "GET") == "POST" && request.path.startsWith("/")
  actions: [{handler: h, instances: [user]}]
---
kind: rule
metadata: {name: of-shop, namespace: shop}
spec:
  match: request.headers["user"] == "bad" || request.path == "/shop"
  actions: [{handler: h.istio-system, instances: [named.istio-system]}]
---
kind: rule
metadata: {name: headers, namespace: other}
spec:
  match: request.path == "/"
  requestHeaderOperations: [{name: x-user, values: ['request.headers["user"] | "none"'], operation: REPLACE}]
"#;

fn request() -> impl Strategy<Value = Attributes> {
    let path = prop::sample::select(vec!["/", "/open", "/bad", "/shop", "bad-relative"]);
    let namespace = prop::sample::select(vec!["shop", "other", "third"]);
    let method = prop::sample::select(vec![None, Some("GET"), Some("POST")]);
    let name = prop::sample::select(vec!["user", "x-user", "/shop", "unrelated"]);
    let headers = prop::collection::vec((name, prop::sample::select(vec!["", "good", "bad"])), 0..3);
    (path, namespace, method, headers).prop_map(|(path, namespace, method, headers)| Attributes {
        path,
        namespace,
        method,
        headers,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_of_requests_has_the_same_answers_with_and_without_a_cache(
        requests in prop::collection::vec((request(), 0..3_u64), 1..200),
        uses in prop::option::of(1..5_i32),
    ) {
        let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let cached = Subject::cached(RULES).await;
            let uncached = Subject::start(RULES, BuildOptions::default()).await;
            *cached.script.uses.lock().unwrap() = uses;
            *uncached.script.uses.lock().unwrap() = uses;
            for (request, seconds) in &requests {
                advance(Duration::from_secs(*seconds)).await;
                match (cached.check(request).await, uncached.check(request).await) {
                    (Ok(cached), Ok(uncached)) => {
                        assert_eq!(cached.status, uncached.status, "{request:?}");
                        assert_eq!(cached.directive, uncached.directive, "{request:?}");
                    }
                    (cached, uncached) => assert_eq!(cached, uncached, "{request:?}"),
                }
            }
            assert!(cached.script.calls() <= uncached.script.calls());
        });
    }
}

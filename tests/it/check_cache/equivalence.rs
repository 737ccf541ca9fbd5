//! With a cache the answers are those without it.

use std::time::Duration;

use futures_util::{
    FutureExt as _,
    future::{join_all, maybe_done},
};
use mixer_adapter_engine::{
    build::BuildOptions,
    dispatch::{CheckAnswer, DispatchError},
};
use proptest::prelude::*;
use tokio::{runtime::Builder, task::unconstrained, time::advance};

use super::backend::{Attributes, Subject};

/// Rules whose answers depend on different attributes of different requests, on keys of a map and on its absence, and on
/// attributes that are generated where a request does not bring them, the namespace among them. The dimensions of a quota are part
/// of the details of answers.
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
---
kind: instance
metadata:
  name: per-user
  annotations: {mixer-adapter/dimensions-in-metadata: "true"}
spec: {template: quota, params: {dimensions: {user: 'request.headers["user"] | source.owner | "nobody"'}}}
---
kind: rule
metadata: {name: per-user}
spec:
  match: request.path != "/open"
  actions: [{handler: h, instances: [per-user]}]
---
kind: rule
metadata: {name: in-cel, annotations: {policy.istio.io/lang: CEL}}
spec:
  match: '"user" in request.headers && request.headers["user"] == "bad" || request.method == "" && has(source.labels)'
  actions: [{handler: h, instances: [path]}]
---
kind: instance
metadata: {name: pods}
spec:
  template: kubernetes
  params: {source_uid: source.uid}
  attribute_bindings:
    source.owner: output.source_owner
    source.labels: output.source_labels
    destination.namespace: output.destination_namespace
---
kind: rule
metadata: {name: generate}
spec:
  match: (source.uid | "") != ""
  actions: [{handler: h, instances: [pods]}]
---
kind: instance
metadata: {name: owner}
spec: {template: listentry, params: {value: 'source.owner | source.labels["app"] | "nobody"'}}
---
kind: instance
metadata: {name: label}
spec: {template: listentry, params: {value: 'source.labels["app"] | "unlabeled"'}}
---
kind: rule
metadata: {name: owners}
spec:
  match: request.path == "/shop"
  actions: [{handler: h, instances: [owner]}]
---
kind: rule
metadata: {name: labels}
spec:
  match: request.path == "/"
  actions: [{handler: h, instances: [label]}]
"#;

fn request() -> impl Strategy<Value = Attributes> {
    let path = prop::sample::select(vec!["/", "/open", "/bad", "/shop", "bad-relative"]);
    let namespace = optional(&["shop", "other", "third"]);
    let method = optional(&["GET", "POST"]);
    let headers = map(&["user", "x-user", "/shop", "unrelated"], &["", "good", "bad"]);
    let uid = optional(&["good.shop", "bad.shop", "good.other", "bad"]);
    let labels = map(&["app", "unrelated"], &["", "good", "bad"]);
    (path, namespace, method, headers, uid, optional(&["good", "bad"]), labels).prop_map(
        |(path, namespace, method, headers, uid, owner, labels)| Attributes {
            path,
            namespace,
            method,
            headers,
            uid,
            owner,
            labels,
        },
    )
}

fn optional(texts: &'static [&'static str]) -> impl Strategy<Value = Option<&'static str>> {
    prop::option::of(prop::sample::select(texts))
}

/// Sequences of requests, each of which differs from the former one in one attribute at most.
fn requests() -> impl Strategy<Value = Vec<Attributes>> {
    prop::collection::vec((request(), 0..7_usize), 1..300).prop_map(|changes| {
        let mut current = Attributes::default();
        let next = |(new, attribute): (Attributes, usize)| {
            match attribute {
                0 => current.path = new.path,
                1 => current.namespace = new.namespace,
                2 => current.method = new.method,
                3 => current.headers = new.headers,
                4 => current.uid = new.uid,
                5 => current.owner = new.owner,
                _ => current.labels = new.labels,
            }
            current.clone()
        };
        changes.into_iter().map(next).collect()
    })
}

/// A map that is absent, empty, or has some of the keys.
fn map(
    keys: &'static [&'static str],
    values: &'static [&'static str],
) -> impl Strategy<Value = Option<Vec<(&'static str, &'static str)>>> {
    let entry = (prop::sample::select(keys), prop::sample::select(values));
    prop::option::of(prop::collection::vec(entry, 0..3))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_of_requests_has_the_same_answers_with_and_without_a_cache(
        requests in requests(),
        pauses in prop::collection::vec(prop::sample::select(vec![0, 0, 0, 1, 2]), 300),
        uses in prop::option::of(1..5_i32),
    ) {
        let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let cached = Subject::cached(RULES).await;
            let uncached = Subject::start(RULES, BuildOptions::default()).await;
            for subject in [&cached, &uncached] {
                let uses = ["h", "other"].iter().filter_map(|handler| Some((*handler, uses?)));
                subject.script.uses.lock().unwrap().extend(uses);
            }
            for (request, pause) in requests.iter().zip(&pauses) {
                advance(Duration::from_secs(*pause)).await;
                assert_equal(cached.check(request).await, uncached.check(request).await, request);
            }
            assert!(cached.script.calls() <= uncached.script.calls());
        });
    }

}

proptest! {
    // Each case builds several configurations.
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

    #[test]
    fn requests_at_the_same_time_have_the_answers_of_their_configuration(requests in requests()) {
        let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let other_rules = RULES.replace("good", "bad").replace("request.path !=", "request.path ==");
            let configurations = [RULES, &*other_rules];
            let cached = Subject::cached(RULES).await;
            *cached.script.delay.lock().unwrap() = Duration::from_secs(1);
            let mut uncached = Vec::new();
            for rules in configurations {
                uncached.push(Subject::start(rules, BuildOptions::default()).await);
            }
            let mut former = None;
            for (chunk, number) in requests.chunks(60).zip(0..) {
                // While the former requests are evaluated.
                cached.configure(configurations[number % 2]).await;
                let check = |request| Subject::check_in(cached.snapshot(), request, None);
                let mut answers = Box::pin(maybe_done(join_all(chunk.iter().map(check))));
                // Requests without calls are answered at once.
                let _ = answers.as_mut().now_or_never();
                let former = former.replace((chunk, &uncached[number % 2], answers));
                if let Some((chunk, uncached, mut answers)) = former {
                    // Without the budget of a task, whose end would change the order of calls that end at the same time.
                    unconstrained(answers.as_mut()).await;
                    let answers = answers.as_mut().take_output().unwrap();
                    for (request, (answer, _)) in chunk.iter().zip(answers) {
                        assert_equal(answer, uncached.check(request).await, request);
                    }
                }
            }
        });
    }
}

fn assert_equal(
    cached: Result<CheckAnswer, DispatchError>,
    uncached: Result<CheckAnswer, DispatchError>,
    request: &Attributes,
) {
    match (cached, uncached) {
        (Ok(cached), Ok(uncached)) => {
            assert_eq!(cached.status, uncached.status, "{request:?}");
            assert_eq!(cached.directive, uncached.directive, "{request:?}");
            assert_eq!(cached.details, uncached.details, "{request:?}");
        }
        (cached, uncached) => assert_eq!(cached, uncached, "{request:?}"),
    }
}

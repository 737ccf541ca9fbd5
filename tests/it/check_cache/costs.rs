//! Checks that cost no more than a lookup in the cache.

use std::sync::atomic::Ordering::SeqCst;

use mixer_adapter_engine::{CachedChecks, build::BuildOptions};

use super::{
    STALE,
    backend::{Attributes, CACHE, Subject, path},
    rule,
};

fn from_memory() -> String {
    rule("").replace("handler: h", "handler: memory")
}

#[tokio::test(start_paused = true)]
async fn an_answer_from_memory_is_cached_only_with_all_others_and_keeps_its_uses() {
    for (checks, calls, uses, outcomes) in [
        (CachedChecks::Costly, 3, [3, 3, 3], [0, 0, 0, 0, 3]),
        (CachedChecks::All, 1, [3, 2, 1], [2, 1, 0, 0, 0]),
    ] {
        let options = BuildOptions::default().strict_check_cache(CACHE).cached_checks(checks);
        let subject = Subject::start(&from_memory(), options).await;
        subject.script.uses.lock().unwrap().insert("memory", 3);
        for uses in uses {
            let (answer, used) = subject.check_until(&path("/path"), None).await;
            assert_eq!(answer.unwrap().valid_use_count, uses, "{checks:?}");
            assert_eq!(used.is_some(), checks == CachedChecks::All);
        }
        assert_eq!(subject.script.calls(), calls, "{checks:?}");
        let snapshot = subject.snapshot();
        let counts = snapshot.cache_counts().requests.each_ref().map(|count| count.load(SeqCst));
        assert_eq!(counts, outcomes, "{checks:?}");
        assert_eq!(snapshot.cache_size().answers, usize::from(checks == CachedChecks::All));
    }
}

/// A rule of a namespace that sends an instance to a handler of the default namespace.
fn rule_of(namespace: &str, number: usize, annotations: &str, handler: &str, instance: &str) -> String {
    format!(
        "---\nkind: rule\nmetadata: {{name: of-{namespace}-{number}, namespace: {namespace}, annotations: {{{annotations}}}}}\n\
         spec: {{actions: [{{handler: {handler}.istio-system, instances: [{instance}.istio-system]}}]}}\n"
    )
}

#[tokio::test(start_paused = true)]
async fn each_namespace_has_a_reason_why_its_checks_are_cached() {
    let pods = "---\nkind: instance\nmetadata: {name: pods}\n\
         spec: {template: kubernetes, params: {source_uid: source.uid}, attribute_bindings: {source.owner: output.source_owner}}\n";
    let rules = [
        from_memory(),
        pods.to_owned(),
        rule_of("cheap", 0, "", "memory", "path"),
        rule_of("generated", 0, "", "memory", "pods"),
        (0..8).map(|number| rule_of("many", number, "", "memory", "path")).collect(),
        rule_of("remote", 0, "", "h", "path"),
        rule_of("stale", 0, STALE, "memory", "path"),
    ];
    let subject = Subject::cached(&rules.concat()).await;
    let shown = subject.snapshot().cached_namespaces(100);
    let shown: Vec<_> = shown.iter().map(|of| (&*of.namespace, of.is_cached, of.reason.clone())).collect();
    let memory = |instances: usize, conditions: usize| {
        format!(
            "all handlers answer from memory, with {instances} instances (cached if over 8) \
             and {conditions} conditions (cached if over 100)"
        )
    };
    let expected = [
        ("*", false, memory(1, 1)),
        ("cheap", false, memory(2, 2)),
        ("generated", true, "attributes are generated".to_owned()),
        ("many", true, memory(9, 2)),
        ("remote", true, "h.handler.istio-system does not answer from memory".to_owned()),
        ("stale", true, "of-stale-0.rule.stale permits expired answers".to_owned()),
    ];
    assert_eq!(shown, expected);
    assert_eq!(subject.snapshot().cached_namespaces(2).len(), 3);
    for (namespace, is_cached, _) in &expected {
        let attributes = Attributes { namespace: Some(*namespace), ..path("/path") };
        let (_, used) = subject.check_until(&attributes, None).await;
        assert_eq!(used.is_some(), *is_cached, "{namespace}");
    }
}

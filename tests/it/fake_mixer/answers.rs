use std::time::Duration;

use mixer_adapter::{
    Code, QuotaRequest,
    template::{ListEntry, Metric, Quota},
    testing::{FakeMixer, attributes},
    value::ValueType,
};
use mixer_adapter_engine::trace::Step;
use test_adapters::{Probe, ledger, probe::Params};

use super::{obedient, order};

#[tokio::test]
async fn a_check_is_allowed_denied_or_an_error_with_code_and_message() {
    let mixer = obedient("answers").start().await.unwrap();
    mixer.check(order("allow")).await.expect_allowed().expect_valid(Duration::from_secs(5), 1000);
    mixer.check(order("deny")).await.expect_denied(Code::PermissionDenied, "denied on request");
    // Whatever an adapter's error is, a Mixer's is INTERNAL (docs/behaviour/adapter-calls.md#errors-of-an-adapter).
    mixer
        .check(order("fail"))
        .await
        .expect_error(Code::Internal, "UNAVAILABLE: adapter `probe`: failed on request");
    mixer.check(order("panic")).await.expect_error(Code::Internal, "panic on request");
    assert_eq!((ledger("answers").entered(), ledger("answers").opened()), (4, 1));
}

#[tokio::test]
async fn what_the_adapter_received_is_there_decoded() {
    let mixer = obedient("received").start().await.unwrap();
    let check = mixer.check(order("allow")).await;
    let entry = check.input::<ListEntry>();
    assert_eq!(entry.name, "order.instance.istio-system");
    assert_eq!(entry.value, Some("allow".into()));
    let call = &check.calls[0];
    assert_eq!(call.handler, "probe.handler.istio-system");
    let config = Params { ledger: "received".to_owned(), seq: 7, grant: 3, ..Params::default() };
    assert_eq!(call.config::<Params>(), config);
    assert_eq!(call.json()["instance"]["value"]["string_value"], "allow");
    let another = mixer.check(order("allow")).await;
    assert_ne!(call.dedup_id(), another.calls[0].dedup_id());
}

#[tokio::test]
async fn requests_at_a_time_have_their_own_calls() {
    let mixer = obedient("apart").start().await.unwrap();
    let texts = ["allow", "deny", "a", "b", "c", "d"];
    let answers =
        futures_util::future::join_all(texts.map(|text| async { mixer.check(order(text)).await })).await;
    for (text, answer) in texts.into_iter().zip(answers) {
        assert_eq!(answer.expect_calls(1).input::<ListEntry>().value, Some(text.into()));
    }
}

#[tokio::test]
async fn a_quota_brings_its_arguments_and_its_grant() {
    let mixer = FakeMixer::with::<Probe>()
        .handler("probe", "{ledger: quota, grant: 3}")
        .instance::<Quota>("requests", "dimensions: {source: source.name}")
        .rule("true", "probe", ["requests"])
        .start()
        .await
        .unwrap();
    let from = |name: &str| attributes! { "source.name" => name };
    let quota = mixer.quota("requests", 5, from("ada")).best_effort().dedup_id("x-").await;
    let call = quota.expect_granted(3).input::<Quota>();
    assert_eq!(call.dimensions, [("source".to_owned(), "ada".into())].into());
    // The quota's name behind the request's id (docs/behaviour/adapter-calls.md#deduplication-ids).
    assert_eq!(*call.quota(), QuotaRequest::new(5).with_best_effort().with_dedup_id("x-requests"));
    // All or nothing: the answer breaks the contract, and a quota that fails grants nothing.
    mixer.quota("requests", 5, from("ada")).await.expect_granted(0).expect_trace("ERROR: INTERNAL");
    mixer.quota("unknown", 5, from("ada")).await.expect_granted(5).expect_calls(0);
}

#[tokio::test]
async fn a_report_of_a_batch_is_one_call_and_its_errors_can_be_tested() {
    let mixer = FakeMixer::with::<Probe>()
        .handler("probe", "ledger: report")
        .instance::<Metric>("size", "{value: request.size, monitored_resource_type: request.path}")
        .rule("true", "probe", ["size"])
        .start()
        .await
        .unwrap();
    let request = |path: &str, size: i64| attributes! { "request.path" => path, "request.size" => size };
    let report = mixer.report([request("a", 1), request("b", 2)]).await;
    report.expect_calls(1).expect_ok();
    let values: Vec<_> = report.input::<Metric>().into_iter().map(|metric| metric.value.unwrap()).collect();
    assert_eq!(values, [1.into(), 2.into()]);
    mixer.report(request("fail", 1)).await.expect_error(Code::Unknown, "failed on request");
}

#[tokio::test]
async fn the_trace_says_why() {
    let mixer = obedient("why")
        .attribute("my.attribute", ValueType::String)
        .instance::<ListEntry>("absent", "value: my.attribute")
        .rule(r#"request.path == "other""#, "probe", ["absent"])
        .rule(r#"request.headers["x"] == "y""#, "probe", ["absent"])
        .start()
        .await
        .unwrap();
    let check = mixer.check(order("allow")).await;
    let rules = check.trace.steps.iter().filter_map(|step| match step {
        Step::Rule { rule, matched, error, .. } => Some((rule.as_str(), *matched, error.is_some())),
        _ => None,
    });
    assert_eq!(
        rules.collect::<Vec<_>>(),
        [
            ("rule-1.rule.istio-system", true, false),
            ("rule-2.rule.istio-system", false, false),
            ("rule-3.rule.istio-system", false, true),
        ]
    );
    check.expect_trace("instance order.instance.istio-system: ").expect_trace("merged: allowed");
    let unbuilt = mixer.check(order("other")).await;
    unbuilt
        .expect_error(Code::Internal, "my.attribute")
        .expect_trace("absent.instance.istio-system: NOT BUILT");
    let references = &check.expect_ok().references();
    assert_eq!(
        references[..],
        [
            "context.reporter.kind (absent)",
            "destination.namespace (absent)",
            "request.headers (absent)",
            "request.path"
        ]
    );
}

#[tokio::test]
async fn an_expectation_that_does_not_hold_prints_answer_trace_and_calls() {
    let mixer = obedient("printed").start().await.unwrap();
    let check = mixer.check(order("deny")).await;
    let expectation = std::panic::AssertUnwindSafe(|| _ = check.expect_allowed());
    let panic = std::panic::catch_unwind(expectation).unwrap_err();
    let text = panic.downcast_ref::<String>().unwrap();
    for part in [
        "expected the request to be allowed\n",
        "denied on request",
        "check: rule rule-1.rule.istio-system: true -> matched\n",
        "called: listentry of probe.handler.istio-system with {",
        r#""string_value":"deny""#,
    ] {
        assert!(text.contains(part), "{part:?} is missing in:\n{text}");
    }
}

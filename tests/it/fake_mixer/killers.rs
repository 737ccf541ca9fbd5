//! The two inputs that end the process of a real Mixer (docs/behaviour/expressions.md#wrong-types-in-a-request and
//! docs/behaviour/configuration.md#what-ends-the-process).

use mixer_adapter::{
    Code,
    template::ListEntry,
    testing::{FakeMixer, attributes},
};
use test_adapters::Probe;

#[tokio::test]
async fn an_instance_without_params_is_one_without_fields() {
    let instance = "{kind: instance, metadata: {name: order}, spec: {template: listentry}}";
    let mixer = FakeMixer::with::<Probe>().handler("probe", "ledger: no-params").config(instance);
    let mixer = mixer.rule("true", "probe", ["order"]).start().await.unwrap();
    let check = mixer.check(attributes! {}).await;
    assert_eq!(check.expect_allowed().input::<ListEntry>().value, None);
}

#[tokio::test]
async fn an_attribute_of_another_type_than_declared_fails_its_own_request_alone() {
    let mixer = FakeMixer::with::<Probe>()
        .handler("probe", "ledger: wrong-type")
        .instance::<ListEntry>("address", "value: source.ip")
        .instance::<ListEntry>("header", "value: request.headers[\"x\"]")
        .rule("request.method == \"GET\"", "probe", ["address"])
        .rule("request.headers[\"method\"] == \"POST\"", "probe", ["header"])
        .start()
        .await
        .unwrap();
    let ip = mixer.check(attributes! { "request.method" => "GET", "source.ip" => "10.0.0.1" }).await;
    ip.expect_error(Code::Internal, "source.ip").expect_trace("NOT BUILT").expect_calls(0);
    // In a condition: the rule is skipped (docs/behaviour/dispatch.md#conditions).
    let map = mixer.check(attributes! { "request.method" => "PUT", "request.headers" => "x" }).await;
    map.expect_allowed().expect_trace("error: ").expect_calls(0);
    let ok = attributes! { "request.headers" => [("method", "POST"), ("x", "deny")] };
    mixer.check(ok).await.expect_denied(Code::PermissionDenied, "denied on request");
}

use mixer_adapter::{
    Code,
    template::{ListEntry, Metric},
    testing::FakeMixer,
};
use test_adapters::{Bystander, Probe, ledger, probe::Params};

use super::{obedient, order};

#[tokio::test]
async fn a_refused_configuration_says_what_is_wrong_with_which_field() {
    let refused = FakeMixer::with::<Probe>()
        .handler("probe", "{ledger: x, sequence: 1}")
        .instance::<ListEntry>("order", "value: request.pth")
        .rule("true", "prob", ["order"])
        .start()
        .await
        .unwrap_err();
    let text = refused.to_string();
    for fault in [
        "probe.handler.istio-system: spec.params.sequence: no such field",
        "order.instance.istio-system: spec.params.value: ",
        "rule-1.rule.istio-system: spec.actions[0].handler: there is no handler prob",
    ] {
        assert!(text.contains(fault), "{fault:?} is missing in:\n{text}");
    }
}

#[tokio::test]
async fn parameters_may_be_text_json_or_the_adapter_s_own_message() {
    let typed = Params { ledger: "typed".to_owned(), maybe: Some(0), ..Params::default() };
    for (name, setup) in [
        ("text", FakeMixer::with::<Probe>().handler("h", "{ledger: typed, maybe: 0}")),
        (
            "json",
            FakeMixer::with::<Probe>().handler("h", serde_json::json!({"ledger": "typed", "maybe": "0"})),
        ),
        ("typed", FakeMixer::with::<Probe>().handler("h", mixer_adapter::testing::Params::message(&typed))),
    ] {
        let setup = setup.instance::<ListEntry>("order", "value: request.path").rule("true", "h", ["order"]);
        let check = setup.start().await.unwrap().check(order("allow")).await;
        assert_eq!(check.calls[0].config::<Params>(), typed, "{name}");
    }
}

/// Resources as they are given to a real Mixer: the address and TLS are not used. Each test has a ledger of its own.
fn resources(ledger: &str) -> String {
    RESOURCES.replace("LEDGER", ledger)
}

const RESOURCES: &str = "
apiVersion: config.istio.io/v1alpha2
kind: handler
metadata: {name: remote, namespace: istio-system}
spec:
  adapter: probe
  connection:
    address: dns:///probe.example.com:443
    authentication: {tls: {ca_certificates: /nowhere.pem}}
  params: {ledger: LEDGER}
---
apiVersion: config.istio.io/v1alpha2
kind: handler
metadata: {name: compiled, namespace: istio-system}
spec: {compiledAdapter: bystander, params: {ledger: LEDGER-compiled}}
---
apiVersion: config.istio.io/v1alpha2
kind: instance
metadata: {name: order, namespace: istio-system}
spec: {compiledTemplate: listentry, params: {value: request.path}}
---
apiVersion: config.istio.io/v1alpha2
kind: instance
metadata: {name: nothing, namespace: istio-system}
spec: {template: checknothing, params: {}}
---
apiVersion: config.istio.io/v1alpha2
kind: rule
metadata: {name: both, namespace: istio-system}
spec:
  actions:
  - {handler: remote, instances: [order]}
  - {handler: compiled, instances: [nothing]}
";

#[tokio::test]
async fn several_adapters_serve_resources_that_were_written_for_a_real_mixer() {
    let setup = FakeMixer::with::<Probe>().and::<Bystander>();
    let mixer = setup.config(&resources("several")).start().await.unwrap();
    let check = mixer.check(order("deny")).await;
    check.expect_denied(Code::PermissionDenied, "denied on request").expect_calls(2);
    assert_eq!((ledger("several").entered(), ledger("several-compiled").entered()), (1, 1));
}

#[tokio::test]
async fn a_reload_changes_what_changed_and_a_refused_one_nothing() {
    let resources = resources("reloaded");
    let setup = FakeMixer::with::<Probe>().and::<Bystander>();
    let mixer = setup.config(&resources).start().await.unwrap();
    mixer.check(order("deny")).await.expect_denied(Code::PermissionDenied, "");
    let refused = mixer.reload(&resources.replace("request.path", "request.pth")).await.unwrap_err();
    assert!(refused.to_string().contains("request.pth"), "{refused}");
    mixer.check(order("deny")).await.expect_denied(Code::PermissionDenied, "");
    mixer.reload(&resources.replace("request.path", "\"request.path | \\\"deny\\\"\"")).await.unwrap();
    mixer.check(order("allow")).await.expect_allowed();
    assert_eq!(ledger("reloaded-compiled").opened(), 1);
}

#[tokio::test]
async fn a_template_that_no_handler_s_adapter_serves_is_refused() {
    let refused = FakeMixer::with::<Bystander>()
        .handler("h", "ledger: unserved")
        .instance::<Metric>("size", "value: request.size")
        .rule("true", "h", ["size"])
        .start()
        .await
        .unwrap_err();
    assert!(refused.to_string().contains("rule-1.rule.istio-system"), "{refused}");
}

#[tokio::test]
async fn handlers_are_closed_when_close_returns() {
    let mixer = obedient("closing").start().await.unwrap();
    mixer.check(order("allow")).await.expect_allowed();
    mixer.close().await;
    let ledger = ledger("closing");
    assert_eq!((ledger.opened(), ledger.closed(), ledger.leaked()), (1, 1, 0));
}

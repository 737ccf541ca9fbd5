//! Checks of which one part denies and another one fails.

use std::{sync::Arc, time::Duration};

use mixer_adapter_engine::{
    Mixer,
    dispatch::{Caller, FailurePolicy, OnFailure},
};
use mixer_adapter_envoy::{
    AuthorizationAnswer, EncodedResponse, Options, Services,
    proto::envoy::service::auth::v3::{
        AttributeContext, CheckRequest, DeniedHttpResponse,
        attribute_context::{HttpRequest, Request},
    },
};
use prost::Message as _;
use tokio::{runtime::Handle, time::Instant};
use tonic::Status;

use super::backend::{Script, snapshot_with};

/// How long a check may take.
const LIMIT: Duration = Duration::from_secs(2);

const DENYING: &str = "
kind: rule
metadata: {name: denying, namespace: istio-system}
spec: {actions: [{handler: denying, instances: [nothing]}]}
---";

/// A part that fails, with a text of the failure.
struct FailingPart {
    rule: &'static str,
    text: &'static str,
}

const CONDITION: FailingPart = FailingPart {
    rule: "{match: 'source.name == \"a\"', actions: [{handler: h, instances: [nothing]}]}",
    text: "condition of failing.rule.istio-system",
};
const INSTANCE: FailingPart = FailingPart {
    rule: "{actions: [{handler: h, instances: [unbuilt]}]}",
    text: "instance unbuilt.instance.istio-system cannot be built",
};
const ADAPTER: FailingPart =
    FailingPart { rule: "{actions: [{handler: broken, instances: [nothing]}]}", text: "broken" };
/// Does not answer before the deadline.
const TIMEOUT: FailingPart =
    FailingPart { rule: "{actions: [{handler: h, instances: [nothing]}]}", text: "did not end in time" };

impl FailingPart {
    /// Returns the answer to a check of this part, with a rule that denies before it, after it, or not at all.
    async fn check(&self, order: Order, policy: FailurePolicy) -> Result<AuthorizationAnswer, Status> {
        let failing = format!(
            "\nkind: rule\nmetadata: {{name: failing, namespace: istio-system}}\nspec: {}\n---",
            self.rule
        );
        let rules = match order {
            Order::DenyingFirst => [DENYING, &failing],
            Order::FailingFirst => [&failing, DENYING],
            Order::FailingOnly => [&failing, ""],
        };
        let instances = "
kind: instance
metadata: {name: nothing, namespace: istio-system}
spec: {template: checknothing, params: {}}
---
kind: instance
metadata: {name: unbuilt, namespace: istio-system}
spec: {template: listentry, params: {value: source.name}}
---";
        let script = Arc::<Script>::default();
        script.delay("checknothing", LIMIT * 2);
        let mixer = Arc::new(Mixer::new());
        mixer.replace(snapshot_with(&format!("{instances}{}", rules.concat()), &script, policy).await);
        let services = Services::new(mixer, Options::default(), &Handle::current());
        let deadline = Instant::now() + LIMIT;
        let http = HttpRequest { path: "/".to_owned(), ..HttpRequest::default() };
        let request = Some(Request { time: None, http: Some(http) });
        let check =
            CheckRequest { attributes: Some(AttributeContext { request, ..AttributeContext::default() }) };
        let answer = services.check(&check, &Caller { deadline: Some(deadline), ..Caller::default() }).await;
        if !matches!(order, Order::FailingOnly) {
            assert!(Instant::now() < deadline, "Envoy has given up");
        }
        answer
    }
}

#[derive(Clone, Copy, Debug)]
enum Order {
    DenyingFirst,
    FailingFirst,
    FailingOnly,
}

/// Policies with each treatment of each kind of failure, beside each other one.
fn policies() -> impl Iterator<Item = FailurePolicy> {
    let all = [OnFailure::Mixer, OnFailure::Open, OnFailure::Closed];
    (0..9).map(move |number| {
        FailurePolicy::default()
            .match_error(all[number % 3])
            .adapter_error(all[number / 3])
            .timeout(all[(number + number / 3) % 3])
    })
}

#[tokio::test(start_paused = true)]
async fn a_denial_takes_precedence_over_failures_whatever_their_treatment_and_order() {
    for policy in policies() {
        for (part, treatment) in [
            (CONDITION, policy.match_error),
            (INSTANCE, policy.adapter_error),
            (ADAPTER, policy.adapter_error),
            (TIMEOUT, policy.timeout),
        ] {
            for order in [Order::DenyingFirst, Order::FailingFirst] {
                let answer = part.check(order, policy).await.unwrap();
                let Some(EncodedResponse::Denied(denied)) = answer.http_response else {
                    panic!("{policy:?} {order:?} {}", part.text)
                };
                let denied = DeniedHttpResponse::decode(denied).unwrap();
                assert_eq!(
                    (denied.status.unwrap().code, &*denied.body),
                    (403, "PERMISSION_DENIED:denying.handler.istio-system:closed")
                );
                let metadata = String::from_utf8_lossy(&answer.dynamic_metadata).into_owned();
                let is_ignored = treatment == OnFailure::Open;
                assert_eq!(metadata.contains(part.text), !is_ignored, "{policy:?} {order:?}: {metadata}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_without_a_denial_is_treated_by_the_policy() {
    for part in [CONDITION, INSTANCE, ADAPTER] {
        for (policy, outcome) in [
            (FailurePolicy::default(), None),
            (FailurePolicy::CLOSED, Some(false)),
            (
                FailurePolicy::default().match_error(OnFailure::Open).adapter_error(OnFailure::Open),
                Some(true),
            ),
        ] {
            let answer = part.check(Order::FailingOnly, policy).await;
            let is_allowed = answer.ok().map(|answer| answer.status.unwrap().is_empty());
            assert_eq!(is_allowed, outcome, "{} {policy:?}", part.text);
        }
    }
}

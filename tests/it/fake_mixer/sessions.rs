use std::sync::atomic::Ordering::Relaxed;

use mixer_adapter::{Code, testing::InjectedFault};
use test_adapters::ledger;

use super::{obedient, order};

#[tokio::test]
async fn a_session_is_opened_with_the_configuration_and_closed_with_the_mixer() {
    let mixer = obedient("by-session").sessions().start().await.unwrap();
    assert_eq!(ledger("by-session").opened(), 1, "before any call");
    let sessions = mixer.host().sessions().list(10);
    assert_eq!(sessions[0].instances, ["order.instance.istio-system"]);
    mixer.check(order("deny")).await.expect_denied(Code::PermissionDenied, "denied on request");
    mixer.check(order("fail")).await.expect_error(Code::Internal, "failed on request");
    mixer.close().await;
    assert_eq!((ledger("by-session").opened(), ledger("by-session").closed()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_lost_session_is_made_again_and_the_call_is_answered() {
    let mixer = obedient("lost").sessions().start().await.unwrap();
    mixer.inject(InjectedFault::LostSessions);
    mixer.check(order("allow")).await.expect_allowed();
    assert_eq!(mixer.host().counts().opened.load(Relaxed), 2);
    assert_eq!(mixer.host().sessions().list(10).len(), 1);
    mixer.close().await;
    assert_eq!((ledger("lost").opened(), ledger("lost").closed(), ledger("lost").leaked()), (2, 2, 0));
}

#[tokio::test]
async fn what_the_adapter_says_against_its_configuration_refuses_the_whole() {
    let refused = obedient("unwanted").handler("other", "{ledger: unwanted, fault: crooked}");
    let refused = refused.rule("true", "other", ["order"]).sessions().start().await.unwrap_err();
    let text = refused.to_string();
    assert!(text.contains("other.handler.istio-system: spec.params: "), "{text}");
    assert!(text.contains("INVALID_ARGUMENT") || text.contains("InvalidArgument"), "{text}");
    assert!(text.contains("fault: it is crooked"), "{text}");
}

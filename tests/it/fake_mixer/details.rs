//! Details of denials and errors, up to the caller of a Mixer.

use mixer_adapter::{
    prost::Message as _,
    proto::{
        Any,
        google::rpc::{ErrorInfo, LocalizedMessage, RetryInfo},
    },
    template::ListEntry,
    testing::FakeMixer,
};
use mixer_adapter_engine::{build::BuildOptions, dispatch::OnFailure};
use mixer_adapter_host::handler::details_of;
use test_adapters::Probe;

use super::{obedient, order};

fn names(details: &[Any]) -> Vec<&str> {
    details.iter().map(Any::message_name).collect()
}

#[tokio::test]
async fn details_and_localized_messages_of_a_denial_reach_the_caller_and_its_direct_response_is_a_directive()
{
    let mixer = obedient("denial details").start().await.unwrap();
    let answer = mixer.check(order("deny with details")).await.result.unwrap();
    let details = &answer.status().details;
    assert_eq!(names(details), ["google.rpc.ErrorInfo", "google.rpc.LocalizedMessage"]);
    assert_eq!(ErrorInfo::decode(&*details[0].value).unwrap().reason, "ASKED");
    let localized = LocalizedMessage { locale: "de".to_owned(), message: "abgelehnt".to_owned() };
    assert_eq!(LocalizedMessage::decode(&*details[1].value).unwrap(), localized);
    assert_eq!(answer.directive().unwrap().direct_response_code, 451);
    let shown = format!("{answer:?}");
    let detail = r#"detail: {"@type":"type.googleapis.com/google.rpc.LocalizedMessage","locale":"de","message":"abgelehnt"}"#;
    assert!(shown.contains(detail), "{shown}");
}

#[tokio::test]
async fn the_details_of_all_denials_are_merged() {
    let mixer = FakeMixer::with::<Probe>()
        .handler("probe", "{ledger: merged details}")
        .instance::<ListEntry>("one", "value: request.path")
        .instance::<ListEntry>("other", "value: request.path")
        .rule("true", "probe", ["one", "other"])
        .start()
        .await
        .unwrap();
    let answer = mixer.check(order("deny with details")).await.result.unwrap();
    let (reason, text) = ("google.rpc.ErrorInfo", "google.rpc.LocalizedMessage");
    assert_eq!(names(&answer.status().details), [reason, text, reason, text]);
}

/// The other detail is too large.
#[tokio::test]
async fn details_of_an_error_are_those_of_the_check_that_fails_or_is_denied_for_it() {
    let mixer = obedient("error details").start().await.unwrap();
    let error = mixer.check(order("fail with details")).await.result.unwrap_err();
    let details = details_of(&error);
    assert_eq!(names(&details), ["google.rpc.RetryInfo"]);
    assert_eq!(RetryInfo::decode(&*details[0].value).unwrap().retry_delay.unwrap().seconds, 30);

    for (policy, expected) in [(OnFailure::Closed, &details[..]), (OnFailure::Open, &[])] {
        let mut options = BuildOptions::default();
        options.policy.adapter_error = policy;
        let mixer = obedient("error details").options(options).start().await.unwrap();
        let answer = mixer.check(order("fail with details")).await.result.unwrap();
        assert_eq!(answer.status().details, expected, "{policy:?}");
    }
}

//! Each adapter as a Mixer uses it: rule, instance and handler configuration, and the outcomes. `prometheus` has its
//! test beside the adapter, where its page takes a free port.

use std::time::Duration;

use mixer_adapter::{
    Code,
    template::{CheckNothing, ListEntry, LogEntry, Metric, Quota, metric},
    testing::{FakeMixer, attributes},
};
use mixer_adapters::{denier::Denier, list::List, memquota::MemQuota, noop::Noop, stdio::Stdio};

#[tokio::test]
async fn denier_denies_what_its_rule_matches() {
    let mixer = FakeMixer::with::<Denier>()
        .handler("closed", "{status: {code: 7, message: closed for repair}, valid_duration: 10s}")
        .instance::<CheckNothing>("request", "{}")
        .rule(r#"destination.service.name == "ratings""#, "closed", ["request"])
        .start()
        .await
        .unwrap();
    let to = |service: &str| attributes! { "destination.service.name" => service };
    let denied = mixer.check(to("ratings")).await;
    denied
        .expect_denied(Code::PermissionDenied, "closed for repair")
        .expect_valid(Duration::from_secs(10), 1000);
    mixer.check(to("reviews")).await.expect_allowed().expect_trace("did not match").expect_calls(0);
}

#[tokio::test]
async fn list_admits_addresses_in_its_ranges() {
    let mixer = FakeMixer::with::<List>()
        .handler("offices", "{overrides: [10.57.0.0/16], entry_type: IP_ADDRESSES}")
        .instance::<ListEntry>("source", r#"value: source.ip | ip("0.0.0.0")"#)
        .rule("true", "offices", ["source"])
        .start()
        .await
        .unwrap();
    let from = |ip: [u8; 4]| attributes! { "source.ip" => std::net::Ipv4Addr::from(ip) };
    mixer.check(from([10, 57, 1, 2])).await.expect_allowed();
    mixer
        .check(from([10, 58, 1, 2]))
        .await
        .expect_denied(Code::PermissionDenied, "10.58.1.2 is not whitelisted");
    mixer.check(attributes! {}).await.expect_denied(Code::PermissionDenied, "0.0.0.0 is not whitelisted");
}

#[tokio::test]
async fn memquota_grants_each_user_the_remaining_amount() {
    let mixer = FakeMixer::with::<MemQuota>()
        .handler("limits", "quotas: [{name: requests, max_amount: 3, valid_duration: 60s}]")
        .instance::<Quota>("requests", r#"dimensions: {user: 'request.headers["user"] | "anonymous"'}"#)
        .rule("true", "limits", ["requests"])
        .start()
        .await
        .unwrap();
    let by = |user: &str| attributes! { "request.headers" => [("user", user)] };
    mixer.quota("requests", 2, by("ada")).dedup_id("sent twice").await.expect_granted(2);
    mixer.quota("requests", 2, by("ada")).dedup_id("sent twice").await.expect_granted(2);
    mixer.quota("requests", 2, by("ada")).best_effort().await.expect_granted(1);
    mixer.quota("requests", 1, by("ada")).await.expect_granted(0);
    mixer.quota("requests", 1, by("bob")).await.expect_granted(1);
}

#[tokio::test]
async fn noop_admits_grants_and_takes_everything() {
    let mixer = FakeMixer::with::<Noop>()
        .handler("nothing", "{}")
        .instance::<CheckNothing>("request", "{}")
        .instance::<Quota>("tokens", "{}")
        .instance::<Metric>("size", "value: request.size | 0")
        .rule("true", "nothing", ["request", "tokens", "size"])
        .start()
        .await
        .unwrap();
    mixer.check(attributes! {}).await.expect_allowed().expect_calls(1);
    mixer.quota("tokens", 7, attributes! {}).await.expect_granted(7);
    mixer.report(attributes! {}).await.expect_calls(1).expect_ok();
}

#[tokio::test]
async fn stdio_writes_a_line_for_each_request_of_a_report() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("access.log");
    let mixer = FakeMixer::with::<Stdio>()
        .handler("log", serde_json::json!({ "log_stream": "FILE", "output_path": file }))
        .instance::<LogEntry>("access", "{severity: '\"warn\"', variables: {path: request.path}}")
        .rule("true", "log", ["access"])
        .start()
        .await
        .unwrap();
    mixer.report(["/a", "/b"].map(|path| attributes! { "request.path" => path })).await.expect_ok();
    mixer.close().await;
    let written = std::fs::read_to_string(&file).unwrap();
    assert_eq!(
        written.lines().map(|line| line.contains(r#""level":"warn""#)).collect::<Vec<_>>(),
        [true, true]
    );
    assert!(written.contains(r#""path":"/a""#) && written.contains(r#""path":"/b""#), "{written}");
}

/// Direct calls of a handler, without rules.
#[tokio::test]
async fn a_handler_is_tried_by_itself() {
    let list = FakeMixer::with::<List>().params("{overrides: [/admin], blacklist: true}");
    let path = |path: &str| mixer_adapter::template::listentry::InstanceMsg {
        value: Some(path.into()),
        ..Default::default()
    };
    list.check::<ListEntry>(path("/admin"))
        .await
        .expect_denied(Code::PermissionDenied, "/admin is blacklisted");
    list.check::<ListEntry>(path("/")).await.expect_allowed();
    let stdio = FakeMixer::with::<Stdio>().params("{log_stream: FILE}").session().await;
    assert_eq!(stdio.unwrap_err().code(), Code::InvalidArgument);
    let noop = FakeMixer::with::<Noop>().params("{}").session().await.unwrap();
    noop.report::<Metric>([metric::InstanceMsg::default()]).await.expect_ok();
}

/// The examples beside the adapters, as they are given to a real Mixer.
#[tokio::test]
async fn the_examples_for_a_real_mixer_are_taken() {
    let denier =
        FakeMixer::with::<Denier>().config(include_str!("../../denier/handler.yaml")).start().await.unwrap();
    let ratings = attributes! { "destination.service.name" => "ratings" };
    denier.check(ratings).await.expect_denied(Code::PermissionDenied, "ratings are closed");
    let memquota =
        FakeMixer::with::<MemQuota>().config(include_str!("../../memquota/handler.yaml")).sessions();
    let memquota = memquota.start().await.unwrap();
    let user = |name: &str| attributes! { "destination.service.name" => "ratings", "request.headers" => [("end-user", name)] };
    memquota.quota("requestcount", 50, user("ada")).await.expect_granted(50);
    memquota.quota("requestcount", 1, user("ada")).await.expect_granted(0);
    memquota.quota("requestcount", 1, user("bob")).await.expect_granted(1);
    let noop =
        FakeMixer::with::<Noop>().config(include_str!("../../noop/handler.yaml")).start().await.unwrap();
    noop.check(attributes! {}).await.expect_allowed().expect_calls(1);
}

//! The adapter as a whole: what calls are answered, and how a fetched list changes.

#![allow(clippy::unwrap_used)]

use std::sync::{Arc, Mutex};

use axum::{Router, extract::State, http::StatusCode, routing::get};
use mixer_adapter::testing::{FakeMixer, Params as FakeParams};
use mixer_adapter_core::{
    adapter::Faults,
    prost_types,
    proto::CheckResult,
    value::{IpAddress, Value},
};

use super::{params::ListEntryType as Kind, *};

const OK: i32 = 0;
const INVALID_ARGUMENT: i32 = 3;
const PERMISSION_DENIED: i32 = 7;

/// What the provider answers, and how often it did.
#[derive(Debug)]
struct Answer {
    status: StatusCode,
    list: String,
    fetched: usize,
}

type Provider = Arc<Mutex<Answer>>;

async fn provider(list: &str) -> (Provider, String) {
    let answer = Answer { status: StatusCode::OK, list: list.to_owned(), fetched: 0 };
    let provider = Arc::new(Mutex::new(answer));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let serve = |State(provider): State<Provider>| async move {
        let mut answer = provider.lock().unwrap();
        answer.fetched += 1;
        (answer.status, answer.list.clone())
    };
    let router = Router::new().route("/", get(serve)).with_state(provider.clone());
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    (provider, url)
}

fn seconds(seconds: i64) -> Option<prost_types::Duration> {
    Some(prost_types::Duration { seconds, nanos: 0 })
}

fn params(kind: Kind, url: &str, overrides: &[&str]) -> Params {
    Params {
        provider_url: url.to_owned(),
        refresh_interval: seconds(1),
        ttl: seconds(10),
        overrides: overrides.iter().map(ToString::to_string).collect(),
        entry_type: kind.into(),
        ..Params::default()
    }
}

async fn open(params: Params) -> Result<List, AdapterError> {
    Context::detached(()).open_handler(params).await
}

async fn ask(list: &List, value: Option<Value>) -> Result<CheckResult, AdapterError> {
    list.handle(listentry::InstanceMsg { value, ..Default::default() }.into()).await.map(CheckResult::from)
}

async fn status(list: &List, value: impl Into<Value>) -> (i32, String) {
    let status = ask(list, Some(value.into())).await.unwrap().status.unwrap();
    (status.code, status.message)
}

async fn expect(list: &List, cases: &[(&str, i32)]) {
    for (value, code) in cases {
        assert_eq!(status(list, *value).await.0, *code, "{value}");
    }
}

/// Waits until the list has been fetched a number of further times.
async fn fetched(provider: &Provider, more: usize) {
    let wanted = provider.lock().unwrap().fetched + more;
    while provider.lock().unwrap().fetched < wanted {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Waits until calls succeed, or until they fail.
async fn until(list: &List, succeeds: bool) -> Option<AdapterError> {
    loop {
        let asked = ask(list, Some("DEF".into())).await;
        if asked.is_ok() == succeeds {
            return asked.err();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

// TestStringList. The original's table says NOT_FOUND, which its test helper does not compare;
// docs/behaviour/adapters.md#answers-of-listchecker.
#[tokio::test]
async fn strings_fetched_and_overridden_are_whitelisted() {
    let (_, url) = provider("ABC\nDEF").await;
    let list = open(params(Kind::Strings, &url, &["OVERRIDE"])).await.unwrap();
    expect(&list, &[("ABC", OK), ("DEF", OK), ("OVERRIDE", OK)]).await;
    expect(&list, &[("abc", PERMISSION_DENIED), ("override", PERMISSION_DENIED)]).await;
    assert_eq!(status(&list, "GHI").await, (PERMISSION_DENIED, "GHI is not whitelisted".to_owned()));
}

// TestBlackStringList.
#[tokio::test]
async fn strings_fetched_and_overridden_are_blacklisted() {
    let (_, url) = provider("ABC\nDEF").await;
    let params = Params { blacklist: true, ..params(Kind::Strings, &url, &["OVERRIDE"]) };
    let list = open(params).await.unwrap();
    expect(&list, &[("DEF", PERMISSION_DENIED), ("OVERRIDE", PERMISSION_DENIED)]).await;
    expect(&list, &[("GHI", OK), ("abc", OK), ("override", OK)]).await;
    assert_eq!(status(&list, "ABC").await, (PERMISSION_DENIED, "ABC is blacklisted".to_owned()));
}

#[tokio::test]
// docs/behaviour/adapters.md#lists-of-listchecker.
async fn an_empty_list_denies_where_it_is_white_and_allows_where_it_is_black() {
    for (blacklist, code) in [(false, PERMISSION_DENIED), (true, OK)] {
        let (_, url) = provider("").await;
        let list = open(Params { blacklist, ..params(Kind::Strings, &url, &[]) }).await.unwrap();
        expect(&list, &[("ABC", code)]).await;
    }
}

// TestCaseInsensitiveStringList.
#[tokio::test]
async fn case_may_be_ignored() {
    let (_, url) = provider("AbC\nDeF").await;
    let list = open(params(Kind::CaseInsensitiveStrings, &url, &["Override"])).await.unwrap();
    expect(&list, &[("ABC", OK), ("DEF", OK), ("OVERRIDE", OK), ("abc", OK), ("override", OK)]).await;
    expect(&list, &[("GHI", PERMISSION_DENIED)]).await;
}

// TestNoUrlStringList.
#[tokio::test]
async fn a_list_needs_no_provider() {
    let list = open(params(Kind::Strings, "", &["OVERRIDE"])).await.unwrap();
    expect(&list, &[("OVERRIDE", OK)]).await;
    expect(&list, &[("ABC", PERMISSION_DENIED), ("abc", PERMISSION_DENIED), ("override", PERMISSION_DENIED)])
        .await;
}

// TestIPList, and "IP as string" of list_integration_test.go.
#[tokio::test]
async fn addresses_are_looked_up_in_ranges() {
    let (provider, url) = provider("whitelist: [10.10.11.2, 10.10.11.3, 9.9.9.9/28]").await;
    let list = open(params(Kind::IpAddresses, &url, &["11.11.11.11"])).await.unwrap();
    let cases = [
        ("10.10.11.2", OK),
        ("9.9.9.1", OK),
        ("120.10.11.2", PERMISSION_DENIED),
        ("11.11.11.11", OK),
        ("XYZ", INVALID_ARGUMENT),
    ];
    expect(&list, &cases).await;
    assert_eq!(status(&list, "XYZ").await.1, "XYZ is not a valid IP address");
    let four = IpAddress { value: vec![9, 9, 9, 1].into() };
    assert_eq!(status(&list, four).await.0, OK);
    let sixteen = IpAddress { value: [[0; 10].as_slice(), &[0xff, 0xff, 8, 8, 8, 8]].concat().into() };
    assert_eq!(status(&list, sixteen).await, (PERMISSION_DENIED, "8.8.8.8 is not whitelisted".to_owned()));
    // A list with errors, and one in the wrong format, leave the old one.
    for wrong in ["whitelist: [10.10.11.2, X, 10.10.11.3]", "[JUNK]"] {
        wrong.clone_into(&mut provider.lock().unwrap().list);
        fetched(&provider, 2).await;
        expect(&list, &cases).await;
    }
}

// TestRegexList: patterns are one a line, so that the original's YAML there is three patterns that match by chance.
#[tokio::test]
async fn patterns_match_anywhere() {
    let (_, url) = provider("a+.*\n\nefg").await;
    let list = open(params(Kind::Regex, &url, &["a*b"])).await.unwrap();
    expect(&list, &[("abc", OK), ("xefgx", OK), ("b", OK), ("B", PERMISSION_DENIED)]).await;
}

// TestRegexErrors: a pattern that is none is an error of the list, not of the configuration.
#[tokio::test]
async fn a_list_with_a_bad_pattern_is_no_list() {
    let (_, url) = provider("ABC\n[(\n])").await;
    let list = open(params(Kind::Regex, &url, &[])).await.unwrap();
    let error = ask(&list, Some("ABC".into())).await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
    assert!(
        error.to_string().contains("pattern \"[(\": at character 1: unclosed character class"),
        "{error}"
    );
}

// TestBadUrl and TestIOErrors: failing to fetch fails calls, and does not refuse the configuration.
#[tokio::test]
async fn without_a_list_calls_fail_and_are_not_denied() {
    let (provider, url) = provider("ABC").await;
    provider.lock().unwrap().status = StatusCode::INTERNAL_SERVER_ERROR;
    let list = open(params(Kind::Strings, &url, &["ABC"])).await.unwrap();
    let error = ask(&list, Some("ABC".into())).await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
    let expected = format!(
        "there is no list: fetching {url}/ failed: the answer is 500 Internal Server Error instead of 200 OK"
    );
    assert_eq!(error.to_string(), expected);
}

// TestRefreshAndPurge.
#[tokio::test]
async fn a_changed_list_is_picked_up_and_one_that_cannot_be_refreshed_dies() {
    let (provider, url) = provider("ABC").await;
    let params = Params { ttl: seconds(3), ..params(Kind::Strings, &url, &[]) };
    let list = open(params).await.unwrap();
    expect(&list, &[("ABC", OK), ("DEF", PERMISSION_DENIED)]).await;
    "DEF".clone_into(&mut provider.lock().unwrap().list);
    // The same list is a success, too: it outlives its ttl.
    fetched(&provider, 5).await;
    expect(&list, &[("ABC", PERMISSION_DENIED), ("DEF", OK)]).await;
    provider.lock().unwrap().status = StatusCode::MOVED_PERMANENTLY;
    let error = until(&list, false).await.unwrap();
    assert_eq!(error.code(), Code::Unavailable);
    assert!(error.to_string().starts_with("the list is older than its ttl: fetching"), "{error}");
    provider.lock().unwrap().status = StatusCode::OK;
    until(&list, true).await;
    expect(&list, &[("DEF", OK)]).await;
}

#[tokio::test]
async fn a_fetched_list_beyond_the_limits_leaves_the_old_one_in_place() {
    let (provider, url) = provider("^A$").await;
    let context = Context::detached(());
    let list: List = context.clone().open_handler(params(Kind::Regex, &url, &[])).await.unwrap();
    expect(&list, &[("A", OK), ("B", PERMISSION_DENIED)]).await;
    let failed = context.metrics().events("fetches_failed");
    let before = failed.count();
    provider.lock().unwrap().list = (0..=limits::MAX_PATTERNS).map(|n| format!("^B{n}\n")).collect();
    fetched(&provider, 3).await;
    assert!(failed.count() > before);
    expect(&list, &[("A", OK), ("B1", PERMISSION_DENIED)]).await;
}

#[tokio::test]
async fn a_configuration_beyond_the_limits_is_refused_by_the_name_of_the_limit() {
    let overrides: Vec<String> = (0..=limits::MAX_PATTERNS).map(|n| n.to_string()).collect();
    let too_many = Params { overrides, ..params(Kind::Regex, "", &[]) };
    let errors = Faults::parse::<ListSettings>(too_many).unwrap_err().into_violations();
    let errors: Vec<_> = errors.into_iter().map(|error| (error.field, error.reason)).collect();
    assert_eq!(errors, [("overrides".to_owned(), "there are more than 100000 patterns".to_owned())]);
}

#[tokio::test]
async fn refreshing_ends_with_the_handler() {
    let (provider, url) = provider("ABC").await;
    let list = FakeMixer::with::<List>().params(FakeParams::message(&params(Kind::Strings, &url, &[])));
    let entry = listentry::InstanceMsg { value: Some("ABC".into()), ..Default::default() };
    list.check::<ListEntry>(entry).await.expect_allowed();
    fetched(&provider, 1).await;
    list.close().await;
    let before = provider.lock().unwrap().fetched;
    tokio::time::sleep(Duration::from_millis(1200)).await;
    assert_eq!(provider.lock().unwrap().fetched, before);
}

#[tokio::test]
async fn answers_are_cached_as_configured() {
    let keep = |params| async {
        let list = open(params).await.unwrap();
        let mut kept = Vec::new();
        for value in [Some(Value::from("ABC")), Some("DEF".into()), Some(7.into()), None] {
            let CheckResult { valid_duration, valid_use_count, .. } = ask(&list, value).await.unwrap();
            kept.push((valid_duration.unwrap().seconds, valid_use_count));
        }
        kept.dedup();
        kept
    };
    let default = params(Kind::Strings, "", &["ABC"]);
    assert_eq!(keep(default.clone()).await, [(300, 10_000)]);
    let set = Params { caching_interval: seconds(7), caching_use_count: Some(3), ..default.clone() };
    assert_eq!(keep(set).await, [(7, 3)]);
    assert_eq!(keep(Params { caching_interval: seconds(0), ..default.clone() }).await, [(0, -1)]);
    assert_eq!(keep(Params { caching_use_count: Some(0), ..default }).await, [(0, -1)]);
}

#[tokio::test]
async fn values_that_cannot_be_listed_are_invalid() {
    let list = open(params(Kind::Strings, "", &["7"])).await.unwrap();
    let invalid = (INVALID_ARGUMENT, "7 is not a valid string or IP address".to_owned());
    assert_eq!(status(&list, 7).await, invalid);
    let absent = ask(&list, None).await.unwrap().status.unwrap();
    assert_eq!(absent.code, INVALID_ARGUMENT);
    assert_eq!(absent.message, "<nil> is not a valid string or IP address");
    // A defect of the original, docs/behaviour/adapters.md#answers-of-listchecker: an empty string was refused as no string.
    assert_eq!(status(&list, "").await.0, PERMISSION_DENIED);
}

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};
use mixer_adapter_core::framework::status::status_name;
use mixer_adapter_engine::dispatch::AnswerDetails;

use crate::proto::envoy::{
    config::core::v3::{HeaderMap, HeaderValue},
    service::auth::v3::{CheckResponse, check_response::HttpResponse},
};
use crate::proto::header_entry;

use super::{
    Operation::{Append, Remove, Replace},
    *,
};

fn answer(code: i32, message: &str, directive: Option<RouteDirective>) -> dispatch::CheckAnswer {
    dispatch::CheckAnswer {
        status: RpcStatus { code, message: message.to_owned(), details: Vec::new() },
        valid_duration: prost_types::Duration::default(),
        valid_use_count: 0,
        max_uses: None,
        directive: directive.map(Arc::new),
        details: Arc::new(AnswerDetails { rules: vec!["r1.rule.shop".into()], ..AnswerDetails::default() }),
    }
}

/// Returns the response that Envoy reads, with an additional header.
fn respond(
    decision: Decision,
    failure_answer: FailureAnswer,
    header: Option<(&str, &str)>,
) -> Result<CheckResponse, Status> {
    let answer = decision.into_response(failure_answer, Vec::new(), header)?;
    Ok(CheckResponse::decode(&*answer.encode_to_vec()).unwrap())
}

/// Decodes `grpc-status-details-bin` as gRPC clients do: to a status.
#[test]
fn details_of_a_denial_reach_envoy_and_grpc_clients() {
    let detail = mixer_adapter_core::proto::Any { type_url: "t/a.B".to_owned(), value: vec![1].into() };
    let mut denied = answer(16, "who?", None);
    denied.status.details.push(detail.clone());
    let decision = decide(denied.clone(), &[("content-type", "application/grpc")]);
    let response = respond(decision, FailureAnswer::Unavailable, None).unwrap();
    assert_eq!(response.status.as_ref().unwrap().details, [detail]);
    let Some(HttpResponse::DeniedResponse(sent)) = response.http_response else { panic!() };
    let sent = sent.headers.into_iter().map(|option| option.header.unwrap());
    let mut details = sent.filter(|header| header.key == "grpc-status-details-bin");
    let header = details.next().unwrap();
    let status = RpcStatus::decode(&*STANDARD_NO_PAD.decode(header.value).unwrap()).unwrap();
    assert_eq!(status, denied.status);

    let response = respond(decide(denied, &[]), FailureAnswer::Unavailable, None).unwrap();
    let Some(HttpResponse::DeniedResponse(sent)) = response.http_response else { panic!() };
    assert!(sent.headers.is_empty(), "not a client of gRPC");
}

/// As with `encode_raw_headers` of ext_authz.
#[test]
fn a_client_of_grpc_is_known_by_raw_headers_too() {
    let header = |value: &str| HeaderValue {
        key: "content-type".to_owned(),
        raw_value: value.as_bytes().to_vec(),
        ..HeaderValue::default()
    };
    let has_status = |content_type: &str| {
        let headers = vec![header(content_type)];
        let request = HttpRequest { header_map: Some(HeaderMap { headers }), ..HttpRequest::default() };
        let decision = Decision::new(answer(7, "no", None), &Client::new(Some(&request)), None);
        let response = respond(decision, FailureAnswer::Unavailable, None).unwrap();
        let Some(HttpResponse::DeniedResponse(sent)) = response.http_response else { panic!() };
        sent.headers.iter().any(|option| option.header.as_ref().unwrap().key == "grpc-status")
    };
    assert!(has_status("application/grpc+proto"));
    assert!(!has_status("application/json"));
}

fn operations_of(operations: &[(&str, Operation, &str)]) -> Vec<HeaderOperation> {
    let operation = |(name, operation, value): &(&str, Operation, &str)| HeaderOperation {
        name: (*name).to_owned(),
        value: (*value).to_owned(),
        operation: *operation as i32,
    };
    operations.iter().map(operation).collect()
}

fn request(headers: &[(&str, &str)]) -> HttpRequest {
    let headers = headers.iter().map(|(name, value)| header_entry((*name).to_owned(), (*value).to_owned()));
    HttpRequest { headers: headers.collect(), ..HttpRequest::default() }
}

fn decide(answer: dispatch::CheckAnswer, headers: &[(&str, &str)]) -> Decision {
    Decision::new(answer, &Client::new(Some(&request(headers))), None)
}

fn allow(request: &[(&str, Operation, &str)], response: &[(&str, Operation, &str)]) -> Decision {
    let directive = RouteDirective {
        request_header_operations: operations_of(request),
        response_header_operations: operations_of(response),
        ..RouteDirective::default()
    };
    decide(answer(0, "", Some(directive)), &[("x-there", "1")])
}

/// Name, value, `append`, `append_action` of headers.
fn written(headers: &[HeaderValueOption]) -> Vec<(&str, &str, bool, i32)> {
    let written = headers.iter().map(|option| {
        let header = option.header.as_ref().unwrap();
        assert!(header.raw_value.is_empty());
        (header.key.as_str(), header.value.as_str(), option.append.unwrap(), option.append_action)
    });
    written.collect()
}

fn changes_of(decision: Decision) -> OkHttpResponse {
    match decision {
        Decision::Allow(changes) => OkHttpResponse::decode(changes).unwrap(),
        other => panic!("{other:?}"),
    }
}

fn denial_of(decision: Decision) -> DeniedHttpResponse {
    match decision {
        Decision::Deny(_, [_, denied]) => DeniedHttpResponse::decode(denied).unwrap(),
        other => panic!("{other:?}"),
    }
}

fn direct(code: u32, body: &str, headers: &[(&str, Operation, &str)]) -> Option<RouteDirective> {
    Some(RouteDirective {
        direct_response_code: code,
        direct_response_body: body.to_owned(),
        response_header_operations: operations_of(headers),
        ..RouteDirective::default()
    })
}

#[test]
fn every_answer_has_a_status_and_a_response_that_agree() {
    let respond = |decision, answer| respond(decision, answer, None);
    let allowed = respond(decide(answer(0, "", None), &[]), FailureAnswer::Unavailable).unwrap();
    assert_eq!(allowed.status, Some(RpcStatus::default()));
    assert_eq!(allowed.http_response, Some(HttpResponse::OkResponse(OkHttpResponse::default())));
    for code in [7, 99, -1] {
        let denied = respond(decide(answer(code, "no", None), &[]), FailureAnswer::Unavailable).unwrap();
        assert_ne!(denied.status.unwrap().code, 0);
        assert!(matches!(denied.http_response, Some(HttpResponse::DeniedResponse(_))));
    }
    let failed = || Decision::Fail("adapter is down".to_owned());
    let error = respond(failed(), FailureAnswer::Unavailable).unwrap_err();
    assert_eq!((error.code(), error.message()), (Code::Unavailable, "adapter is down"));
    let failed = respond(failed(), FailureAnswer::ErrorResponse).unwrap();
    assert_eq!(failed.status.unwrap().code, Code::Unavailable as i32);
    let Some(HttpResponse::ErrorResponse(response)) = failed.http_response else { panic!() };
    assert_eq!(response.status.unwrap().code, 503);
}

#[test]
fn a_header_of_the_request_is_replaced_appended_or_removed() {
    let operations = [
        ("X-User", Replace, "alice"),
        ("x-there", Append, "2"),
        ("x-new", Append, "1"),
        ("x-new", Append, "2"),
        ("X-Secret", Remove, ""),
        (":path", Replace, "/other?x=1"),
    ];
    let changes = changes_of(allow(&operations, &[]));
    let expected = [
        ("x-user", "alice", false, 2),
        ("x-there", "2", true, 0),
        ("x-new", "1", false, 2),
        ("x-new", "2", true, 0),
        (":path", "/other?x=1", false, 2),
    ];
    assert_eq!(written(&changes.headers), expected);
    assert_eq!(changes.headers_to_remove, ["x-secret"]);
}

#[test]
fn operations_of_one_header_have_the_effect_of_their_order() {
    for (operations, headers, removed) in [
        (vec![("x-user", Remove, ""), ("X-User", Replace, "a")], vec![("x-user", "a", false, 2)], vec![]),
        (vec![("x-there", Remove, ""), ("x-there", Append, "a")], vec![("x-there", "a", false, 2)], vec![]),
        (vec![("x-there", Append, "a"), ("x-there", Replace, "b")], vec![("x-there", "b", false, 2)], vec![]),
        (vec![("x-there", Replace, "a"), ("x-there", Remove, "")], vec![], vec!["x-there"]),
        (vec![("x-there", Remove, ""), ("x-there", Remove, "")], vec![], vec!["x-there"]),
    ] {
        let changes = changes_of(allow(&operations, &[]));
        assert_eq!(written(&changes.headers), headers, "{operations:?}");
        assert_eq!(changes.headers_to_remove, removed, "{operations:?}");
    }
}

#[test]
fn a_header_of_the_response_is_replaced_or_appended() {
    let operations = [
        ("x-a", Replace, "1"),
        ("Set-Cookie", Append, "a=1"),
        ("set-cookie", Append, "b=2"),
        ("server", Remove, ""),
    ];
    let changes = changes_of(allow(&[], &operations));
    let expected = [("x-a", "1", false, 2), ("set-cookie", "a=1", true, 0), ("set-cookie", "b=2", true, 0)];
    assert_eq!(written(&changes.response_headers_to_add), expected);
}

#[test]
fn a_parameter_of_the_query_is_changed_in_the_path_and_cannot_become_two() {
    for (path, operations, changed) in [
        ("/a", vec![("?user", Replace, "a&admin=1\r\n")], "/a?user=a%26admin%3D1%0D%0A"),
        ("/a?user=x&b=c&user=y", vec![("?user", Replace, "z")], "/a?b=c&user=z"),
        ("/a?user=x", vec![("?user", Append, "y")], "/a?user=x&user=y"),
        ("/a?user=x&&b", vec![("?user", Remove, "")], "/a?b"),
        ("//h/%2f?user=x", vec![("?user", Remove, "")], "//h/%2f"),
        ("/a?b", vec![(":path", Replace, "/other?c"), ("?user", Replace, "x")], "/other?c&user=x"),
    ] {
        let directive = RouteDirective {
            request_header_operations: operations_of(&operations),
            ..RouteDirective::default()
        };
        let request = HttpRequest { path: path.to_owned(), ..HttpRequest::default() };
        let decision = Decision::new(answer(0, "", Some(directive)), &Client::new(Some(&request)), None);
        assert_eq!(written(&changes_of(decision).headers), [(":path", changed, false, 2)], "{path}");
    }
}

const INVALID: [(&str, &str); 9] = [
    ("x-a", "a\r\nset-cookie: forged"),
    ("x-a", "a\nb"),
    ("x-a", "a\0b"),
    ("x-a", "a\u{7f}"),
    ("x a", "1"),
    ("", "1"),
    ("Content-Length", "50"),
    ("transfer-encoding", "chunked"),
    ("connection", "close"),
];

#[test]
fn an_allowed_request_fails_if_a_header_must_not_be_sent() {
    for (name, value) in INVALID {
        for operation in [Replace, Append] {
            let operations = [(name, operation, value)];
            assert!(matches!(allow(&operations, &[]), Decision::Fail(_)), "{name}: {value}");
            assert!(matches!(allow(&[], &operations), Decision::Fail(_)), "{name}: {value}");
        }
    }
    for name in [":authority", ":path", "host", "Host", "content-length", "x a"] {
        assert!(matches!(allow(&[(name, Remove, "")], &[]), Decision::Fail(_)), "{name}");
    }
    assert!(matches!(allow(&[(":bogus", Replace, "1")], &[]), Decision::Fail(_)));
    assert!(matches!(allow(&[], &[(":status", Replace, "200")]), Decision::Fail(_)));
}

#[test]
fn a_header_that_must_not_be_sent_is_named_with_the_rules() {
    let Decision::Fail(reason) = allow(&[("x-a", Replace, "a\r\nb: c")], &[]) else { panic!() };
    assert_eq!(
        reason,
        "the value of header x-a has a control character (set by one of the rules r1.rule.shop)"
    );
}

#[test]
fn the_id_of_the_decision_is_a_header_of_every_answer_on_request() {
    let respond = |decision| respond(decision, FailureAnswer::ErrorResponse, Some(("x-decision-id", "1-a")));
    let expected = [("x-decision-id", "1-a", false, 2)];
    let Some(HttpResponse::OkResponse(allowed)) =
        respond(decide(answer(0, "", None), &[])).unwrap().http_response
    else {
        panic!()
    };
    assert_eq!(written(&allowed.headers), expected);
    assert_eq!(written(&allowed.response_headers_to_add), expected);
    let Some(HttpResponse::DeniedResponse(denied)) =
        respond(decide(answer(7, "no", None), &[])).unwrap().http_response
    else {
        panic!()
    };
    assert_eq!(written(&denied.headers), expected);
    let Some(HttpResponse::ErrorResponse(failed)) =
        respond(Decision::Fail("down".to_owned())).unwrap().http_response
    else {
        panic!()
    };
    assert_eq!(written(&failed.headers), expected);
}

#[test]
fn a_cached_answer_is_encoded_once_for_each_form_unless_it_depends_on_the_request() {
    let changed = |request: &[_], response: &[_]| RouteDirective {
        request_header_operations: operations_of(request),
        response_header_operations: operations_of(response),
        ..RouteDirective::default()
    };
    for (answer, are_encoded) in [
        (answer(0, "", None), [true, false]),
        (answer(0, "", Some(changed(&[("x-user", Replace, "a")], &[("x-a", Append, "1")]))), [true, false]),
        (answer(0, "", Some(changed(&[("x-there", Append, "2")], &[]))), [false, false]),
        (answer(0, "", Some(changed(&[("?user", Replace, "a")], &[]))), [false, false]),
        (answer(7, "no", direct(401, "who?", &[("x-a", Replace, "1")])), [true, true]),
    ] {
        let parts = EncodedParts::default();
        let grpc = ("content-type", "application/grpc");
        for headers in [&[][..], &[("x-there", "1")], &[grpc], &[("x-there", "1")], &[grpc]] {
            let request = request(headers);
            for header in [None, Some(("x-decision-id", "1-a"))] {
                let respond = |parts| {
                    let decision = Decision::new(answer.clone(), &Client::new(Some(&request)), parts);
                    respond(decision, FailureAnswer::Unavailable, header).unwrap()
                };
                assert_eq!(respond(Some(&parts)), respond(None), "{answer:?} {headers:?}");
            }
        }
        assert_eq!(parts.responses.each_ref().map(|part| part.get().is_some()), are_encoded, "{answer:?}");
    }
}

#[test]
fn a_denied_request_remains_denied_without_the_headers_that_must_not_be_sent() {
    let headers: Vec<_> = INVALID.iter().map(|(name, value)| (*name, Replace, *value)).collect();
    let headers =
        [headers, vec![(":status", Replace, "200"), ("x-good", Replace, "tab\tand \u{fc}")]].concat();
    let denied = denial_of(decide(answer(7, "no", direct(403, "", &headers)), &[]));
    assert_eq!(written(&denied.headers), [("x-good", "tab\tand \u{fc}", false, 2)]);
}

#[test]
fn a_direct_response_has_its_status_body_and_cookies() {
    let headers =
        [("set-cookie", Append, "a=1"), ("set-cookie", Append, "b=2"), ("Location", Replace, "/login")];
    let denied = denial_of(decide(answer(16, "login", direct(302, "go", &headers)), &[]));
    assert_eq!(denied.status.unwrap().code, 302);
    assert_eq!(denied.body, "go");
    let expected =
        [("set-cookie", "a=1", false, 2), ("set-cookie", "b=2", false, 2), ("location", "/login", false, 2)];
    assert_eq!(written(&denied.headers), expected);
}

#[test]
fn a_status_is_one_that_a_client_can_be_sent() {
    for (code, status) in
        [(200, 200), (204, 204), (599, 599), (99, 403), (100, 403), (199, 403), (600, 403), (u32::MAX, 403)]
    {
        let denied = denial_of(decide(answer(7, "no", direct(code, "", &[])), &[]));
        assert_eq!(denied.status.unwrap().code, status, "{code}");
    }
}

/// `StatusHttpCode` of Istio's proxy.
#[test]
fn without_a_direct_response_the_status_is_that_of_the_code() {
    let statuses = [499, 500, 400, 504, 404, 409, 403, 429, 400, 409, 400, 501, 500, 503, 500, 401];
    for (code, status) in (1..).zip(statuses) {
        let denied = denial_of(decide(answer(code, "h:no", None), &[]));
        assert_eq!(denied.status.unwrap().code, status, "{code}");
        assert_eq!(denied.body, format!("{}:h:no", status_name(code)));
        assert!(denied.headers.is_empty());
    }
    let unknown = denial_of(decide(answer(99, "no", None), &[]));
    assert_eq!((unknown.status.unwrap().code, unknown.body.as_str()), (500, "UNKNOWN:no"));
}

#[test]
fn callers_of_grpc_receive_the_exact_code_and_the_message() {
    let forged = direct(429, "caf\u{e9} 100%\n", &[("grpc-status", Replace, "0")]);
    for content_type in ["application/grpc", "application/grpc-web+proto"] {
        let denied = denial_of(decide(answer(8, "no", forged.clone()), &[("content-type", content_type)]));
        let expected = [("grpc-status", "8", false, 2), ("grpc-message", "caf%C3%A9 100%25%0A", false, 2)];
        assert_eq!(written(&denied.headers), expected);
        assert_eq!(denied.body, "caf\u{e9} 100%\n");
    }
}

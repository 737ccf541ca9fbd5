//! Changes of headers by answers that allow.

use super::*;

/// A Mixer that asks a service, and has a header operation of its own.
async fn mixer_asking(url: &str, settings: &str) -> FakeMixer {
    let setup = FakeMixer::with::<ExtAuthz>().handler("other", &*format!("{{url: '{url}', {settings}}}"));
    let setup = setup.instance::<Authorization>("request", "{action: {method: '\"GET\"', path: '\"/\"'}}");
    setup.rule("true", "other", ["request"]).start().await.unwrap()
}

/// The changes of an answer: a `=` replaces, a `+` appends, a `-` removes.
async fn changes(mixer: &FakeMixer) -> (Vec<String>, Vec<String>) {
    let answer = mixer.check(mixer_adapter::testing::Attributes::default()).await;
    let directive = answer.expect_allowed().expect_ok().directive().cloned().unwrap_or_default();
    let [request, response] = [directive.request_header_operations, directive.response_header_operations]
        .map(|operations| {
            let shown = operations.into_iter().map(|change| {
                let sign = ["=", "-", "+"][usize::try_from(change.operation).unwrap()];
                format!("{}{sign}{}", change.name, change.value)
            });
            shown.collect()
        });
    (request, response)
}

#[tokio::test]
async fn an_answer_by_grpc_that_allows_changes_headers() {
    let service = GrpcService::default();
    let mixer = mixer_asking(&service.start().await, "").await;
    assert_eq!(changes(&mixer).await, (vec![], vec![]));
    let header = |key: &str, value: &str, append: Option<bool>| HeaderValueOption {
        header: Some(HeaderValue { key: key.to_owned(), value: value.to_owned(), ..HeaderValue::default() }),
        append,
        ..HeaderValueOption::default()
    };
    let ok = OkHttpResponse {
        headers: vec![header("x-user", "alice", None), header("x-roles", "admin", Some(true))],
        headers_to_remove: vec!["authorization".to_owned()],
        response_headers_to_add: vec![
            header("set-cookie", "a=1", None),
            header("x-by", "authz", Some(false)),
        ],
    };
    service.set(Ok(CheckResponse { http_response: Some(HttpResponse::OkResponse(ok)), ..allowed() }));
    let (request, response) = changes(&mixer).await;
    assert_eq!(request, ["authorization-", "x-user=alice", "x-roles+admin"]);
    assert_eq!(response, ["set-cookie+a=1", "x-by=authz"]);
}

#[tokio::test]
async fn an_answer_by_http_that_allows_gives_the_upstream_the_configured_headers() {
    let service = HttpService::default();
    let url = service.start().await;
    service.set(200, &[("x-user", "alice"), ("x-group", "a"), ("x-group", "b"), ("x-other", "no")], "");
    for protocol in ["HTTP", "FORWARD_AUTH"] {
        let settings = format!("protocol: {protocol}, upstream_headers: [x-user, x-group, x-role]");
        let (request, response) = changes(&mixer_asking(&url, &settings).await).await;
        // The client cannot give itself a role.
        assert_eq!(request, ["x-user=alice", "x-group=a", "x-group+b", "x-role-"]);
        assert_eq!(response, [""; 0]);
        let (request, _) = changes(&mixer_asking(&url, &format!("protocol: {protocol}")).await).await;
        assert_eq!(request, [""; 0]);
        // Nor without an answer of the service.
        let settings = format!("protocol: {protocol}, upstream_headers: [x-user], on_error: ALLOW");
        let (request, _) = changes(&mixer_asking(&unused_url().await, &settings).await).await;
        assert_eq!(request, ["x-user-"]);
    }
}

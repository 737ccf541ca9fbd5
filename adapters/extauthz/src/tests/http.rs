//! A service of HTTP.

use super::*;

#[tokio::test]
async fn a_service_of_http_is_asked_with_the_method_and_the_path_of_the_request() {
    let service = HttpService::default();
    let handler = handler(&format!("{}/check/", service.start().await), "protocol: HTTP");
    service.set(200, &[], "");
    let instance = instance(&[("Cookie", "session=ü"), ("x-empty", ""), (":body", "a=ü")]);
    handler.check::<Authorization>(instance).await.expect_allowed();
    let Received { method, url, headers, body } = service.last();
    assert_eq!((&*body, &headers["content-length"]), ("a=ü".as_bytes(), &"4".parse().unwrap()));
    assert_eq!((method.as_str(), url.to_string().as_str()), ("PUT", "/check/todos?done=1"));
    assert_eq!(headers["cookie"].as_bytes(), "session=ü".as_bytes());
    assert_eq!(
        (&headers["x-forwarded-host"], &headers["x-mixer-adapter-depth"]),
        (&"todo.example.com".parse().unwrap(), &"1".parse().unwrap())
    );
    assert!(!headers.contains_key("x-empty") && !headers.contains_key("tenant"), "{headers:?}");
    for (status, code) in [(204, 7), (302, 7), (403, 7), (404, 7), (401, 16), (429, 8)] {
        service.set(status, &[], "");
        assert_eq!(check(&handler).await.status().code, code, "{status}");
    }
    service.set(503, &[], "");
    handler.check::<Authorization>(self::instance(&[])).await.expect_denied(Code::Unavailable, NO_DECISION);
}

#[tokio::test]
async fn forward_authentication_asks_one_url_with_the_request_in_headers() {
    let service = HttpService::default();
    let url = format!("{}/oauth2/auth?allowed_groups=admin", service.start().await);
    let handler = handler(&url, "protocol: FORWARD_AUTH");
    service.set(202, &[], "");
    handler.check::<Authorization>(instance(&[("cookie", "a=b")])).await.expect_allowed();
    let with_body = handler.check::<Authorization>(instance(&[(":body", "x")])).await;
    with_body.expect_denied(Code::Unavailable, NO_DECISION);
    let Received { method, url, headers, .. } = service.last();
    assert_eq!((method.as_str(), url.to_string().as_str()), ("GET", "/oauth2/auth?allowed_groups=admin"));
    let sent = ["cookie", "x-forwarded-method", "x-forwarded-host", "x-forwarded-uri"];
    let sent = sent.map(|name| headers[name].to_str().unwrap());
    assert_eq!(sent, ["a=b", "PUT", "todo.example.com", "/todos?done=1"]);
}

#[tokio::test]
async fn a_denial_by_http_has_the_headers_that_clients_receive() {
    let service = HttpService::default();
    let url = service.start().await;
    let handlers =
        [handler(&url, "protocol: HTTP"), handler(&url, "protocol: HTTP, client_headers: [x-why]")];
    let headers = [
        ("location", "https://login.example.com/?rd=/todos"),
        ("set-cookie", "csrf=1; Expires=Wed, 21 Oct 2026 07:28:00 GMT"),
        ("set-cookie", "b=2"),
        ("x-why", "expired"),
        ("server", "secret/1.0"),
    ];
    service.set(302, &headers, "Found");
    let [default, named] =
        [check(&handlers[0]).await, check(&handlers[1]).await].map(|check| response(&check));
    assert_eq!((default.code, &*default.body), (302, "Found"));
    let cookies = "csrf=1; Expires=Wed 21 Oct 2026 07:28:00 GMT,b=2";
    let location = "https://login.example.com/?rd=/todos";
    assert_eq!(default.headers, texts(&[("location", location), ("set-cookie", cookies)]));
    assert_eq!(named.headers, texts(&[("x-why", "expired")]));
}

#[tokio::test]
async fn a_request_that_cannot_be_sent_is_denied_whatever_is_configured() {
    let (service, other) = (HttpService::default(), HttpService::default());
    service.set(200, &[], "");
    other.set(200, &[], "");
    let handler = handler(&service.start().await, "protocol: HTTP, on_error: ALLOW");
    let elsewhere = format!("@{}/", other.start().await.trim_start_matches("http://"));
    let with = |change: &dyn Fn(&mut ActionMsg)| {
        let mut instance = instance(&[]);
        change(instance.action.as_mut().unwrap());
        instance
    };
    let unsendable = [
        with(&|action| action.path = elsewhere.clone()),
        with(&|action| action.path = String::new()),
        with(&|action| action.path = "/a b".into()),
        with(&|action| action.method = "A B".into()),
        with(&|action| action.method = "CONNECT".into()),
        with(&|action| action.service = "a\nb".into()),
        with(&|action| action.properties = properties(&[("x-a", "1\r\nx-b: 2")])),
        with(&|action| action.properties = properties(&[("a b", "1")])),
        with(&|action| action.properties = properties(&[("Content-Length", "10")])),
        with(&|action| action.properties = properties(&[("host", "a")])),
        with(&|action| action.properties = properties(&[(":source.ip", "10.0.0.1")])),
    ];
    for instance in unsendable {
        handler.check::<Authorization>(instance).await.expect_denied(Code::Unavailable, NO_DECISION);
    }
    assert!(service.received.lock().unwrap().is_empty() && other.received.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_question_that_cannot_be_sent_is_not_an_outage() {
    let unsendable = Context::detached(()).http().get("http://a b/").send().await.unwrap_err();
    assert!(!AskError::from(unsendable).is_outage());
}

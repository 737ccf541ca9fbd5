//! Attributes from metadata of filters, and from the configuration of Envoy.

use super::*;

#[test]
fn the_identity_of_a_token_is_that_of_its_claims() {
    let audiences = ListValue { values: vec![text("one"), text("two")] };
    let claims = fields(&[
        ("iss", text("https://issuer")),
        ("sub", text("alice")),
        ("aud", Value { kind: Some(Kind::ListValue(audiences)) }),
        ("azp", text("app")),
        ("exp", Value { kind: Some(Kind::NumberValue(1_900_000_000.0)) }),
        ("nested", nested(fields(&[("a", text("b"))]))),
    ]);
    let filter = fields(&[("payload", nested(claims))]);
    let context = AttributeContext {
        metadata_context: metadata(&[("envoy.filters.http.jwt_authn", filter)]),
        ..http(HttpRequest::default())
    };
    let raw = r#"{"aud":["one","two"],"azp":"app","exp":1900000000,"iss":"https://issuer","nested":{"a":"b"},"sub":"alice"}"#;
    let claims = [
        ("aud", "one,two"),
        ("azp", "app"),
        ("exp", "1900000000"),
        ("iss", "https://issuer"),
        ("sub", "alice"),
    ];
    let expected = [
        ("request.auth.principal", "https://issuer/alice".into()),
        ("request.auth.audiences", "one,two".into()),
        ("request.auth.presenter", "app".into()),
        ("request.auth.claims", claims.into()),
        ("request.auth.raw_claims", raw.into()),
    ];
    assert_has(&context, &expected, &[]);
}

#[test]
fn a_token_without_issuer_or_subject_has_no_principal() {
    for claims in [fields(&[("iss", text("issuer"))]), fields(&[("sub", text("alice"))])] {
        let filter = fields(&[("payload", nested(claims))]);
        let context = AttributeContext {
            metadata_context: metadata(&[("envoy.filters.http.jwt_authn", filter)]),
            ..http(HttpRequest::default())
        };
        assert_has(&context, &[], &["request.auth.principal"]);
    }
}

#[test]
fn istios_filter_names_attributes_itself() {
    let filter = fields(&[
        ("request.auth.principal", text("issuer/alice")),
        ("request.auth.claims", nested(fields(&[("group", text("admins"))]))),
    ]);
    let context = AttributeContext {
        metadata_context: metadata(&[("istio_authn", filter)]),
        ..http(HttpRequest::default())
    };
    let expected = [
        ("request.auth.principal", "issuer/alice".into()),
        ("request.auth.claims", [("group", "admins")].into()),
    ];
    assert_has(&context, &expected, &["request.auth.audiences"]);
}

#[test]
fn shadow_results_of_rbac_are_attributes() {
    let filter =
        fields(&[("shadow_engine_result", text("denied")), ("shadow_effective_policy_id", text("p1"))]);
    let context = AttributeContext {
        metadata_context: metadata(&[("envoy.filters.http.rbac", filter)]),
        ..http(HttpRequest::default())
    };
    let expected = [
        ("rbac.permissive.response_code", "denied".into()),
        ("rbac.permissive.effective_policy_id", "p1".into()),
    ];
    assert_has(&context, &expected, &[]);
}

#[test]
fn a_declared_filter_is_a_map_and_another_is_nothing() {
    let filter = fields(&[("a", text("b")), ("n", Value { kind: Some(Kind::NumberValue(1.5)) })]);
    let context = AttributeContext {
        metadata_context: metadata(&[("my.filter", filter.clone()), ("other.filter", filter)]),
        ..http(HttpRequest::default())
    };
    assert_has(&context, &[("my.filter", [("a", "b"), ("n", "1.5")].into())], &["other.filter"]);
}

#[test]
fn configuration_of_envoy_sets_any_declared_attribute_by_precedence() {
    let own = |value: &str| metadata(&[("mixer_adapter", fields(&[("my.count", text(value))]))]);
    let filter = AttributeContext { metadata_context: own("1"), ..http(HttpRequest::default()) };
    assert_has(&filter, &[("my.count", 1.into())], &[]);
    let route = AttributeContext { route_metadata_context: own("2"), ..filter };
    assert_has(&route, &[("my.count", 2.into())], &[]);
    let extensions = texts(&[
        ("my.count", "3"),
        ("context.reporter.kind", "outbound"),
        ("destination.labels", "a=b;c=d"),
        ("source.ip", "10.1.1.1"),
        ("unknown", "x"),
    ]);
    let context = AttributeContext { context_extensions: extensions, ..route };
    let expected = [
        ("my.count", 3.into()),
        ("context.reporter.kind", "outbound".into()),
        ("destination.labels", [("a", "b"), ("c", "d")].into()),
        ("source.ip", ip("10.1.1.1")),
    ];
    assert_has(&context, &expected, &["unknown"]);
}

#[test]
fn an_attribute_does_not_depend_on_which_others_are_used() {
    let headers = [("x-forwarded-for", "10.1.2.3"), ("x-request-id", "7"), ("x-api-key", "k")];
    let request = HttpRequest {
        host: "web.shop.svc.cluster.local:80".to_owned(),
        path: "/a?b=c".to_owned(),
        ..with_headers(&headers)
    };
    let context = AttributeContext {
        source: Some(named("spiffe://td/ns/shop/sa/web")),
        destination: Some(peer("10.0.0.18", 8443)),
        ..http(request)
    };
    let options = MappingOptions::default();
    let vocabulary = vocabulary();
    let all = check_attributes(&context, Bag::new(vocabulary.clone()), &options).unwrap();
    for declared in vocabulary.iter().filter(|declared| &**declared.name != "context.time") {
        let used = Arc::new(UsedSlots::new(&vocabulary, [declared.slot]));
        let bag = Bag::of_used(vocabulary.clone(), used);
        let bag = check_attributes(&context, bag, &options).unwrap();
        assert_eq!(bag.at(declared.slot), all.at(declared.slot), "{}", declared.name);
    }
}

#[test]
fn a_configured_value_of_another_type_is_an_error() {
    let context = AttributeContext {
        context_extensions: texts(&[("destination.port", "http")]),
        ..http(HttpRequest::default())
    };
    let error = mapped(&context, &MappingOptions::default()).unwrap_err().to_string();
    assert_eq!(error, r#"context extension destination.port: "http" is not a valid INT64"#);
}

#[test]
fn the_namespace_is_that_of_the_route_else_of_the_host_else_of_envoy() {
    let options = MappingOptions::default()
        .with_namespaces(vec![("shop.example.com".parse().unwrap(), "shop".to_owned())]);
    let context = |host: &str, extensions: &[(&str, &str)]| AttributeContext {
        destination: Some(named("spiffe://td/ns/envoy/sa/front")),
        context_extensions: texts(extensions),
        ..http(HttpRequest { host: host.to_owned(), ..HttpRequest::default() })
    };
    let route = [("destination.namespace", "route")];
    for (context, namespace) in [
        (context("SHOP.example.com:80", &route), "route"),
        (context("SHOP.example.com:80", &[]), "shop"),
        (context("other.example.com", &[]), "envoy"),
    ] {
        assert_eq!(mapped(&context, &options).unwrap()["destination.namespace"], namespace.into());
    }
}

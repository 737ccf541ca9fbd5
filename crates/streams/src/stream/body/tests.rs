use super::*;

fn there_and_back(collection: &str, spec: Json) -> (String, Json) {
    let (body, _) = of_spec(&Types::default(), &Collection::new(collection), spec).unwrap();
    (body.message_name().to_owned(), to_spec(&body).unwrap().0)
}

#[test]
fn specs_travel_as_the_types_of_their_collections_and_come_back_as_they_were() {
    let rule = json!({ "match": "a == b", "actions": [{ "handler": "h", "instances": ["i"] }] });
    let (name, back) = there_and_back("istio/policy/v1beta1/rules", rule.clone());
    assert_eq!((name.as_str(), back), ("istio.policy.v1beta1.Rule", rule));
    let handler = json!({ "adapter": "a", "params": { "n": 5, "x": 0.5, "list": [1, "y"] }, "connection": { "address": "h:1" } });
    let (name, back) = there_and_back("istio/policy/v1beta1/handlers", handler.clone());
    assert_eq!((name.as_str(), back), ("istio.policy.v1beta1.Handler", handler));
    for collection in
        ["istio/config/v1alpha2/adapters", "istio/config/v1alpha2/legacy/deniers", "k8s/v1/Service"]
    {
        let spec = json!({ "session_based": false, "templates": ["a.b"], "port": 80 });
        let (name, back) = there_and_back(collection, spec.clone());
        assert_eq!((name.as_str(), back), ("google.protobuf.Struct", spec), "{collection}");
    }
}

#[test]
fn the_same_spec_always_becomes_the_same_bytes() {
    let fields: serde_json::Map<_, _> = (0..50).map(|n| (format!("field{n}"), json!(n))).collect();
    for (collection, spec) in [
        ("istio/config/v1alpha2/adapters", json!(fields)),
        ("istio/policy/v1beta1/handlers", json!({ "adapter": "a", "params": fields })),
    ] {
        let collection = Collection::new(collection);
        let bytes = of_spec(&Types::default(), &collection, spec.clone()).unwrap();
        assert!((0..5).all(|_| of_spec(&Types::default(), &collection, spec.clone()).unwrap() == bytes));
    }
}

#[test]
fn a_spec_that_does_not_fit_names_the_field() {
    let rules = Collection::new("istio/policy/v1beta1/rules");
    let error = of_spec(&Types::default(), &rules, json!({ "actoins": [] })).unwrap_err();
    assert_eq!(error.to_string(), "actoins: no such field; did you mean actions?");
}

const LISTENERS: &str = "envoy.config.listener.v3.Listener";
const MANAGER: &str = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
const LUA: &str = "envoy.extensions.filters.http.lua.v3.LuaPerRoute";

fn listener(manager: Json) -> Json {
    let mut config = manager;
    config[TYPE] = format!("{HOST}{MANAGER}").into();
    json!({
        TYPE: format!("{HOST}{LISTENERS}"),
        "name": "front",
        "trafficDirection": "OUTBOUND",
        "per_connection_buffer_limit_bytes": 1024,
        "address": { "socket_address": { "address": "127.0.0.1", "portValue": 80 } },
        "filter_chains": [{ "filters": [{ "name": "manager", "typed_config": config }] }],
    })
}

fn encoded(spec: Json) -> Result<DynamicMessage, String> {
    let types = Types::default();
    let (body, _) = of_spec(&types, &Collection::new(LISTENERS), spec).map_err(|error| error.to_string())?;
    assert_eq!(body.type_url, format!("{HOST}{LISTENERS}"));
    Ok(DynamicMessage::decode(types.find(LISTENERS).unwrap(), body.value).unwrap())
}

/// The fields and their numbers are those of Envoy's protos, the JSON is proto3's.
#[test]
fn a_resource_of_envoy_is_encoded_by_its_descriptor_and_so_is_what_is_inside() {
    let manager = json!({
        "statPrefix": "ingress",
        "request_timeout": "1.5s",
        "use_remote_address": true,
        "server_header_transformation": "PASS_THROUGH",
        "rds": { "route_config_name": "r", "config_source": { "ads": {}, "resource_api_version": "V3" } },
    });
    let listener = encoded(listener(manager)).unwrap();
    let json = serde_json::to_value(&listener).unwrap();
    assert_eq!(json["perConnectionBufferLimitBytes"], 1024, "a wrapper");
    assert_eq!(json["trafficDirection"], "OUTBOUND");
    assert_eq!(json["address"]["socketAddress"]["portValue"], 80);
    let config = json!({
        "@type": format!("{HOST}{MANAGER}"),
        "statPrefix": "ingress",
        "requestTimeout": "1.500s",
        "useRemoteAddress": true,
        "serverHeaderTransformation": "PASS_THROUGH",
        "rds": { "routeConfigName": "r", "configSource": { "ads": {}, "resourceApiVersion": "V3" } },
    });
    assert_eq!(json["filterChains"][0]["filters"][0]["typedConfig"], config);
}

/// Both forms are the same message.
#[test]
fn a_resource_of_envoy_can_have_the_forms_that_envoy_reads_beside_those_of_json() {
    let plain = json!({
        "stat_prefix": "ingress",
        "request_timeout": "5s",
        "stream_idle_timeout": "-1.500s",
        "use_remote_address": true,
        "generate_request_id": false,
        "skip_xff_append": true,
        "max_request_headers_kb": 1,
        "server_header_transformation": "PASS_THROUGH",
        "codec_type": "HTTP2",
    });
    let forms = json!({
        "stat_prefix": "ingress",
        "request_timeout": { "seconds": 5 },
        "stream_idle_timeout": { "seconds": "-1", "nanos": -500_000_000 },
        "use_remote_address": { "value": "true" },
        "generate_request_id": "false",
        "skip_xff_append": "true",
        "max_request_headers_kb": { "value": 1 },
        "server_header_transformation": "pass_through",
        "codec_type": "Http2",
    });
    let with_direction = |manager: Json, direction: &str| {
        let mut listener = listener(manager);
        listener["trafficDirection"] = direction.into();
        encoded(listener).unwrap()
    };
    assert_eq!(with_direction(forms, "outbound"), with_direction(plain, "OUTBOUND"));
    for (field, value) in [
        ("request_timeout", json!({ "seconds": 5, "hours": 1 })),
        ("request_timeout", json!({ "seconds": "five" })),
        ("request_timeout", json!({ "nanos": 1_000_000_000 })),
        ("use_remote_address", json!("True")),
        ("use_remote_address", json!({ "value": true, "other": 1 })),
        ("max_request_headers_kb", json!({ "value": { "value": 1 } })),
        ("skip_xff_append", json!("yes")),
        ("codec_type", json!("http22")),
    ] {
        let error = encoded(listener(json!({ field: value }))).unwrap_err();
        assert!(error.contains(field), "{error}");
    }
}

#[test]
fn only_resources_of_envoy_have_the_forms_of_envoy() {
    let handler = |timeout: Json| {
        let spec = json!({ "adapter": "a", "connection": { "address": "host:1", "timeout": timeout } });
        of_spec(&Types::default(), &Collection::new("istio/policy/v1beta1/handlers"), spec)
    };
    assert!(handler(json!("5s")).is_ok());
    assert!(handler(json!({ "seconds": 5 })).is_err());
}

#[test]
fn what_does_not_fit_deep_inside_names_the_field() {
    let config = "filter_chains[0].filters[0].typed_config";
    for (manager, reason) in [
        (json!({ "stat_prefx": "x" }), ".stat_prefx: no such field; did you mean stat_prefix?"),
        (json!({ "stat_prefix": 7 }), ".stat_prefix: expected text in quotes, not 7"),
        (
            json!({ "request_timeout": "soon" }),
            ".request_timeout: \"soon\" is not a valid duration; write it like \"300ms\", \"5s\" or \"1m30s\"",
        ),
        (
            json!({ "http_filters": [{ "name": "f", "typed_config": { "@type": "t/no.Such" } }] }),
            ".http_filters[0].typed_config.@type: type no.Such is not known",
        ),
        (
            json!({ "codec_type": "HTTP9" }),
            ".codec_type: \"HTTP9\" is not a value of CodecType; did you mean HTTP1?",
        ),
    ] {
        assert_eq!(encoded(listener(manager)).unwrap_err(), format!("{config}{reason}"));
    }
}

/// Both are marked so in Envoy's protos.
#[test]
fn deprecated_fields_are_reported_with_their_path_also_deep_inside() {
    let mut spec = listener(json!({ "append_x_forwarded_port": true, "access_log_flush_interval": "5s" }));
    spec["filter_chains"][0]["use_proxy_proto"] = true.into();
    let (_, found) = of_spec(&Types::default(), &Collection::new(LISTENERS), spec).unwrap();
    let found: Vec<_> = found.iter().map(|finding| finding.field.as_str()).collect();
    assert_eq!(
        found,
        [
            "filter_chains[0].filters[0].typed_config.access_log_flush_interval",
            "filter_chains[0].use_proxy_proto"
        ]
    );
}

#[test]
fn people_are_shown_what_envoy_is_sent() {
    let spec = listener(json!({ "stat_prefix": "x" }));
    let (body, _) = of_spec(&Types::default(), &Collection::new(LISTENERS), spec).unwrap();
    let shown = readable(&body).unwrap();
    assert_eq!((&shown[TYPE], &shown["name"]), (&json!(body.type_url), &json!("front")));
    assert_eq!(shown["filterChains"][0]["filters"][0]["typedConfig"]["statPrefix"], "x");
    let rule = json!({ "match": "a == b" });
    let (body, _) =
        of_spec(&Types::default(), &Collection::new("istio/policy/v1beta1/rules"), rule.clone()).unwrap();
    assert_eq!(readable(&body).unwrap(), rule);
}

#[test]
fn maps_inside_of_an_any_are_in_one_order_too() {
    let lua = json!({ TYPE: format!("{HOST}{LUA}"), "disabled": true });
    let filters: serde_json::Map<_, _> = (0..50).map(|n| (format!("f{n}"), lua.clone())).collect();
    let hosts = json!([{ "name": "h", "domains": ["*"], "typed_per_filter_config": filters }]);
    let spec = listener(json!({ "route_config": { "virtual_hosts": hosts } }));
    let bytes = || of_spec(&Types::default(), &Collection::new(LISTENERS), spec.clone()).unwrap().0.value;
    let first = bytes();
    assert!((0..5).all(|_| bytes() == first));
    let filters = encoded(spec.clone()).map(|listener| serde_json::to_value(listener).unwrap()).unwrap();
    let filters = &filters["filterChains"][0]["filters"][0]["typedConfig"]["routeConfig"]["virtualHosts"][0]
        ["typedPerFilterConfig"];
    assert_eq!((filters.as_object().unwrap().len(), &filters["f49"]["disabled"]), (50, &json!(true)));
}

/// Istio's messages and the wrapper are of different descriptors.
#[test]
fn a_wrapped_resource_has_json_with_its_body_whatever_its_type() {
    let entry = json!({ TYPE: format!("{HOST}istio.networking.v1alpha3.ServiceEntry"), "hosts": ["a.b"] });
    let unknown = json!({ TYPE: format!("{HOST}a.b.C"), VALUE: "AQI=" });
    let value = json!({ TYPE: format!("{HOST}{STRUCT}"), VALUE: { "a": 1.0 } });
    for body in [entry, unknown, value] {
        let wrapped = json!({ TYPE: format!("{HOST}{WRAPPER}"), "metadata": { "name": "ns/e" }, BODY: body });
        let any = of_any(&Types::default(), wrapped.clone()).unwrap();
        assert_eq!(to_json(&any), wrapped);
    }
    let wrong = json!({ TYPE: format!("{HOST}{WRAPPER}"), BODY: { TYPE: "t/istio.policy.v1beta1.Rule", "macht": "" } });
    let error = of_any(&Types::default(), wrong).unwrap_err().to_string();
    assert_eq!(error, "body.macht: no such field; did you mean match?");
}

#[test]
fn a_body_that_was_carried_goes_out_as_it_came() {
    for type_url in ["t/a.b.C", &format!("{HOST}{LISTENERS}")] {
        let body = Any { type_url: type_url.to_owned(), value: vec![1, 2, 250].into() };
        let (spec, _) = to_spec(&body).unwrap();
        let back = of_spec(&Types::default(), &Collection::new("any/thing"), spec).unwrap();
        assert_eq!(back, (body, vec![]));
    }
}

#[test]
fn an_unknown_or_missing_type_is_reported() {
    let error =
        |spec| of_spec(&Types::default(), &Collection::new("any/thing"), spec).unwrap_err().to_string();
    assert_eq!(
        error(json!({ "@type": "t/a.b.C", "name": "x" })),
        "@type: there is no type a.b.C here; add its descriptors (`source --descriptors`), or write it as its bytes: value: BASE64"
    );
    assert_eq!(
        error(json!({ "@type": "a.b.C" })),
        "@type: \"a.b.C\" is not a type URL; write it like type.googleapis.com/a.b.C"
    );
    assert!(error(json!({ "@type": "t/a.b.C", "value": "?" })).starts_with("value: is not valid base64: "));
}

/// Telemetry came after the releases whose messages are shipped.
#[test]
fn a_kind_of_istio_is_its_message_where_that_is_known_and_else_a_struct() {
    let entries = Collection::new("istio/networking/v1alpha3/serviceentries");
    let telemetries = Collection::new("istio/telemetry/v1alpha1/telemetries");
    let name = |types: &Types, collection: &Collection| {
        of_spec(types, collection, json!({})).unwrap().0.message_name().to_owned()
    };
    let mut types = Types::default();
    assert_eq!(name(&types, &entries), "istio.networking.v1alpha3.ServiceEntry");
    assert_eq!(name(&types, &telemetries), STRUCT);
    let proto = "syntax = 'proto3'; package istio.telemetry.v1alpha1; message Telemetry { repeated string tracing = 1; }";
    let file = protox::file::File::from_source("telemetry.proto", proto).unwrap();
    let set = prost_types::FileDescriptorSet { file: vec![file.file_descriptor_proto().clone()] };
    types.add(&prost::Message::encode_to_vec(&set)).unwrap();
    assert_eq!(name(&types, &telemetries), "istio.telemetry.v1alpha1.Telemetry");
    let spec = json!({ "tracing": ["a.b"] });
    assert_eq!(of_spec(&types, &telemetries, spec).unwrap().0.value, b"\x0a\x03a.b"[..]);
}

#[test]
fn fields_of_later_releases_of_istio_make_a_struct_with_a_warning_and_misspelt_ones_are_faults() {
    let services = Collection::new("istio/networking/v1alpha3/virtualservices");
    let of = |spec: Json| of_spec(&Types::default(), &services, spec);
    // Of Istio 1.14.
    let newer = json!({ "hosts": ["a"], "http": [{ "directResponse": { "status": 503 } }] });
    let (body, found) = of(newer.clone()).unwrap();
    assert_eq!((body.message_name(), to_spec(&body).unwrap().0), (STRUCT, newer));
    let [finding] = &found[..] else { panic!("{found:?}") };
    assert_eq!((finding.topic, &*finding.field), (Topic::UnknownField, "http[0].directResponse"));
    assert!(finding.reason.contains("in Istio 1.1 to 1.7") && finding.reason.contains("--descriptors"));
    for (spec, reason) in [
        (json!({ "hsots": ["a"] }), "hsots: no such field; did you mean hosts?"),
        (json!({ "hosts": "a", "directResponse": {} }), "hosts: expected a list: the field is repeated"),
    ] {
        assert_eq!(of(spec).unwrap_err().to_string(), reason);
    }
    // Mixer's own kinds ended with it.
    let rules = Collection::new("istio/policy/v1beta1/rules");
    assert!(of_spec(&Types::default(), &rules, json!({ "directResponse": {} })).is_err());
}

#[test]
fn unknown_bodies_are_carried_and_broken_ones_reported() {
    let unknown = Any { type_url: "t/a.b.C".to_owned(), value: vec![1, 2].into() };
    assert_eq!(to_spec(&unknown).unwrap().0, json!({ "@type": "t/a.b.C", "value": "AQI=" }));
    let broken = Any { type_url: "t/istio.policy.v1beta1.Rule".to_owned(), value: vec![0xff].into() };
    assert!(
        to_spec(&broken)
            .unwrap_err()
            .to_string()
            .starts_with("its body is not a valid istio.policy.v1beta1.Rule: ")
    );
}

//! `call` against an adapter server that shares no code with ours: the bytes sent, and the interpretation of answers.

use std::time::{Duration, Instant};

use crate::support::{
    call,
    recorder::{Recorded, Recorder},
    run,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use mixer_adapter::{
    prost::Message,
    proto::{
        Any, CheckResult, QuotaResult, Status,
        istio::{
            mixer::adapter::model::v1beta1::{quota_request::QuotaParams, quota_result},
            policy::v1beta1::DirectHttpResponse,
        },
    },
    template::{listentry::HandleListEntryRequest, metric, quota::HandleQuotaRequest},
    value::{IpAddress, Value},
};
use serde_json::json;

/// Answers every method with an empty message, which is OK in each variety.
fn obliging() -> Recorder {
    Recorder::start(|_| Ok(Vec::new()))
}

/// The descriptor set of a template of Istio's own tests, in a file.
fn descriptor(template: &str) -> tempfile::NamedTempFile {
    let path = format!("../build/tests/data/templates/{template}.proto");
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), mixer_adapter_build::Template::open(path).unwrap().descriptor_set()).unwrap();
    file
}

#[test]
fn a_check_has_the_bytes_that_mixer_would_send() {
    let other = obliging();
    let instance = r#"{"value": {"ipAddressValue": "10.1.2.3"}}"#;
    let ran = call(
        &other.address,
        &["listentry", "--adapter", "denier", "--instance", instance, "--dedup-id", "d-7", "--timeout", "1m"],
    );
    assert_eq!(ran.code, 0, "{ran:?}");
    let calls = other.calls();
    assert_eq!(calls.len(), 1);
    assert_eq!(calls[0].path, "/listentry.HandleListEntryService/HandleListEntry");
    assert_eq!(calls[0].headers["content-type"], "application/grpc");
    let timeout = calls[0].headers["grpc-timeout"].to_str().unwrap();
    // What is left of the minute, never more.
    let left: u64 = timeout.strip_suffix('u').unwrap().parse().unwrap();
    assert!((50_000_000..=60_000_000).contains(&left), "{timeout}");
    let request = HandleListEntryRequest::decode(calls[0].message.clone()).unwrap();
    let instance = request.instance.unwrap();
    assert_eq!(instance.name, "listentry.instance.istio-system");
    let address = IpAddress { value: bytes::Bytes::from_static(&[10, 1, 2, 3]) };
    assert_eq!(instance.value, Some(Value::IpAddress(address)));
    let params = "type.googleapis.com/adapter.denier.config.Params".to_owned();
    assert_eq!(request.adapter_config, Some(Any { type_url: params, value: Default::default() }));
    assert_eq!(request.dedup_id, "d-7");
}

#[test]
fn without_adapter_or_configuration_none_is_sent() {
    let other = obliging();
    assert_eq!(call(&other.address, &["listentry"]).code, 0);
    let request = HandleListEntryRequest::decode(other.calls()[0].message.clone()).unwrap();
    assert_eq!(request.adapter_config, None);
    assert!(!other.calls()[0].headers.contains_key("grpc-timeout"));
    assert_eq!(call(&other.address, &["listentry"]).code, 0);
    let id = |call: &Recorded| {
        let request = HandleListEntryRequest::decode(call.message.clone()).unwrap();
        request.dedup_id.parse::<u64>().unwrap()
    };
    assert_ne!(id(&other.calls()[0]), id(&other.calls()[1]), "each call has an id of its own");
}

#[test]
fn a_configuration_of_an_unknown_message_is_sent_as_a_struct() {
    let other = obliging();
    // None of the adapters here has this template.
    let template = descriptor("checkproducer");
    let template = template.path().to_str().unwrap();
    let ran = call(&other.address, &["--descriptor", template, "--config", r#"{"limit": 3, "who": ["a"]}"#]);
    assert_eq!(ran.code, 0, "{ran:?}");
    #[derive(Clone, PartialEq, Message)]
    #[prost(prost_path = "mixer_adapter::prost")]
    struct Request {
        #[prost(message, optional, tag = "2")]
        adapter_config: Option<Any>,
    }
    let config = Request::decode(other.calls()[0].message.clone()).unwrap().adapter_config.unwrap();
    assert_eq!(config.type_url, "type.googleapis.com/google.protobuf.Struct");
    let fields = mixer_adapter::prost_types::Struct::decode(config.value).unwrap().fields;
    assert_eq!(fields.keys().collect::<Vec<_>>(), ["limit", "who"]);
}

#[test]
fn a_configuration_is_read_by_somebody_elses_descriptor() {
    let folder = tempfile::tempdir().unwrap();
    let proto = folder.path().join("config.proto");
    std::fs::write(
        &proto,
        "syntax = \"proto3\"; package other.config; import \"google/protobuf/duration.proto\";
         message Params { google.protobuf.Duration ttl = 1; int64 limit = 2; }",
    )
    .unwrap();
    let set = mixer_adapter_build::ConfigProto::open(&proto).unwrap().descriptor_set();
    let other = obliging();
    let base64 = STANDARD.encode(set);
    let ran = call(
        &other.address,
        &["listentry", "--config-descriptor", &base64, "--config", r#"{"ttl": "1m30s", "limit": "7"}"#],
    );
    assert_eq!(ran.code, 0, "{ran:?}");
    let config =
        HandleListEntryRequest::decode(other.calls()[0].message.clone()).unwrap().adapter_config.unwrap();
    assert_eq!(config.type_url, "type.googleapis.com/other.config.Params");
    // ttl: 90 s; limit: 7.
    assert_eq!(&config.value[..], [0x0a, 0x02, 0x08, 90, 0x10, 7]);
    let ran =
        call(&other.address, &["listentry", "--config-descriptor", &base64, "--config", r#"{"tll": "1s"}"#]);
    assert!(ran.code == 2 && ran.stderr.contains("tll: no such field; did you mean ttl?"), "{ran:?}");
}

#[test]
fn a_report_carries_all_instances_in_one_call() {
    let other = obliging();
    let instances = ["--instance", r#"{"value": 1}"#, "--instance", r#"{"name": "b", "value": 2.5}"#];
    let ran = call(&other.address, &[&["metric"], &instances[..]].concat());
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(ran.stdout.lines().next(), Some("reported, 2 instances in one call"));
    let calls = other.calls();
    assert_eq!(calls.len(), 1);
    let request = metric::HandleMetricRequest::decode(calls[0].message.clone()).unwrap();
    let instances = request.instances.iter().map(|instance| (instance.name.as_str(), instance.value.clone()));
    let expected = [("metric.instance.istio-system", Some(Value::Int64(1))), ("b", Some(Value::Double(2.5)))];
    assert_eq!(instances.collect::<Vec<_>>(), expected);
}

#[test]
fn quota_is_looked_up_by_the_instances_name_as_mixer_does() {
    let grant = |name: &str, granted_amount| QuotaResult {
        quotas: [(name.to_owned(), quota_result::Result { granted_amount, ..Default::default() })].into(),
    };
    let (good, misnamed) = (grant("q", 2).encode_to_vec(), grant("Q", 2).encode_to_vec());
    let other = Recorder::start(move |_| Ok(good.clone()));
    let arguments = ["quota", "--instance-name", "q", "--quota-amount", "5", "--best-effort"];
    let ran = call(&other.address, &arguments);
    assert_eq!(ran.stdout.lines().next(), Some("quota q: granted 2 of 5, valid for 0s"));
    let request = HandleQuotaRequest::decode(other.calls()[0].message.clone()).unwrap();
    let asked = request.quota_request.unwrap().quotas;
    assert_eq!(
        asked,
        [("q".to_owned(), QuotaParams { amount: 5, best_effort: true, ..QuotaParams::default() })].into()
    );

    let other = Recorder::start(move |_| Ok(misnamed.clone()));
    let ran = call(&other.address, &arguments);
    assert_eq!(ran.stdout.lines().next(), Some("quota q: not in the answer, which grants 0 of 5"));
}

#[test]
fn validity_is_printed_as_mixer_reads_it() {
    let cases = [
        ((0, 0, 0), "validity not set: 0s and 0 uses, which Mixer replaces with 1m0s and 10000 uses"),
        ((7, 0, 0), "not cacheable: valid for 0s and 0 uses"),
        ((0, 0, -1), "not cacheable: valid for 0s and -1 uses"),
        ((0, 5, 0), "not cacheable: valid for 5s and 0 uses"),
        ((0, 5, -1), "valid for 5s, any number of uses"),
        ((0, 5, 3), "valid for 5s or 3 uses"),
    ];
    for ((code, seconds, valid_use_count), expected) in cases {
        let answer = CheckResult {
            status: Some(Status { code, ..Default::default() }),
            valid_duration: Some(mixer_adapter::prost_types::Duration { seconds, nanos: 0 }),
            valid_use_count,
        };
        let answer = answer.encode_to_vec();
        let other = Recorder::start(move |_| Ok(answer.clone()));
        let ran = call(&other.address, &["checknothing"]);
        assert_eq!(ran.stdout.lines().nth(1), Some(expected));
    }
}

#[test]
fn what_the_client_is_to_be_answered_is_shown() {
    let response = DirectHttpResponse { code: 403, body: "no".to_owned(), headers: Default::default() };
    let details =
        [("istio.policy.v1beta1.DirectHttpResponse", response.encode_to_vec()), ("other.Thing", vec![8, 1])];
    let details = details.map(|(name, value)| Any { type_url: format!("x/{name}"), value: value.into() });
    let status = Status { code: 99, message: "no".to_owned(), details: details.into() };
    let answer = CheckResult { status: Some(status), ..Default::default() }.encode_to_vec();
    let other = Recorder::start(move |_| Ok(answer.clone()));
    let status = call(&other.address, &["checknothing", "--json"]).json()["answer"]["status"].clone();
    let expected = json!({
        "code": "code 99",
        "message": "no",
        "details": [
            {"@type": "x/istio.policy.v1beta1.DirectHttpResponse", "code": "Forbidden", "body": "no"},
            {"@type": "x/other.Thing", "value": "CAE="},
        ],
    });
    assert_eq!(status, expected);
}

#[derive(Clone, PartialEq, Message)]
#[prost(prost_path = "mixer_adapter::prost")]
struct Output {
    #[prost(int64, tag = "1")]
    number: i64,
    #[prost(string, tag = "4")]
    text: String,
    #[prost(message, optional, tag = "6")]
    ip: Option<IpAddress>,
}

#[test]
fn generated_attributes_are_shown_as_text() {
    let ip = Some(IpAddress { value: bytes::Bytes::from_static(&[10, 0, 0, 1]) });
    let answer = Output { number: 7, text: "x".to_owned(), ip }.encode_to_vec();
    let other = Recorder::start(move |_| Ok(answer.clone()));
    let template = descriptor("sampleapa");
    let ran = call(&other.address, &["--descriptor", template.path().to_str().unwrap(), "--json"]);
    assert_eq!(ran.json()["answer"], json!({"int64Primitive": 7, "stringPrimitive": "x", "ip": "10.0.0.1"}));
    assert_eq!(other.calls()[0].path, "/sampleapa.HandleSampleApaService/HandleSampleApa");
}

#[test]
fn a_check_with_output_shows_both() {
    #[derive(Clone, PartialEq, Message)]
    #[prost(prost_path = "mixer_adapter::prost")]
    struct Response {
        #[prost(message, optional, tag = "1")]
        result: Option<CheckResult>,
        #[prost(message, optional, tag = "2")]
        output: Option<Output>,
    }
    let result = CheckResult { valid_use_count: 4, ..Default::default() };
    let output = Output { number: 7, text: "x".to_owned(), ip: None };
    let answer = Response { result: Some(result), output: Some(output) }.encode_to_vec();
    let other = Recorder::start(move |_| Ok(answer.clone()));
    let template = descriptor("checkproducer");
    let arguments = ["--descriptor", template.path().to_str().unwrap()];
    let answer = call(&other.address, &[&arguments[..], &["--json"]].concat()).json()["answer"].clone();
    assert_eq!(answer["output"], json!({"int64Primitive": 7, "stringPrimitive": "x"}));
    assert_eq!(
        (&answer["result"]["status"]["code"], &answer["result"]["valid_use_count"]),
        (&json!("OK"), &json!(4))
    );
    let text = call(&other.address, &arguments).stdout;
    assert!(text.starts_with("allowed\n") && text.contains("output\n  int64Primitive: 7\n"), "{text}");
}

#[test]
fn a_method_that_is_not_served_is_named() {
    let other = Recorder::start(|_| Err((12, "")));
    let ran = call(&other.address, &["edge"]);
    assert_eq!(ran.code, 1);
    let expected = format!(
        "error: UNIMPLEMENTED: {} does not serve /edge.HandleEdgeService/HandleEdge\n",
        other.address
    );
    assert_eq!(ran.stderr, expected);
}

#[test]
fn an_answer_that_is_not_its_message_is_an_error_as_for_mixer() {
    let other = Recorder::start(|_| Ok(vec![0xff]));
    let ran = call(&other.address, &["checknothing"]);
    assert_eq!(ran.code, 1);
    assert!(
        ran.stderr.starts_with("error: INTERNAL: the adapter's answer is not a valid "),
        "{}",
        ran.stderr
    );
}

#[test]
fn an_adapter_that_never_answers_is_waited_for_until_the_timeout() {
    // Connections to it are made, and nothing more.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let start = Instant::now();
    let ran = call(&address, &["checknothing", "--timeout", "300ms"]);
    assert_eq!(ran.code, 1);
    assert!(
        ran.stderr.starts_with("error: DEADLINE_EXCEEDED: no response before the deadline"),
        "{}",
        ran.stderr
    );
    assert!(start.elapsed() >= Duration::from_millis(300));
}

#[test]
fn descriptors_that_are_none_are_refused_with_the_reason() {
    let refused = |arguments: &[&str], expected: &str| {
        let ran = run(&[&["call"], arguments].concat());
        assert!(ran.code == 2 && ran.stderr.contains(expected), "{ran:?}");
    };
    refused(
        &["--descriptor", "nowhere"],
        "--descriptor: \"nowhere\" is neither a file nor a descriptor set in base64: ",
    );
    let proto = "../build/tests/data/templates/checkproducer.proto";
    refused(&["--descriptor", proto], "the descriptor is not a google.protobuf.FileDescriptorSet");
    let template = descriptor("checkproducer");
    let template = template.path().to_str().unwrap();
    refused(
        &["--descriptor", template, "--config-descriptor", template],
        "--config-descriptor: the descriptor has no message `Params`",
    );
}

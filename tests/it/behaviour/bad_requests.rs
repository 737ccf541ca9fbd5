//! Requests that are wrong: each gets an error that says how, and leaves nothing behind.

use bytes::Bytes;
use mixer_adapter::{
    Adapter,
    prost::Message as _,
    proto::{Any, CheckResult, QuotaResult, Status},
    service::ServerOptions,
    template::{CheckNothing, ListEntry, Metric, Quota, Template, listentry::HandleListEntryRequest},
    tonic::Code,
};
use mixer_adapter_engine::{
    RequestLimits,
    proto::istio::mixer::adapter::model::v1beta1::{CreateSessionRequest, ValidateRequest},
};
use mixer_adapter_host::handler::TableLimits;
use test_adapters::{Blocker, Bystander, Probe, Recorded, ledger};

use super::{
    recorded::requests,
    requests::{self, entry, inferred, nothing, probe, run_command, session, session_id},
    support::{Client, ClientError, Serving, any, post},
};

const BACKEND: &str = "/istio.mixer.adapter.model.v1beta1.InfrastructureBackend";

/// What a request that is wrong may be answered; never a defect of the server.
fn is_refusal(code: Code) -> bool {
    matches!(code, Code::InvalidArgument | Code::FailedPrecondition | Code::NotFound)
}

/// All methods of templates and sessions.
fn methods(serving: &Serving) -> Vec<String> {
    let templates = serving.host.adapters().templates().map(|template| template.method.to_owned());
    let backend = ["Validate", "CreateSession", "CloseSession"].map(|method| format!("{BACKEND}/{method}"));
    templates.chain(backend).collect()
}

/// The server is intact: no panic, it answers, and after its sessions are closed nothing is open.
async fn assert_unharmed(serving: Serving) {
    for adapter in serving.host.adapters().iter() {
        assert_eq!(adapter.panics(), 0, "{}", adapter.name);
    }
    assert_eq!(serving.get("/healthz").await.0, 200);
    let host = serving.host.clone();
    serving.stop().await;
    assert_eq!((host.handlers().live_count(), host.sessions().list(1).len()), (0, 0));
}

/// A generator of numbers that are the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

#[tokio::test]
async fn truncated_requests_are_refused_or_read_up_to_their_end() {
    let serving = Serving::start(|adapters| adapters.add::<Recorded>()).await;
    let client = serving.connect().await;
    for request in requests() {
        // Each end within the first fields, then every 7th, and for the one long request every 700th.
        let ends = (0..request.bytes.len())
            .filter(|end| *end < 48 || (*end < 700 && end % 7 == 0) || end % 700 == 0);
        let mut undecodable = 0;
        for end in ends {
            match client.send(&request.path(), &request.bytes[..end]).await {
                Ok(_) => {}
                Err(ClientError { code: Code::InvalidArgument, message }) => {
                    undecodable += usize::from(message.contains("decode") || message.contains("is not a"));
                }
                Err(failure) => assert!(is_refusal(failure.code), "{}: {failure:?}", request.number),
            }
        }
        assert!(undecodable > 0, "request {}", request.number);
    }
    assert_unharmed(serving).await;
}

#[tokio::test]
async fn flipped_bytes_do_no_harm() {
    let serving = Serving::start(|adapters| adapters.add::<Recorded>()).await;
    let client = serving.connect().await;
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    for request in requests() {
        for _ in 0..60 {
            let mut bytes = request.bytes.clone();
            for _ in 0..=random.below(3) {
                let index = random.below(bytes.len());
                bytes[index] = random.below(256) as u8;
            }
            if let Err(failure) = client.send(&request.path(), &bytes).await {
                assert!(is_refusal(failure.code), "{}: {failure:?} for {bytes:02x?}", request.number);
            }
        }
    }
    assert_unharmed(serving).await;
}

#[tokio::test]
async fn random_bytes_on_every_method_do_no_harm() {
    let serving =
        Serving::start(|adapters| adapters.add::<Recorded>().add::<Probe>().add::<Bystander>()).await;
    let client = serving.connect().await;
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for method in methods(&serving) {
        for _ in 0..40 {
            let bytes: Vec<u8> = (0..random.below(200)).map(|_| random.below(256) as u8).collect();
            if let Err(failure) = client.send(&method, &bytes).await {
                assert!(is_refusal(failure.code), "{method}: {failure:?} for {bytes:02x?}");
            }
        }
    }
    assert_unharmed(serving).await;
}

#[tokio::test]
async fn a_body_that_ends_within_its_message_is_refused_on_every_method() {
    let serving = Serving::start(|adapters| adapters.add::<Probe>().add::<Bystander>()).await;
    let client = serving.connect().await;
    for method in methods(&serving) {
        let failure =
            client.exchange(post(&method), Bytes::from_static(b"\0\0\0\0\x0aabc")).await.unwrap_err();
        assert_eq!(failure.code, Code::InvalidArgument, "{method}");
        assert_eq!(failure.message, "the message ends after 3 of 10 bytes", "{method}");
    }
    assert_unharmed(serving).await;
}

#[tokio::test]
async fn an_unknown_method_is_unimplemented() {
    let serving = Serving::start(|adapters| adapters.add::<Probe>()).await;
    let client = serving.connect().await;
    for path in ["/listentry.HandleListEntryService/Other", "/nobody.HandleNothing/HandleNothing", "/"] {
        assert_eq!(client.send(path, b"").await.unwrap_err().code, Code::Unimplemented, "{path}");
    }
    // A template that no adapter here serves.
    assert_eq!(client.send(CheckNothing::METHOD, b"").await.unwrap_err().code, Code::Unimplemented);
    assert_unharmed(serving).await;
}

#[tokio::test]
async fn a_configuration_of_an_unknown_type_is_refused_with_the_known_ones() {
    let serving = Serving::start(|adapters| adapters.add::<Probe>().add::<Bystander>()).await;
    let client = serving.connect().await;
    for type_url in ["type.googleapis.com/nobody.Params", "nobody.Params", "type.googleapis.com/", ""] {
        let config = Some(Any { type_url: type_url.to_owned(), value: Bytes::new() });
        let failure =
            client.call::<CheckResult>(ListEntry::METHOD, &entry(config.clone(), "allow")).await.unwrap_err();
        assert_eq!(failure.code, Code::InvalidArgument, "{type_url:?}");
        assert_eq!(
            failure.message,
            format!(
                "no adapter is configured by `{type_url}`; expected one of: `test.bystander.Params`, `test.probe.Params`"
            )
        );
        let status = client.create_session(session(config)).await.status.unwrap();
        assert_eq!((status.code, status.message), (Code::InvalidArgument as i32, failure.message));
    }
    assert_unharmed(serving).await;
}

#[tokio::test]
async fn a_configuration_of_an_adapter_that_does_not_serve_the_template_is_refused() {
    let serving = Serving::start(|adapters| adapters.add::<Probe>().add::<Bystander>()).await;
    let client = serving.connect().await;
    let config = any(&requests::bystander("other adapter"));
    let failure = client.call::<CheckResult>(ListEntry::METHOD, &entry(config, "allow")).await.unwrap_err();
    assert_eq!(failure.code, Code::InvalidArgument);
    assert_eq!(
        failure.message,
        "adapter `bystander` does not serve template `listentry`; it serves `checknothing`"
    );
    assert_unharmed(serving).await;
}

#[tokio::test]
async fn a_configuration_that_does_not_decode_is_refused() {
    let serving = Serving::start(|adapters| adapters.add::<Probe>()).await;
    let client = serving.connect().await;
    let config = Some(Any {
        type_url: "type.googleapis.com/test.probe.Params".to_owned(),
        value: Bytes::from_static(&[0x0a, 0x05, b'x']),
    });
    let failure = client.call::<CheckResult>(ListEntry::METHOD, &entry(config, "allow")).await.unwrap_err();
    assert_eq!(failure.code, Code::InvalidArgument);
    assert!(failure.message.starts_with("configuration of adapter `probe`: "), "{}", failure.message);
    assert_unharmed(serving).await;
}

/// Answers of megabytes to requests of megabytes, in a header, would end the connection at the client's limit.
#[tokio::test]
async fn an_error_quotes_at_most_two_kilobytes_of_a_request() {
    let serving = Serving::start(|adapters| adapters.add::<Probe>()).await;
    let client = serving.connect().await;
    let type_url = format!("type.googleapis.com/{}", "x".repeat(1 << 20));
    let config = Some(Any { type_url, value: Bytes::new() });
    let failure = client.call::<CheckResult>(ListEntry::METHOD, &entry(config, "allow")).await.unwrap_err();
    assert!(failure.message.contains("xxx") && failure.message.len() == 2_000, "{}", failure.message);
    assert_unharmed(serving).await;
}

/// The fields that a status names, by `google.rpc.BadRequest`.
fn fields_refused(status: &Status) -> Vec<String> {
    #[derive(Clone, PartialEq, mixer_adapter::prost::Message)]
    #[prost(prost_path = "mixer_adapter::prost")]
    struct BadRequest {
        #[prost(message, repeated, tag = "1")]
        field_violations: Vec<FieldViolation>,
    }
    #[derive(Clone, PartialEq, mixer_adapter::prost::Message)]
    #[prost(prost_path = "mixer_adapter::prost")]
    struct FieldViolation {
        #[prost(string, tag = "1")]
        field: String,
    }
    let [detail] = &status.details[..] else { panic!("{status:?}") };
    assert_eq!(detail.type_url, "type.googleapis.com/google.rpc.BadRequest");
    let violations = BadRequest::decode(detail.value.clone()).unwrap().field_violations;
    violations.into_iter().map(|violation| violation.field).collect()
}

#[tokio::test]
async fn a_configuration_that_does_not_validate_is_refused_with_its_field() {
    let serving = Serving::start(|adapters| adapters.add::<Probe>()).await;
    let client = serving.connect().await;
    let ledger = ledger("does not validate");
    let mut config = probe("does not validate");
    config.fault = "wrong".to_owned();
    let expected = "adapter `probe` refuses its configuration: fault: it is wrong";

    let failure =
        client.call::<CheckResult>(ListEntry::METHOD, &entry(any(&config), "allow")).await.unwrap_err();
    assert_eq!(failure, ClientError { code: Code::InvalidArgument, message: expected.to_owned() });

    let created = client.create_session(session(any(&config))).await;
    let request = session(any(&config));
    let validate =
        ValidateRequest { adapter_config: request.adapter_config, inferred_types: request.inferred_types };
    let validated = client.validate(validate).await;
    assert_eq!(created.session_id, "");
    for status in [created.status.unwrap(), validated.status.unwrap()] {
        assert_eq!((status.code, &*status.message), (Code::InvalidArgument as i32, expected));
        assert_eq!(fields_refused(&status), ["fault"]);
    }
    assert_eq!(ledger.opened(), 0);
    assert_unharmed(serving).await;
}

#[tokio::test]
async fn a_struct_with_an_unknown_field_is_refused_with_its_path() {
    let serving = Serving::start(|adapters| adapters.add::<Probe>()).await;
    let client = serving.connect().await;
    let created = client.create_session(session(structure([("colour", text("red"))]))).await;
    let status = created.status.unwrap();
    assert_eq!(status.code, Code::InvalidArgument as i32);
    assert_eq!(
        status.message,
        "configuration of adapter `probe`: colour: no such field; expected one of: ledger, seq, open, grant, fault, maybe, refused"
    );
    assert_eq!(fields_refused(&status), ["colour"]);
    assert_unharmed(serving).await;
}

/// A Struct as configuration, which is all that Mixer's session client can send.
pub fn structure<const N: usize>(fields: [(&str, prost_types::Value); N]) -> Option<Any> {
    let fields = fields.map(|(name, value)| (name.to_owned(), value)).into();
    let value = prost_types::Struct { fields }.encode_to_vec().into();
    Some(Any { type_url: "type.googleapis.com/google.protobuf.Struct".to_owned(), value })
}

pub fn text(text: &str) -> prost_types::Value {
    prost_types::Value { kind: Some(prost_types::value::Kind::StringValue(text.to_owned())) }
}

pub fn number(number: f64) -> prost_types::Value {
    prost_types::Value { kind: Some(prost_types::value::Kind::NumberValue(number)) }
}

#[tokio::test]
async fn a_struct_that_several_adapters_accept_must_name_one() {
    let serving = Serving::start(|adapters| adapters.add::<Probe>().add::<Blocker>()).await;
    let client = serving.connect().await;
    let create = |config| client.create_session(session(config));
    let ambiguous = create(structure([("ledger", text("several"))])).await.status.unwrap();
    assert_eq!(ambiguous.code, Code::InvalidArgument as i32);
    assert_eq!(
        ambiguous.message,
        "the configuration names no adapter: `blocker`, `probe` accept it; name one in \"_adapter\", or send its \
         configuration message"
    );
    let named = create(structure([("ledger", text("several")), ("_adapter", text("probe"))])).await;
    assert_eq!(named.status.unwrap().code, 0);
    assert_eq!(serving.host.sessions().counts(), [(Probe::NAME, 1)]);

    let unknown = create(structure([("_adapter", text("nobody"))])).await.status.unwrap();
    assert_eq!(
        unknown.message,
        "the configuration names no adapter: \"_adapter\" is \"nobody\"; expected one of: `blocker`, `probe`"
    );
    // Only one of the two has the field.
    let only = create(structure([("ledger", text("several")), ("seq", number(7.0))])).await;
    assert_eq!(only.status.unwrap().code, 0);
    assert_eq!(serving.host.sessions().counts(), [(Probe::NAME, 2)]);
    assert_unharmed(serving).await;
}

#[tokio::test]
async fn a_zero_in_a_struct_is_not_the_same_as_no_value() {
    let serving = Serving::start(|adapters| adapters.add::<Probe>()).await;
    let client = serving.connect().await;
    let uses = async |config| {
        let answer: CheckResult = client.call(ListEntry::METHOD, &entry(config, "allow")).await.unwrap();
        answer.valid_use_count
    };
    assert_eq!(uses(structure([("ledger", text("zero"))])).await, 1000);
    assert_eq!(uses(structure([("ledger", text("zero")), ("maybe", number(7.0))])).await, 7);
    // A probe with 0 uses forbids caching.
    assert_eq!(uses(structure([("ledger", text("zero")), ("maybe", number(0.0))])).await, -1);
    assert_unharmed(serving).await;
}

#[tokio::test]
async fn inferred_types_must_be_of_templates_that_are_served() {
    let serving = Serving::start(|adapters| adapters.add::<Probe>().add::<Bystander>()).await;
    let client = serving.connect().await;
    let create = async |inferred: (String, Any)| {
        let request = CreateSessionRequest {
            adapter_config: any(&probe("inferred")),
            inferred_types: [inferred].into(),
        };
        client.create_session(request).await.status.unwrap()
    };
    let unknown = create(inferred("i.instance.ns", "tracespan")).await;
    assert_eq!(unknown.code, Code::InvalidArgument as i32);
    assert_eq!(
        unknown.message,
        "inferred type of instance `i.instance.ns`: `tracespan.Type` is not the Type of a template that is served here"
    );
    let others = create(inferred("i.instance.ns", "checknothing")).await;
    assert_eq!(
        others.message,
        "adapter `probe` does not serve template `checknothing`; it serves `listentry`, `metric`, `quota`"
    );
    let broken = Any { type_url: "metric.Type".to_owned(), value: Bytes::from_static(&[0xff]) };
    let broken = create(("i.instance.ns".to_owned(), broken)).await;
    assert!(
        broken.message.starts_with("inferred type of instance `i.instance.ns`: it is not a metric.Type: "),
        "{}",
        broken.message
    );
    assert_eq!(ledger("inferred").opened(), 0);
    assert_unharmed(serving).await;
}

#[tokio::test]
async fn an_unknown_session_is_not_found() {
    let serving = Serving::start(|adapters| adapters.add::<Probe>()).await;
    let client = serving.connect().await;
    let made = client.create_session(session(any(&probe("unknown session")))).await.session_id;
    assert_eq!(client.close_session(&made).await.status.unwrap().code, 0);
    for id in [&*made, "00000000000000000000000000000000", "s-1", ""] {
        let expected = format!(
            "session `{id}` does not exist: it was closed, it expired, or this server never had it; create it with CreateSession"
        );
        let failure =
            client.call::<CheckResult>(ListEntry::METHOD, &entry(session_id(id), "allow")).await.unwrap_err();
        assert_eq!(failure, ClientError { code: Code::NotFound, message: expected.clone() });
        let status = client.close_session(id).await.status.unwrap();
        assert_eq!((status.code, status.message), (Code::NotFound as i32, expected));
    }
    assert_unharmed(serving).await;
}

#[tokio::test]
async fn the_session_of_an_adapter_that_does_not_serve_the_template_is_refused() {
    let serving = Serving::start(|adapters| adapters.add::<Probe>().add::<Bystander>()).await;
    let client = serving.connect().await;
    let id = client.create_session(session(any(&probe("session of another")))).await.session_id;
    let failure =
        client.call::<CheckResult>(CheckNothing::METHOD, &nothing(session_id(&id))).await.unwrap_err();
    assert_eq!(failure.code, Code::InvalidArgument);
    assert_eq!(
        failure.message,
        "adapter `probe` does not serve template `checknothing`; it serves `listentry`, `metric`, `quota`"
    );
    assert_unharmed(serving).await;
}

#[tokio::test]
async fn a_quota_call_without_quota_request_is_refused() {
    let serving = Serving::start(|adapters| adapters.add::<Probe>()).await;
    let client = serving.connect().await;
    let mut request = requests::quota(any(&probe("no quota_request")), 1, true);
    request.quota_request = None;
    let failure = client.call::<QuotaResult>(Quota::METHOD, &request).await.unwrap_err();
    assert_eq!(failure.code, Code::InvalidArgument);
    assert_eq!(failure.message, "the request has no `quota_request`");
    request.quota_request = Some(Default::default());
    let failure = client.call::<QuotaResult>(Quota::METHOD, &request).await.unwrap_err();
    assert_eq!(failure.message, "the request has no `quota_request`");
    assert_eq!(ledger("no quota_request").entered(), 0);
    assert_unharmed(serving).await;
}

#[tokio::test]
async fn an_absent_instance_is_refused() {
    let serving = Serving::start(|adapters| adapters.add::<Probe>()).await;
    let client = serving.connect().await;
    let request = HandleListEntryRequest { adapter_config: any(&probe("no instance")), ..Default::default() };
    let failure = client.call::<CheckResult>(ListEntry::METHOD, &request).await.unwrap_err();
    assert_eq!(failure.code, Code::InvalidArgument);
    assert_eq!(failure.message, "the request has no `instance`");
    assert_eq!(ledger("no instance").entered(), 0);

    // Without configuration too there is nothing to find a session by.
    let failure =
        client.call::<CheckResult>(ListEntry::METHOD, &HandleListEntryRequest::default()).await.unwrap_err();
    assert_eq!(failure.code, Code::FailedPrecondition);
    // A report without instances is a report of nothing.
    let request = requests::metrics(any(&probe("no instance")), &[]);
    assert!(client.send(Metric::METHOD, &request.encode_to_vec()).await.is_ok());
    assert_unharmed(serving).await;
}

#[tokio::test]
async fn a_message_of_64_megabytes_is_refused_and_its_connection_lives() {
    let serving = Serving::start(|adapters| adapters.add::<Probe>()).await;
    let client = serving.connect().await;
    let message = vec![0; 64 << 20];
    for method in methods(&serving) {
        let failure = client.send(&method, &message).await.unwrap_err();
        assert_eq!(failure.code, Code::ResourceExhausted, "{method}: {}", failure.message);
        assert_eq!(failure.message, "the message has 67108864 bytes; the limit is 4194304");
        assert!(run_command(&client, "64 MB", "allow").await.is_ok(), "{method}");
    }
    assert_unharmed(serving).await;
}

#[tokio::test]
async fn a_message_may_be_as_long_as_the_limit() {
    let options = ServerOptions::default().max_message_size(1000);
    let serving = Serving::with(|adapters| adapters.add::<Probe>(), options, TableLimits::default()).await;
    let client = serving.connect().await;
    // The dedup_id fills the message up to the length wanted.
    let sized = async |client: &Client, length: usize| {
        let mut request = entry(any(&probe("limit")), "allow");
        request.dedup_id = "x".repeat(length + request.dedup_id.len() - request.encoded_len() - 1);
        assert_eq!(request.encoded_len(), length);
        client.call::<CheckResult>(ListEntry::METHOD, &request).await
    };
    assert!(sized(&client, 1000).await.is_ok());
    assert_eq!(sized(&client, 1001).await.unwrap_err().code, Code::ResourceExhausted);
    assert!(sized(&client, 1000).await.is_ok());
    assert_unharmed(serving).await;
}

/// Two bytes of an empty instance become some hundred when it is decoded.
#[tokio::test]
async fn a_report_with_too_many_instances_is_refused_before_it_is_decoded() {
    let serving = Serving::start(|adapters| adapters.add::<Probe>()).await;
    let client = serving.connect().await;
    let report = |instances: usize| b"\x0a\x00".repeat(instances);
    let limit = RequestLimits::default().instances;
    // Without a configuration, it fails where its handler is looked for.
    let failure = client.send(Metric::METHOD, &report(limit)).await.unwrap_err();
    assert_eq!(failure.code, Code::FailedPrecondition);
    let failure = client.send(Metric::METHOD, &report(limit + 1)).await.unwrap_err();
    assert_eq!(failure.code, Code::ResourceExhausted);
    assert_eq!(failure.message, format!("the call has more than {limit} instances (max-instances)"));
    let series = r#"mixer_adapter_calls_total{adapter="",template="metric",code="RESOURCE_EXHAUSTED"}"#;
    assert_eq!(serving.metric(series).await, 1.0);
    assert_unharmed(serving).await;
}

#[tokio::test]
async fn requests_that_are_not_grpc_get_an_http_error() {
    let serving = Serving::start(|adapters| adapters.add::<Probe>()).await;
    let client = serving.connect().await;
    let url = format!("http://localhost{}", ListEntry::METHOD);
    let get = http::Request::get(&url).body(()).unwrap();
    assert_eq!(client.raw(get, Bytes::new()).await.unwrap().0.status(), 405);
    let json = http::Request::post(&url).header("content-type", "application/json").body(()).unwrap();
    assert_eq!(client.raw(json, Bytes::new()).await.unwrap().0.status(), 415);
    let mut zipped = post(ListEntry::METHOD);
    zipped.headers_mut().insert("grpc-encoding", "gzip".parse().unwrap());
    assert_eq!(client.exchange(zipped, Bytes::new()).await.unwrap_err().code, Code::Unimplemented);
    assert!(run_command(&client, "not grpc", "allow").await.is_ok());
    assert_unharmed(serving).await;
}

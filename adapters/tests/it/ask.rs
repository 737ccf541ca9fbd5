//! `check`, `report` and `quota`: the requests to a Mixer, and its printed answers.

use std::{collections::BTreeMap, fs};

use crate::support::{Ran, Server, recorder::Recorder, run};
use mixer_adapter::{prost::Message as _, proto::Status};
use mixer_adapter_engine::proto::istio::mixer::v1::{
    CheckRequest, CheckResponse, HeaderOperation, ReferencedAttributes, ReportRequest, RouteDirective,
    check_response::{PreconditionResult, QuotaResult},
    referenced_attributes::AttributeMatch,
};
use serde_json::json;

const CHECK: &str = "/istio.mixer.v1.Mixer/Check";
const REPORT: &str = "/istio.mixer.v1.Mixer/Report";
const UNIMPLEMENTED: u8 = 12;

/// Indices of the global dictionary (docs/behaviour/mixer-api.md#the-global-dictionary).
const SOURCE_IP: i32 = 0;
const REQUEST_PATH: i32 = 17;

fn ask(command: &str, address: &str, arguments: &[&str]) -> Ran {
    run(&[&[command, "--address", address], arguments].concat())
}

/// A Mixer that is not ours.
fn other(answer: impl Fn() -> Vec<u8> + Clone + Send + 'static) -> Recorder {
    Recorder::start(move |path| match path {
        CHECK | REPORT => Ok(answer()),
        _ => Err((UNIMPLEMENTED, "unknown service")),
    })
}

fn asked<Request: mixer_adapter::prost::Message + Default>(mixer: &Recorder) -> Request {
    let calls = mixer.calls();
    Request::decode(calls.last().unwrap().message.clone()).unwrap()
}

#[test]
fn a_check_sends_attributes_of_every_type_in_words_of_the_global_dictionary() {
    let mixer = other(Vec::new);
    let attributes = "request.path=/x,source.ip=10.0.0.1,request.time=time:2019-05-06T07:08:09.5Z,response.code=200,\
                      request.headers=map:a=b;:path=/x,my.truth=true,my.share=0.5,response.duration=1.5s";
    let ran = ask("check", &mixer.address, &["--attributes", attributes]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let request: CheckRequest = asked(&mixer);
    assert_eq!(request.global_word_count, 222);
    assert!(!request.deduplication_id.is_empty());
    let attributes = request.attributes.unwrap();
    // What the dictionary has is not sent as a word.
    for word in ["request.path", "source.ip", ":path", "request.headers"] {
        assert!(!attributes.words.iter().any(|own| own == word), "{word}: {:?}", attributes.words);
    }
    let own = |index: i32| attributes.words[usize::try_from(-index - 1).unwrap()].as_str();
    let (path, value) = attributes.strings.first_key_value().unwrap();
    assert_eq!((attributes.strings.len(), *path, own(*value)), (1, REQUEST_PATH, "/x"));
    assert_eq!(attributes.bytes, BTreeMap::from([(SOURCE_IP, vec![10, 0, 0, 1])]));
    let time = attributes.timestamps.values().next().unwrap();
    assert_eq!((time.seconds, time.nanos), (1_557_126_489, 500_000_000));
    assert_eq!(attributes.int64s.values().collect::<Vec<_>>(), [&200]);
    let (truth, _) = attributes.bools.first_key_value().unwrap();
    assert_eq!(own(*truth), "my.truth");
    assert_eq!(attributes.doubles.values().collect::<Vec<_>>(), [&0.5]);
    let duration = attributes.durations.values().next().unwrap();
    assert_eq!((duration.seconds, duration.nanos), (1, 500_000_000));
    assert_eq!(attributes.string_maps.values().next().unwrap().entries.len(), 2);
}

#[test]
fn an_older_mixer_is_sent_the_words_it_knows() {
    let mixer = other(Vec::new);
    let arguments = ["--dictionary-words", "17", "--attributes", "source.ip=10.0.0.1,request.path=/x"];
    assert_eq!(ask("check", &mixer.address, &arguments).code, 0);
    let request: CheckRequest = asked(&mixer);
    assert_eq!(request.global_word_count, 17);
    let attributes = request.attributes.unwrap();
    assert!(attributes.bytes.contains_key(&SOURCE_IP));
    assert!(attributes.words.contains(&"request.path".to_owned()));
}

#[test]
fn the_answer_of_any_mixer_is_printed_with_all_it_says() {
    let operation = |name: &str, value: &str, operation| HeaderOperation {
        name: name.to_owned(),
        value: value.to_owned(),
        operation,
    };
    let directive = RouteDirective {
        request_header_operations: vec![operation("x-a", "1", 0), operation("x-b", "", 1)],
        response_header_operations: vec![operation("set-cookie", "c", 2)],
        direct_response_code: 302,
        direct_response_body: "gone".to_owned(),
    };
    let references = ReferencedAttributes {
        words: vec!["x-own".to_owned()],
        attribute_matches: vec![
            AttributeMatch { name: REQUEST_PATH, condition: 2, regex: String::new(), map_key: 0 },
            AttributeMatch { name: SOURCE_IP, condition: 1, regex: String::new(), map_key: -1 },
        ],
    };
    let response = CheckResponse {
        precondition: Some(PreconditionResult {
            status: Some(Status { code: 7, message: "h1:no".to_owned(), details: Vec::new() }),
            valid_duration: Some(prost_types(90, 0)),
            valid_use_count: -1,
            referenced_attributes: Some(references),
            route_directive: Some(directive),
        }),
        quotas: Default::default(),
    };
    let mixer = other(move || response.encode_to_vec());
    let ran = ask("check", &mixer.address, &[]);
    let expected = "\
denied: PERMISSION_DENIED: h1:no
valid for 1m30s, any number of uses
referenced attributes
  request.path exact
  source.ip[x-own] absence
route directive
  answer with 302 \"gone\"
  request header x-a set to \"1\"
  request header x-b removed
  response header set-cookie appended with \"c\"
took ";
    assert!(ran.code == 0 && ran.stdout.starts_with(expected), "{ran:?}");

    let mut json = ask("check", &mixer.address, &["--json"]).json();
    assert!(json.as_object_mut().unwrap().remove("took_ms").unwrap().is_f64());
    let expected = json!({
        "status": {"code": "PERMISSION_DENIED", "message": "h1:no"},
        "valid_duration": "1m30s",
        "valid_use_count": -1,
        "referenced_attributes": [
            {"name": "request.path", "condition": "EXACT"},
            {"name": "source.ip", "key": "x-own", "condition": "ABSENCE"},
        ],
        "route_directive": {
            "direct_response_code": 302,
            "direct_response_body": "gone",
            "request_header_operations": [
                {"operation": "REPLACE", "name": "x-a", "value": "1"},
                {"operation": "REMOVE", "name": "x-b"},
            ],
            "response_header_operations": [{"operation": "APPEND", "name": "set-cookie", "value": "c"}],
        },
    });
    assert_eq!(json, expected);
}

fn prost_types(seconds: i64, nanos: i32) -> mixer_adapter::prost_types::Duration {
    mixer_adapter::prost_types::Duration { seconds, nanos }
}

#[test]
fn a_quota_is_asked_for_with_its_amount_and_printed_with_its_grant() {
    let mixer = other(|| {
        let grant =
            QuotaResult { valid_duration: Some(prost_types(1, 0)), granted_amount: 3, ..Default::default() };
        let quotas = [("requests".to_owned(), grant)].into();
        CheckResponse { precondition: Some(PreconditionResult::default()), quotas }.encode_to_vec()
    });
    let arguments = ["requests", "--amount", "5", "--best-effort", "--dedup-id", "d-7"];
    let ran = ask("quota", &mixer.address, &arguments);
    assert!(
        ran.code == 0 && ran.stdout.contains("\nquota requests: granted 3 of 5, valid for 1s\n"),
        "{ran:?}"
    );
    let request: CheckRequest = asked(&mixer);
    assert_eq!(request.deduplication_id, "d-7");
    let params = request.quotas["requests"];
    assert_eq!((params.amount, params.best_effort), (5, true));

    let other = ask("quota", &mixer.address, &["others"]);
    assert!(other.stdout.contains("\nquota others: not in the answer"), "{other:?}");
}

#[test]
fn a_report_has_a_request_for_each_time_that_attributes_are_given() {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), "- response.code: 201\n- response.code: 202\n  my.ip: ip:::1\n").unwrap();
    let mixer = other(Vec::new);
    let list = format!("@{}", file.path().display());
    let ran = ask("report", &mixer.address, &["-a", "response.code=200", "-a", &list]);
    assert!(ran.code == 0 && ran.stdout.starts_with("reported 3 requests\ntook "), "{ran:?}");
    let request: ReportRequest = asked(&mixer);
    let independent = 1;
    assert_eq!(request.repeated_attributes_semantics, independent);
    let codes: Vec<i64> =
        request.attributes.iter().flat_map(|attributes| attributes.int64s.values().copied()).collect();
    assert_eq!(codes, [200, 201, 202]);
    assert_eq!(request.attributes[2].bytes.values().next().unwrap().len(), 16);
}

#[test]
fn a_mixer_that_does_not_explain_answers_all_the_same() {
    let mixer = other(Vec::new);
    let ran = ask("check", &mixer.address, &["--explain"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.stderr.contains("has no explanations") && ran.stdout.contains("took "), "{ran:?}");
    let paths: Vec<String> = mixer.calls().into_iter().map(|call| call.path).collect();
    assert_eq!(paths, ["/mixer_adapter.v1.Explain/Check", CHECK]);
}

#[test]
fn what_is_no_mixer_and_what_fails_exits_with_1() {
    let adapter = Recorder::start(|_| Err((UNIMPLEMENTED, "unknown service")));
    let ran = ask("check", &adapter.address, &[]);
    assert!(ran.code == 1 && ran.stdout.is_empty(), "{ran:?}");
    assert!(
        ran.stderr.contains("UNIMPLEMENTED: unknown service")
            && ran.stderr.contains("does not serve istio.mixer.v1.Mixer")
    );

    let failing = Recorder::start(|_| Err((13, "broken")));
    let json = ask("report", &failing.address, &["--json"]);
    assert_eq!(json.code, 1);
    assert_eq!(json.json()["error"], json!({"code": "INTERNAL", "message": "broken"}));

    // A port that was free a moment ago.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let ran = ask("quota", &free, &["requests"]);
    assert!(ran.code == 1 && ran.stderr.starts_with("error: connecting: UNAVAILABLE: "), "{ran:?}");
    assert!(ran.stderr.contains("give the address of another one"), "{ran:?}");
}

#[test]
fn a_wrong_command_line_says_what_is_wrong_and_exits_with_2() {
    for (arguments, reason) in [
        (
            &["check", "--attributes", "request.path"][..],
            "--attributes: \"request.path\" is not an attribute",
        ),
        (&["check", "-a", "response.code=x"], "attribute response.code: \"x\" is not a valid INT64"),
        (&["check", "-a", "@nowhere.yaml"], "--attributes: cannot read nowhere.yaml: "),
        (&["check", "--address", "nowhere"], "write HOST:PORT"),
        (&["check", "--dictionary-words", "223"], "223 is not in 0..=222"),
        (&["report", "--quota", "x"], "--quota"),
        (&["quota"], "<NAME>"),
        (&["quota", "x", "--amount", "much"], "--amount"),
    ] {
        let ran = run(arguments);
        assert_eq!(ran.code, 2, "{arguments:?}: {ran:?}");
        assert!(ran.stderr.contains(reason) && ran.stdout.is_empty(), "{arguments:?}: {ran:?}");
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    let argument = format!("@{}", file.path().display());
    for (content, reason) in [
        ("a.b: [", ": not valid YAML\n"),
        ("a.b: [", ":1:6: error: unclosed bracket '['\n  |\n1 | a.b: [\n  |      ^\n"),
        ("a.b: [1]", ": attribute a.b: a list is not a valid value"),
        ("- a.b: 1\n- a.b: 2\n", "is a list of requests; only reports have several"),
    ] {
        fs::write(file.path(), content).unwrap();
        let ran = run(&["check", "--attributes", &argument]);
        assert!(ran.code == 2 && ran.stderr.contains(reason), "{content:?}: {ran:?}");
    }
}

#[test]
fn a_check_of_our_own_server_says_why() {
    let server = Server::start(&[]);
    let ran = ask("check", &server.grpc, &["-a", "request.path=/admin", "--explain"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.stdout.starts_with("denied: PERMISSION_DENIED: closed-paths.istio-system:/admin is"));
    for step in [
        "check: rule check-path.rule.istio-system: (always) -> matched\n",
        "  instance path.instance.istio-system: {",
        "  call closed-paths.handler.istio-system (listentry: path.instance.istio-system) in ",
        "merged: denied, PERMISSION_DENIED: ",
    ] {
        assert!(ran.stdout.contains(step), "{step}: {}", ran.stdout);
    }
    let json = ask("check", &server.grpc, &["-a", "request.path=/x", "--explain", "--json"]).json();
    assert_eq!(json["status"]["code"], "OK");
    let steps: Vec<_> = json["trace"]["steps"].as_array().unwrap().iter().map(|step| &step["step"]).collect();
    assert_eq!(steps, ["rule", "instance", "call", "merged"]);
}

#[test]
fn a_report_that_fails_says_why() {
    let server = Server::start(&[]);
    let arguments = ["-a", "response.code=200", "-a", "response.code=0", "--explain"];
    let ran = ask("report", &server.grpc, &arguments);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.stderr.starts_with("error: UNKNOWN: instance access.instance.istio-system cannot be built"));
    assert!(ran.stdout.contains("request 1, namespace \"\"\nreport: rule log-access.rule.istio-system: "));
    assert!(ran.stdout.contains("NOT BUILT: timestamp: attribute `request.time` is missing"), "{ran:?}");
    let second = ran.stdout.split("request 2").nth(1).unwrap();
    assert!(second.contains("-> did not match"), "{ran:?}");
}

#[test]
fn a_quota_of_our_own_server_runs_out() {
    let server = Server::start(&[]);
    let grant = |amount: &str| {
        let json =
            ask("quota", &server.grpc, &["requests", "-a", "source.name=a", "--amount", amount, "--json"]);
        json.json()["quotas"]["requests"]["granted_amount"].clone()
    };
    assert_eq!([grant("60"), grant("60"), grant("40")], [60, 0, 40]);
}

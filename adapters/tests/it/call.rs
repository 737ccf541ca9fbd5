//! `call` against `serve`: the adapters here, as Mixer would call them.

use crate::support::{Server, call, run};
use serde_json::json;

#[test]
fn a_check_is_answered_with_the_configuration_that_came_along() {
    let server = Server::start(&[]);
    let config =
        r#"{"status": {"code": 7, "message": "not today"}, "valid_duration": "1m30s", "valid_use_count": 3}"#;
    let instance = r#"{"value": {"string_value": "x"}}"#;
    let ran = server.call(&[
        "listentry",
        "--adapter",
        "denier",
        "--config",
        config,
        "--instance",
        instance,
        "--json",
    ]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let expected = json!({
        "status": {"code": "PERMISSION_DENIED", "message": "not today"},
        "valid_duration": "1m30s",
        "valid_use_count": 3,
    });
    assert_eq!(ran.json()["answer"], expected);
    assert_eq!(ran.json()["template"], "listentry");
    assert!(ran.json()["took_ms"].as_f64().unwrap() > 0.0);
}

#[test]
fn a_denial_is_an_answer_for_people_too() {
    let server = Server::start(&[]);
    let config = r#"{"status": {"code": 7, "message": "not today"}}"#;
    let ran = server.call(&["checknothing", "--adapter", "denier", "--config", config]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let lines: Vec<&str> = ran.stdout.lines().collect();
    assert_eq!(lines[..2], ["denied: PERMISSION_DENIED: not today", "valid for 5s or 1000 uses"]);
}

#[test]
fn quota_is_asked_for_by_the_name_of_the_instance() {
    let server = Server::start(&[]);
    let arguments =
        ["quota", "--adapter", "denier", "--quota-amount", "5", "--instance-name", "q.instance.ns"];
    let ran = server.call(&[&arguments[..], &["--json"]].concat());
    let expected = json!({"quotas": {"q.instance.ns": {"granted_amount": 0, "valid_duration": "0s"}}});
    assert_eq!(ran.json()["answer"], expected);
    let ran = server.call(&arguments);
    assert_eq!(ran.stdout.lines().next(), Some("quota q.instance.ns: granted 0 of 5, valid for 0s"));
}

#[test]
fn a_grpc_error_is_shown_by_name_and_fails() {
    let server = Server::start(&[]);
    let arguments = ["checknothing", "--adapter", "denier", "--config", r#"{"valid_duration": "-1s"}"#];
    let ran = server.call(&arguments);
    assert_eq!((ran.code, ran.stdout.as_str()), (1, ""));
    assert!(
        ran.stderr.starts_with("error: INVALID_ARGUMENT: ") && ran.stderr.contains("valid_duration"),
        "{ran:?}"
    );
    let ran = server.call(&[&arguments[..], &["--json"]].concat());
    assert_eq!((ran.code, &ran.json()["error"]["code"]), (1, &json!("INVALID_ARGUMENT")));
}

#[test]
fn an_address_without_a_server_is_an_error_with_a_hint() {
    // A port that was free a moment ago.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let ran = call(&free, &["checknothing"]);
    assert_eq!(ran.code, 1);
    let expected =
        format!("error: connecting: UNAVAILABLE: {free} cannot be reached: {free}: Connection refused");
    assert!(
        ran.stderr.starts_with(&expected) && ran.stderr.contains("give the address of another one"),
        "{}",
        ran.stderr
    );
}

/// The command line is wrong: exit code 2, nothing is called, and the message says what and where.
fn refused(arguments: &[&str]) -> String {
    let ran = run(&[&["call"], arguments].concat());
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{ran:?}");
    ran.stderr
}

#[test]
fn json_that_does_not_fit_names_the_field() {
    let cases: [(&[&str], &str); 8] = [
        (
            &["listentry", "--instance", r#"{"vale": "x"}"#],
            "--instance: vale: no such field; did you mean value?",
        ),
        (
            &["listentry", "--instance", r#"{"value": {"int64_value": "x"}}"#],
            "--instance: value.int64_value: ",
        ),
        (
            &["listentry", "--instance", r#"{"value": ["x"]}"#],
            "--instance: value: expected a string, a number",
        ),
        (
            &["tracespan", "--instance", r#"{"source_ip": "1.2.3"}"#],
            "--instance: source_ip: expected an address such as \"10.0.0.1\"",
        ),
        (
            &["listentry", "--instance", "[]"],
            "--instance: expected an object with the fields of listentry.InstanceMsg",
        ),
        (&["listentry", "--instance", r#"{"value":"#], "--instance: not valid JSON: "),
        (
            &["listentry", "--adapter", "denier", "--config", r#"{"valid_duration": "5"}"#],
            "--config: valid_duration: \"5\" is not a valid duration; write it like",
        ),
        (
            &["listentry", "--adapter", "denier", "--config", r#"{"status": {"cod": 1}}"#],
            "--config: status.cod: no such field",
        ),
    ];
    for (arguments, expected) in cases {
        let error = refused(arguments);
        assert!(error.contains(expected), "{arguments:?}: {error}");
    }
}

#[test]
fn flags_that_do_not_fit_say_why() {
    let cases: [(&[&str], &str); 10] = [
        (&[], "TEMPLATE"),
        (&["listenty"], "unknown template `listenty`; known are `apikey`, "),
        (
            &["listentry", "--adapter", "denyer"],
            "unknown adapter `denyer`; did you mean `denier`? this program has ",
        ),
        (&["listentry", "--address", "9091"], "write HOST:PORT"),
        (&["listentry", "--address", "::1:9091"], "write HOST:PORT"),
        (&["listentry", "--timeout", "5"], "write it like 300ms, 5s"),
        (&["listentry", "--quota-amount", "5"], "--quota-amount: only quota templates have an amount"),
        (&["metric", "--best-effort"], "--best-effort: only quota templates have an amount"),
        (
            &["listentry", "--instance", "{}", "--instance", "{}"],
            "--instance: a call of `listentry` has one instance",
        ),
        (&["listentry", "--instance", "@nowhere.json"], "--instance: cannot read nowhere.json: "),
    ];
    for (arguments, expected) in cases {
        let error = refused(arguments);
        assert!(error.contains(expected), "{arguments:?}: {error}");
    }
}

#[test]
fn json_comes_from_files_and_from_stdin() {
    let server = Server::start(&[]);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), r#"{"status": {"code": 5}}"#).unwrap();
    let config = format!("@{}", file.path().display());
    let arguments =
        ["call", "checknothing", "--adapter", "denier", "--json", "--address", &server.grpc, "--config"];
    let ran = run(&[&arguments[..], &[&config]].concat());
    assert_eq!(ran.json()["answer"]["status"]["code"], "NOT_FOUND");

    let stdin = std::fs::File::open(file.path()).unwrap();
    let output = crate::support::binary().args(arguments).arg("@-").stdin(stdin).output().unwrap();
    assert_eq!(crate::support::Ran::from(output).json()["answer"]["status"]["code"], "NOT_FOUND");
}

#[test]
fn flags_are_taken_from_the_environment() {
    let server = Server::start(&[]);
    let mut command = crate::support::binary();
    command.args(["call", "checknothing"]);
    command.env("MIXER_ADAPTER_CALL_ADDRESS", &server.grpc).env("MIXER_ADAPTER_CALL_ADAPTER", "denier");
    command.env("MIXER_ADAPTER_CALL_CONFIG", r#"{"status": {"code": 12}}"#).env("MIXER_ADAPTER_JSON", "1");
    let ran = crate::support::Ran::from(command.output().unwrap());
    assert_eq!(ran.json()["answer"]["status"]["code"], "UNIMPLEMENTED");
}

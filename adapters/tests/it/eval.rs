//! `eval`: one expression, or a file of cases.

use std::{fs, path::Path};

use crate::support::{Ran, run};
use serde_json::json;

fn eval(arguments: &[&str]) -> Ran {
    run(&[&["eval"], arguments].concat())
}

const PROBES: &str = "../tests/data/expressions/probes.jsonl";

#[test]
fn the_recorded_cases_pass() {
    let ran = eval(&["--cases", PROBES]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(ran.stdout.lines().last(), Some("252 passed, 0 failed"));
    let json = eval(&["--cases", PROBES, "--json"]).json();
    assert_eq!((&json["passed"], &json["failures"]), (&json!(252), &json!([])));
}

#[test]
fn a_case_that_comes_out_otherwise_is_printed_and_fails() {
    let cases = fs::read_to_string(Path::new(PROBES)).unwrap();
    let (one, two) = (cases.lines().next().unwrap(), cases.lines().nth(1).unwrap());
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), [one, "", &two.replace(r#""v": "7""#, r#""v": "8""#)].join("\n")).unwrap();
    let ran = eval(&["--cases", file.path().to_str().unwrap()]);
    let expected = "probe-0001: 007\n    expected Int64(8), got Int64(7)\n1 passed, 1 failed\n";
    assert_eq!((ran.code, ran.stdout.as_str()), (1, expected));
}

#[test]
fn values_of_every_type_are_printed_with_their_type() {
    for (expression, attributes, printed) in [
        ("1 + 2", "", "3 INT64\n"),
        (r#""a" + "b""#, "", "\"ab\" STRING\n"),
        ("request.size | 0", "request.size=5", "5 INT64\nread: request.size\n"),
        ("source.ip", "source.ip=10.0.0.1", "\"10.0.0.1\" IP_ADDRESS\nread: source.ip\n"),
        (
            "request.time",
            "request.time=2019-05-06T07:08:09Z",
            "\"2019-05-06T07:08:09Z\" TIMESTAMP\nread: request.time\n",
        ),
        (r#""1m30s""#, "", "\"1m30s\" DURATION\n"),
        ("request.headers", "request.headers=a=b", "{\"a\":\"b\"} STRING_MAP\nread: request.headers\n"),
        (
            r#"request.headers["x"] | "none""#,
            "request.headers=a=b",
            "\"none\" STRING\nread: request.headers, request.headers[x] (absent)\n",
        ),
        ("my.share > 0.25", "my.share=0.5", "true BOOL\nread: my.share\n"),
    ] {
        let ran = eval(&[expression, "--attributes", attributes]);
        assert_eq!((ran.code, ran.stdout.as_str()), (0, printed), "{expression}: {ran:?}");
    }
}

#[test]
fn a_type_is_declared_and_a_value_of_another_is_the_request_s_error() {
    let ran = eval(&["my.size > 5", "--type", "my.size=int64", "-a", "my.size=7"]);
    assert_eq!(ran.stdout, "true BOOL\nread: my.size\n");
    let ran = eval(&["my.size > 5", "--type", "my.size=INT64", "-a", "my.size=string:7", "--json"]);
    assert_eq!(ran.code, 1);
    assert_eq!(ran.json()["error"]["kind"], "runtime_type_mismatch");
}

#[test]
fn errors_are_marked_in_the_text() {
    let ran = eval(&[r#"request.paht == "x""#]);
    assert!(ran.code == 1 && ran.stdout.is_empty(), "{ran:?}");
    assert!(ran.stderr.contains("\n1 | request.paht == \"x\"\n  | ^^^^^^^^^^^^\n"), "{}", ran.stderr);
    let ran = eval(&["request.path == \"x\""]);
    assert!(
        ran.code == 1 && ran.stderr.starts_with("error: attribute `request.path` is missing\n"),
        "{ran:?}"
    );
    let json = eval(&["1 +", "--json"]).json();
    assert_eq!((&json["error"]["phase"], &json["error"]["kind"]), (&json!("compile"), &json!("parse_error")));
}

#[test]
fn the_language_of_an_annotation_is_another() {
    // Missing attributes read as zero values in CEL.
    let ran = eval(&["request.path == \"\"", "--lang", "cel"]);
    assert!(ran.code == 0 && ran.stdout.starts_with("true BOOL\n"), "{ran:?}");
}

#[test]
fn a_wrong_command_line_says_what_is_wrong_and_exits_with_2() {
    for (arguments, reason) in [
        (&[][..], "<EXPR>"),
        (&["1", "--type", "a.b=INT65"], "unknown type INT65; did you mean INT64?"),
        (&["1", "--type", "a.b"], "write NAME=TYPE"),
        (&["1", "--lang", "lua"], "[possible values: CEL, COMPAT]"),
        (&["1", "--cases", PROBES], "cannot be used with"),
        (&["--cases", PROBES, "-a", "a.b=1"], "cannot be used with"),
        (&["--cases", "nowhere.jsonl"], "--cases: nowhere.jsonl: cannot read the file: "),
        (&["--cases", "Cargo.toml"], "--cases: Cargo.toml: line 1 is not a case: "),
    ] {
        let ran = eval(arguments);
        assert!(
            ran.code == 2 && ran.stderr.contains(reason) && ran.stdout.is_empty(),
            "{arguments:?}: {ran:?}"
        );
    }
}

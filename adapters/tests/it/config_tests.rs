//! `test`, `diff` and `explain --diff`: the expected answers of a configuration, and the effects of a change.

use std::{fs, path::Path};

use crate::support::{Ran, Server, binary, run};
use serde_json::json;

/// A directory with the sample configuration, another one without its closed paths, and a file of tests.
fn directory(tests: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let sample = fs::read_to_string("config/sample.yaml").unwrap();
    for (name, text) in [("before", sample.clone()), ("after", sample.replace("    - /admin\n", ""))] {
        fs::create_dir(directory.path().join(name)).unwrap();
        fs::write(directory.path().join(name).join("sample.yaml"), text).unwrap();
    }
    fs::write(directory.path().join("before/sample.test.yaml"), tests).unwrap();
    directory
}

fn run_in(directory: &Path, arguments: &[&str]) -> Ran {
    binary().current_dir(directory).args(arguments).output().unwrap().into()
}

const TESTS: &str = "\
tests:
- name: the admin page is closed
  attributes: {request.path: /admin}
  expect: {status: PERMISSION_DENIED}
- name: other pages are open
  attributes: {request.path: /x}
- name: a quota is granted
  quotas: {requests: 3}
  expect: {quotas: {requests: 3}}
- name: each test has a quota of its own
  quotas: {requests: 3}
  expect: {quotas: {requests: 3}}
- name: a request is logged
  attributes: {request.path: /x, response.code: 200, request.time: 2019-05-06T07:08:09Z}
  expect: {reports: {access: {severity: info}}}
";

#[test]
fn tests_beside_the_configuration_pass_and_are_not_configuration() {
    let directory = directory(TESTS);
    let ran = run_in(directory.path(), &["test", "before"]);
    assert_eq!(
        (ran.code, ran.stdout.as_str(), ran.stderr.as_str()),
        (0, "5 tests: 5 passed, 0 failed\n", "")
    );
    let ran = run_in(directory.path(), &["test", "before", "--run", "page"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "2 tests: 2 passed, 0 failed\n"));
    let ran = run_in(directory.path(), &["validate", "before"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "9 resources: 0 errors, 0 warnings\n"));
}

#[test]
fn a_failed_test_says_what_was_expected() {
    let tests = "\
tests:
- name: all pages are open
  attributes: {request.path: /admin}
  expect: {quotas: {requests: 1}, reports: {access: null}}
";
    let directory = directory(tests);
    let ran = run_in(directory.path(), &["test", "before"]);
    let start =
        "FAILED before/sample.test.yaml: all pages are open\n  status: expected OK, got PERMISSION_DENIED: ";
    assert!(ran.code == 1 && ran.stdout.starts_with(start), "{ran:?}");
    assert!(ran.stdout.contains("\n  quota requests: expected 1, but it is not in the answer\n"), "{ran:?}");
    assert!(ran.stdout.ends_with("1 test: 0 passed, 1 failed\n"), "{ran:?}");
    let json = run_in(directory.path(), &["test", "before", "--json"]).json();
    assert_eq!(json["tests"][0]["passed"], false);
}

#[test]
fn operations_on_headers_are_expected_by_their_values() {
    let folder = tempfile::tempdir().unwrap();
    let rule = "\
apiVersion: config.istio.io/v1alpha2
kind: rule
metadata: {name: headers, namespace: istio-system}
spec:
  requestHeaderOperations:
  - {name: X-User, values: ['request.path']}
  - {name: x-token, operation: REMOVE}
  responseHeaderOperations:
  - {name: x-via, values: ['\"a\"', '\"b\"'], operation: APPEND}
";
    fs::write(folder.path().join("rule.yaml"), rule).unwrap();
    let test = |headers: &str| {
        let tests = format!(
            "tests:\n- name: t\n  attributes: {{request.path: /x}}\n  expect: {{headers: {headers}}}\n"
        );
        fs::write(folder.path().join("rule.test.yaml"), tests).unwrap();
        run_in(folder.path(), &["test", "."])
    };
    let passed = test("{request: {x-user: /x, X-Token: null}, response: {x-via: [a, b]}}");
    assert_eq!((passed.code, passed.stdout.as_str()), (0, "1 test: 1 passed, 0 failed\n"), "{passed:?}");
    let failed = test("{request: {x-user: null, x-token: t, x-other: o}, response: {x-via: a}}");
    for line in [
        "request header x-user: expected to be removed, got \"/x\"",
        "request header x-token: expected \"t\", it is removed",
        "request header x-other: expected \"o\", it is not changed",
        "response header x-via: expected \"a\", got [\"a\", \"b\"]",
    ] {
        assert!(failed.stdout.contains(&format!("\n  {line}\n")), "{failed:?}");
    }
    assert_eq!(failed.code, 1);
}

#[test]
fn a_configuration_without_tests_and_a_misspelled_test_are_errors() {
    let directory = directory("tests:\n- name: a\n  atributes: {}\n");
    let ran = run_in(directory.path(), &["test", "before"]);
    let error = "error: not a file of tests
before/sample.test.yaml:3:3: error: unknown field `atributes`, expected one of name, attributes, quotas, expect
  |
3 |   atributes: {}
  |   ^^^^^^^^^
";
    assert_eq!((ran.code, ran.stderr.as_str()), (2, error));
    let ran = run_in(directory.path(), &["test", "after"]);
    let error = "error: there are no tests; write them into files *.test.yaml beside the configuration\n";
    assert_eq!((ran.code, ran.stderr.as_str()), (1, error));
    assert_eq!(run(&["test"]).code, 2);
}

#[test]
fn names_that_the_configuration_does_not_have_fail_a_test() {
    let tests = "\
tests:
- name: slips
  attributes: {request.paht: /admin}
  quotas: {request: 1}
  expect: {reports: {acces: null, access.instance.istio-sytem: null}, quotas: {request: 1}}
";
    let ran = run_in(directory(tests).path(), &["test", "before"]);
    let output = "\
FAILED before/sample.test.yaml: slips
  attribute request.paht is not declared, and no rule reads it; did you mean request.path?
  quota request: no rule has a quota of this name: granted in full, as by Mixer; did you mean requests?
  report acces: there is no instance of this name; did you mean access?
  report access.instance.istio-sytem: there is no instance of this name; did you mean access.instance.istio-system?
1 test: 0 passed, 1 failed
";
    assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (1, output, ""));
}

#[test]
fn two_tests_of_a_file_with_one_name_are_an_error() {
    let ran = run_in(directory("tests: [{name: a}, {name: b}, {name: a}]\n").path(), &["test", "before"]);
    let error = "error: before/sample.test.yaml: two tests have the name \"a\"\n";
    assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (2, "", error));
}

#[test]
fn names_that_neither_configuration_has_are_warned_about_once() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
    write("before.yaml", GRANTS_AND_REPORTS);
    let manifest = "kind: attributemanifest\nmetadata: {name: own}\nspec: {attributes: {own.name: {value_type: STRING}, request.path: {value_type: STRING}}}\n";
    write("after.yaml", &format!("{GRANTS_AND_REPORTS}---\n{manifest}"));
    let request = "{\"request.paht\": \"/a\", \"own.name\": \"x\"}\n";
    write("requests.jsonl", &request.repeat(2));
    let arguments =
        ["diff", "before.yaml", "after.yaml", "--requests", "requests.jsonl", "--quota", "request"];
    let ran = run_in(directory.path(), &arguments);
    let warnings = "\
warning: attribute request.paht is not declared, and no rule reads it; did you mean request.path?
warning: quota request: no rule has a quota of this name: granted in full, as by Mixer; did you mean requests?
";
    assert_eq!((ran.code, ran.stderr.as_str()), (0, warnings), "{ran:?}");
}

#[test]
fn a_changed_answer_to_a_recorded_request_is_shown() {
    let directory = directory(TESTS);
    let requests = "{\"request.path\": \"/x\"}\n{\"request.path\": \"/admin\"}\n";
    fs::write(directory.path().join("requests.jsonl"), requests).unwrap();
    let compare =
        |after| run_in(directory.path(), &["diff", "before", after, "--requests", "requests.jsonl"]);
    let same = compare("before");
    assert_eq!((same.code, same.stdout.as_str()), (0, "2 requests: 0 different answers\n"));
    let ran = compare("after");
    let start = "request 2: {\"request.path\":\"/admin\"}\n  before: denied: PERMISSION_DENIED: ";
    assert!(ran.code == 1 && ran.stdout.starts_with(start), "{ran:?}");
    let (_, end) = ran.stdout.split_once("\n  after:  allowed\nrule ").unwrap();
    assert!(end.contains(".rule.istio-system (before/"), "{ran:?}");
    assert!(end.ends_with("): 1 would be allowed\n2 requests: 1 different answer\n"), "{ran:?}");
}

#[test]
fn a_server_is_compared_with_files() {
    let directory = directory(TESTS);
    let source =
        ["source", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--log", "error", "--config"];
    let (source, _) = Server::spawn(binary().args(source).arg(directory.path().join("before")));
    fs::write(directory.path().join("requests.jsonl"), "{\"request.path\": \"/admin\"}\n").unwrap();
    for scheme in ["mcp", "xds"] {
        let url = format!("{scheme}://{}", source.grpc);
        let ran = run_in(directory.path(), &["diff", &url, "after", "--requests", "requests.jsonl"]);
        assert_eq!(ran.code, 1, "{ran:?}");
        assert!(ran.stdout.ends_with("1 request: 1 different answer\n"), "{ran:?}");
        let same = run_in(directory.path(), &["diff", &url, "before", "--requests", "requests.jsonl"]);
        assert_eq!(same.code, 0, "{same:?}");
    }
}

/// A quota of one request, and a log line for each.
const GRANTS_AND_REPORTS: &str = "\
kind: handler
metadata: {name: limits}
spec: {compiledAdapter: memquota, params: {quotas: [{name: requests, max_amount: 1}]}}
---
kind: instance
metadata: {name: requests}
spec: {compiledTemplate: quota, params: {dimensions: {}}}
---
kind: handler
metadata: {name: log}
spec: {compiledAdapter: stdio, params: {}}
---
kind: instance
metadata: {name: access}
spec: {compiledTemplate: logentry, params: {severity: '\"info\"', variables: {path: request.path}}}
---
kind: rule
metadata: {name: all}
spec: {actions: [{handler: limits, instances: [requests]}, {handler: log, instances: [access]}]}
";

#[test]
fn changed_grants_and_reports_are_shown_on_request() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
    write("before.yaml", GRANTS_AND_REPORTS);
    write("more.yaml", &GRANTS_AND_REPORTS.replace("max_amount: 1", "max_amount: 2"));
    write("warning.yaml", &GRANTS_AND_REPORTS.replace("\"info\"", "\"warning\""));
    write("nowhere.yaml", &GRANTS_AND_REPORTS.replace(", {handler: log, instances: [access]}", ""));
    write("requests.jsonl", "{\"request.path\": \"/a\"}\n{\"request.path\": \"/b\"}\n");
    let compare = |after: &str, flags: &[&str]| {
        let arguments = ["diff", "before.yaml", after, "--requests", "requests.jsonl"];
        let ran = run_in(directory.path(), &[&arguments, flags].concat());
        assert_eq!(ran.stderr, "");
        (ran.code, ran.stdout)
    };
    write("reports.jsonl", "{\"decision_id\": \"1-2\", \"kind\": \"report\"}\n");
    let ran = run_in(directory.path(), &["diff", "before.yaml", "more.yaml", "--requests", "reports.jsonl"]);
    assert!(ran.code == 2 && ran.stderr.contains("has no check to compare"), "{ran:?}");
    let same = (0, "2 requests: 0 different answers\n".to_owned());
    for after in ["more.yaml", "warning.yaml", "nowhere.yaml"] {
        assert_eq!(compare(after, &[]), same, "{after}: checks only");
    }
    assert_eq!(compare("before.yaml", &["--quota", "requests", "--report"]), same);
    assert_eq!(compare("more.yaml", &["--report"]), same);
    assert_eq!(compare("warning.yaml", &["--quota", "requests"]), same);

    let (code, output) = compare("more.yaml", &["--quota", "requests"]);
    let expected = "\
request 2: {\"request.path\":\"/b\"}
  before: allowed; quota requests: granted 0 of 1, valid for 0s
  after:  allowed; quota requests: granted 1 of 1, valid for 0s
2 requests: 1 different answer
";
    assert_eq!((code, output.as_str()), (1, expected));

    let (code, output) = compare("warning.yaml", &["--report"]);
    assert!(code == 1 && output.ends_with("\n2 requests: 2 different answers\n"), "{output}");
    let lines: Vec<&str> = output.lines().collect();
    let report = |line: &str, severity: &str| {
        line.contains("; reported access.instance.istio-system {")
            && line.contains(&format!("\"severity\":\"{severity}\""))
            && line.ends_with("; access.instance.istio-system to log.handler.istio-system")
    };
    assert!(report(lines[1], "info") && report(lines[2], "warning"), "{output}");
    let (_, output) = compare("nowhere.yaml", &["--report"]);
    assert!(output.contains("\n  after:  allowed; nothing reported\n"), "{output}");
}

#[test]
fn one_request_is_explained_with_the_answer_of_another_configuration() {
    let directory = directory(TESTS);
    let explain =
        |path| run_in(directory.path(), &["explain", "--config", "before", "--diff", "after", path]).stdout;
    assert!(explain("request.path=/admin").ends_with("\nthe other configuration: allowed\n"));
    assert!(explain("request.path=/x").ends_with("\nthe other configuration: the same answer\n"));
    let explain = ["explain", "--config", "before", "--diff", "after", "request.path=/admin", "-o", "json"];
    let data = run_in(directory.path(), &explain).json();
    assert_eq!(data["status"]["code"], "PERMISSION_DENIED");
    assert_eq!(data["other"], json!({ "same": false, "answer": "allowed" }));
}

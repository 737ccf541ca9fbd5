//! Ten mistakes of new users, with the whole output of the command: none ends in an allowed request without a word about it.

use std::{fs, path::Path};

use crate::support::{Ran, Server, binary, run};
use serde_json::json;

/// A directory with one file.
fn directory(text: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("config.yaml"), text).unwrap();
    directory
}

/// Runs a command in a directory, so that paths in its output are relative.
fn run_in(directory: &Path, arguments: &[&str]) -> Ran {
    binary().current_dir(directory).args(arguments).output().unwrap().into()
}

/// Replaces the durations of an output, which differ from one run to the next.
fn timeless(output: &str) -> String {
    let lines =
        output.lines().map(|line| match line.split_once(" in ").filter(|_| line.starts_with("  call ")) {
            Some((call, rest)) => {
                let (_, answer) = rest.split_once(" -> ").unwrap();
                format!("{call} in TIME -> {answer}\n")
            }
            None if line.starts_with("took ") => "took TIME\n".to_owned(),
            None => format!("{line}\n"),
        });
    lines.collect()
}

/// The outcome of `validate` for a configuration.
fn validate(text: &str) -> (i32, String) {
    let directory = directory(text);
    let ran = run_in(directory.path(), &["validate", "config.yaml"]);
    assert_eq!(ran.stderr, "");
    (ran.code, ran.stdout)
}

/// A handler that denies everything, an instance for it, and a rule with this `match` and this kind.
fn deny(kind: &str, condition: &str) -> String {
    format!(
        "kind: handler
metadata: {{name: deny}}
spec: {{compiledAdapter: denier, params: {{}}}}
---
kind: instance
metadata: {{name: all}}
spec: {{compiledTemplate: checknothing, params: {{}}}}
---
kind: {kind}
metadata: {{name: close}}
spec:
  match: {condition}
  actions: [{{handler: deny, instances: [all]}}]
"
    )
}

#[test]
fn the_configuration_without_a_mistake_denies() {
    assert_eq!(
        validate(&deny("rule", "request.url_path == \"/admin\"")),
        (0, "3 resources: 0 errors, 0 warnings\n".into())
    );
}

#[test]
fn mistake_1_a_misspelled_kind() {
    let output = "\
config.yaml:1:1: warning: deny.handler.istio-system: no rule uses this handler
  |
1 | kind: handler
  | ^^^^
config.yaml:5:1: warning: all.instance.istio-system: no rule uses this instance
  |
5 | kind: instance
  | ^^^^
config.yaml:9:1: error: close.Rule.istio-system: kind: unknown kind Rule; did you mean rule?
  |
9 | kind: Rule
  | ^^^^
3 resources: 1 error, 2 warnings
";
    assert_eq!(validate(&deny("Rule", "request.url_path == \"/admin\"")), (1, output.into()));
}

#[test]
fn mistake_2_misspelled_attributes_in_a_condition() {
    let output = "\
config.yaml:12:10: error: close.rule.istio-system: spec.match: unknown attribute `request.paht`
   |
12 |   match: request.paht == \"/admin\" && sorce.name == \"alice\"
   |          ^^^^^^^^^^^^
  = help: did you mean `request.path`?
config.yaml:12:38: error: close.rule.istio-system: spec.match: unknown attribute `sorce.name`
   |
12 |   match: request.paht == \"/admin\" && sorce.name == \"alice\"
   |                                      ^^^^^^^^^^
  = help: did you mean `source.name`?
3 resources: 2 errors, 0 warnings
";
    assert_eq!(
        validate(&deny("rule", "request.paht == \"/admin\" && sorce.name == \"alice\"")),
        (1, output.into())
    );
}

#[test]
fn mistake_3_a_regular_expression_and_an_address_that_cannot_be_parsed() {
    let condition = "'\"^/(admin\".matches(request.url_path) || source.ip == ip(\"10.0.0\")'";
    let output = "\
config.yaml:12:11: error: close.rule.istio-system: spec.match: not a valid regular expression: `^/(admin`: unclosed group
   |
12 |   match: '\"^/(admin\".matches(request.url_path) || source.ip == ip(\"10.0.0\")'
   |           ^^^^^^^^^^
config.yaml:12:67: error: close.rule.istio-system: spec.match: not a valid IP_ADDRESS: `10.0.0` is neither an IPv4 nor an IPv6 address
   |
12 |   match: '\"^/(admin\".matches(request.url_path) || source.ip == ip(\"10.0.0\")'
   |                                                                   ^^^^^^^^
config.yaml:12:3: warning: close.rule.istio-system: spec.match: a request without source.ip is not checked: the condition cannot be evaluated, and Mixer skips the rule; give it a value to fall back to, (source.ip | ip(\"0.0.0.0\")), or serve with --on-match-error closed
   |
12 |   match: '\"^/(admin\".matches(request.url_path) || source.ip == ip(\"10.0.0\")'
   |   ^^^^^
3 resources: 2 errors, 1 warning
";
    assert_eq!(validate(&deny("rule", condition)), (1, output.into()));
}

/// Mixer compiles such a condition; it is an error of each request (docs/behaviour/expressions.md#functions).
#[test]
fn mistake_3_is_an_error_of_each_request_in_lenient_mode() {
    let directory = directory(&deny("rule", "'\"^/(admin\".matches(request.url_path)'"));
    let arguments = ["explain", "--config", "config.yaml", "-a", "request.url_path=/x"];
    let fault = |level: &str| {
        format!(
            "\
config.yaml:12:11: {level}: close.rule.istio-system: spec.match: not a valid regular expression: `^/(admin`: unclosed group
   |
12 |   match: '\"^/(admin\".matches(request.url_path)'
   |           ^^^^^^^^^^
"
        )
    };
    let strict = run_in(directory.path(), &arguments);
    let refused = "error: the configuration has errors; `validate` lists all faults, --lenient skips faulty resources\n";
    assert_eq!((strict.code, strict.stdout.as_str(), strict.stderr), (1, "", fault("error") + refused));

    let lenient = run_in(directory.path(), &[&arguments[..], &["--lenient"]].concat());
    let output = "\
allowed
valid for 1m0s or 10000 uses
referenced attributes
  context.reporter.kind absence
  destination.namespace absence
  request.url_path exact
took TIME

namespace \"\"
check: rule close.rule.istio-system: \"^/(admin\".matches(request.url_path) -> error: not a valid regular expression: `^/(admin`: unclosed group
  in config.yaml:9
  request.url_path = \"/x\" (STRING)
merged: allowed; valid for 1m0s and 10000 uses
";
    assert_eq!((lenient.code, timeless(&lenient.stdout).as_str()), (0, output));
    assert_eq!(lenient.stderr, fault("warning"));
}

#[test]
fn mistake_4_an_empty_directory_and_a_file_without_resources() {
    let directory = tempfile::tempdir().unwrap();
    let output = "\
.: error: there are no resources here, so there is nothing to validate
0 resources: 1 error, 0 warnings
";
    let ran = run_in(directory.path(), &["validate", "."]);
    assert_eq!((ran.code, ran.stdout.as_str()), (1, output));
    fs::write(directory.path().join("empty.yaml"), "# to be written\n").unwrap();
    let ran = run_in(directory.path(), &["validate", "empty.yaml"]);
    assert_eq!((ran.code, ran.stdout), (1, output.replace(".:", "empty.yaml:")));
    let ran = run_in(directory.path(), &["validate", "rules/*.yaml"]);
    let output = "rules/*.yaml: error: no file matches\n0 resources: 1 error, 0 warnings\n";
    assert_eq!((ran.code, ran.stdout.as_str()), (1, output));
}

#[test]
fn mistake_5_several_faults_in_a_handler() {
    let text = "\
kind: handler
metadata: {name: deny}
spec:
  compiledAdapter: denier
  params:
    cod: 7
    valid_duration: 5 minutes
    valid_use_count: many
";
    let output = "\
config.yaml:1:1: warning: deny.handler.istio-system: no rule uses this handler
  |
1 | kind: handler
  | ^^^^
config.yaml:6:5: error: deny.handler.istio-system: spec.params.cod: no such field; expected one of: status, valid_duration, valid_use_count
  |
6 |     cod: 7
  |     ^^^
config.yaml:7:5: error: deny.handler.istio-system: spec.params.valid_duration: \"5 minutes\" is not a valid duration; write it like \"300ms\", \"5s\" or \"1m30s\"
  |
7 |     valid_duration: 5 minutes
  |     ^^^^^^^^^^^^^^
config.yaml:8:5: error: deny.handler.istio-system: spec.params.valid_use_count: expected a whole number, not \"many\"; with --lenient the handler has the defaults of all its fields
  |
8 |     valid_use_count: many
  |     ^^^^^^^^^^^^^^^
1 resource: 3 errors, 1 warning
";
    assert_eq!(validate(text), (1, output.into()));
}

#[test]
fn mistake_6_an_attribute_of_the_request_that_nobody_declares() {
    let directory = directory(&deny("rule", "(request.url_path | \"\") == \"/admin\""));
    let ran = run_in(directory.path(), &["explain", "--config", "config.yaml", "request.paht=/admin"]);
    let explained = "\
allowed
valid for 1m0s or 10000 uses
referenced attributes
  context.reporter.kind absence
  destination.namespace absence
  request.url_path absence
took TIME

namespace \"\"
attribute request.paht is not declared, and no rule reads it; did you mean request.path?
check: rule close.rule.istio-system: (request.url_path | \"\") == \"/admin\" -> did not match
  in config.yaml:9
  (request.url_path | \"\") = \"\" (STRING)
  request.url_path: attribute `request.url_path` is missing
merged: allowed; valid for 1m0s and 10000 uses
";
    assert_eq!((ran.code, timeless(&ran.stdout).as_str(), ran.stderr.as_str()), (0, explained, ""));

    let server = Server::start(&[]);
    let warning = "warning: request.paht is not a standard attribute; did you mean request.path?\n";
    for (command, output) in [("check", CHECKED), ("report", "reported 1 request\ntook TIME\n")] {
        let ran = run(&[command, "--address", &server.grpc, "request.paht=/admin"]);
        assert_eq!((ran.code, timeless(&ran.stdout).as_str(), ran.stderr.as_str()), (0, output, warning));
    }
    let explained = server.get("/explain?request.paht=/admin");
    let explained = explained.split("\r\n\r\n").nth(1).unwrap();
    let mut explained: serde_json::Value = serde_json::from_str(explained).unwrap();
    let steps = explained["trace"]["steps"].as_array_mut().unwrap();
    let micros = steps.iter_mut().find_map(|step| step.get_mut("micros")).unwrap();
    assert!(micros.take().is_u64());
    let text = explained["text"].take();
    assert!(text.as_str().is_some_and(|text| text.contains("did you mean request.path?\n")), "{text}");
    assert_eq!(explained, expected_explanation());
}

/// The sample's answer to a check without a path.
const CHECKED: &str = "\
allowed
valid for 5m0s or 10000 uses
referenced attributes
  context.reporter.kind absence
  destination.namespace absence
  request.path absence
  request.url_path absence
took TIME
";

/// The sample's explanation of a check without a path but with another attribute.
fn expected_explanation() -> serde_json::Value {
    let absent = ["context.reporter.kind", "destination.namespace", "request.path", "request.url_path"]
        .map(|name| json!({"name": name, "condition": "ABSENCE"}));
    json!({
        "text": null,
        "response": {
            "status": {"code": "OK", "message": ""},
            "valid_duration": "5m0s",
            "valid_use_count": 10_000,
            "referenced_attributes": absent,
        },
        "trace": {
            "namespace": "",
            "steps": [
                {"step": "undeclared_attribute", "attribute": "request.paht", "similar": "request.path"},
                {
                    "step": "rule",
                    "phase": "check",
                    "rule": "check-path.rule.istio-system",
                    "place": "the sample:35",
                    "condition": "",
                    "matched": true,
                },
                {
                    "step": "instance",
                    "instance": "path.instance.istio-system",
                    "params": [
                        {"field": "value", "text": "request.url_path | request.path | \"/\"", "value": "\"/\" (STRING)"},
                    ],
                    "built": {"name": "path.instance.istio-system", "value": {"string_value": "/"}},
                },
                {
                    "step": "call",
                    "handler": "closed-paths.handler.istio-system",
                    "template": "listentry",
                    "instances": ["path.instance.istio-system"],
                    "micros": null,
                    "answer": {
                        "code": "OK",
                        "message": "",
                        "valid_duration": "300s",
                        "valid_use_count": 10_000,
                    },
                },
                {"step": "merged", "outcome": "allowed; valid for 5m0s and 10000 uses"},
            ],
        },
    })
}

#[test]
fn mistake_7_a_quota_that_no_rule_has() {
    let server = Server::start(&[]);
    let ran = run(&["quota", "request", "--amount", "5", "--address", &server.grpc]);
    let warning = "warning: quota request: no rule has a quota of this name: granted in full, as by Mixer; did you mean requests?\n";
    let output = CHECKED.replace("took TIME", "quota request: granted 5 of 5, valid for 1m0s\ntook TIME");
    assert_eq!((ran.code, timeless(&ran.stdout), ran.stderr.as_str()), (0, output, warning));
    assert!(server.get("/metrics").contains("\nmixer_adapter_unknown_quotas_total 1\n"));

    let ran = run(&["explain", "--quota", "request", "--on-unknown-quota", "deny"]);
    let output = CHECKED.replace("took TIME", "quota request: granted 0 of 1, valid for 1m0s\ntook TIME")
        + "
namespace \"\"
check: rule check-path.rule.istio-system: (always) -> matched
  in the sample:35
  instance path.instance.istio-system: {\"name\":\"path.instance.istio-system\",\"value\":{\"string_value\":\"/\"}}
    value: expression request.url_path | request.path | \"/\" -> \"/\" (STRING)
  call closed-paths.handler.istio-system (listentry: path.instance.istio-system) in TIME -> {\"code\":\"OK\",\"message\":\"\",\"valid_duration\":\"300s\",\"valid_use_count\":10000}
merged: allowed; valid for 5m0s and 10000 uses
quota: rule limit-requests.rule.istio-system: (always) -> matched
  in the sample:112
quota request: no rule has a quota of this name: nothing is granted; did you mean requests?
merged: quota request: granted 0 of 1
";
    assert_eq!((ran.code, timeless(&ran.stdout), ran.stderr.as_str()), (0, output, ""));
}

#[test]
fn mistake_8_a_rule_that_never_applies() {
    let condition =
        "request.method == \"GET\" && request.url_path == \"/admin\" && request.method == \"POST\"";
    let output = "\
config.yaml:12:3: warning: close.rule.istio-system: spec.match: the rule never applies: `request.method == \"GET\"` and `request.method == \"POST\"` are never true together
   |
12 |   match: request.method == \"GET\" && request.url_path == \"/admin\" && request.method == \"POST\"
   |   ^^^^^
3 resources: 0 errors, 1 warning
";
    assert_eq!(validate(&deny("rule", condition)), (0, output.into()));
    let misplaced = deny("rule", "request.url_path == \"/admin\"")
        .replace("{name: close}", "{name: close, namespace: istio-sytem}");
    let misplaced = misplaced.replace(
        "handler: deny, instances: [all]",
        "handler: deny.istio-system, instances: [all.istio-system]",
    );
    let (_, output) = validate(&misplaced);
    assert!(
        output.starts_with(
            "config.yaml:9:1: warning: close.rule.istio-sytem: the rule applies only to requests of namespace istio-sytem; \
             did you mean istio-system, whose rules apply to all requests?\n"
        ),
        "{output}"
    );
}

#[test]
fn mistake_9_a_reference_to_a_handler_of_another_name() {
    let output = "\
config.yaml:1:1: warning: deny.handler.istio-system: no rule uses this handler
  |
1 | kind: handler
  | ^^^^
config.yaml:13:14: error: close.rule.istio-system: spec.actions[0].handler: there is no handler dney (looked for dney.handler.istio-system); write deny if deny.handler.istio-system is meant
   |
13 |   actions: [{handler: dney, instances: [all]}]
   |              ^^^^^^^
3 resources: 1 error, 1 warning
";
    let text = deny("rule", "request.url_path == \"/admin\"").replace("{handler: deny,", "{handler: dney,");
    assert_eq!(validate(&text), (1, output.into()));
}

#[test]
fn mistake_10_a_condition_that_cannot_be_evaluated_without_credentials() {
    let (code, output) = validate(&deny("rule", "request.auth.principal != \"admin\""));
    let expected = "\
config.yaml:12:3: warning: close.rule.istio-system: spec.match: a request without request.auth.principal is not checked: the condition cannot be evaluated, and Mixer skips the rule; give it a value to fall back to, (request.auth.principal | \"\"), or serve with --on-match-error closed
   |
12 |   match: request.auth.principal != \"admin\"
   |   ^^^^^
3 resources: 0 errors, 1 warning
";
    assert_eq!((code, output.as_str()), (0, expected));
}

#[test]
fn texts_of_peers_do_not_reach_the_terminal_as_they_are() {
    let denial = r#"
kind: handler
metadata: {name: denial, namespace: istio-system}
spec: {compiledAdapter: denier, params: {status: {code: 7, message: "\e[2J\r\x9b2J\0allowed"}}}
---
kind: instance
metadata: {name: nothing, namespace: istio-system}
spec: {compiledTemplate: checknothing}
---
kind: rule
metadata: {name: all, namespace: istio-system}
spec: {actions: [{handler: denial, instances: [nothing]}]}
"#;
    let directory = directory(denial);
    let server = Server::start(&["--config", directory.path().to_str().unwrap()]);
    server.until("/readyz", "ready");
    for arguments in [&["--color", "never"][..], &["--color", "always"], &["--explain"]] {
        let ran = run(&[&["check", "--address", &server.grpc], arguments].concat());
        assert!(ran.stdout.contains(r"\u001b[2J\r\u009b2J\u0000allowed"), "{}{}", ran.stdout, ran.stderr);
        assert!(!ran.stdout.contains("\u{1b}[2J") && !ran.stdout.contains('\r'), "{arguments:?}");
    }
}

#[test]
fn data_is_valid_whatever_texts_it_has() {
    let arguments = ["eval", "a", "--type", "a=STRING", "--attributes", "a=\u{9b}2J\u{1b}\u{7f}", "--json"];
    let ran = run(&arguments);
    let value: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(value["value"], "\u{9b}2J\u{1b}\u{7f}", "{ran:?}");
}

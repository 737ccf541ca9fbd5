//! Slips of the hand in a configuration that was right, with the whole output of the command: each says what is wrong, where, and what to write.

use std::fs;

use crate::support::{Ran, binary};

/// A rule that denies a path.
const RIGHT: &str = "\
kind: handler
metadata: {name: deny}
spec: {compiledAdapter: denier, params: {}}
---
kind: instance
metadata: {name: all}
spec: {compiledTemplate: checknothing, params: {}}
---
kind: rule
metadata: {name: close}
spec:
  match: request.url_path == \"/admin\"
  actions: [{handler: deny, instances: [all]}]
";

/// The errors and warnings that follow from one in the rule: nothing uses its handler and its instance.
const UNUSED: &str = "\
c.yaml:1:1: warning: deny.handler.istio-system: no rule uses this handler
  |
1 | kind: handler
  | ^^^^
c.yaml:5:1: warning: all.instance.istio-system: no rule uses this instance
  |
5 | kind: instance
  | ^^^^
";

/// The last line of a command that needs a configuration without errors.
const REFUSED: &str =
    "error: the configuration has errors; `validate` lists all faults, --lenient skips faulty resources\n";

fn run(arguments: &[&str], file: &str) -> Ran {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("c.yaml"), file).unwrap();
    binary().current_dir(directory.path()).args(arguments).output().unwrap().into()
}

/// The configuration with a slip, in which `from` occurs once.
fn slip(from: &str, to: &str) -> String {
    assert_eq!(RIGHT.matches(from).count(), 1, "{from}");
    RIGHT.replace(from, to)
}

/// Expects these faults from `validate`, and that no request is explained with the file.
fn expect(file: &str, faults: &str) {
    let validated = run(&["validate", "c.yaml"], file);
    assert_eq!((validated.code, validated.stdout.as_str(), validated.stderr.as_str()), (1, faults, ""));
    let explained = run(&["explain", "--config", "c.yaml", "request.url_path=/admin"], file);
    assert_eq!((explained.code, explained.stdout.as_str()), (1, ""), "{explained:?}");
    assert!(explained.stderr.ends_with(REFUSED), "{explained:?}");
}

#[test]
fn without_a_slip_the_request_is_denied() {
    let explained = run(&["explain", "--config", "c.yaml", "request.url_path=/admin"], RIGHT);
    assert!(explained.stdout.starts_with("denied: "), "{explained:?}");
}

#[test]
fn the_api_version() {
    for wrong in ["config.istio.oi/v1alpha2", "config.istio.io/v1alpha3"] {
        let line = format!("apiVersion: {wrong}");
        expect(
            &slip("kind: rule", &format!("{line}\nkind: rule")),
            &format!(
                "{UNUSED}\
c.yaml:9:1: error: apiVersion: unknown API version {wrong}; did you mean config.istio.io/v1alpha2?
  |
9 | {line}
  | ^^^^^^^^^^
2 resources: 1 error, 2 warnings
"
            ),
        );
    }
}

/// The fault of a condition: its message, and what is written there.
fn of_condition(written: &str, severity: &str, at: &str, message: &str, help: &str) -> String {
    let line = format!("  match: {written}");
    let start = line.find(at).unwrap();
    format!(
        "c.yaml:12:{}: {severity}: close.rule.istio-system: spec.match: {message}\n   |\n12 | {line}\n   | {}{}\n  = help: {help}\n",
        start + 1,
        " ".repeat(start),
        "^".repeat(at.len()),
    )
}

#[test]
fn the_receiver_and_the_argument_of_matches() {
    let written = "request.url_path.matches(\"^/a\")";
    let message =
        "the receiver of `matches` is the regular expression, here `request.url_path`, and \"^/a\" the text";
    let help = "write `\"^/a\".matches(request.url_path)`";
    let ran = run(&["validate", "c.yaml"], &slip("request.url_path == \"/admin\"", written));
    let fault = of_condition(written, "warning", written, message, help);
    assert_eq!((ran.code, ran.stdout), (0, format!("{fault}3 resources: 0 errors, 1 warning\n")));
}

#[test]
fn an_asterisk_that_is_no_wildcard() {
    for pattern in ["\"/a*b*\"", "\"*/x*\""] {
        let written = format!("match(request.url_path, {pattern})");
        let message = "only one `*`, at the end of a pattern or else at its start, is a wildcard; any other stands for itself";
        let help = "use a regular expression, such as `\"^/a.*b\".matches(request.url_path)`";
        let ran = run(&["validate", "c.yaml"], &slip("request.url_path == \"/admin\"", &written));
        let fault = of_condition(&written, "warning", pattern, message, help);
        assert_eq!((ran.code, ran.stdout), (0, format!("{fault}3 resources: 0 errors, 1 warning\n")));
    }
}

#[test]
fn a_function_and_an_entry_of_a_map() {
    for (written, at, message, help) in [
        (
            "request.url_path.startswith(\"/a\")",
            "startswith",
            "unknown function `startswith`",
            "did you mean `startsWith`?",
        ),
        (
            "request.headers.foo == \"x\"",
            "request.headers.foo",
            "unknown attribute `request.headers.foo`",
            "write `request.headers[\"foo\"]` for an entry of the map",
        ),
    ] {
        let fault = of_condition(written, "error", at, message, help);
        expect(
            &slip("request.url_path == \"/admin\"", written),
            &format!("{fault}3 resources: 1 error, 0 warnings\n"),
        );
    }
}

#[test]
fn an_attribute_of_the_caller_without_a_fallback() {
    for (written, advised) in [
        ("source.ip == ip(\"10.0.0.1\")", "(source.ip | ip(\"0.0.0.0\"))"),
        ("source.labels[\"app\"] == \"x\"", "(source.labels[\"app\"] | \"\")"),
    ] {
        let advice = |written: &str| {
            run(&["validate", "c.yaml"], &slip("request.url_path == \"/admin\"", written)).stdout
        };
        let found = advice(written);
        assert!(found.contains(&format!("a value to fall back to, {advised}, or serve")), "{found}");
        let (operand, rest) = written.split_once(" == ").unwrap();
        assert!(advised.contains(operand));
        assert_eq!(advice(&format!("{advised} == {rest}")), "3 resources: 0 errors, 0 warnings\n");
    }
}

#[test]
fn fields_of_a_resource_in_upper_case() {
    expect(
        &slip("kind: rule", "Kind: rule"),
        &format!(
            "{UNUSED}\
c.yaml:9:1: error: kind: no kind is given; write kind in place of Kind
  |
9 | Kind: rule
  | ^^^^
2 resources: 1 error, 2 warnings
"
        ),
    );
    expect(
        &slip("spec:\n", "Spec:\n"),
        &format!(
            "{UNUSED}\
c.yaml:9:1: error: close.rule.istio-system: spec.actions: the rule does nothing: it has neither actions nor header operations
  |
9 | kind: rule
  | ^^^^
c.yaml:11:1: warning: close.rule.istio-system: Spec: is not read; did you mean spec?
   |
11 | Spec:
   | ^^^^
3 resources: 1 error, 3 warnings
"
        ),
    );
}

#[test]
fn a_misspelled_name() {
    for (from, to, line, shown) in [
        ("metadata: {name: close}", "metdata: {name: close}", 9, "metadata in place of metdata"),
        ("{name: close}", "{nam: close}", 10, "name in place of nam"),
    ] {
        let text = slip(from, to);
        let validated = run(&["validate", "c.yaml"], &text).stdout;
        let fault = format!("c.yaml:{line}:1: error: metadata.name: no name is given; write {shown}\n");
        assert!(validated.contains(&fault), "{validated}");
    }
}

#[test]
fn misspelled_fields_of_a_rule() {
    for (from, to, place, field, meant) in [
        ("  match:", "  mtach:", "12:3", "mtach", "match"),
        ("  actions:", "  action:", "13:3", "action", "actions"),
        ("{handler: deny", "{handlr: deny", "13:14", "actions[0].handlr", "handler"),
        ("instances: [all]", "instance: [all]", "13:29", "actions[0].instance", "instances"),
    ] {
        let text = slip(from, to);
        let number: usize = place.split(':').next().unwrap().parse().unwrap();
        let column: usize = place.split(':').nth(1).unwrap().parse().unwrap();
        let name = field.rsplit('.').next().unwrap();
        let caret = format!("{}{}", " ".repeat(column - 1), "^".repeat(name.len()));
        let line = text.lines().nth(number - 1).unwrap();
        expect(
            &text,
            &format!(
                "{UNUSED}\
c.yaml:{place}: error: close.rule.istio-system: spec.{field}: no such field; did you mean {meant}?
   |
{number} | {line}
   | {caret}
3 resources: 1 error, 2 warnings
"
            ),
        );
    }
}

#[test]
fn two_resources_of_one_name() {
    let rule = &RIGHT[RIGHT.find("kind: rule").unwrap()..];
    expect(
        &format!("{RIGHT}---\n{rule}"),
        "\
c.yaml:15:1: error: close.rule.istio-system: is given twice; the first is at c.yaml:9
   |
15 | kind: rule
   | ^^^^
3 resources: 1 error, 0 warnings
",
    );
}

#[test]
fn a_misspelled_template_and_a_misspelled_field_of_one() {
    let unusable = "\
c.yaml:13:41: error: close.rule.istio-system: spec.actions[0].instances[0]: all.instance.istio-system is not usable, for faults of its own
   |
13 |   actions: [{handler: deny, instances: [all]}]
   |                                         ^^^
3 resources: 2 errors, 0 warnings
";
    expect(
        &slip("compiledTemplate: checknothing", "compiledTemplate: checknothin"),
        &format!(
            "\
c.yaml:7:8: error: all.instance.istio-system: spec.compiled_template: there is no template \"checknothin\" in this program; did you mean checknothing?
  |
7 | spec: {{compiledTemplate: checknothin, params: {{}}}}
  |        ^^^^^^^^^^^^^^^^
{unusable}"
        ),
    );
    expect(
        &slip("checknothing, params: {}", "listentry, params: {valu: request.url_path}"),
        &format!(
            "\
c.yaml:7:46: error: all.instance.istio-system: spec.params.valu: no such field in the template; did you mean value?
  |
7 | spec: {{compiledTemplate: listentry, params: {{valu: request.url_path}}}}
  |                                              ^^^^
{unusable}"
        ),
    );
}

#[test]
fn an_adapter_that_is_unknown_or_of_this_program() {
    let unusable = "\
c.yaml:13:14: error: close.rule.istio-system: spec.actions[0].handler: deny.handler.istio-system is not usable, for faults of its own
   |
13 |   actions: [{handler: deny, instances: [all]}]
   |              ^^^^^^^
3 resources: 2 errors, 0 warnings
";
    expect(
        &slip("compiledAdapter: denier", "compiledAdapter: dennier"),
        &format!(
            "\
c.yaml:3:8: error: deny.handler.istio-system: spec.compiled_adapter: there is no adapter \"dennier\" in this process; did you mean denier?
  |
3 | spec: {{compiledAdapter: dennier, params: {{}}}}
  |        ^^^^^^^^^^^^^^^
{unusable}"
        ),
    );
    expect(
        &slip("compiledAdapter: denier", "adapter: denier"),
        &format!(
            "\
c.yaml:3:8: error: deny.handler.istio-system: spec.adapter: there is no adapter denier (looked for denier.adapter.istio-system); write compiledAdapter: denier for the adapter of this program
  |
3 | spec: {{adapter: denier, params: {{}}}}
  |        ^^^^^^^
{unusable}"
        ),
    );
}

#[test]
fn a_duration_in_words() {
    expect(
        &slip("denier, params: {}", "denier, params: {valid_duration: 5sec}"),
        "\
c.yaml:3:42: error: deny.handler.istio-system: spec.params.valid_duration: \"5sec\" is not a valid duration; write it like \"300ms\", \"5s\" or \"1m30s\"; with --lenient the handler has the defaults of all its fields
  |
3 | spec: {compiledAdapter: denier, params: {valid_duration: 5sec}}
  |                                          ^^^^^^^^^^^^^^
3 resources: 1 error, 0 warnings
",
    );
}

#[test]
fn a_tab_in_the_indentation() {
    let text = slip("  match:", "\tmatch:");
    let validated = run(&["validate", "c.yaml"], &text).stdout;
    let fault = "c.yaml:12:2: error: cannot be read: tabs disallowed within this context (block indentation); indent with spaces\n";
    assert!(validated.contains(fault), "{validated}");
}

#[test]
fn line_ends_and_marks_of_other_editors_do_no_harm() {
    for text in [RIGHT.replace('\n', "\r\n"), format!("\u{feff}{RIGHT}")] {
        let validated = run(&["validate", "c.yaml"], &text);
        assert_eq!(validated.stdout, "3 resources: 0 errors, 0 warnings\n");
        let explained = run(&["explain", "--config", "c.yaml", "request.url_path=/admin"], &text);
        assert!(explained.stdout.starts_with("denied: "), "{explained:?}");
    }
}

/// No fault: the rules of a namespace apply to its requests.
#[test]
fn a_rule_in_another_namespace_is_named_by_the_explanation() {
    let text = slip("{name: close}", "{name: close, namespace: shop}");
    let text = text.replace("handler: deny,", "handler: deny.istio-system,");
    let text = text.replace("[all]", "[all.istio-system]");
    let explained = run(&["explain", "--config", "c.yaml", "request.url_path=/admin"], &text);
    let word = "\nrule close.rule.shop (c.yaml:9) is not of this namespace, and does not apply\n";
    assert!(explained.stdout.starts_with("allowed\n") && explained.stdout.contains(word), "{explained:?}");
}

#[test]
fn a_configuration_without_rules_is_said_to_allow_everything() {
    let warning = "warning: the configuration has no rule with an effect: every check is allowed and every quota granted\n";
    let handler = &RIGHT[..RIGHT.find("---").unwrap()];
    for text in ["", handler] {
        let explained = run(&["explain", "--config", ".", "request.url_path=/admin"], text);
        assert!(explained.stdout.starts_with("allowed\n"), "{explained:?}");
        assert_eq!((explained.code, explained.stderr.as_str()), (0, warning));
    }
    // With --lenient the faulty rule is not there.
    let misspelled = slip("handler: deny,", "handler: dney,");
    let explained = run(&["explain", "--config", "c.yaml", "--lenient"], &misspelled);
    assert!(explained.stderr.ends_with(warning), "{explained:?}");
}

#[test]
fn wrong_flags_and_files_are_named() {
    for (arguments, code, error) in [
        (
            &["explain", "--confg", "c.yaml"][..],
            2,
            "error: unexpected argument '--confg' found\n\n  tip: a similar argument exists: '--config'\n",
        ),
        (&["explain", "--config", "d.yaml"], 1, "d.yaml: error: cannot be read: No such file or directory"),
        (
            &["explain", "--config", "c.yaml", "request.url_path"],
            2,
            "error: --attributes: \"request.url_path\" is not an attribute; write NAME=VALUE, and \\, for a comma in a value\n",
        ),
        (
            &["explain", "--config", "c.yaml", "source.ip=10.0.0"],
            2,
            "error: --attributes: attribute source.ip: \"10.0.0\" is not a valid IP_ADDRESS, its declared type; write it like 10.0.0.1, or string:TEXT for a string\n",
        ),
        (
            &["diff", "c.yaml", "c.yaml", "--requests", "r.jsonl"],
            2,
            "error: --requests: cannot read r.jsonl: No such file or directory",
        ),
        (
            &["chek"],
            2,
            "error: unrecognized subcommand 'chek'\n\n  tip: a similar subcommand exists: 'check'\n",
        ),
    ] {
        let ran = run(arguments, RIGHT);
        assert_eq!((ran.code, ran.stdout.as_str()), (code, ""), "{arguments:?}");
        assert!(ran.stderr.starts_with(error), "{arguments:?}: {}", ran.stderr);
    }
}

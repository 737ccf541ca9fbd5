//! The form of the denials of a rule: its faults, and denials that are not given it.

use std::fs;

use crate::support::run;

/// A rule that denies every request, with a form.
fn config(form: &str) -> String {
    let form: String = form.lines().map(|line| format!("      {line}\n")).collect();
    format!(
        "kind: handler\nmetadata: {{name: deny, namespace: istio-system}}\nspec: {{compiledAdapter: denier, params: {{status: {{code: 7, message: closed}}}}}}\n---\n\
         kind: instance\nmetadata: {{name: all, namespace: istio-system}}\nspec: {{compiledTemplate: checknothing, params: {{}}}}\n---\n\
         kind: rule\nmetadata:\n  name: close\n  namespace: istio-system\n  annotations:\n    mixer-adapter/denial: |\n{form}\
         spec: {{actions: [{{handler: deny, instances: [all]}}]}}\n"
    )
}

fn with_config(form: &str, command: &[&str], rest: &[&str]) -> String {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("config.yaml"), config(form)).unwrap();
    run(&[command, &[directory.path().to_str().unwrap()], rest].concat()).stdout
}

#[test]
fn the_faults_of_a_form_are_found() {
    let field = "close.rule.istio-system: metadata.annotations[\"mixer-adapter/denial\"]";
    for (form, fault) in [
        ("status: 99", ": status is not from 200 to 599"),
        ("{}", ": it is empty; write one of status, headers, redirect, body, json"),
        ("stauts: 403", ": "),
        ("status: 403\nquery: {a: request.path}", ": query is for the location of redirect"),
        ("body: denial.message\njson: {}", ": body and json exclude each other"),
        (
            "headers: {content-length: denial.code}",
            ": headers.content-length: a response cannot have this header",
        ),
        ("headers: {\"a b\": denial.code}", ": headers.a b: a response cannot have this header"),
        ("body: request.size", ": body: the expression is of type INT64; write one of type STRING"),
        ("json: {a: [request.paht]}", ".json.a[0]: unknown attribute `request.paht`"),
        ("redirect: denial.status", ".redirect: unknown attribute `denial.status`"),
    ] {
        let validated = with_config(form, &["validate"], &[]);
        assert!(validated.contains(&format!("{field}{fault}")), "{form}: {validated}");
        assert!(validated.contains(" 1 error"), "{form}: {validated}");
    }
    for form in ["body: denial.message", "json: {a: [request.size, 1, null, true]}"] {
        assert!(with_config(form, &["validate"], &[]).ends_with(": 0 errors, 0 warnings\n"), "{form}");
    }
}

#[test]
fn a_denial_without_its_form_is_still_a_denial() {
    let explained = |form: &str, attribute: &str| with_config(form, &["explain", "--config"], &[attribute]);
    for (form, attribute, reason) in [
        ("body: request.path", "request.method=GET", "attribute `request.path` is missing"),
        (
            "headers: {x-path: request.path}",
            "request.path=/a\r\nx-admin: 1",
            "the value of header x-path has a control character",
        ),
    ] {
        let text = explained(form, attribute);
        let expected = format!("response by close.rule.istio-system: not in the form of the rule: {reason}");
        assert!(text.contains(&expected), "{form}: {text}");
        assert!(text.contains("PERMISSION_DENIED") && !text.contains("answer with"), "{form}: {text}");
    }
    let long = format!("request.path={}", "a".repeat(70_000));
    for form in ["body: request.path", "json: {a: [request.path]}"] {
        assert!(explained(form, &long).contains("the body has more than 65536 bytes"), "{form}");
    }
    for (form, character) in [
        ("headers: {a: request.path, b: request.path}", "a"),
        ("redirect: request.path\nquery: {a: request.path}", "a"),
        // Three characters of a query.
        ("redirect: '\"/\"'\nquery: {a: request.path}", "/"),
    ] {
        let text = explained(form, &format!("request.path={}", character.repeat(5_000)));
        assert!(text.contains("the headers have more than 8192 bytes"), "{form}: {text}");
    }
    let formed = explained("body: request.path + \"!\"", "request.path=/a");
    assert!(formed.contains("response by close.rule.istio-system: status 403, body \"/a!\""), "{formed}");
}

/// The status of a request past a limit is chosen by Envoy.
#[test]
fn a_form_for_quotas_alone_has_no_status() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    let warned = |form: &str, is_check: bool| {
        let config = config(form);
        let quota = "---\nkind: handler\nmetadata: {name: limits, namespace: istio-system}\nspec: {compiledAdapter: memquota, params: {quotas: [{name: all-requests, maxAmount: 2}]}}\n---\n\
                     kind: instance\nmetadata: {name: all-requests, namespace: istio-system}\nspec: {compiledTemplate: quota, params: {dimensions: {}}}\n";
        let actions = if is_check { "[{handler: deny, instances: [all]}, {" } else { "[{" };
        let actions = format!("{actions}handler: limits, instances: [all-requests]}}]");
        let config = config.replace("[{handler: deny, instances: [all]}]", &actions);
        fs::write(directory.path().join("config.yaml"), format!("{config}{quota}")).unwrap();
        let validated = run(&["validate", path]).stdout;
        assert!(!validated.contains("no action that denies"), "{form}: {validated}");
        validated.contains("the form has a status or a redirect, and the rule only quotas")
    };
    for (form, has_status) in [
        ("body: denial.message", false),
        ("status: 503\nbody: denial.message", true),
        ("redirect: '\"/slow\"'", true),
    ] {
        assert_eq!((warned(form, false), warned(form, true)), (has_status, false), "{form}");
    }
}

/// The documentation quotes the forms of the example, which has tests.
#[test]
fn the_documentation_shows_the_forms_of_the_example() {
    let example = include_str!("../../../examples/configurations/denial-responses/config.yaml");
    let documentation = include_str!("../../../docs/envoy/answers.md");
    let blocks = documentation.split("```yaml\n").skip(1).filter_map(|block| block.split("```").next());
    let forms: Vec<&str> = blocks.filter(|block| block.contains("mixer-adapter/denial")).collect();
    assert_eq!(forms.len(), 2);
    assert!(forms.iter().all(|form| example.contains(form)), "{forms:?}");
}

//! `validate`: faults and warnings with their places, and exit codes for CI.

use std::{fs, path::Path};

use crate::support::{Ran, run};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::json;

fn validate(arguments: &[&str]) -> Ran {
    run(&[&["validate"], arguments].concat())
}

/// A directory with the configuration of a recorded case, complete with descriptors and addresses.
fn recorded(case: &str) -> tempfile::TempDir {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/dispatch/config");
    let imports = Path::new(env!("CARGO_MANIFEST_DIR")).join("../proto");
    let directory = tempfile::tempdir().unwrap();
    let case = format!("cases/{case}.yaml");
    for file in ["base/attributes.yaml", "base/templates.yaml", "base/adapter.yaml", &case] {
        let mut text = fs::read_to_string(data.join(file)).unwrap();
        for proto in fs::read_dir(data.join("protos")).unwrap() {
            let proto = proto.unwrap().path();
            let name = proto.file_stem().unwrap().to_str().unwrap();
            let placeholder = format!("${{descriptor:{name}}}");
            if text.contains(&placeholder) {
                let mut compiler = protox::Compiler::new([&data.join("protos"), &imports]).unwrap();
                compiler.include_imports(true).open_file(&proto).unwrap();
                let set = compiler.encode_file_descriptor_set();
                text = text.replace(&placeholder, &STANDARD.encode(set));
            }
        }
        let text = text.replace("${b1}", "127.0.0.1:1").replace("${b2}", "127.0.0.1:2");
        let name = Path::new(file).file_name().unwrap();
        fs::write(directory.path().join(name), text).unwrap();
    }
    directory
}

#[test]
fn the_sample_has_no_fault() {
    let ran = validate(&["--warnings-as-errors", "config"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "9 resources: 0 errors, 0 warnings\n"));
    assert_eq!(validate(&["--config", "config/sample.yaml"]).code, 0);
}

/// The form of names in the contract of adapters, which Mixer does not check (docs/compatibility.md#configuration).
#[test]
fn the_name_of_an_adapter_is_a_label() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("adapter.yaml");
    let validate = |name: &str| {
        fs::write(&file, format!("kind: adapter\nmetadata: {{name: {name}}}\nspec: {{}}\n")).unwrap();
        validate(&[file.to_str().unwrap()])
    };
    for name in ["a", "my-adapter", "v2", &"a".repeat(63)] {
        let ran = validate(name);
        assert_eq!((ran.code, ran.stdout.as_str()), (0, "1 resource: 0 errors, 0 warnings\n"), "{name}");
    }
    for name in ["My_denier", "2nd", "denier-", &"a".repeat(64)] {
        let ran = validate(name);
        let fault = format!(
            "adapter.yaml:1:1: error: {name}.adapter.istio-system: {name:?} is not a valid name of an adapter; write at most 63 \
             lower-case letters, digits and hyphens, such as my-adapter\n"
        );
        assert!(ran.code == 1 && ran.stdout.contains(&fault), "{ran:?}");
        assert!(ran.stdout.ends_with("\n1 resource: 1 error, 0 warnings\n"), "{ran:?}");
    }
}

#[test]
fn a_recorded_configuration_that_a_real_mixer_takes_has_no_error() {
    let directory = recorded("check-min");
    let ran = validate(&[directory.path().to_str().unwrap()]);
    assert!(ran.code == 0 && ran.stdout.ends_with(": 0 errors, 0 warnings\n"), "{ran:?}");
}

#[test]
fn what_a_real_mixer_logs_and_drops_is_an_error_with_its_place() {
    for (case, place) in [
        (
            "rule-unknown-field",
            "rule-unknown-field.yaml:38:3: error: bad.rule.istio-system: spec.actoins: no such field",
        ),
        (
            "handler-one-bad-one-good",
            "handler-one-bad-one-good.yaml:29:5: error: r1.rule.istio-system: spec.actions[0].handler: there is no handler missing",
        ),
        ("match-unknown-attribute", "match-unknown-attribute.yaml:"),
    ] {
        let directory = recorded(case);
        let ran = validate(&[directory.path().to_str().unwrap()]);
        assert!(ran.code == 1 && ran.stdout.contains(place), "{case}: {ran:?}");
        assert!(ran.stdout.contains(": 1 error, "), "{case}: {ran:?}");
    }
}

#[test]
fn a_warning_fails_only_when_it_shall() {
    let directory = recorded("quota-same-instance-two-rules");
    let directory = directory.path().to_str().unwrap();
    let ran = validate(&[directory]);
    assert!(ran.code == 0 && ran.stdout.ends_with(": 0 errors, 1 warning\n"), "{ran:?}");
    assert!(
        ran.stdout.contains(": warning: r2.rule.istio-system: spec.actions[0].instances[0]: "),
        "{ran:?}"
    );
    assert_eq!(validate(&["--warnings-as-errors", directory]).code, 1);
}

/// The warnings about a rule with that condition, and with one instance for a check and one for a report.
fn warnings_of(condition: &str, instance: &str) -> Vec<String> {
    let text = format!(
        "kind: handler\nmetadata: {{name: h}}\nspec: {{compiledAdapter: noop, params: {{}}}}\n---\n\
         kind: instance\nmetadata: {{name: check}}\nspec: {{compiledTemplate: checknothing, params: {{}}}}\n---\n\
         kind: instance\nmetadata: {{name: report}}\nspec:\n  compiledTemplate: logentry\n  params: {{severity: 'toLower(request.path) | \"info\"'}}\n---\n\
         kind: rule\nmetadata: {{name: r}}\nspec:\n  match: {condition}\n  actions: [{{handler: h, instances: [{instance}]}}]\n"
    );
    let file = tempfile::NamedTempFile::with_suffix(".yaml").unwrap();
    fs::write(file.path(), text).unwrap();
    let ran = validate(&["--json", file.path().to_str().unwrap()]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let json = ran.json();
    let faults = json["faults"].as_array().unwrap().iter().filter(|fault| fault["field"].is_string());
    faults.filter(|fault| fault["severity"] == "warning").map(|fault| fault["field"].to_string()).collect()
}

/// A condition that cannot be evaluated does not match (docs/behaviour/dispatch.md#conditions).
#[test]
fn a_check_that_is_skipped_where_an_attribute_of_the_caller_is_missing_is_warned_about() {
    let logs = r#""spec.params.severity""#;
    let matches = r#""spec.match""#;
    assert_eq!(warnings_of("source.namespace != \"prod\"", "check"), [logs, matches]);
    assert_eq!(warnings_of("source.namespace != \"prod\"", "report"), [logs]);
    assert_eq!(warnings_of("(source.namespace | \"\") != \"prod\"", "check"), [logs]);
    assert_eq!(warnings_of("request.url_path != \"/\"", "check"), [logs]);
    assert_eq!(warnings_of("(request.url_path == \"/\") | false", "report"), [logs, matches]);
}

#[test]
fn faults_are_for_programs_too() {
    let file = tempfile::NamedTempFile::with_suffix(".yaml").unwrap();
    let handler = "kind: handler\nmetadata: {name: h}\nspec: {compiledAdapter: denier, params: {cod: 7}}\n";
    let rule = "---\nkind: rule\nmetadata: {name: r, namespace: ns}\nspec:\n  match: request.paht == \"x\"\n";
    fs::write(file.path(), format!("{handler}{rule}")).unwrap();
    let path = file.path().to_str().unwrap();
    let ran = validate(&["--json", path]);
    assert_eq!(ran.code, 1);
    let json = ran.json();
    assert_eq!((&json["errors"], &json["warnings"]), (&json!(2), &json!(1)), "{json}");
    assert_eq!(json["faults"][0]["message"], "no rule uses this handler");
    let fault = &json["faults"][1];
    assert_eq!(
        (&fault["severity"], &fault["file"], &fault["line"], &fault["column"]),
        (&json!("error"), &json!(path), &json!(3), &json!(42))
    );
    let expected = (json!("h.handler.istio-system"), json!("spec.params.cod"));
    assert_eq!((&fault["resource"], &fault["field"]), (&expected.0, &expected.1));
    let second = &json["faults"][2];
    assert_eq!(
        (&second["line"], &second["column"], &second["field"]),
        (&json!(8), &json!(10), &json!("spec.match"))
    );
    assert_eq!(second["message"], "unknown attribute `request.paht`");
    assert_eq!(second["help"], "did you mean `request.path`?");
    assert_eq!(json["resources"]["istio/policy/v1beta1/rules"], 1);

    let sarif = validate(&["--output", "sarif", path]).json();
    let result = &sarif["runs"][0]["results"][2];
    assert_eq!((&sarif["version"], &result["level"]), (&json!("2.1.0"), &json!("error")));
    let region = &result["locations"][0]["physicalLocation"];
    assert_eq!(region["artifactLocation"]["uri"], path);
    assert_eq!(region["region"], json!({"startLine": 8, "startColumn": 10}));
    let annotations = validate(&["-o", "github", "--max", "2", path]).stdout;
    let expected = format!(
        "::error file={path},line=8,col=10,title=r.rule.ns::spec.match: unknown attribute `request.paht`%0Adid you mean `request.path`?"
    );
    let lines: Vec<_> = annotations.lines().collect();
    assert_eq!((lines.len(), lines[1]), (2, expected.as_str()), "errors before warnings");
    let limited = validate(&["--max", "1", path]).stdout;
    assert!(
        limited.ends_with("... and 2 more faults; --max 0 shows all\n2 resources: 2 errors, 1 warning\n"),
        "{limited}"
    );
}

#[test]
fn several_files_patterns_and_standard_input_are_one_configuration() {
    use std::io::Write as _;

    let directory = tempfile::tempdir().unwrap();
    let sample = fs::read_to_string("config/sample.yaml").unwrap();
    let (first, second) = sample.split_once("\n---\n").unwrap();
    fs::write(directory.path().join("a.yaml"), first).unwrap();
    fs::write(directory.path().join("b.yaml"), second).unwrap();
    // As in a directory, these are not configuration.
    fs::write(directory.path().join("a.test.yaml"), "request: {}\n").unwrap();
    fs::write(directory.path().join(".b.yaml"), second).unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let valid = (0, "9 resources: 0 errors, 0 warnings\n");
    for arguments in
        [&[path("a.yaml"), path("b.yaml")][..], &[path("*.yaml")], &[path("a.yaml"), path("?.yaml")]]
    {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let ran = validate(&arguments);
        assert_eq!((ran.code, ran.stdout.as_str()), valid, "{arguments:?}");
    }
    let first = path("a.yaml");
    let mut child = crate::support::binary()
        .args(["validate", &first, "-"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(second.as_bytes()).unwrap();
    let ran = Ran::from(child.wait_with_output().unwrap());
    assert_eq!((ran.code, ran.stdout.as_str()), valid);
}

/// `source` would not serve it.
#[test]
fn a_resource_of_envoy_is_validated_by_its_message() {
    let file = tempfile::NamedTempFile::with_suffix(".yaml").unwrap();
    let text = "resources:\n- '@type': type.googleapis.com/envoy.config.cluster.v3.Cluster\n  name: a\n  conect_timeout: 1s\n";
    fs::write(file.path(), text).unwrap();
    let ran = validate(&[file.path().to_str().unwrap()]);
    assert!(ran.code == 1 && ran.stdout.contains(":4:3: error: "), "{ran:?}");
    assert!(ran.stdout.contains("no such field; did you mean connect_timeout?"), "{ran:?}");
}

#[test]
fn an_adapter_validates_the_configuration_of_a_handler_that_no_rule_uses() {
    let file = tempfile::NamedTempFile::with_suffix(".yaml").unwrap();
    let params = "{entryType: REGEX, overrides: ['(']}";
    let handler = format!(
        "kind: handler\nmetadata: {{name: h}}\nspec: {{compiledAdapter: listchecker, params: {params}}}\n"
    );
    fs::write(file.path(), handler).unwrap();
    let ran = validate(&[file.path().to_str().unwrap()]);
    assert!(
        ran.code == 1 && ran.stdout.contains(": error: h.handler.istio-system: spec.params.overrides"),
        "{ran:?}"
    );
}

#[test]
fn each_fault_is_reported_once() {
    let file = tempfile::NamedTempFile::with_suffix(".yaml").unwrap();
    let adapter = run(&["manifest", "denier"]).stdout;
    let handler = "---\nkind: handler\nmetadata: {name: h}\nspec: {adapter: denier, params: {}}\n";
    let manifest = |name: &str, value_type: &str| {
        format!(
            "---\nkind: attributemanifest\nmetadata: {{name: {name}}}\nspec: {{attributes: {{a.b: {{valueType: {value_type}}}}}}}\n"
        )
    };
    let text = [adapter.as_str(), handler, &manifest("one", "STRING"), &manifest("two", "INT64")].concat();
    fs::write(file.path(), text).unwrap();
    let ran = validate(&[file.path().to_str().unwrap()]);
    assert_eq!(ran.code, 1);
    assert_eq!(ran.stdout.matches("h.handler.istio-system: spec.connection.address: ").count(), 1, "{ran:?}");
    assert_eq!(ran.stdout.matches("two.attributemanifest.istio-system: ").count(), 1, "{ran:?}");
    assert!(ran.stdout.ends_with(": 2 errors, 1 warning\n"), "{ran:?}");
}

#[test]
fn a_place_that_cannot_be_read_is_an_error_and_a_wrong_command_line_another() {
    let ran = validate(&["nowhere"]);
    assert!(ran.code == 1 && ran.stdout.starts_with("nowhere: error: cannot be read: "), "{ran:?}");
    for arguments in [&[][..], &["mcp://127.0.0.1:1"], &["a", "--config", "b"]] {
        let ran = validate(arguments);
        assert!(ran.code == 2 && ran.stdout.is_empty() && !ran.stderr.is_empty(), "{arguments:?}: {ran:?}");
    }
}

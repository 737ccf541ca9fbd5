//! `reference`, and the pages and schemas that are made from it.

use std::{fs, path::PathBuf};

use crate::support::run;
use serde_json::{Value as Json, json};

const TOPICS: [&str; 5] = ["attributes", "functions", "templates", "adapters", "kinds"];
const KINDS: [&str; 6] = ["attributemanifest", "template", "adapter", "handler", "instance", "rule"];

fn reference(arguments: &[&str]) -> String {
    let ran = run(&[&["reference"], arguments].concat());
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{arguments:?}");
    ran.stdout
}

/// The commands whose flags have a page.
const COMMANDS: [&str; 2] = ["serve", "source"];

/// Returns the page with the help of a command.
fn flags(command: &str) -> String {
    let ran = run(&[command, "--help"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{command}");
    format!("# Flags of {command}\n\n```text\n{}```\n", ran.stdout)
}

fn items(topic: &str) -> Vec<Json> {
    serde_json::from_str(&reference(&[topic, "-o", "json"])).unwrap()
}

/// `cargo xtask generate` writes them.
#[test]
fn the_pages_and_schemas_in_the_repository_are_current() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/reference");
    let pages = TOPICS.map(|topic| (format!("{topic}.md"), reference(&[topic, "-o", "markdown"])));
    let schemas =
        KINDS.map(|kind| (format!("schema/{kind}.schema.json"), reference(&["kinds", kind, "-o", "schema"])));
    let all = [("schema/all.schema.json".to_owned(), reference(&["kinds", "-o", "schema"]))];
    let commands = COMMANDS.map(|command| (format!("{command}.md"), flags(command)));
    for (name, content) in pages.into_iter().chain(schemas).chain(all).chain(commands) {
        let path = folder.join(&name);
        if std::env::var_os("UPDATE_REFERENCE").is_some() {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, &content).unwrap();
        }
        let committed = fs::read_to_string(&path).unwrap_or_default();
        assert!(committed == content, "docs/reference/{name} is not current: run `cargo xtask generate`");
    }
}

#[test]
fn one_item_has_type_meaning_fields_defaults_and_an_example() {
    let expected = "\
denier
  Denies every check with a fixed status.
  Templates: checknothing, listentry, quota

Fields:
  status  Status
      Code and message of the denial; FAILED_PRECONDITION by default.
    code  int32
        A code of google.rpc.Code; 0 is OK.
    message  string
        What went wrong, for a developer.
    details  list of object with @type
        More about it, by message type.
  valid_duration  duration
      How long a denial may be cached; 5 s by default.
  valid_use_count  int32
      For how many requests a denial may be cached; 1000 by default.

Example:
  apiVersion: config.istio.io/v1alpha2
  kind: handler
  metadata: {name: mydenier, namespace: istio-system}
  spec:
    compiledAdapter: denier
    params:
      status: {code: 7, message: closed for maintenance}
      valid_duration: 10s
      valid_use_count: 100
";
    assert_eq!(reference(&["adapters", "denier"]), expected);
}

#[test]
fn a_name_may_have_the_path_of_a_field_in_snake_or_camel_case() {
    for name in ["denier.valid_duration", "denier.validDuration"] {
        let expected = format!("{name}  duration\n  How long a denial may be cached; 5 s by default.\n");
        assert_eq!(reference(&["adapters", name]), expected);
    }
    let attribute = reference(&["attributes", "request.path", "-o", "json"]);
    let expected = json!({
        "name": "request.path", "type": "STRING", "meaning": "Path of the request with its query.",
        "produced_by": "istioproxy", "example": "request.path | \"\"",
    });
    assert_eq!(serde_json::from_str::<Json>(&attribute).unwrap(), expected);
}

#[test]
fn a_name_that_is_not_known_is_a_usage_error_with_a_suggestion() {
    for (arguments, error) in [
        (
            ["attributes", "request.paht"],
            "error: unknown attribute `request.paht`; did you mean request.path?\n",
        ),
        (
            ["adapters", "denier.status.mesage"],
            "error: `status` has no field `mesage`; did you mean message?\n",
        ),
        (["kinds", "rule.match.x"], "error: `match` has no fields\n"),
    ] {
        let ran = run(&[&["reference"], &arguments[..]].concat());
        assert_eq!((ran.code, ran.stderr.as_str()), (2, error));
    }
}

#[test]
fn a_name_alone_is_looked_up_in_all_topics() {
    for (name, topic) in
        [("rule.match", "kinds"), ("request.path", "attributes"), ("denier.status.code", "adapters")]
    {
        assert_eq!(reference(&[name]), reference(&[topic, name]));
    }
    let ran = run(&["reference", "kind"]);
    let error = "error: no topic has `kind`, which is not a topic either; did you mean kinds?\n";
    assert_eq!((ran.code, ran.stderr.as_str()), (2, error));
    assert_eq!(run(&["reference", "kind", "rule"]).code, 2);
}

#[test]
fn the_topics_are_listed_in_every_format() {
    let text = reference(&[]);
    let all: Json = serde_json::from_str(&reference(&["-o", "json"])).unwrap();
    let yaml: Json = serde_saphyr::from_str(&reference(&["-o", "yaml"])).unwrap();
    assert_eq!(all, yaml);
    for topic in TOPICS {
        assert!(text.lines().any(|line| line.starts_with(topic)), "{text}");
        assert!(all[topic].as_array().is_some_and(|items| !items.is_empty()), "{topic}");
    }
}

#[test]
fn every_field_of_adapters_templates_and_kinds_has_a_meaning() {
    fn check(path: &str, item: &Json) {
        assert!(item["meaning"].as_str().is_some_and(|meaning| meaning.ends_with('.')), "{path}: {item}");
        for part in ["fields", "output"] {
            for field in item[part].as_array().into_iter().flatten() {
                check(&format!("{path}.{}", field["name"].as_str().unwrap()), field);
            }
        }
    }
    for topic in TOPICS {
        items(topic).iter().for_each(|item| check(item["name"].as_str().unwrap(), item));
    }
}

#[test]
fn examples_are_valid_configurations() {
    let directory = tempfile::tempdir().unwrap();
    let mut examples = Vec::new();
    for topic in ["templates", "adapters"] {
        examples.extend(items(topic).iter().map(|item| item["example"].as_str().unwrap().to_owned()));
    }
    let kinds = items("kinds");
    let of_kind = |name: &str| kinds.iter().find(|kind| kind["name"] == name).unwrap();
    let own = ["handler", "instance", "rule", "attributemanifest"];
    fs::write(directory.path().join("others.yaml"), examples.join("---\n")).unwrap();
    let ran = run(&["validate", directory.path().to_str().unwrap(), "--json"]);
    assert_eq!(ran.json()["errors"], 0, "{}", ran.stdout);
    let own = own.map(|kind| of_kind(kind)["example"].as_str().unwrap());
    let own = own
        .join("---\n")
        .replace("    request.path:", "    request.method: {valueType: STRING}\n    request.path:");
    fs::write(directory.path().join("others.yaml"), own).unwrap();
    let ran = run(&["validate", directory.path().to_str().unwrap(), "--json"]);
    assert_eq!(ran.json()["errors"], 0, "{}", ran.stdout);
}

/// The schema of all kinds, read as JSON Schema (draft 7) defines the keywords that it uses.
struct Schema(Json);

impl Schema {
    fn new() -> Self {
        Self(serde_json::from_str(&reference(&["kinds", "-o", "schema"])).unwrap())
    }

    fn faults(&self, text: &str) -> Vec<String> {
        let mut faults = Vec::new();
        self.check(&self.0, &serde_saphyr::from_str(text).unwrap(), "", &mut faults);
        faults
    }

    fn is_valid(&self, schema: &Json, document: &Json) -> bool {
        let mut faults = Vec::new();
        self.check(schema, document, "", &mut faults);
        faults.is_empty()
    }

    fn check(&self, schema: &Json, document: &Json, path: &str, faults: &mut Vec<String>) {
        let within = |name: &str| format!("{path}/{name}");
        let fields = || document.as_object().into_iter().flatten();
        for (keyword, value) in schema.as_object().unwrap() {
            let list = || value.as_array().unwrap().iter();
            let holds = match keyword.as_str() {
                "type" => {
                    let names = value.as_array().cloned().unwrap_or_else(|| vec![value.clone()]);
                    names.iter().any(|name| match name.as_str().unwrap() {
                        "object" => document.is_object(),
                        "array" => document.is_array(),
                        "string" => document.is_string(),
                        "integer" => document.is_i64() || document.is_u64(),
                        "number" => document.is_number(),
                        "boolean" => document.is_boolean(),
                        other => panic!("{other}"),
                    })
                }
                "const" => document == value,
                "enum" => list().any(|allowed| allowed == document),
                "pattern" => {
                    let pattern = regex::Regex::new(value.as_str().unwrap()).unwrap();
                    document.as_str().is_none_or(|text| pattern.is_match(text))
                }
                "required" => {
                    !document.is_object() || list().all(|name| document.get(name.as_str().unwrap()).is_some())
                }
                "anyOf" => list().any(|any| self.is_valid(any, document)),
                "allOf" => {
                    list().for_each(|all| self.check(all, document, path, faults));
                    true
                }
                "if" => {
                    if self.is_valid(value, document) {
                        self.check(&schema["then"], document, path, faults);
                    }
                    true
                }
                "$ref" => {
                    let target = self.0.pointer(value.as_str().unwrap().trim_start_matches('#')).unwrap();
                    self.check(target, document, path, faults);
                    true
                }
                "properties" => {
                    for (name, field) in fields().filter(|(name, _)| value.get(name).is_some()) {
                        self.check(&value[name], field, &within(name), faults);
                    }
                    true
                }
                "additionalProperties" => {
                    let others = fields().filter(|(name, _)| schema["properties"].get(name).is_none());
                    match value.as_bool() {
                        Some(allowed) => allowed || others.count() == 0,
                        None => {
                            others.for_each(|(name, field)| self.check(value, field, &within(name), faults));
                            true
                        }
                    }
                }
                "items" => {
                    for (index, item) in document.as_array().into_iter().flatten().enumerate() {
                        self.check(value, item, &within(&index.to_string()), faults);
                    }
                    true
                }
                "then" | "$schema" | "definitions" | "title" | "description" | "default" | "examples"
                | "format" => true,
                other => panic!("the schema uses {other}"),
            };
            if !holds {
                faults.push(format!("{path}: {keyword}"));
            }
        }
    }
}

#[test]
fn the_schema_accepts_what_is_valid() {
    let schema = Schema::new();
    let mut texts: Vec<String> =
        vec![include_str!("../../config/sample.yaml").to_owned(), include_str!("../../tour.yaml").to_owned()];
    for topic in ["templates", "adapters", "kinds"] {
        texts.extend(items(topic).iter().map(|item| item["example"].as_str().unwrap().to_owned()));
    }
    texts.push("kind: listentry\nmetadata: {name: x}\nspec: {value: source.ip}\n".to_owned());
    texts.push(
        "kind: List\nitems:\n- {kind: denier, metadata: {name: x}, spec: {valid_duration: 1m30s}}\n"
            .to_owned(),
    );
    texts
        .push("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}\nspec: {replicas: 3}\n".to_owned());
    for text in texts {
        for document in text.split("\n---\n") {
            assert_eq!(schema.faults(document), [""; 0], "{document}");
        }
    }
}

#[test]
fn the_schema_refuses_what_the_program_refuses() {
    let schema = Schema::new();
    for (document, at) in [
        ("kind: rul\nmetadata: {name: x}\n", "/kind"),
        ("kind: rule\nmetadata: {name: x}\nspec: {actoins: []}\n", "/spec"),
        ("kind: rule\nspec: {}\n", ""),
        ("kind: handler\nmetadata: {name: x}\nspec: {compiledAdapter: denyer}\n", "/spec/compiledAdapter"),
        (
            "kind: handler\nmetadata: {name: x}\nspec: {compiledAdapter: denier, params: {stauts: {}}}\n",
            "/spec/params",
        ),
        (
            "kind: handler\nmetadata: {name: x}\nspec: {compiled_adapter: denier, params: {validDuration: soon}}\n",
            "/spec/params/validDuration",
        ),
        (
            "kind: handler\nmetadata: {name: x}\nspec: {compiledAdapter: listchecker, params: {entry_type: REGEXP}}\n",
            "/spec/params/entry_type",
        ),
        (
            "kind: instance\nmetadata: {name: x}\nspec: {compiledTemplate: listentry, params: {value: 200}}\n",
            "/spec/params/value",
        ),
        (
            "kind: instance\nmetadata: {name: x}\nspec: {compiledTemplate: listentry, params: {valeu: source.ip}}\n",
            "/spec/params",
        ),
        ("kind: denier\nmetadata: {name: x}\nspec: {valid_use_count: many}\n", "/spec/valid_use_count"),
    ] {
        let faults = schema.faults(document);
        assert!(faults.iter().any(|fault| fault.starts_with(&format!("{at}: "))), "{document}: {faults:?}");
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("x.yaml"), document).unwrap();
        let ran = run(&["validate", directory.path().to_str().unwrap()]);
        assert_eq!(ran.code, 1, "{document}: {ran:?}");
    }
}

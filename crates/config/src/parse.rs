//! Text to resources.

use std::{collections::BTreeMap, sync::Arc, thread};

use serde_json::{Map, Value as Json};

use super::{
    Collection, Kind, Origin, Parsed, Resource, ResourceName, ValidationError, collection, discovery,
    document::{self, Boolean, Document},
    lines::Lines,
    scope::is_cluster_scoped,
    validation_error::Position,
};
use mixer_adapter_core::framework::suggest::suggest;

/// Reads resources from YAML or JSON.
///
/// The text holds documents with `kind`, `metadata.name` and `spec`, lists of them (`kind: List`, as kubectl prints), or
/// documents with `resources`, as Envoy has them in its own files. A resource without a namespace gets the default one.
/// `source` is how faults name the text, usually a path.
pub fn parse(text: &str, source: &str, default_namespace: &str) -> Parsed {
    let mut parser = Parser {
        source: source.into(),
        default_namespace: default_namespace.into(),
        parsed: Parsed::default(),
    };
    // On a stack that is large enough, whoever calls.
    let parsed = thread::scope(|scope| {
        let thread = thread::Builder::new().stack_size(document::STACK);
        let reading = thread.spawn_scoped(scope, || {
            parser.documents(text);
            parser.parsed
        });
        reading.map(|reading| reading.join())
    });
    let failed = |reason: &str| Parsed {
        faults: vec![ValidationError::error(reason).at(&source.into(), 0)],
        resources: vec![],
    };
    match parsed {
        Ok(Ok(parsed)) => parsed,
        Ok(Err(_)) => failed("the reader failed; please report this text as a bug"),
        Err(error) => failed(&format!("no thread can be started to read it: {error}")),
    }
}

struct Parser {
    source: Arc<str>,
    default_namespace: Arc<str>,
    parsed: Parsed,
}

impl Parser {
    fn documents(&mut self, text: &str) {
        for (first_line, text) in document::split(text) {
            match Document::read(text, first_line) {
                Ok(Document { json: Json::Null, .. }) => {}
                Ok(document) => self.document(document),
                Err(error) => {
                    let reason = format!("cannot be read: {}", error.reason);
                    self.fault(error.position, ValidationError::error(reason));
                }
            }
        }
    }

    fn document(&mut self, mut document: Document) {
        if discovery::is_response(&document.json) {
            let read = discovery::read(document, &self.source);
            self.parsed.resources.extend(read.resources);
            return self.parsed.faults.extend(read.faults);
        }
        if discovery::is_message(&document.json) {
            let read = discovery::read_message(document, &self.source);
            self.parsed.resources.extend(read.resources);
            return self.parsed.faults.extend(read.faults);
        }
        let is_list = document.json["kind"].as_str().is_some_and(|kind| kind.ends_with("List"));
        if !(is_list && document.json["items"].is_array()) {
            return self.resource(document);
        }
        let mut lines = document.lines.take(&document.json, "items");
        let Json::Array(items) = document.json["items"].take() else { return };
        for (index, (json, lines)) in items.into_iter().zip(&mut lines.children).enumerate() {
            let within = format!("items[{index}].");
            let of_item = |boolean: &mut Boolean| boolean.field.starts_with(&within);
            let mut booleans: Vec<_> = document.booleans.extract_if(.., of_item).collect();
            booleans.iter_mut().for_each(|boolean| _ = boolean.field.drain(..within.len()));
            self.resource(Document { json, lines: std::mem::take(lines), booleans });
        }
    }

    fn resource(&mut self, document: Document) {
        match self.read(document) {
            Ok(resource) => self.parsed.resources.push(resource),
            Err(fault) => self.parsed.faults.push(fault),
        }
    }

    fn read(&mut self, document: Document) -> Result<Resource, ValidationError> {
        let Document { json, mut lines, booleans } = document;
        let refuse = |field: &str, fault: ValidationError| {
            fault.in_field(field).at(&self.source, lines.of_field(&json, field))
        };
        if !json.is_object() {
            return Err(refuse(
                "",
                ValidationError::error("expected a resource: an object with kind and metadata"),
            ));
        }
        let Some(kind) = json.get("kind").and_then(Json::as_str).map(Kind::from) else {
            return Err(refuse("kind", ValidationError::error(without_kind(&json))));
        };
        let api_version = json.get("apiVersion").and_then(Json::as_str).unwrap_or_default();
        if let Some(meant) = collection::meant_for_mixer(api_version) {
            let reason = format!("unknown API version {api_version}; did you mean {meant}?");
            return Err(refuse("apiVersion", ValidationError::error(reason)));
        }
        let is_mixers = collection::is_mixers(api_version);
        let identity = |field: &str, default: Option<&Arc<str>>| {
            let path = format!("metadata.{field}");
            let written = booleans.iter().find(|boolean| !boolean.is_key && boolean.field == path);
            let given = match written {
                Some(boolean) => Ok(Some(boolean.word.as_str())),
                None => text(json.pointer(&format!("/metadata/{field}"))),
            };
            identity(field, given, default).map_err(|error| {
                let reason = format!("{error}{}", identity_hint(&json, field));
                // What is not for Mixer may be named as it likes.
                let fault =
                    if is_mixers { ValidationError::error(reason) } else { ValidationError::warning(reason) };
                refuse(&path, fault)
            })
        };
        let namespace = match is_cluster_scoped(api_version, kind.as_str()) {
            true => "".into(),
            // Not for Mixer, which knows no such resources.
            false if !is_mixers && json.pointer("/metadata/namespace").and_then(Json::as_str) == Some("") => {
                "".into()
            }
            false => identity("namespace", Some(&self.default_namespace))?,
        };
        let name = ResourceName::new(identity("name", None)?, kind, namespace);
        let created = match text(json.pointer("/metadata/creationTimestamp")).map(|time| time.map(str::parse))
        {
            Ok(None) => None,
            Ok(Some(Ok(time))) => Some(time),
            Ok(Some(Err(_))) | Err(_) => {
                let reason = "expected a time like 2019-03-19T10:00:00Z; it is not served";
                let fault = ValidationError::warning(reason).of(name.clone());
                self.parsed.faults.push(refuse("metadata.creationTimestamp", fault));
                None
            }
        };
        let spec = match json.get("spec") {
            None | Some(Json::Null) => Json::Object(Map::new()),
            Some(spec @ Json::Object(_)) => spec.clone(),
            Some(_) => return Err(refuse("spec", ValidationError::error("expected an object").of(name))),
        };
        let collection = Collection::of(api_version, name.kind());
        if is_mixers {
            self.oddities(&name, &collection, &json, &lines, &booleans);
        }
        let annotations = texts(&json, "annotations");
        let line_of = |name: &String| lines.of_field(&json, &format!("metadata.annotations[{name:?}]"));
        Ok(Resource {
            name,
            collection,
            created,
            labels: texts(&json, "labels"),
            annotation_lines: annotations.keys().map(|name| (name.clone(), line_of(name).line)).collect(),
            annotations,
            spec,
            unknown: Vec::new(),
            origin: Origin { source: self.source.clone(), line: lines.line, column: lines.column },
            lines: match json.get("spec") {
                Some(_) => lines.take(&json, "spec"),
                // What is missing of it is a fault of the resource.
                None => Lines::leaf(Position { line: lines.line, column: lines.column }),
            },
        })
    }

    /// What a real Mixer reads otherwise than it looks.
    fn oddities(
        &mut self,
        name: &ResourceName,
        collection: &Collection,
        json: &Json,
        lines: &Lines,
        booleans: &[Boolean],
    ) {
        if let (None, Kind::Other(kind)) = (collection.kind(), name.kind()) {
            let known = Kind::ALL.iter().map(Kind::as_str).chain(collection::legacy_kinds());
            // A resource with a misspelled kind is meant for Mixer: without it, a rule that denies is not there.
            let fault = match suggest(kind, known) {
                Some(meant) => ValidationError::error(format!("unknown kind {kind}; did you mean {meant}?")),
                None => ValidationError::warning("nothing here reads this kind"),
            };
            self.fault(lines.of_field(json, "kind"), fault.of(name.clone()).in_field("kind"));
        }
        for field in json.as_object().into_iter().flat_map(Map::keys) {
            const READ: [&str; 5] = ["apiVersion", "kind", "metadata", "spec", "status"];
            if !READ.contains(&field.as_str()) {
                let reason = match suggest(field, READ) {
                    Some(meant) => format!("is not read; did you mean {meant}?"),
                    None => "is not read; does it belong under spec?".to_owned(),
                };
                let fault = ValidationError::warning(reason).of(name.clone()).in_field(field.as_str());
                self.fault(lines.of_field(json, field), fault);
            }
        }
        for boolean in booleans {
            let (word, truth) = (&boolean.word, boolean.truth);
            let reason = match (boolean.is_key, boolean.field.as_str()) {
                (true, _) => format!("a real Mixer reads the name {word} as {truth}; quote it"),
                (_, "metadata.name" | "metadata.namespace") => {
                    format!("a real Mixer reads {word} as {truth} and loses the resource; quote it")
                }
                _ => format!("{word} is read as {truth}; write {truth}, or quote it if the text is meant"),
            };
            self.fault(
                boolean.line,
                ValidationError::warning(reason).of(name.clone()).in_field(boolean.field.as_str()),
            );
        }
    }

    fn fault(&mut self, position: impl Into<Position>, fault: ValidationError) {
        self.parsed.faults.push(fault.at(&self.source, position));
    }
}

/// What is wrong with a document without a kind.
fn without_kind(json: &Json) -> String {
    let hint = match misspelled(json, "kind") {
        Some(key) => format!("; write kind in place of {key}"),
        None => discovery::hint(json).map(|hint| format!("; {hint}")).unwrap_or_default(),
    };
    format!("no kind is given{hint}")
}

/// What to write in place of a misspelled field of the metadata, or of the metadata.
fn identity_hint(json: &Json, field: &str) -> String {
    let metadata = json.get("metadata").unwrap_or(&Json::Null);
    let key = misspelled(metadata, field).map(|key| (field, key));
    let key = key.or_else(|| Some(("metadata", misspelled(json, "metadata")?)));
    key.map(|(field, key)| format!("; write {field} in place of {key}")).unwrap_or_default()
}

/// Why a name or a namespace cannot be used.
#[derive(Debug, thiserror::Error)]
enum IdentityError {
    #[error("expected text, not {0}; quote it")]
    NotText(Json),
    #[error("no {0} is given")]
    Missing(String),
    #[error("{0:?} is not a valid name; use letters, digits, hyphens, underscores and dots")]
    Name(Arc<str>),
    #[error("{0:?} is not a valid namespace; use letters, digits, hyphens and underscores")]
    Namespace(Arc<str>),
}

/// `metadata.name` or `metadata.namespace`.
fn identity(
    field: &str,
    given: Result<Option<&str>, IdentityError>,
    default: Option<&Arc<str>>,
) -> Result<Arc<str>, IdentityError> {
    let name = match (given, default) {
        (Err(error), _) => return Err(error),
        (Ok(Some(name)), _) => name.into(),
        (Ok(None), Some(default)) => default.clone(),
        (Ok(None), None) => return Err(IdentityError::Missing(field.to_owned())),
    };
    match field {
        "name" if is_valid(&name) => Ok(name),
        "name" => Err(IdentityError::Name(name)),
        // A path in a hierarchy of any depth.
        _ => match name
            .strip_prefix('/')
            .unwrap_or(&name)
            .split('/')
            .all(|part| is_valid(part) && !part.contains('.'))
        {
            true => Ok(name.strip_prefix('/').map_or_else(|| name.clone(), Arc::from)),
            false => Err(IdentityError::Namespace(name)),
        },
    }
}

fn text(json: Option<&Json>) -> Result<Option<&str>, IdentityError> {
    match json {
        None | Some(Json::Null) => Ok(None),
        Some(Json::String(text)) => Ok(Some(text)),
        Some(other) => Err(IdentityError::NotText(other.clone())),
    }
}

fn is_valid(name: &str) -> bool {
    (1..=253).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

/// Reads a map of strings in the metadata; other values are skipped.
fn texts(json: &Json, field: &str) -> BTreeMap<String, String> {
    let map = json.pointer(&format!("/metadata/{field}")).and_then(Json::as_object);
    let entries = map.into_iter().flatten();
    entries.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

/// Returns the field of an object that is meant to have this name, if it has none of the name.
fn misspelled<'j>(json: &'j Json, name: &str) -> Option<&'j str> {
    let fields = json.as_object().filter(|fields| !fields.contains_key(name))?;
    suggest(name, fields.keys().map(String::as_str))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    fn faults(text: &str) -> Vec<String> {
        parse(text, "x.yaml", "default").faults.iter().map(ToString::to_string).collect()
    }

    fn names(text: &str) -> Vec<String> {
        parse(text, "x.yaml", "default").resources.iter().map(|resource| resource.name.to_string()).collect()
    }

    #[test]
    fn a_resource_is_its_name_its_metadata_and_its_spec() {
        let text = "apiVersion: config.istio.io/v1alpha2\nkind: rule\nmetadata:\n  name: r1\n  namespace: ns\n  \
                    labels: {a: b}\n  annotations: {policy.istio.io/lang: CEL}\nspec:\n  match: a == b\nstatus: {}\n";
        let parsed = parse(text, "x.yaml", "default");
        assert_eq!(parsed.faults, []);
        let [rule] = &parsed.resources[..] else { panic!("{parsed:?}") };
        assert_eq!(rule.name, ResourceName::new("r1", Kind::Rule, "ns"));
        assert_eq!(rule.collection.as_str(), "istio/policy/v1beta1/rules");
        assert_eq!(rule.labels, BTreeMap::from([("a".to_owned(), "b".to_owned())]));
        assert_eq!(rule.annotations["policy.istio.io/lang"], "CEL");
        assert_eq!(rule.spec, json!({"match": "a == b"}));
        assert_eq!(rule.error("match", "wrong").to_string(), "x.yaml:9: r1.rule.ns: spec.match: wrong");
    }

    #[test]
    fn a_broken_document_costs_only_itself() {
        let text = "kind: rule\nmetadata: {name: a}\n---\nkind: rule\nmetadata: {name: [}\n---\nkind: rule\nmetadata: {name: c}\n";
        assert_eq!(names(text), ["a.rule.default", "c.rule.default"]);
        let faults = faults(text);
        assert!(matches!(&faults[..], [one] if one.starts_with("x.yaml:5: cannot be read: ")), "{faults:?}");
    }

    #[test]
    fn a_key_that_is_given_twice_may_be_that_of_another_document() {
        for (text, fault) in [
            (
                "kind: rule\nmetadata: {name: a}\nkind: rule\nmetadata: {name: b}\n",
                "x.yaml:3: cannot be read: the key kind is given twice; is a `---` missing between two documents?",
            ),
            (
                "kind: rule\nmetadata: {name: a}\nspec:\n  table: a\n  table: b\n",
                "x.yaml:5: cannot be read: the key table is given twice",
            ),
            (
                "kind: rule\nmetadata: {name: a}\nspec:\n  kind: a\n  kind: b\n",
                "x.yaml:5: cannot be read: the key kind is given twice",
            ),
        ] {
            assert_eq!(faults(text), [fault]);
        }
    }

    #[test]
    fn what_makes_no_resource_is_refused_with_the_reason() {
        let cases = [
            ("- a\n- b\n", "x.yaml:1: expected a resource: an object with kind and metadata"),
            ("just text", "x.yaml:1: expected a resource: an object with kind and metadata"),
            ("metadata: {name: a}", "x.yaml:1: kind: no kind is given"),
            ("kind: rule\n", "x.yaml:1: metadata.name: no name is given"),
            (
                "Kind: rule\nmetadata: {name: a}",
                "x.yaml:1: kind: no kind is given; write kind in place of Kind",
            ),
            (
                "kind: rule\nmetdata: {name: a}",
                "x.yaml:1: metadata.name: no name is given; write metadata in place of metdata",
            ),
            (
                "kind: rule\nmetadata: {nam: a}",
                "x.yaml:2: metadata.name: no name is given; write name in place of nam",
            ),
            ("kind: rule\nmetadata:\n  name: 7\n", "x.yaml:3: metadata.name: expected text, not 7; quote it"),
            (
                "kind: rule\nmetadata:\n  name: a/b\n",
                "x.yaml:3: metadata.name: \"a/b\" is not a valid name; use letters, digits, hyphens, underscores and dots",
            ),
            (
                "kind: rule\nmetadata:\n  name: a\n  namespace: b.c\n",
                "x.yaml:4: metadata.namespace: \"b.c\" is not a valid namespace; use letters, digits, hyphens and underscores",
            ),
            (
                "kind: rule\nmetadata: {name: a}\nspec: [1]\n",
                "x.yaml:3: a.rule.default: spec: expected an object",
            ),
        ];
        for (text, reason) in cases {
            assert_eq!(faults(text), [reason], "{text}");
            assert_eq!(names(text), [""; 0], "{text}");
        }
    }

    #[test]
    fn a_name_that_yaml_1_1_reads_as_a_boolean_is_taken_as_written_and_warned_about() {
        let text = "kind: rule\nmetadata:\n  name: n\n  namespace: on\n";
        assert_eq!(names(text), ["n.rule.on"]);
        assert_eq!(
            faults(text),
            [
                "x.yaml:3: warning: n.rule.on: metadata.name: a real Mixer reads n as false and loses the resource; quote it",
                "x.yaml:4: warning: n.rule.on: metadata.namespace: a real Mixer reads on as true and loses the resource; quote it",
            ]
        );
        assert_eq!(faults("kind: rule\nmetadata: {name: 'n'}\n"), [""; 0]);
    }

    #[test]
    fn other_yaml_1_1_booleans_are_warned_about() {
        let text = "kind: adapter\nmetadata: {name: a}\nspec:\n  session_based: yes\n  y: 1\n";
        assert_eq!(
            faults(text),
            [
                "x.yaml:4: warning: a.adapter.default: spec.session_based: yes is read as true; write true, or quote it if the text is meant",
                "x.yaml:5: warning: a.adapter.default: spec.y: a real Mixer reads the name y as true; quote it",
            ]
        );
    }

    #[test]
    fn fields_beside_the_spec_and_unknown_kinds_are_warned_about() {
        assert_eq!(
            faults("kind: rule\nmetadata: {name: a}\nspec: {}\nactions: []\n"),
            ["x.yaml:4: warning: a.rule.default: actions: is not read; does it belong under spec?"]
        );
        assert_eq!(
            faults("apiVersion: config.istio.io/v1alpha2\nkind: Widget\nmetadata: {name: a}\n"),
            ["x.yaml:2: warning: a.Widget.default: kind: nothing here reads this kind"]
        );
    }

    #[test]
    fn a_misspelled_kind_is_an_error_unless_it_is_of_another_group() {
        for (kind, meant) in
            [("Rule", "rule"), ("handlers", "handler"), ("instnace", "instance"), ("Denier", "denier")]
        {
            let fault = format!("a.{kind}.default: kind: unknown kind {kind}; did you mean {meant}?");
            let text = format!("kind: {kind}\nmetadata: {{name: a}}\n");
            assert_eq!(faults(&text), [format!("x.yaml:1: {fault}")]);
            let mixers = format!("apiVersion: config.istio.io/v1alpha2\n{text}");
            assert_eq!(faults(&mixers), [format!("x.yaml:2: {fault}")]);
            assert_eq!(faults(&format!("apiVersion: rules.example.com/v1\n{text}")), [""; 0]);
        }
    }

    #[test]
    fn an_api_version_close_to_mixers_is_an_error_and_that_of_another_group_is_not() {
        let faults_of = |api_version: &str| {
            faults(&format!("kind: rule\napiVersion: {api_version}\nmetadata: {{name: a}}\n"))
        };
        for wrong in [
            "config.istio.oi/v1alpha2",
            "confg.istio.io/v1alpha2",
            "config.isto.io/v1alpha2",
            "config.istio/v1alpha2",
            "Config.istio.io/v1alpha2",
            "config.istio.io/v1alpha3",
            "config.istio.io/v1",
            "config.istio.io",
            "v1alpha2/config.istio.io",
            "v1alpha2",
        ] {
            let reason = format!("unknown API version {wrong}; did you mean config.istio.io/v1alpha2?");
            assert_eq!(faults_of(wrong), [format!("x.yaml:2: apiVersion: {reason}")]);
        }
        for other in [
            "policy.istio.io/v1",
            "networking.istio.io/v1alpha3",
            "kustomize.config.k8s.io/v1beta1",
            "config.k8s.io/v1alpha2",
            "config.linkerd.io/v1alpha2",
            "config.gatekeeper.sh/v1alpha1",
            "v1",
        ] {
            assert_eq!(faults_of(other), [""; 0], "{other}");
        }
        assert_eq!(faults("kind: rule\nmetadata: {name: a}\n"), [""; 0]);
    }

    #[test]
    fn what_is_not_for_mixer_is_carried_and_not_criticised() {
        let text = "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nextra: yes\n";
        assert_eq!((names(text), faults(text)), (vec!["a.Service.default".to_owned()], vec![]));
        let nameless = faults("apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n");
        assert_eq!(nameless, ["x.yaml:1: warning: metadata.name: no name is given"]);
    }

    #[test]
    fn cluster_scoped_resources_stand_at_the_root() {
        let text = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n---\n\
                    apiVersion: rbac.istio.io/v1alpha1\nkind: ClusterRbacConfig\nmetadata: {name: default, namespace: a}\n---\n\
                    apiVersion: v1\nkind: Service\nmetadata: {name: a, namespace: ''}\n";
        let resources = parse(text, "x.yaml", "istio-system").resources;
        let names: Vec<_> = resources.iter().map(|read| (read.name.namespace(), read.name.name())).collect();
        assert_eq!(names, [("", "shop"), ("", "default"), ("", "a")]);
    }

    #[test]
    fn names_of_any_depth_are_read_from_the_namespace() {
        for written in ["org/team/subteam", "/org/team/subteam"] {
            let text = format!("kind: rule\nmetadata: {{name: a, namespace: {written}}}\n");
            let resources = parse(&text, "x.yaml", "").resources;
            assert_eq!(resources[0].name.namespace(), "org/team/subteam");
        }
        for wrong in ["/", "a//b", "a/", "a/b.c"] {
            assert_eq!(names(&format!("kind: rule\nmetadata: {{name: a, namespace: {wrong}}}\n")), [""; 0]);
        }
    }

    #[test]
    fn the_time_of_creation_is_read() {
        let created = |time: &str| {
            let text = format!("kind: rule\nmetadata: {{name: a, creationTimestamp: {time}}}\n");
            (parse(&text, "x.yaml", "a").resources[0].created.map(|time| time.seconds), faults(&text).len())
        };
        // date -u -d 2019-03-19T10:00:00Z +%s
        assert_eq!(created("'2019-03-19T10:00:00Z'"), (Some(1_552_989_600), 0));
        assert_eq!(created("null"), (None, 0));
        assert_eq!(created("soon"), (None, 1));
    }

    #[test]
    fn the_items_of_a_list_are_resources_with_lines_of_their_own() {
        let text = "kind: List\napiVersion: v1\nitems:\n- kind: rule\n  metadata:\n    name: a\n- kind: rule\n  metadata:\n    name: off\n";
        assert_eq!(names(text), ["a.rule.default", "off.rule.default"]);
        let found = faults(text);
        assert!(
            matches!(&found[..], [one] if one.starts_with("x.yaml:9: warning: off.rule.default: metadata.name: "))
        );
        assert_eq!(names("{\"kind\": \"RuleList\", \"items\": []}"), [""; 0]);
    }

    #[test]
    fn what_would_grow_without_bounds_is_refused() {
        let bomb: String = (b'b'..=b'k')
            .map(|name| {
                let (name, previous) = (char::from(name), char::from(name - 1));
                format!("{name}: &{name} [{}]\n", vec![format!("*{previous}"); 10].join(","))
            })
            .collect();
        let texts = [
            format!("a: &a [x,x,x,x,x,x,x,x,x,x]\n{bomb}"),
            "[".repeat(100_000),
            "{a: ".repeat(100_000),
            "- ".repeat(100_000),
        ];
        for text in texts {
            let parsed = parse(&text, "x.yaml", "");
            assert_eq!((parsed.resources.len(), parsed.faults.len()), (0, 1), "{text:.20}");
        }
        let deepest =
            format!("kind: x\nmetadata: {{name: a}}\nspec: {{a: {}{}}}", "[".repeat(60), "]".repeat(60));
        assert_eq!(parse(&deepest, "x.yaml", "a").resources.len(), 1);
    }
}

//! The requirements of a configuration on Envoy, by the attributes that its expressions read.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

use regex::Regex;
use serde_json::Value as Json;

use mixer_adapter_config::{
    ConfigSet, Instance, Kind, Resource, ResourceName, Spec, Target, annotations::DENIAL,
    proto::istio::policy::v1beta1::Rule,
};
use mixer_adapter_core::{
    framework::dynamic::{DescriptorSet, DynamicTemplate},
    template::Variety,
};
use mixer_adapter_templates::STANDARD;

/// The requirements of a configuration on Envoy.
#[derive(Debug, Default)]
pub(super) struct Requirements {
    /// The quotas of rules, by the namespace of the rule.
    pub(super) quotas: BTreeMap<ResourceName, Quota>,
    /// Whether a rule reads the body of requests.
    pub(super) body: bool,
    /// Whether a rule reads whether the body is cut off, and so decides on a part of it.
    pub(super) body_part: bool,
    /// Whether a rule reads the token of requests.
    pub(super) token: bool,
    /// Whether a rule names a header of requests with an underscore.
    pub(super) underscores: bool,
    /// Headers of requests that reports read.
    pub(super) request_headers: BTreeSet<String>,
    /// Headers of responses that reports read.
    pub(super) response_headers: BTreeSet<String>,
}

/// A quota that rules request.
#[derive(Debug, Default)]
pub(super) struct Quota {
    /// The namespaces of the rules.
    pub(super) namespaces: BTreeSet<String>,
    /// The entries of its descriptors: keys of `ratelimit.descriptor`, and attributes; with whether all expressions do without.
    pub(super) entries: BTreeMap<String, bool>,
}

/// An attribute that an expression reads, with the key if it is a map.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Read {
    attribute: String,
    key: Option<String>,
    /// Whether the expression may have a value without it.
    has_fallback: bool,
}

impl Requirements {
    /// Finds the requirements of the rules of a configuration.
    pub(super) fn of(set: &ConfigSet) -> Self {
        let mut requirements = Self::default();
        for entry in set.of_role(Kind::Rule) {
            if let Ok(Spec::Rule(rule)) = entry.spec.as_deref() {
                requirements.add(set, &entry.resource, rule);
            }
        }
        requirements
    }

    fn add(&mut self, set: &ConfigSet, resource: &Resource, rule: &Rule) {
        let namespace = resource.name.namespace();
        let condition = reads(&rule.r#match);
        let operations = rule.request_header_operations.iter().chain(&rule.response_header_operations);
        let operations: BTreeSet<Read> =
            operations.flat_map(|operation| &operation.values).flat_map(|value| reads(value)).collect();
        let references = rule.actions.iter().flat_map(|action| &action.instances);
        let mut checks = !operations.is_empty();
        let names = rule.request_header_operations.iter().map(|operation| operation.name.as_str());
        self.underscores |= names
            .chain(condition.iter().chain(&operations).filter_map(header))
            .any(|name| name.contains('_'));
        self.note(&operations);
        let form = resource.annotations.get(DENIAL);
        let form: Option<Json> = form.and_then(|form| serde_saphyr::from_str(form).ok());
        let mut of_form = BTreeSet::new();
        form.iter().for_each(|form| add_strings(form, &mut of_form));
        of_form.retain(|read| !read.attribute.starts_with("denial."));
        for reference in references {
            let Ok(found) = set.resolve(&Kind::Instance, reference, namespace) else { continue };
            let Ok(Spec::Instance(instance)) = found.spec.as_deref() else { continue };
            let mut inputs = condition.clone();
            for value in instance.params.iter().flat_map(|params| params.values()) {
                add_strings(value, &mut inputs);
            }
            self.underscores |= inputs.iter().filter_map(header).any(|name| name.contains('_'));
            match variety(set, instance, found.name().namespace()) {
                Some(Variety::Quota) => {
                    let quota = self.quotas.entry(found.name().clone()).or_default();
                    quota.namespaces.insert(namespace.to_owned());
                    // Without them the quota is refused without the form.
                    let of_form = of_form.iter().map(|read| Read { has_fallback: true, ..read.clone() });
                    for (name, is_optional) in inputs.into_iter().chain(of_form).filter_map(entry) {
                        *quota.entries.entry(name).or_insert(true) &= is_optional;
                    }
                }
                Some(Variety::Report) => self.note_logged(&inputs),
                _ => {
                    checks = true;
                    self.note(&inputs);
                }
            }
        }
        if checks {
            self.note(&condition);
            self.underscores |= of_form.iter().filter_map(header).any(|name| name.contains('_'));
            self.note(&of_form);
        }
    }

    /// Records the attributes that a check reads.
    fn note(&mut self, inputs: &BTreeSet<Read>) {
        for attribute in inputs.iter().map(|read| &read.attribute) {
            self.body |= attribute.starts_with("request.body");
            self.body_part |= attribute.starts_with("request.body_truncated");
            self.token |= attribute.starts_with("request.auth.");
        }
    }

    /// Records the attributes that a report reads.
    fn note_logged(&mut self, inputs: &BTreeSet<Read>) {
        for Read { attribute, key, .. } in inputs {
            let headers = match attribute.as_str() {
                "request.headers" => &mut self.request_headers,
                "response.headers" => &mut self.response_headers,
                _ => continue,
            };
            headers.extend(key.clone().filter(|key| !key.starts_with(':')));
        }
    }
}

/// The header of requests that an input is.
fn header(read: &Read) -> Option<&str> {
    match read.attribute.strip_prefix("request.headers")? {
        "" => read.key.as_deref(),
        field => field.strip_prefix('.'),
    }
}

/// The entry of a descriptor that an input of a quota is read from, and whether the input has another value without it.
fn entry(read: Read) -> Option<(String, bool)> {
    if let Some(key) = read.attribute.strip_prefix("ratelimit.descriptor.") {
        return Some((key.to_owned(), read.has_fallback));
    }
    let name = match (read.attribute.as_str(), read.key) {
        ("ratelimit.descriptor", key) => key?,
        // Rate limits have no headers but those in descriptors.
        ("request.headers", _) => return None,
        (attribute, _) if attribute.contains('.') && !attribute.starts_with("ratelimit.") => read.attribute,
        _ => return None,
    };
    Some((name, read.has_fallback))
}

fn variety(set: &ConfigSet, instance: &Instance, namespace: &str) -> Option<Variety> {
    let descriptors = match &instance.template {
        Target::Compiled(name) => {
            let (_, descriptor) = STANDARD.iter().find(|(known, _)| known == name)?;
            DescriptorSet::decode(*descriptor)
        }
        Target::Resource(reference) => {
            let found = set.resolve(&Kind::Template, reference, namespace).ok()?;
            let Ok(Spec::Template(template)) = found.spec.as_deref() else { return None };
            DescriptorSet::from_base64(&template.descriptor)
        }
    };
    Some(DynamicTemplate::new(&descriptors.ok()?).ok()?.variety())
}

fn add_strings(value: &Json, inputs: &mut BTreeSet<Read>) {
    match value {
        Json::String(text) => inputs.extend(reads(text)),
        Json::Array(items) => items.iter().for_each(|item| add_strings(item, inputs)),
        Json::Object(fields) => fields.values().for_each(|value| add_strings(value, inputs)),
        Json::Null | Json::Bool(_) | Json::Number(_) => {}
    }
}

/// The literals of expressions. A literal that does not end is the rest of the text.
const LITERAL: &str = r#""(?:[^"\\]|\\.)*"?|'(?:[^'\\]|\\.)*'?|`[^`]*`?"#;

/// A literal, or a name with the literal of its index.
static READ: LazyLock<Regex> = LazyLock::new(|| {
    let name = "[A-Za-z_][A-Za-z0-9_.]*";
    let pattern = format!(r"(?s){LITERAL}|({name})(?:\s*\[\s*({LITERAL}))?");
    Regex::new(&pattern).expect("a constant pattern")
});

/// Returns the attributes that an expression names, in any of the languages. Names of functions may be among them.
fn reads(text: &str) -> BTreeSet<Read> {
    // CEL asks whether a map has a key.
    let is_guarded = text.contains(" in ratelimit.descriptor") || text.contains("has(ratelimit.descriptor");
    let reads = READ.captures_iter(text).filter_map(|found| {
        let name = found.get(1)?;
        let key = found.get(2).map(|literal| {
            let (quote, key) = literal.as_str().split_at(1);
            key.strip_suffix(quote).unwrap_or(key).to_owned()
        });
        let before = text[..name.start()].trim_end_matches(['(', ' ']);
        let behind = &text[found.get(0)?.end()..];
        let behind = if key.is_some() { behind.trim_start().trim_start_matches(']') } else { behind };
        let behind = behind.trim_start_matches([')', ' ']);
        let is_operand = behind.starts_with('|') && !behind.starts_with("||")
            || before.ends_with('|') && !before.ends_with("||");
        let attribute = name.as_str().trim_end_matches('.').to_owned();
        Some(Read { attribute, key, has_fallback: is_operand || is_guarded })
    });
    reads.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requirements(text: &str) -> Requirements {
        let parsed = mixer_adapter_config::parse(text, "x.yaml", "istio-system");
        let (set, faults) = ConfigSet::of(parsed.resources);
        assert_eq!((parsed.faults, faults), (Vec::new(), Vec::new()));
        Requirements::of(&set)
    }

    fn instance(name: &str, template: &str, params: &str) -> String {
        format!(
            "---\nkind: instance\nmetadata: {{name: {name}}}\nspec: {{compiledTemplate: {template}, params: {params}}}\n"
        )
    }

    fn rule(condition: &str, instance: &str) -> String {
        format!(
            "---\nkind: rule\nmetadata: {{name: {instance}}}\nspec:\n  match: {condition}\n  \
             actions: [{{handler: h, instances: [{instance}]}}]\n"
        )
    }

    #[test]
    fn attributes_are_found_outside_of_literals_and_with_their_keys() {
        for (text, expected) in [
            ("request.path", &[("request.path", None)][..]),
            (r#"request.headers["x-user"] | "request.host""#, &[("request.headers", Some("x-user"))]),
            (r#"a.b [ 'k' ] == `c.d`"#, &[("a.b", Some("k"))]),
            (r#""a \" b.c" == d.e"#, &[("d.e", None)]),
            ("\"open", &[]),
        ] {
            let found: Vec<_> = reads(text).into_iter().map(|read| (read.attribute, read.key)).collect();
            let found: Vec<_> =
                found.iter().map(|(attribute, key)| (attribute.as_str(), key.as_deref())).collect();
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn expressions_that_may_have_a_value_without_a_key_do_without_its_header() {
        for (expression, expected) in [
            (r#"ratelimit.descriptor["user"]"#, &[("user", false)][..]),
            (
                r#"ratelimit.descriptor["user"] == "a" || ratelimit.descriptor["b"] == "c""#,
                &[("b", false), ("user", false)],
            ),
            (r#"ratelimit.descriptor["user"] | "none""#, &[("user", true)]),
            (r#"(ratelimit.descriptor["user"]) | "none""#, &[("user", true)]),
            (
                r#"ratelimit.descriptor["user"] | ratelimit.descriptor["key"]"#,
                &[("key", true), ("user", true)],
            ),
            (r#""user" in ratelimit.descriptor ? ratelimit.descriptor.user : "none""#, &[("user", true)]),
            (r#"ratelimit.descriptor.user"#, &[("user", false)]),
            (r#"request.headers["x"] | "none""#, &[]),
        ] {
            let found: BTreeMap<String, bool> = reads(expression).into_iter().filter_map(entry).collect();
            let found: Vec<_> = found.iter().map(|(key, is_optional)| (key.as_str(), *is_optional)).collect();
            assert_eq!(found, expected, "{expression}");
        }
    }

    #[test]
    fn a_quota_has_the_entries_of_its_dimensions_and_of_the_conditions_of_its_rules() {
        let text = [
            instance(
                "q",
                "quota",
                r#"{dimensions: {a: 'ratelimit.descriptor["user"]', b: 'source.principal | "none"'}}"#,
            ),
            rule(r#"ratelimit.descriptor["plan"] == "free" && ratelimit.domain == "q""#, "q"),
            instance("unused", "quota", "{dimensions: {a: request.path}}"),
        ];
        let requirements = requirements(&text.concat());
        let [(name, quota)] = &requirements.quotas.iter().collect::<Vec<_>>()[..] else {
            panic!("{requirements:?}")
        };
        assert_eq!(name.name(), "q");
        let entries: Vec<_> =
            quota.entries.iter().map(|(name, is_optional)| (name.as_str(), *is_optional)).collect();
        assert_eq!(entries, [("plan", false), ("source.principal", true), ("user", false)]);
        assert_eq!(quota.namespaces.iter().collect::<Vec<_>>(), ["istio-system"]);
    }

    #[test]
    fn a_quota_has_optional_entries_for_the_form_of_its_refusals() {
        let form = r#"{json: {user: 'ratelimit.descriptor["user"]', plan: 'ratelimit.descriptor["plan"]', code: denial.code}}"#;
        let annotated =
            format!("metadata:\n  name: q\n  annotations:\n    mixer-adapter/denial: |\n      {form}\nspec:");
        let rule = rule("\"true\"", "q").replace("metadata: {name: q}\nspec:", &annotated);
        let quota = instance("q", "quota", r#"{dimensions: {a: 'ratelimit.descriptor["user"]'}}"#);
        let requirements = requirements(&[quota, rule].concat());
        let entries: Vec<_> = requirements
            .quotas
            .values()
            .flat_map(|quota| &quota.entries)
            .map(|(name, is_optional)| (name.as_str(), *is_optional))
            .collect();
        assert_eq!(entries, [("plan", true), ("user", false)]);
    }

    #[test]
    fn bodies_and_tokens_are_needed_by_checks_and_headers_by_reports() {
        let report = instance(
            "log",
            "logentry",
            r#"{variables: {a: 'request.headers["x-a"]', b: 'response.headers["x-b"]', c: 'request.headers[":path"]'}}"#,
        );
        let reported = requirements(&[report, rule("request.body == \"x\"", "log")].concat());
        assert!(!reported.body, "{reported:?}");
        assert_eq!(reported.request_headers.iter().collect::<Vec<_>>(), ["x-a"]);
        assert_eq!(reported.response_headers.iter().collect::<Vec<_>>(), ["x-b"]);
        let check = instance("entry", "listentry", "{value: request.auth.principal}");
        let field = r#"'json(request.body, "model") == "x"'"#;
        let checked = requirements(&[check.clone(), rule(field, "entry")].concat());
        assert!(checked.body && !checked.body_part, "{checked:?}");
        let checked = requirements(&[check, rule("request.body == \"x\"", "entry")].concat());
        assert!(checked.body && checked.token && !checked.body_part, "{checked:?}");
    }
}

//! Configuration that is valid but probably has another effect than intended.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json};

use crate::{
    name::{Kind, ResourceName},
    set::{ConfigSet, Entry},
    spec::{Spec, Target},
    validation_error::ValidationError,
};

/// Finds the known traps of Mixer's configuration in a set. `is_quota` returns whether an instance, by its full name,
/// is of a template for quotas.
pub fn lint(set: &ConfigSet, is_quota: impl Fn(&ResourceName) -> bool) -> Vec<ValidationError> {
    let mut faults = Vec::new();
    for entry in set.iter() {
        faults.extend(entry.foreign.iter().map(|finding| entry.resource.finding(finding, "")));
        let name = entry.name().name();
        if entry.resource.is_received() && !name.split('.').all(is_dns_label) {
            let reason =
                format!("the name {name:?} is not made of DNS labels: no resource of Kubernetes has it");
            faults.push(entry.resource.warning("", reason));
        }
        let Ok(Spec::Instance(instance)) = entry.spec.as_deref() else { continue };
        match &instance.params {
            None => {
                let reason = "read as {}; a real Mixer dies at the first request, so write params: {}";
                faults.push(entry.resource.warning("params", reason));
            }
            Some(params) if matches!(instance.template, Target::Resource(_)) => {
                quotes_within_quotes(entry, params, &mut faults);
            }
            Some(_) => {}
        }
    }
    quotas_of_two_rules(set, is_quota, &mut faults);
    faults.sort_by(|one, other| one.origin.cmp(&other.origin));
    faults
}

fn is_dns_label(text: &str) -> bool {
    (1..=63).contains(&text.len())
        && text.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-')
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// A string that begins and ends with the same quote is a literal to its end, whatever is between
/// (docs/behaviour/configuration.md#params-of-instances-template).
fn quotes_within_quotes(entry: &Entry, params: &Map<String, Json>, faults: &mut Vec<ValidationError>) {
    let mut open: Vec<(String, &Json)> =
        params.iter().map(|(name, value)| (format!("params{}", step(name)), value)).collect();
    while let Some((path, value)) = open.pop() {
        match value {
            Json::String(text) => {
                if let Some(reason) = odd_literal(text) {
                    faults.push(entry.resource.warning(&path, reason));
                }
            }
            Json::Object(fields) => {
                open.extend(fields.iter().map(|(name, value)| (format!("{path}{}", step(name)), value)));
            }
            Json::Array(items) => {
                open.extend(
                    items.iter().enumerate().map(|(index, value)| (format!("{path}[{index}]"), value)),
                );
            }
            _ => {}
        }
    }
}

fn step(name: &str) -> String {
    if name.contains(['.', '[', '"']) { format!("[{name:?}]") } else { format!(".{name}") }
}

/// Describes a text that is suspicious as a literal.
fn odd_literal(text: &str) -> Option<String> {
    let quote = text.chars().next().filter(|quote| matches!(quote, '"' | '\''))?;
    let inner = text.strip_prefix(quote)?.strip_suffix(quote)?;
    let mut escaped = false;
    let ends_within = inner.chars().any(|letter| {
        let ends = letter == quote && !escaped;
        escaped = letter == '\\' && !escaped;
        ends
    });
    if ends_within {
        return Some(format!(
            "is not an expression but the literal text {inner}, because it begins and ends with {quote}; put it in \
             parentheses if an expression is meant"
        ));
    }
    inner
        .contains('\\')
        .then(|| format!("is the text {inner}, backslashes included: nothing is escaped here"))
}

/// Such a quota is granted in full whenever one rule does not match, even if the adapter denies it for another rule
/// (docs/behaviour/dispatch.md#quota).
fn quotas_of_two_rules(
    set: &ConfigSet,
    is_quota: impl Fn(&ResourceName) -> bool,
    faults: &mut Vec<ValidationError>,
) {
    let mut first: BTreeMap<&ResourceName, &ResourceName> = BTreeMap::new();
    for entry in set.of_role(Kind::Rule) {
        let Ok(Spec::Rule(rule)) = entry.spec.as_deref() else { continue };
        for (action_index, action) in rule.actions.iter().enumerate() {
            for (index, reference) in action.instances.iter().enumerate() {
                let Ok(instance) = set.resolve(&Kind::Instance, reference, entry.name().namespace()) else {
                    continue;
                };
                if !is_quota(instance.name()) {
                    continue;
                }
                let other = *first.entry(instance.name()).or_insert(entry.name());
                if other != entry.name() {
                    let reason = format!(
                        "{other} names this quota too: while either rule does not match, a real Mixer grants it in full; \
                         give each rule an instance of its own"
                    );
                    let field = format!("actions[{action_index}].instances[{index}]");
                    faults.push(entry.resource.warning(&field, reason));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::parse;

    fn lints(text: &str) -> Vec<String> {
        let parsed = parse(text, "x.yaml", "ns");
        assert_eq!(parsed.faults, []);
        let (set, faults) = ConfigSet::of(parsed.resources);
        assert_eq!(faults, []);
        lint(&set, |instance: &ResourceName| instance.name().starts_with("quota"))
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn an_expression_in_quotes_is_a_literal() {
        let text = r#"
kind: instance
metadata: {name: i}
spec:
  template: t
  params:
    good: '"text"'
    expression: '("x-" + a + "-y")'
    concatenation: '"x-" + source.name + "-y"'
    dimensions:
      path: '"a" | "b"'
      list: ["'x' | 'y'", '`x` + source.name + `y`']
"#;
        let expected = [
            ("x.yaml:9", "concatenation", "x-\" + source.name + \"-y", "\""),
            ("x.yaml:11", "dimensions.path", "a\" | \"b", "\""),
            ("x.yaml:12", "dimensions.list[0]", "x' | 'y", "'"),
        ]
        .map(|(place, field, text, quote)| {
            format!(
                "{place}: warning: i.instance.ns: spec.params.{field}: is not an expression but the literal text {text}, because \
                 it begins and ends with {quote}; put it in parentheses if an expression is meant"
            )
        });
        assert_eq!(lints(text), expected);
    }

    #[test]
    fn a_backslash_in_a_literal_stays() {
        let text = "kind: instance\nmetadata: {name: i}\nspec:\n  template: t\n  params: {a: '\"x\\\"y\"', b: '\"x\"'}\n";
        assert_eq!(
            lints(text),
            [
                "x.yaml:5: warning: i.instance.ns: spec.params.a: is the text x\\\"y, backslashes included: nothing is escaped here"
            ]
        );
    }

    #[test]
    fn an_instance_without_params_is_warned_about_and_one_with_empty_ones_is_not() {
        let instance = |name, params| {
            format!("---\nkind: instance\nmetadata: {{name: {name}}}\nspec:\n  template: t\n{params}")
        };
        let found = lints(&[instance("without", ""), instance("empty", "  params: {}\n")].concat());
        assert_eq!(
            found,
            [
                "x.yaml:4: warning: without.instance.ns: spec.params: read as {}; a real Mixer dies at the first request, so write params: {}"
            ]
        );
    }

    #[test]
    fn a_quota_of_two_rules_is_warned_about_and_another_instance_is_not() {
        let instance = |name| {
            format!("---\nkind: instance\nmetadata: {{name: {name}}}\nspec: {{template: t, params: {{}}}}\n")
        };
        let rule = |name, instances| {
            format!(
                "---\nkind: rule\nmetadata: {{name: {name}}}\nspec:\n  actions:\n  - handler: h\n    instances: {instances}\n"
            )
        };
        let text = [
            instance("quota"),
            instance("check"),
            rule("r1", "[quota, quota.instance.ns, check]"),
            rule("r2", "[check, quota.ns]"),
        ];
        let found = lints(&text.concat());
        let start =
            "x.yaml:22: warning: r2.rule.ns: spec.actions[0].instances[1]: r1.rule.ns names this quota too";
        assert!(matches!(&found[..], [one] if one.starts_with(start)), "{found:?}");
    }

    #[test]
    fn a_received_name_that_kubernetes_would_refuse_is_warned_about() {
        let names = ["good", "v1.good-2", "my_rule", "Rule", "-a", "a..b"];
        let (set, _) = ConfigSet::of(names.map(|name| {
            let name = ResourceName::new(name, Kind::Rule, "ns");
            crate::Resource::new(
                name,
                crate::Collection::new("istio/policy/v1beta1/rules"),
                serde_json::json!({"match": "true"}),
                "mcp://a:1",
            )
        }));
        let found: Vec<_> = lint(&set, |_| false).iter().map(ToString::to_string).collect();
        let warned: Vec<_> = found.iter().filter(|text| text.contains("is not made of DNS labels")).collect();
        assert_eq!(warned.len(), 4, "{found:?}");
        assert!(warned.iter().all(|text| !text.contains("good")), "{warned:?}");
    }
}

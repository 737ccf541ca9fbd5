//! Configuration that is valid but probably has another effect than intended.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::{
    name::{Kind, ResourceName},
    proto::istio::policy::v1beta1::Action,
    set::{ConfigSet, Entry},
    spec::Spec,
    validation_error::ValidationError,
};

/// Finds the known traps of Mixer's configuration in a set. `quotas` are the instances of templates for quotas. `rules` are at least the
/// rules that [name quotas](names_quota), in order.
pub fn lint<'s>(
    set: &'s ConfigSet,
    quotas: &BTreeSet<&ResourceName>,
    rules: impl IntoIterator<Item = &'s Arc<Entry>>,
) -> Vec<ValidationError> {
    let mut faults: Vec<_> = set.notable().flat_map(|entry| &entry.lints).cloned().collect();
    // Such a quota is granted in full whenever one rule does not match, even if the adapter denies it for another rule
    // (docs/behaviour/dispatch.md#quota).
    let mut first: BTreeMap<&ResourceName, &ResourceName> = BTreeMap::new();
    for rule in rules {
        for (field, quota) in quotas_of(set, rule, quotas) {
            let other = *first.entry(quota).or_insert(rule.name());
            if other != rule.name() {
                let reason = format!(
                    "{other} names this quota too: while either rule does not match, a real Mixer grants it in full; \
                     give each rule an instance of its own"
                );
                faults.push(rule.resource.warning(&field, reason));
            }
        }
    }
    faults.sort_by(|one, other| one.origin.cmp(&other.origin));
    faults
}

/// Returns whether a rule has a quota among its instances.
pub fn names_quota(set: &ConfigSet, rule: &Entry, quotas: &BTreeSet<&ResourceName>) -> bool {
    !quotas.is_empty() && quotas_of(set, rule, quotas).next().is_some()
}

/// Iterates over the quotas among the instances of a rule, with the fields that name them.
fn quotas_of<'s>(
    set: &'s ConfigSet,
    rule: &'s Entry,
    quotas: &BTreeSet<&ResourceName>,
) -> impl Iterator<Item = (String, &'s ResourceName)> {
    let actions = match rule.spec.as_deref() {
        Ok(Spec::Rule(rule)) => &rule.actions[..],
        _ => &[],
    };
    let instances = actions.iter().enumerate().flat_map(|(action, Action { instances, .. })| {
        instances.iter().enumerate().map(move |(index, reference)| (action, index, reference))
    });
    instances.filter_map(move |(action, index, reference)| {
        let instance = set.resolve(&Kind::Instance, reference, rule.name().namespace()).ok()?.name();
        quotas.contains(instance).then(|| (format!("actions[{action}].instances[{index}]"), instance))
    })
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
        let names = set.iter().map(|entry| entry.name());
        let quotas = names.filter(|instance| instance.name().starts_with("quota")).collect();
        lint(&set, &quotas, set.of_role(Kind::Rule)).iter().map(ToString::to_string).collect()
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
        let found: Vec<_> = lint(&set, &BTreeSet::new(), []).iter().map(ToString::to_string).collect();
        let warned: Vec<_> = found.iter().filter(|text| text.contains("is not made of DNS labels")).collect();
        assert_eq!(warned.len(), 4, "{found:?}");
        assert!(warned.iter().all(|text| !text.contains("good")), "{warned:?}");
    }
}

//! What changed in a spec, for people: the first fields that differ, with both values.

use serde_json::Value as Json;

use crate::bounded::truncate;

/// Maximum number of fields.
const MAX_FIELDS: usize = 3;
/// Maximum length of a value in bytes.
const MAX_VALUE: usize = 120;
/// Parts of the names of fields whose values are not shown; nor are the values of fields in them.
const SECRET: [&str; 8] =
    ["authorization", "cookie", "credential", "header", "key", "password", "secret", "token"];

/// Returns the paths of the first fields that differ, such as `actions[0].handler`, with `"a" -> "b"`.
pub(crate) fn differences(before: &Json, after: &Json) -> Vec<(String, String)> {
    let mut found = Vec::new();
    compare("", Some(before), Some(after), &mut found);
    found
}

fn compare(path: &str, before: Option<&Json>, after: Option<&Json>, found: &mut Vec<(String, String)>) {
    if before == after || found.len() == MAX_FIELDS {
        return;
    }
    match (before, after) {
        (Some(Json::Object(before)), Some(Json::Object(after))) => {
            let added = after.keys().filter(|name| !before.contains_key(*name));
            for name in before.keys().chain(added) {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                compare(&path, before.get(name), after.get(name), found);
            }
        }
        (Some(Json::Array(before)), Some(Json::Array(after)))
            if before.len() == after.len() && before.iter().chain(after).any(|item| !is_scalar(item)) =>
        {
            for (index, (before, after)) in before.iter().zip(after).enumerate() {
                compare(&format!("{path}[{index}]"), Some(before), Some(after), found);
            }
        }
        _ => found.push((path.to_owned(), format!("{} -> {}", shown(path, before), shown(path, after)))),
    }
}

fn is_scalar(value: &Json) -> bool {
    !(value.is_object() || value.is_array())
}

fn shown(path: &str, value: Option<&Json>) -> String {
    match value {
        None => "absent".to_owned(),
        Some(value) if path.split(['.', '[']).any(is_secret) || has_secret(value) => "not shown".to_owned(),
        Some(value) => truncate(&value.to_string(), MAX_VALUE),
    }
}

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET.iter().any(|part| name.contains(part))
}

/// Returns whether a value has a field that is not shown.
fn has_secret(value: &Json) -> bool {
    match value {
        Json::Object(fields) => fields.iter().any(|(name, value)| is_secret(name) || has_secret(value)),
        Json::Array(items) => items.iter().any(has_secret),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_that_differ_have_their_paths_and_both_values() {
        let before = json!({"match": "a", "params": {"overrides": ["x"], "ttl": "1s", "token": "one"}, "actions": [{"handler": "h"}]});
        let after = json!({"match": "a", "params": {"overrides": ["x", "y"], "token": "two"}, "actions": [{"handler": "g"}]});
        let found: Vec<_> =
            differences(&before, &after).into_iter().map(|(path, text)| format!("{path}: {text}")).collect();
        assert_eq!(
            found,
            [
                r#"actions[0].handler: "h" -> "g""#,
                r#"params.overrides: ["x"] -> ["x","y"]"#,
                "params.token: not shown -> not shown",
            ]
        );
        assert_eq!(differences(&before, &before), []);
    }

    #[test]
    fn values_in_and_around_secrets_are_not_shown() {
        for (before, after, path) in [
            (json!({"headers": {"x": "a"}}), json!({"headers": {"x": "b"}}), "headers.x"),
            (
                json!({"requestHeaderOperations": [{"name": "x", "values": ["a"]}]}),
                json!({"requestHeaderOperations": [{"name": "x", "values": ["b"]}]}),
                "requestHeaderOperations[0].values",
            ),
            (
                json!({"response_header_operations": []}),
                json!({"response_header_operations": [{"name": "x", "values": ["b"]}]}),
                "response_header_operations",
            ),
            (json!({"secrets": {"db": "a"}}), json!({"secrets": {"db": "b"}}), "secrets.db"),
            (json!({}), json!({"params": {"users": [{"Password": "a"}]}}), "params"),
            (json!({"tokens": ["a"]}), json!({"tokens": ["b"]}), "tokens"),
        ] {
            let [(found, text)] = &differences(&before, &after)[..] else { panic!("{path}") };
            assert!(found == path && text.ends_with("-> not shown"), "{found}: {text}");
        }
    }

    #[test]
    fn long_values_are_cut() {
        let [(path, text)] = &differences(&json!({"a": "x".repeat(1000)}), &json!({}))[..] else { panic!() };
        assert!(path == "a" && text.len() < 140 && text.ends_with("... -> absent"), "{text}");
    }
}

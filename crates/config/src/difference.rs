//! What changed in a spec, for people: the first fields that differ, with both values.

use serde_json::Value as Json;

use crate::bounded::truncate;

/// Maximum number of fields.
const MAX_FIELDS: usize = 3;
/// Maximum length of a value in bytes.
const MAX_VALUE: usize = 120;
/// Parts of the names of fields whose values are not shown.
const SECRET: [&str; 4] = ["password", "secret", "token", "key"];

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
    let name = path.rsplit('.').next().unwrap_or_default().to_ascii_lowercase();
    match value {
        None => "absent".to_owned(),
        Some(_) if SECRET.iter().any(|part| name.contains(part)) => "not shown".to_owned(),
        Some(value) => truncate(&value.to_string(), MAX_VALUE),
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
    fn long_values_are_cut() {
        let [(path, text)] = &differences(&json!({"a": "x".repeat(1000)}), &json!({}))[..] else { panic!() };
        assert!(path == "a" && text.len() < 140 && text.ends_with("... -> absent"), "{text}");
    }
}

//! Configuration of another version of the API: unknown and deprecated fields
//! (docs/behaviour/xds.md#versions-of-the-api).

use std::collections::HashMap;

use prost_reflect::{DynamicMessage, EnumDescriptor, Kind, MapKey, ReflectMessage as _, Value};

use mixer_adapter_core::framework::version::{SemanticVersion, Stage};

use crate::{
    any::content,
    validation_error::{Deprecation, Topic},
};

/// A field of a message that has another meaning in another version of the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The path of the field, such as `actions[0].handler`; the path of the enclosing message if the field has no name
    /// here.
    pub field: String,
    /// Whether it is unknown or deprecated.
    pub topic: Topic,
    /// A description, with the version.
    pub reason: String,
    /// The deprecated field or value.
    pub deprecation: Option<Deprecation>,
}

/// The maximum number of findings in one message: a newer sender has the same ones everywhere.
const LISTED: usize = 20;

/// Returns the fields and values of a message, and of those within it, that have another meaning in another version of
/// the API.
///
/// `release` is the version of the program that receives the message, which decides about deprecations. Without it the
/// version that the file of each field states applies.
pub fn findings(message: &DynamicMessage, release: Option<SemanticVersion>) -> Vec<Finding> {
    let mut found = Findings { found: Vec::new(), release };
    inspect(message, "", &mut found);
    let mut found = found.found;
    found.truncate(LISTED);
    found
}

/// The findings so far, for a program of some version.
struct Findings {
    found: Vec<Finding>,
    release: Option<SemanticVersion>,
}

impl Findings {
    /// Adds the use of a deprecated element. `options` are the options of the element and of its file.
    fn deprecated(&mut self, field: String, element: String, options: &[DynamicMessage; 2], reason: String) {
        let [mark, version] = [(&options[0], "deprecated_since"), (&options[1], "version")]
            .map(|(options, name)| stated(options, name));
        let stage = match (mark, self.release.or(version)) {
            (Some(mark), Some(release)) => Stage::of(release.releases_since(mark)),
            _ => Stage::Warns,
        };
        let outlook = match stage {
            Stage::Warns => "a coming version will not have it".to_owned(),
            Stage::Fails => {
                format!("the next version will not have it; until then {element} can be allowed by this name")
            }
            Stage::Gone => "it was to be gone by this version".to_owned(),
        };
        let reason = format!("{reason}: {outlook}");
        let deprecation = Some(Deprecation { element, stage });
        self.found.push(Finding { field, topic: Topic::DeprecatedField, reason, deprecation });
    }
}

/// Returns a version that the options of an element or file state (`mixer_adapter/versioning/v1/versioning.proto`).
fn stated(options: &DynamicMessage, field: &str) -> Option<SemanticVersion> {
    let mut extensions = options.extensions();
    let (_, value) =
        extensions.find(|(extension, _)| extension.package_name() == "mixer_adapter.versioning.v1")?;
    value.as_message()?.get_field_by_name(field)?.as_str()?.parse().ok()
}

fn inspect(message: &DynamicMessage, path: &str, found: &mut Findings) {
    if let Some(inner) = content(message) {
        return inspect(&inner, path, found);
    }
    let of = message.descriptor();
    for unknown in message.unknown_fields() {
        found.found.push(Finding {
            field: path.to_owned(),
            deprecation: None,
            topic: Topic::UnknownField,
            reason: format!(
                "field {} is unknown in this version of {}; it is ignored",
                unknown.number(),
                of.full_name(),
            ),
        });
    }
    for (field, value) in message.fields() {
        let path = if path.is_empty() { field.name().to_owned() } else { format!("{path}.{}", field.name()) };
        let declared = field.field_descriptor_proto();
        if declared.options.as_ref().is_some_and(|options| options.deprecated()) {
            let reason = format!("is deprecated in {}", of.full_name());
            let options = [field.options(), field.parent_file().options()];
            found.deprecated(path.clone(), field.full_name().to_owned(), &options, reason);
        }
        inspect_value(&field.kind(), value, &path, found);
        if found.found.len() > LISTED {
            return;
        }
    }
}

fn inspect_value(kind: &Kind, value: &Value, path: &str, found: &mut Findings) {
    match (value, kind) {
        (Value::Message(message), _) => inspect(message, path, found),
        (Value::EnumNumber(number), Kind::Enum(of)) => inspect_enum(of, *number, path, found),
        (Value::List(items), _) => {
            for (index, item) in items.iter().enumerate() {
                inspect_value(kind, item, &format!("{path}[{index}]"), found);
            }
        }
        (Value::Map(entries), Kind::Message(entry)) => {
            let kind = entry.map_entry_value_field().kind();
            for (key, value) in in_order(entries) {
                inspect_value(&kind, value, &format!("{path}[{key}]"), found);
            }
        }
        _ => {}
    }
}

fn inspect_enum(of: &EnumDescriptor, number: i32, path: &str, found: &mut Findings) {
    let Some(value) = of.get_value(number) else { return };
    let options = &value.enum_value_descriptor_proto().options;
    if options.as_ref().is_some_and(|options| options.deprecated()) {
        let reason = format!("{} is deprecated in {}", value.name(), of.full_name());
        let options = [value.options(), of.parent_file().options()];
        found.deprecated(path.to_owned(), format!("{}.{}", of.full_name(), value.name()), &options, reason);
    }
}

fn key_text(key: &MapKey) -> String {
    match key {
        MapKey::String(text) => format!("{text:?}"),
        MapKey::Bool(key) => key.to_string(),
        MapKey::I32(key) => key.to_string(),
        MapKey::I64(key) => key.to_string(),
        MapKey::U32(key) => key.to_string(),
        MapKey::U64(key) => key.to_string(),
    }
}

fn in_order(entries: &HashMap<MapKey, Value>) -> Vec<(String, &Value)> {
    let mut entries: Vec<_> = entries.iter().map(|(name, value)| (key_text(name), value)).collect();
    entries.sort_by(|one, other| one.0.cmp(&other.0));
    entries
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use prost_reflect::DescriptorPool;

    use super::*;

    const PROTO: &str = r#"
        syntax = "proto3";
        package shop.v1beta1;
        message Order {
            string name = 1;
            string old_name = 2 [deprecated = true];
            repeated Line lines = 3;
            map<string, Line> by_name = 4;
            Way way = 5;
        }
        message Line { int32 count = 1; int32 amount = 2 [deprecated = true]; }
        enum Way { POST = 0; FAX = 1 [deprecated = true]; }
    "#;

    fn order(json: serde_json::Value, more: &[u8]) -> DynamicMessage {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.proto"), PROTO).unwrap();
        let set = protox::compile(["a.proto"], [folder.path()]).unwrap();
        let pool = DescriptorPool::from_file_descriptor_set(set).unwrap();
        let of = pool.get_message_by_name("shop.v1beta1.Order").unwrap();
        let mut bytes = prost::Message::encode_to_vec(
            &mixer_adapter_core::framework::json::read_json(&of, json).unwrap(),
        );
        bytes.extend(more);
        DynamicMessage::decode(of, &*bytes).unwrap()
    }

    fn texts(message: &DynamicMessage) -> Vec<String> {
        findings(message, None)
            .iter()
            .map(|finding| format!("{}: {}", finding.field, finding.reason))
            .collect()
    }

    #[test]
    fn deprecated_fields_and_values_are_found_wherever_they_are() {
        let plain = serde_json::json!({ "name": "x", "lines": [{ "count": 1 }], "way": "POST" });
        assert_eq!(texts(&order(plain, &[])), [""; 0]);
        let old = serde_json::json!({
            "old_name": "x", "lines": [{ "count": 1 }, { "amount": 2 }], "by_name": { "b": { "amount": 1 }, "a": {} }, "way": "FAX",
        });
        let out = "a coming version will not have it";
        assert_eq!(
            texts(&order(old, &[])),
            [
                format!("old_name: is deprecated in shop.v1beta1.Order: {out}"),
                format!("lines[1].amount: is deprecated in shop.v1beta1.Line: {out}"),
                format!("by_name[\"b\"].amount: is deprecated in shop.v1beta1.Line: {out}"),
                format!("way: FAX is deprecated in shop.v1beta1.Way: {out}"),
            ]
        );
    }

    #[test]
    fn unknown_fields_are_found_by_number_and_place() {
        // Field 77 of the order, and field 9 of a line.
        let more = [0xe8, 0x04, 0x01, 0x1a, 0x02, 0x48, 0x01];
        let found = findings(&order(serde_json::json!({}), &more), None);
        assert!(found.iter().all(|finding| finding.topic == Topic::UnknownField));
        let found: Vec<_> = found.iter().map(|finding| (&*finding.field, &finding.reason[..40])).collect();
        assert_eq!(
            found,
            [
                ("", "field 77 is unknown in this version of s"),
                ("lines[0]", "field 9 is unknown in this version of sh")
            ]
        );
    }

    #[test]
    fn what_is_the_same_everywhere_is_listed_to_a_limit() {
        let lines = vec![serde_json::json!({ "amount": 1 }); 1000];
        assert_eq!(findings(&order(serde_json::json!({ "lines": lines }), &[]), None).len(), LISTED);
    }
}

//! The options of elements: validation rules, REST paths, and the place in the history of an API.

use prost_reflect::{DynamicMessage, Kind, Value};

use crate::version::SemanticVersion;

/// Options that are rules of validation: the values that they reject are part of the contract.
const RULES: [&str; 2] = ["validate.", "buf.validate."];

/// Options that are part of the contract otherwise: REST paths.
const CONTRACT: &str = "google.api.http";

/// Options of a file that decide names in generated code.
pub(crate) const STUBS: [&str; 11] = [
    "java_package",
    "java_outer_classname",
    "java_multiple_files",
    "go_package",
    "objc_class_prefix",
    "csharp_namespace",
    "swift_prefix",
    "php_class_prefix",
    "php_namespace",
    "ruby_package",
    "cc_generic_services",
];

/// One value set by an option, by its path: `(validate.rules).string.min_len`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    pub(crate) name: String,
    pub(crate) value: String,
    pub(crate) role: Role,
}

/// The meaning of an option for users of the element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// A rule of validation.
    Rule,
    /// Another part of the contract.
    Contract,
    /// A note to readers or to one implementation.
    Note,
}

/// Returns the values of the extensions of an element's options, and the bytes of those with an unknown definition.
pub(crate) fn settings(options: &DynamicMessage) -> Vec<Setting> {
    let mut settings = Vec::new();
    for (extension, value) in options.extensions() {
        let name = extension.full_name();
        let role = if RULES.iter().any(|start| name.starts_with(start)) {
            Role::Rule
        } else if name.starts_with(CONTRACT) {
            Role::Contract
        } else {
            Role::Note
        };
        let mut values = Vec::new();
        flatten(&format!("({name})"), value, &extension.kind(), &mut values);
        settings.extend(values.into_iter().map(|(name, value)| Setting { name, value, role }));
    }
    for unknown in options.unknown_fields() {
        let mut bytes = Vec::new();
        unknown.encode(&mut bytes);
        let value = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        settings.push(Setting { name: format!("({})", unknown.number()), value, role: Role::Note });
    }
    settings
}

fn flatten(path: &str, value: &Value, kind: &Kind, values: &mut Vec<(String, String)>) {
    match value {
        Value::Message(message) => {
            let before = values.len();
            for (field, value) in message.fields() {
                flatten(&format!("{path}.{}", field.name()), value, &field.kind(), values);
            }
            if values.len() == before {
                values.push((path.to_owned(), "{}".to_owned()));
            }
        }
        Value::List(items) => {
            for (index, item) in items.iter().enumerate() {
                flatten(&format!("{path}[{index}]"), item, kind, values);
            }
        }
        Value::Map(entries) => {
            let Kind::Message(entry) = kind else { return };
            let of = entry.map_entry_value_field().kind();
            let mut entries: Vec<_> =
                entries.iter().map(|(key, value)| (format!("{key:?}"), value)).collect();
            entries.sort_by(|one, other| one.0.cmp(&other.0));
            for (key, value) in entries {
                flatten(&format!("{path}[{key}]"), value, &of, values);
            }
        }
        scalar => values.push((path.to_owned(), scalar_text(scalar, kind))),
    }
}

/// Returns the text of a scalar or an enum value.
pub(crate) fn scalar_text(value: &Value, kind: &Kind) -> String {
    match (value, kind) {
        (Value::EnumNumber(number), Kind::Enum(of)) => {
            of.get_value(*number).map_or_else(|| number.to_string(), |value| value.name().to_owned())
        }
        (Value::Bool(value), _) => value.to_string(),
        (Value::I32(value), _) => value.to_string(),
        (Value::I64(value), _) => value.to_string(),
        (Value::U32(value), _) => value.to_string(),
        (Value::U64(value), _) => value.to_string(),
        (Value::F32(value), _) => value.to_string(),
        (Value::F64(value), _) => value.to_string(),
        (Value::String(value), _) => format!("{value:?}"),
        (other, _) => format!("{other:?}"),
    }
}

/// The statements of an element's options about its history in the API.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct History {
    pub(crate) deprecated: bool,
    /// The version of the mark, where the options have it.
    pub(crate) deprecated_since: Option<SemanticVersion>,
    pub(crate) previous: Option<String>,
    pub(crate) draft: bool,
    /// The version of a file.
    pub(crate) version: Option<SemanticVersion>,
}

impl History {
    /// Reads the options of this project and of Envoy's API.
    pub(crate) fn of(options: &DynamicMessage) -> Self {
        let deprecated = options.get_field_by_name("deprecated").and_then(|value| value.as_bool());
        let mut history = Self { deprecated: deprecated.unwrap_or_default(), ..Self::default() };
        for Setting { name, value, .. } in settings(options) {
            let Some((extension, field)) = name.strip_prefix('(').and_then(|name| name.split_once(')'))
            else {
                continue;
            };
            let text = value.trim_matches('"');
            match (extension, field) {
                (extension, ".deprecated_since") if is_ours(extension) => {
                    history.deprecated_since = text.parse().ok();
                }
                (extension, ".previous") if is_ours(extension) => history.previous = Some(text.to_owned()),
                (extension, ".draft") if is_ours(extension) => history.draft |= text == "true",
                (extension, ".version") if is_ours(extension) => history.version = text.parse().ok(),
                (
                    "envoy.annotations.deprecated_at_minor_version"
                    | "envoy.annotations.deprecated_at_minor_version_enum",
                    "",
                ) => {
                    history.deprecated_since = text.parse().ok();
                }
                ("udpa.annotations.versioning", ".previous_message_type") => {
                    history.previous = Some(text.to_owned());
                }
                (extension, ".work_in_progress") if extension.ends_with("_status") => {
                    history.draft |= text == "true";
                }
                _ => {}
            }
        }
        history
    }
}

fn is_ours(extension: &str) -> bool {
    extension.starts_with("mixer_adapter.versioning.v1.")
}

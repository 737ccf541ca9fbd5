//! The fields of messages, as proto files write them.

use prost_reflect::{FieldDescriptor, Kind, MessageDescriptor};
use serde::Serialize;

/// A field of a message.
#[derive(Debug, Serialize)]
pub(super) struct Field {
    pub(super) name: String,
    /// `string`, `map<string, string>`, `google.protobuf.Duration`.
    #[serde(rename = "type")]
    pub(super) kind: String,
    /// `repeated`, or the name of the field's oneof.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) label: Option<String>,
}

/// A message with its fields, or an enum with its values.
#[derive(Debug, Serialize)]
pub(super) struct Declared {
    pub(super) name: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) fields: Vec<Field>,
    /// The values of an enum.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) values: Vec<String>,
}

/// The message, and then the enums and the messages of its package that its fields refer to.
pub(super) fn declared(message: &MessageDescriptor) -> Vec<Declared> {
    let mut found = Vec::new();
    declare(Kind::Message(message.clone()), message.package_name(), &mut found);
    found
}

fn declare(kind: Kind, package: &str, found: &mut Vec<Declared>) {
    match kind {
        Kind::Message(message)
            if message.package_name() == package && !is_known(found, message.full_name()) =>
        {
            let name = message.full_name().to_owned();
            found.push(Declared { name, fields: fields(&message), values: Vec::new() });
            for field in message.fields() {
                declare(value_kind(&field), package, found);
            }
        }
        Kind::Enum(values) if !is_known(found, values.full_name()) => {
            let names = values.values().map(|value| value.name().to_owned()).collect();
            found.push(Declared { name: values.full_name().to_owned(), fields: Vec::new(), values: names });
        }
        _ => {}
    }
}

fn is_known(found: &[Declared], name: &str) -> bool {
    found.iter().any(|declared| declared.name == name)
}

/// The fields of a message, in the order of its proto file.
pub(super) fn in_order(message: &MessageDescriptor) -> impl Iterator<Item = FieldDescriptor> {
    let names = message.descriptor_proto().field.iter().map(|field| field.name());
    names.filter_map(|name| message.get_field_by_name(name))
}

/// The fields of a message as they are listed.
pub(super) fn fields(message: &MessageDescriptor) -> Vec<Field> {
    in_order(message)
        .map(|field| Field { name: field.name().to_owned(), kind: type_name(&field), label: label(&field) })
        .collect()
}

fn label(field: &FieldDescriptor) -> Option<String> {
    if field.is_list() {
        return Some("repeated".to_owned());
    }
    let oneof = field.containing_oneof().filter(|oneof| !oneof.is_synthetic());
    oneof.map(|oneof| format!("one of {}", oneof.name()))
}

fn type_name(field: &FieldDescriptor) -> String {
    match field.kind() {
        Kind::Message(entry) if field.is_map() => {
            format!(
                "map<{:?}, {:?}>",
                entry.map_entry_key_field().kind(),
                entry.map_entry_value_field().kind()
            )
        }
        // The name in proto files.
        kind => format!("{kind:?}"),
    }
}

/// The kind of a field; for a map, the kind of its values.
pub(super) fn value_kind(field: &FieldDescriptor) -> Kind {
    match field.kind() {
        Kind::Message(entry) if field.is_map() => entry.map_entry_value_field().kind(),
        kind => kind,
    }
}

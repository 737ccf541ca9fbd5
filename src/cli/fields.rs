//! The fields of messages, in the words of their proto files.

use std::collections::BTreeSet;

use prost_reflect::{EnumDescriptor, FieldDescriptor, Kind, MessageDescriptor};
use serde::Serialize;

/// One field.
#[derive(Debug, Serialize)]
pub(super) struct Field {
    pub(super) name: String,
    /// `string`, `map<string, string>`, `google.protobuf.Duration`.
    #[serde(rename = "type")]
    pub(super) kind: String,
    /// `repeated`, or the name of the oneof it is in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) label: Option<String>,
}

/// A message or an enum with all it consists of.
#[derive(Debug, Serialize)]
pub(super) struct Declared {
    pub(super) name: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) fields: Vec<Field>,
    /// Of an enum.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) values: Vec<String>,
}

/// The message, and behind it each message and enum of its file's package that its fields lead to.
pub(super) fn declared(message: &MessageDescriptor) -> Vec<Declared> {
    let package = message.parent_file().package_name().to_owned();
    let mut declared = Vec::new();
    let mut seen = BTreeSet::new();
    let mut waiting = vec![Kind::Message(message.clone())];
    while let Some(kind) = waiting.pop() {
        match kind {
            Kind::Message(message) if message.parent_file().package_name() == package => {
                if seen.insert(message.full_name().to_owned()) {
                    waiting.extend(
                        message
                            .fields()
                            .map(|field| value_kind(&field))
                            .collect::<Vec<_>>()
                            .into_iter()
                            .rev(),
                    );
                    declared.push(message_declared(&message));
                }
            }
            Kind::Enum(values) if seen.insert(values.full_name().to_owned()) => {
                declared.push(enum_declared(&values))
            }
            _ => {}
        }
    }
    declared
}

fn message_declared(message: &MessageDescriptor) -> Declared {
    Declared { name: message.full_name().to_owned(), fields: fields(message), values: Vec::new() }
}

fn enum_declared(values: &EnumDescriptor) -> Declared {
    let names = values.values().map(|value| value.name().to_owned());
    Declared { name: values.full_name().to_owned(), fields: Vec::new(), values: names.collect() }
}

/// The fields of a message, in the order of its file.
pub(super) fn fields(message: &MessageDescriptor) -> Vec<Field> {
    let names = message.descriptor_proto().field.iter().map(|field| field.name());
    let fields = names.filter_map(|name| message.get_field_by_name(name));
    fields
        .map(|field| Field { name: field.name().to_owned(), kind: type_name(&field), label: label(&field) })
        .collect()
}

fn label(field: &FieldDescriptor) -> Option<String> {
    if field.is_list() {
        return Some("repeated".to_owned());
    }
    field.containing_oneof().map(|oneof| format!("one of {}", oneof.name()))
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
        // As proto files name it.
        kind => format!("{kind:?}"),
    }
}

/// Of a map, the kind of its values.
fn value_kind(field: &FieldDescriptor) -> Kind {
    match field.kind() {
        Kind::Message(entry) if field.is_map() => entry.map_entry_value_field().kind(),
        kind => kind,
    }
}

//! The reference of one item.

use std::collections::HashMap;

use prost_reflect::{EnumDescriptor, FieldDescriptor, Kind, MessageDescriptor};
use serde::Serialize;

use mixer_adapter_core::adapter::Declared;
use mixer_adapter_engine::FieldInput;

/// An attribute, a function, a template, an adapter, a kind, or one of their fields.
#[derive(Clone, Debug, Default, Serialize)]
pub(in crate::cli) struct Item {
    pub(in crate::cli) name: String,
    /// A type, a signature, or a variety.
    #[serde(rename = "type", skip_serializing_if = "String::is_empty")]
    pub(in crate::cli) type_name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) meaning: String,
    /// The value of an absent field, where its comment does not state it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) default: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) produced_by: Option<&'static str>,
    /// The templates of an adapter.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) templates: Vec<&'static str>,
    /// The fields of a message, or of the values of a map or a list.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(in crate::cli) fields: Vec<Item>,
    /// The fields of a template's output.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) output: Vec<Item>,
    /// The values of an enum.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(in crate::cli) values: Vec<Item>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) example: Option<String>,
    /// The value of an example.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) value: Option<&'static str>,
}

impl Item {
    /// Adds the limits and the default that the settings of an adapter declare for a field.
    pub(super) fn declare(&mut self, path: &[&str], declared: &Declared) {
        let Some((name, rest)) = path.split_first() else {
            declared.sentence().iter().for_each(|sentence| append(&mut self.meaning, sentence));
            if !self.meaning.contains("default") {
                self.default = declared.default.clone().or(self.default.take());
            }
            return;
        };
        if let Some(field) = self.fields.iter_mut().find(|field| field.name == *name) {
            field.declare(rest, declared);
        }
    }

    /// The field at a path such as `connection.timeout`, in snake or camel case.
    ///
    /// # Errors
    /// The first part of the path that does not exist, and the item without it.
    pub(super) fn at<'p>(&self, path: &[&'p str]) -> Result<&Self, (&Self, &'p str)> {
        let Some((name, rest)) = path.split_first() else { return Ok(self) };
        let mut parts = self.fields.iter().chain(&self.output);
        parts
            .find(|item| item.name == *name || camel_case(&item.name) == *name)
            .ok_or((self, *name))?
            .at(rest)
    }
}

/// Appends a sentence to a description.
pub(super) fn append(meaning: &mut String, sentence: &str) {
    meaning.push_str(if meaning.is_empty() { "" } else { " " });
    meaning.push_str(sentence);
}

/// `camelCase` of `snake_case`.
pub(super) fn camel_case(name: &str) -> String {
    let mut camel = String::new();
    let mut capital = false;
    for letter in name.chars() {
        match letter {
            '_' => capital = true,
            letter if std::mem::take(&mut capital) => camel.extend(letter.to_uppercase()),
            letter => camel.push(letter),
        }
    }
    camel
}

/// The comments of protos by the full names of their elements.
#[derive(Debug, Default)]
pub(super) struct Comments(HashMap<&'static str, &'static str>);

impl Comments {
    /// Adds comments in the format of `Config::COMMENTS`.
    pub(super) fn add(&mut self, comments: &'static str) {
        self.0.extend(comments.lines().filter_map(|line| line.split_once('\t')));
    }

    pub(super) fn of(&self, name: &str) -> String {
        self.0.get(name).map(|comment| (*comment).to_owned()).unwrap_or_default()
    }
}

/// How the fields of a message are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Notation {
    /// As proto3 JSON: `params` of handlers and the specs of kinds.
    Json,
    /// As expressions: `params` of instances.
    Expressions,
}

/// Returns the fields of a message and of its inner messages, in the order of the proto file. A message within itself has no fields.
pub(super) fn fields(message: &MessageDescriptor, notation: Notation, comments: &Comments) -> Vec<Item> {
    fields_within(message, notation, comments, &mut Vec::new())
}

fn fields_within(
    message: &MessageDescriptor,
    notation: Notation,
    comments: &Comments,
    parents: &mut Vec<String>,
) -> Vec<Item> {
    if parents.iter().any(|parent| parent == message.full_name()) || is_written_as_a_value(message) {
        return Vec::new();
    }
    parents.push(message.full_name().to_owned());
    let items = in_order(message).map(|field| {
        let kind = value_kind(&field);
        let mut item = Item {
            name: field.name().to_owned(),
            type_name: type_name(&field, notation),
            meaning: comments.of(field.full_name()),
            ..Item::default()
        };
        match &kind {
            Kind::Message(inner)
                if notation == Notation::Json || FieldInput::of(&kind) == Some(FieldInput::Fields) =>
            {
                item.fields = fields_within(inner, notation, comments, parents);
            }
            Kind::Enum(values) => item.values = enum_values(values, comments),
            _ => {}
        }
        if notation == Notation::Json && !field.is_list() && !field.is_map() {
            item.default = default_of(&kind).filter(|_| !item.meaning.contains("by default"));
        }
        item
    });
    let items = items.collect();
    parents.pop();
    items
}

/// The fields of a message, in the order of its proto file.
pub(super) fn in_order(message: &MessageDescriptor) -> impl Iterator<Item = FieldDescriptor> {
    let names = message.descriptor_proto().field.iter().map(|field| field.name());
    names.filter_map(|name| message.get_field_by_name(name))
}

/// The kind of a field; for a map, the kind of its values.
pub(super) fn value_kind(field: &FieldDescriptor) -> Kind {
    match field.kind() {
        Kind::Message(entry) if field.is_map() => entry.map_entry_value_field().kind(),
        kind => kind,
    }
}

fn enum_values(values: &EnumDescriptor, comments: &Comments) -> Vec<Item> {
    let items = values.values().map(|value| Item {
        name: value.name().to_owned(),
        meaning: comments.of(&format!("{}.{}", values.full_name(), value.name())),
        ..Item::default()
    });
    items.collect()
}

/// An enum or a boolean that is absent has its first value.
fn default_of(kind: &Kind) -> Option<String> {
    match kind {
        Kind::Bool => Some("false".to_owned()),
        Kind::Enum(values) => Some(values.default_value().name().to_owned()),
        _ => None,
    }
}

/// Whether a message is not written as an object with its fields.
fn is_written_as_a_value(message: &MessageDescriptor) -> bool {
    message.full_name().starts_with("google.protobuf.") || message.full_name() == "istio.policy.v1beta1.Value"
}

fn type_name(field: &FieldDescriptor, notation: Notation) -> String {
    let kind = value_kind(field);
    let name = match notation {
        Notation::Json => json_type(&kind),
        Notation::Expressions => match FieldInput::of(&kind) {
            Some(FieldInput::AnyValue) => "any type".to_owned(),
            Some(FieldInput::Value(value_type)) => value_type.to_string(),
            _ => json_type(&kind),
        },
    };
    match (field.is_map(), field.is_list()) {
        (true, _) => format!("map of {name}"),
        (_, true) => format!("list of {name}"),
        _ => name,
    }
}

fn json_type(kind: &Kind) -> String {
    match kind {
        Kind::Message(message) => match message.full_name() {
            "google.protobuf.Duration" => "duration".to_owned(),
            "google.protobuf.Timestamp" => "time".to_owned(),
            "google.protobuf.Struct" => "object".to_owned(),
            "google.protobuf.Any" => "object with @type".to_owned(),
            "google.protobuf.Value" | "istio.policy.v1beta1.Value" => "any value".to_owned(),
            _ => message.name().to_owned(),
        },
        Kind::Enum(values) => values.name().to_owned(),
        // The name in proto files.
        scalar => format!("{scalar:?}"),
    }
}

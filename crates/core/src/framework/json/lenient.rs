//! Reads faulty configuration as leniently as Mixer.

use std::ops::ControlFlow::{self, Break, Continue};

use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, MessageDescriptor, ReflectMessage as _, Value};
use serde_json::{Map, Value as Json};

use super::read_json;

/// Reads as much of JSON as Mixer retains of faulty params of a compiled adapter.
///
/// Fields are read in the order of their numbers, but fields of a oneof last, up to the first invalid field. The fields or items
/// before it remain. An unknown field is found after all others of its message.
pub fn read_json_leniently(message: &MessageDescriptor, json: Json) -> DynamicMessage {
    let mut read = DynamicMessage::new(message.clone());
    if let Json::Object(fields) = json {
        // Reading the whole finds the faults.
        let _ = read_fields(fields, &mut read);
    }
    read
}

fn read_fields(mut fields: Map<String, Json>, message: &mut DynamicMessage) -> ControlFlow<()> {
    let descriptor = message.descriptor();
    let mut known: Vec<FieldDescriptor> = descriptor.fields().collect();
    known.sort_by_key(|field| {
        let is_choice = field.containing_oneof().is_some_and(|oneof| !oneof.is_synthetic());
        (is_choice, field.number())
    });
    for field in known {
        let (written, json_name) = (fields.remove(field.name()), fields.remove(field.json_name()));
        match json_name.or(written) {
            None | Some(Json::Null) => {}
            Some(json) => read_field(&field, json, message)?,
        }
    }
    if fields.is_empty() { Continue(()) } else { Break(()) }
}

fn read_field(field: &FieldDescriptor, json: Json, message: &mut DynamicMessage) -> ControlFlow<()> {
    match json {
        Json::Object(entries) if field.is_map() => {
            for (key, value) in entries {
                let entry = Json::Object(Map::from_iter([(key, value)]));
                merge(field, entry, message)?;
            }
            Continue(())
        }
        Json::Array(items) if field.is_list() => {
            for item in items {
                match nested(field) {
                    Some(descriptor) => {
                        let (item, outcome) = read_nested(&descriptor, item);
                        if let Value::List(list) = message.get_field_mut(field) {
                            list.push(item);
                        }
                        outcome?;
                    }
                    None => merge(field, Json::Array(vec![item]), message)?,
                }
            }
            Continue(())
        }
        json => match nested(field).filter(|_| !field.is_list() && !field.is_map()) {
            Some(descriptor) => {
                let (value, outcome) = read_nested(&descriptor, json);
                message.set_field(field, value);
                outcome
            }
            None => merge(field, json, message),
        },
    }
}

/// The message that a field holds, unless it has a special JSON form.
fn nested(field: &FieldDescriptor) -> Option<MessageDescriptor> {
    match field.kind() {
        Kind::Message(message) if !message.full_name().starts_with("google.protobuf.") => Some(message),
        _ => None,
    }
}

fn read_nested(descriptor: &MessageDescriptor, json: Json) -> (Value, ControlFlow<()>) {
    let mut read = DynamicMessage::new(descriptor.clone());
    let outcome = match json {
        Json::Object(fields) => read_fields(fields, &mut read),
        _ => Break(()),
    };
    (Value::Message(read), outcome)
}

/// Adds the value that a separate field would have.
fn merge(field: &FieldDescriptor, json: Json, message: &mut DynamicMessage) -> ControlFlow<()> {
    let alone = Json::Object(Map::from_iter([(field.name().to_owned(), json)]));
    let Ok(read) = read_json(&message.descriptor(), alone) else { return Break(()) };
    match (message.get_field_mut(field), read.get_field(field).into_owned()) {
        (Value::List(list), Value::List(items)) => list.extend(items),
        (Value::Map(map), Value::Map(entries)) => map.extend(entries),
        (value, read) => *value = read,
    }
    Continue(())
}

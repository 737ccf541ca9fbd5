//! A deterministic encoding of messages, so that equal messages have equal versions.

use prost::{
    Message as _,
    encoding::{WireType, encode_key, encode_varint},
};
use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, ReflectMessage as _, Value};

use mixer_adapter_config::content;

/// Encodes a message with all maps in the order of their keys, also within an `Any` whose type is in the pool of the
/// message.
pub(super) fn encode(message: &DynamicMessage) -> Vec<u8> {
    let descriptor = message.descriptor();
    let reordered = content(message).map(|content| {
        let mut any = message.clone();
        any.set_field_by_name("value", Value::Bytes(encode(&content).into()));
        any
    });
    let message = reordered.as_ref().unwrap_or(message);
    let mut bytes = Vec::new();
    for (field, value) in message.fields() {
        match value {
            Value::Map(entries) => {
                let Kind::Message(entry) = field.kind() else { continue };
                let mut entries: Vec<_> = entries.iter().collect();
                entries.sort_by_key(|(key, _)| *key);
                for (key, value) in entries {
                    let mut pair = DynamicMessage::new(entry.clone());
                    pair.set_field(&entry.map_entry_key_field(), key.clone().into());
                    pair.set_field(&entry.map_entry_value_field(), value.clone());
                    put(&field, &pair, &mut bytes);
                }
            }
            Value::Message(inner) => put(&field, inner, &mut bytes),
            Value::List(items) if matches!(field.kind(), Kind::Message(_)) => {
                items.iter().filter_map(Value::as_message).for_each(|item| put(&field, item, &mut bytes));
            }
            scalar => {
                let mut alone = DynamicMessage::new(descriptor.clone());
                alone.set_field(&field, scalar.clone());
                bytes.extend(alone.encode_to_vec());
            }
        }
    }
    bytes
}

fn put(field: &FieldDescriptor, message: &DynamicMessage, bytes: &mut Vec<u8>) {
    let inner = encode(message);
    encode_key(field.number(), WireType::LengthDelimited, bytes);
    encode_varint(inner.len() as u64, bytes);
    bytes.extend(inner);
}

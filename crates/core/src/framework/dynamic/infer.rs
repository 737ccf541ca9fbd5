//! Types of the values of an instance, as sessions announce them.

use prost_reflect::{
    Cardinality, DynamicMessage, FieldDescriptor, Kind, MapKey, MessageDescriptor, ReflectMessage as _, Value,
};

use super::DynamicTemplate;
use crate::value::{Value as Attribute, ValueType};

const VALUE: &str = "istio.policy.v1beta1.Value";

impl DynamicTemplate {
    /// Returns the template's `Type` for the values of an instance, without types for absent fields; `None` if the
    /// template has no such message.
    pub fn inferred_type(&self, instance: &DynamicMessage) -> Option<DynamicMessage> {
        Some(infer(self.instance_type.as_ref()?, instance))
    }
}

/// Infers the types of a message. Its fields have the same numbers in the instance and in the type.
fn infer(message: &MessageDescriptor, instance: &DynamicMessage) -> DynamicMessage {
    let mut inferred = DynamicMessage::new(message.clone());
    for (field, value) in instance.fields() {
        if let Some(target) = message.get_field(field.number())
            && let Some(inferred_value) = infer_field(&target, value)
        {
            inferred.set_field(&target, inferred_value);
        }
    }
    inferred
}

fn infer_field(target: &FieldDescriptor, value: &Value) -> Option<Value> {
    let kind = match (target.is_map(), target.kind()) {
        (true, Kind::Message(entry)) => entry.map_entry_value_field().kind(),
        (_, kind) => kind,
    };
    match value {
        Value::Map(entries) => {
            let entries =
                entries.iter().filter_map(|(key, value)| Some((key.clone(), infer_one(&kind, value)?)));
            Some(Value::Map(entries.collect::<std::collections::HashMap<MapKey, Value>>()))
        }
        Value::List(items) => {
            let mut types = items.iter().filter_map(|item| infer_one(&kind, item));
            match target.cardinality() {
                Cardinality::Repeated => Some(Value::List(types.collect())),
                // The values of a repeated field have the same type.
                _ => types.next(),
            }
        }
        value => infer_one(&kind, value),
    }
}

fn infer_one(kind: &Kind, value: &Value) -> Option<Value> {
    let message = value.as_message()?;
    match kind {
        Kind::Message(target) => Some(Value::Message(infer(target, message))),
        Kind::Enum(_) if message.descriptor().full_name() == VALUE => {
            let value_type = message.transcode_to::<Attribute>().ok()?.value_type();
            (value_type != ValueType::Unspecified).then_some(Value::EnumNumber(value_type as i32))
        }
        _ => None,
    }
}

//! Outputs of adapters as attributes of expressions: the fields of an `OutputMsg`
//! (docs/behaviour/adapter-calls.md#attribute-generators-and-outputs).

use std::sync::Arc;

use prost_reflect::{
    Cardinality, DynamicMessage, Kind, MessageDescriptor, ReflectMessage as _, Value as Field,
};

use super::attribute::{AttributeValue, Bag, StringMap, Vocabulary};
use mixer_adapter_core::value::ValueType;

/// The attributes for the fields of an output message.
#[derive(Clone, Debug)]
pub(crate) struct Outputs {
    message: MessageDescriptor,
    /// The slot in the extended vocabulary by field number.
    slots: Vec<(u32, u32)>,
}

impl Outputs {
    /// Declares `PREFIX.field` for each field of the message.
    pub(crate) fn declare(message: MessageDescriptor, prefix: &str, vocabulary: &mut Vocabulary) -> Self {
        let mut slots = Vec::new();
        for field in message.fields() {
            let Some(value_type) = output_type(&field) else { continue };
            if let Ok(slot) = vocabulary.declare(format!("{prefix}.{}", field.name()), value_type) {
                slots.push((field.number(), slot));
            }
        }
        Self { message, slots }
    }

    /// The slots of the fields.
    pub(crate) fn slots(&self) -> impl Iterator<Item = u32> {
        self.slots.iter().map(|(_, slot)| *slot)
    }

    /// Inserts the fields of an encoded message into a bag; proto3 fields with their default value are absent.
    pub(crate) fn read(&self, encoded: &[u8], bag: &mut Bag) -> Result<(), prost::DecodeError> {
        let output = DynamicMessage::decode(self.message.clone(), encoded)?;
        for (number, slot) in &self.slots {
            let Some(field) = output.descriptor().get_field(*number) else { continue };
            if output.has_field(&field)
                && let Some(value) = attribute(&output.get_field(&field))
            {
                bag.set(*slot, value);
            }
        }
        Ok(())
    }
}

/// Returns the type of an output in expressions; `None` if it has none.
fn output_type(field: &prost_reflect::FieldDescriptor) -> Option<ValueType> {
    if field.is_map() {
        let Kind::Message(entry) = field.kind() else { return None };
        let text = entry.map_entry_key_field().kind() == Kind::String
            && entry.map_entry_value_field().kind() == Kind::String;
        return text.then_some(ValueType::StringMap);
    }
    if field.cardinality() == Cardinality::Repeated {
        return None;
    }
    Some(match field.kind() {
        Kind::String => ValueType::String,
        Kind::Double | Kind::Float => ValueType::Double,
        Kind::Bool => ValueType::Bool,
        Kind::Bytes => return None,
        Kind::Message(message) => match message.full_name() {
            "istio.policy.v1beta1.IPAddress" => ValueType::IpAddress,
            "istio.policy.v1beta1.Duration" | "google.protobuf.Duration" => ValueType::Duration,
            "istio.policy.v1beta1.TimeStamp" | "google.protobuf.Timestamp" => ValueType::Timestamp,
            "istio.policy.v1beta1.DNSName" => ValueType::DnsName,
            "istio.policy.v1beta1.EmailAddress" => ValueType::EmailAddress,
            "istio.policy.v1beta1.Uri" => ValueType::Uri,
            _ => return None,
        },
        _ => ValueType::Int64,
    })
}

fn attribute(field: &Field) -> Option<AttributeValue> {
    Some(match field {
        Field::String(text) => AttributeValue::String(text.as_str().into()),
        Field::Bool(truth) => AttributeValue::Bool(*truth),
        Field::F64(number) => AttributeValue::Double(*number),
        Field::F32(number) => AttributeValue::Double(f64::from(*number)),
        Field::I64(number) => AttributeValue::Int64(*number),
        Field::U64(number) => AttributeValue::Int64(*number as i64),
        Field::I32(number) | Field::EnumNumber(number) => AttributeValue::Int64(i64::from(*number)),
        Field::U32(number) => AttributeValue::Int64(i64::from(*number)),
        Field::Map(entries) => {
            let entries = entries.iter().filter_map(|(key, value)| Some((key.as_str()?, value.as_str()?)));
            AttributeValue::StringMap(entries.collect::<StringMap>())
        }
        Field::Message(message) => return message_attribute(message),
        Field::Bytes(_) | Field::List(_) => return None,
    })
}

fn message_attribute(message: &DynamicMessage) -> Option<AttributeValue> {
    let whole = message.descriptor();
    match whole.full_name() {
        "google.protobuf.Duration" => {
            let length: prost_types::Duration = message.transcode_to().ok()?;
            let nanos = i128::from(length.seconds) * 1_000_000_000 + i128::from(length.nanos);
            Some(AttributeValue::Duration(i64::try_from(nanos).ok()?))
        }
        "google.protobuf.Timestamp" => Some(AttributeValue::Timestamp(message.transcode_to().ok()?)),
        // The messages of istio.policy.v1beta1 have their value in field 1; Mixer drops messages without it.
        _ if !message.has_field_by_number(1) => None,
        _ => match &*message.get_field_by_number(1)? {
            Field::Bytes(bytes) => Some(AttributeValue::Bytes(bytes.clone())),
            Field::String(text) => Some(AttributeValue::String(Arc::from(text.as_str()))),
            Field::Message(inner) => message_attribute(inner),
            _ => None,
        },
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use prost_reflect::DescriptorPool;
    use prost_types::{
        DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet,
        field_descriptor_proto::{Label, Type},
    };

    use super::*;

    /// A message of that name, with a text as field 1.
    fn dns_name() -> DynamicMessage {
        let mut value =
            FieldDescriptorProto { name: Some("value".to_owned()), number: Some(1), ..Default::default() };
        value.set_type(Type::String);
        value.set_label(Label::Optional);
        let message =
            DescriptorProto { name: Some("DNSName".to_owned()), field: vec![value], ..Default::default() };
        let file = FileDescriptorProto {
            name: Some("value.proto".to_owned()),
            package: Some("istio.policy.v1beta1".to_owned()),
            syntax: Some("proto3".to_owned()),
            message_type: vec![message],
            ..Default::default()
        };
        let pool = DescriptorPool::from_file_descriptor_set(FileDescriptorSet { file: vec![file] }).unwrap();
        DynamicMessage::new(pool.get_message_by_name("istio.policy.v1beta1.DNSName").unwrap())
    }

    #[test]
    fn an_output_that_is_present_but_empty_is_absent() {
        let mut name = dns_name();
        assert_eq!(message_attribute(&name), None);
        name.set_field_by_number(1, Field::String("a.example".to_owned()));
        assert_eq!(message_attribute(&name), Some(AttributeValue::String("a.example".into())));
    }

    #[test]
    fn a_timestamp_of_a_generator_is_a_timestamp() {
        let descriptor = DescriptorPool::global().get_message_by_name("google.protobuf.Timestamp").unwrap();
        let mut time = DynamicMessage::new(descriptor);
        time.set_field_by_number(1, Field::I64(7));
        let expected = prost_types::Timestamp { seconds: 7, nanos: 0 };
        assert_eq!(message_attribute(&time), Some(AttributeValue::Timestamp(expected)));
    }
}

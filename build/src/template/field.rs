//! Validation of the fields of a template.

use prost_reflect::{FieldDescriptor, Kind as ProtoKind, MessageDescriptor};

use super::{
    Variety,
    model::{Field, Kind, Shape},
};
use crate::{schema_error::SchemaError, schema_errors::SchemaErrors, source_info::comment};

/// The numbers of `name` and `attribute_bindings` in generated messages.
pub(crate) const NAME: u32 = 72_295_727;
pub(crate) const ATTRIBUTE_BINDINGS: u32 = 72_295_728;

const POLICY: &str = "istio.policy.v1beta1";
const POLICY_TYPES: [&str; 6] = ["IPAddress", "TimeStamp", "Duration", "DNSName", "EmailAddress", "Uri"];

/// Reads a field. Adds its faults and returns `None` if its type is not valid.
pub(crate) fn read(
    field: &FieldDescriptor,
    variety: Option<Variety>,
    errors: &mut SchemaErrors<'_>,
) -> Option<Field> {
    let mut refuse = |reason| errors.add(field.path(), reason);
    if field.name().eq_ignore_ascii_case("name") {
        refuse(SchemaError::Name { name: field.name().to_owned() });
    }
    if [NAME, ATTRIBUTE_BINDINGS].contains(&field.number()) {
        refuse(SchemaError::Number { number: field.number() });
    }
    if let Some(oneof) = field.containing_oneof() {
        let optional = oneof.is_synthetic();
        refuse(if optional {
            SchemaError::Optional
        } else {
            SchemaError::Oneof { oneof: oneof.name().to_owned() }
        });
    }
    let in_output = field.parent_message().name() == "OutputTemplate";
    let shape = if in_output { output_shape(field) } else { shape(field, variety) };
    let shape = shape.map_err(refuse).ok()?;
    let file = field.parent_file();
    let comment = comment(file.file_descriptor_proto(), field.path()).unwrap_or_default().to_owned();
    Some(Field { name: field.name().to_owned(), number: field.number(), comment, shape })
}

fn shape(field: &FieldDescriptor, variety: Option<Variety>) -> Result<Shape, SchemaError> {
    let kind = |field: &FieldDescriptor| {
        let kind = kind(field)?;
        let generator = variety == Some(Variety::AttributeGenerator);
        if generator && matches!(kind, Kind::Value) { Err(SchemaError::ValueInGenerator) } else { Ok(kind) }
    };
    if let Some(entry) = map_entry(field) {
        let key = entry.map_entry_key_field();
        if key.kind() != ProtoKind::String {
            return Err(SchemaError::MapKey { found: type_name(&key) });
        }
        return kind(&entry.map_entry_value_field()).map(Shape::Map);
    }
    match kind(field)? {
        Kind::Message(message) if field.is_list() => Ok(Shape::Repeated(message)),
        _ if field.is_list() => Err(SchemaError::Repeated { found: type_name(field) }),
        kind => Ok(Shape::One(kind)),
    }
}

/// Reads a field of an output, which becomes an attribute: without structure, and of a definite type.
fn output_shape(field: &FieldDescriptor) -> Result<Shape, SchemaError> {
    let wrong = |found: String| Err(SchemaError::OutputType { found });
    if let Some(entry) = map_entry(field) {
        let (key, value) = (entry.map_entry_key_field(), entry.map_entry_value_field());
        if key.kind() != ProtoKind::String || value.kind() != ProtoKind::String {
            return wrong(format!("map<{}, {}>", type_name(&key), type_name(&value)));
        }
        return Ok(Shape::Map(Kind::Scalar("string".to_owned())));
    }
    if field.is_list() {
        return wrong(format!("repeated {}", type_name(field)));
    }
    match kind(field) {
        Ok(kind @ (Kind::Scalar(_) | Kind::Policy(_))) => Ok(Shape::One(kind)),
        _ => wrong(type_name(field)),
    }
}

fn map_entry(field: &FieldDescriptor) -> Option<MessageDescriptor> {
    field.kind().as_message().filter(|message| message.is_map_entry()).cloned()
}

fn kind(field: &FieldDescriptor) -> Result<Kind, SchemaError> {
    let wrong = || Err(SchemaError::FieldType { found: type_name(field) });
    match field.kind() {
        ProtoKind::String | ProtoKind::Int64 | ProtoKind::Double | ProtoKind::Bool => {
            Ok(Kind::Scalar(type_name(field)))
        }
        ProtoKind::Message(message) if message.package_name() == POLICY => match message.name() {
            "Value" => Ok(Kind::Value),
            name if POLICY_TYPES.contains(&name) => Ok(Kind::Policy(format!(".{POLICY}.{name}"))),
            _ => wrong(),
        },
        ProtoKind::Message(message) => {
            let ours = message.parent_file() == field.parent_file() && message.parent_message().is_none();
            let named = message.name();
            if ours && named != "Template" && named != "OutputTemplate" {
                Ok(Kind::Message(named.to_owned()))
            } else {
                wrong()
            }
        }
        _ => wrong(),
    }
}

/// Returns the type in proto notation.
fn type_name(field: &FieldDescriptor) -> String {
    format!("{:?}", field.kind())
}

//! Compiles the `params` of an instance to fields (docs/behaviour/configuration.md#params-of-instances-template).
//!
//! Mixer has two sets of rules. For a compiled template every string is an expression; an empty one omits its field,
//! and only strings are allowed. For a template resource a quoted string is a literal, and numbers and booleans are
//! values.

use std::sync::Arc;

use prost_reflect::{FieldDescriptor, Kind, MessageDescriptor};
use serde_json::{Map, Value as Json};

use super::{
    Constant, Field, ParamsError, Scalar, Source, TemplateSource, Typed, constant,
    literal::{constant_value, quoted, typed_constant},
    wrong_type::wrong_type,
};
use crate::{
    attribute::Vocabulary,
    expression::{Expression, Language},
    wire,
};
use mixer_adapter_core::{
    framework::{json::join, suggest::suggestion},
    value::ValueType,
};

/// A part of params, or all faults in it.
type Compiled<T> = Result<T, Vec<ParamsError>>;

/// The field for the name in every InstanceMsg.
const NAME: &str = "name";

pub(super) fn fields(
    name: &str,
    message: &MessageDescriptor,
    mut params: Map<String, Json>,
    compiler: &mut Compiler<'_>,
) -> Compiled<Vec<Field>> {
    if compiler.source == TemplateSource::Resource {
        // A value of `name` is overridden by the instance's full name.
        params.remove(NAME);
    }
    let mut fields = compiler.message_fields(message, params, "")?;
    if let Some(field) = message.get_field_by_name(NAME) {
        let mut constant = Vec::new();
        wire::bytes(field.number(), name.as_bytes(), &mut constant);
        fields.push(Field::Constant(constant));
    }
    Ok(merge_constants(fields))
}

/// The context of compilation and the constants found so far.
pub(super) struct Compiler<'a> {
    pub(super) vocabulary: &'a Vocabulary,
    pub(super) language: Language,
    pub(super) source: TemplateSource,
    pub(super) constants: Vec<Constant>,
}

/// Returns whether a field at a path is a parameter: the name of an instance is not.
fn is_param(field: &FieldDescriptor, path: &str) -> bool {
    !path.is_empty() || field.name() != NAME
}

/// A field that takes the value of an expression.
enum Leaf {
    Typed(Typed),
    Scalar(Scalar),
}

impl Leaf {
    /// The type of expressions for the field; `None` if any type fits.
    fn expression_type(&self) -> Option<ValueType> {
        match self {
            Leaf::Typed(Typed::Value) => None,
            Leaf::Typed(Typed::Of(wanted)) => Some(*wanted),
            Leaf::Scalar(Scalar::String) => Some(ValueType::String),
            Leaf::Scalar(Scalar::Double | Scalar::Float) => Some(ValueType::Double),
            Leaf::Scalar(Scalar::Bool) => Some(ValueType::Bool),
            Leaf::Scalar(_) => Some(ValueType::Int64),
        }
    }
}

/// The values that the field of an instance accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FieldInput {
    /// An expression of any type.
    AnyValue,
    /// An expression of a type.
    Value(ValueType),
    /// The fields of a message, each with its own input.
    Fields,
}

impl FieldInput {
    /// Returns the values that a field of this kind accepts; for a map or a list, pass the kind of its values. `None` for
    /// bytes, which no expression has.
    pub fn of(kind: &Kind) -> Option<Self> {
        let Some(leaf) = leaf(kind, "").ok()? else { return Some(Self::Fields) };
        Some(leaf.expression_type().map_or(Self::AnyValue, Self::Value))
    }
}

/// Returns the field of a kind; `None` for a message with fields.
fn leaf(kind: &Kind, path: &str) -> Compiled<Option<Leaf>> {
    match kind {
        Kind::Message(message) => Ok(typed(message).map(Leaf::Typed)),
        kind => Ok(Some(Leaf::Scalar(scalar(kind, path)?))),
    }
}

/// The messages of `istio.policy.v1beta1` that contain a single value.
fn typed(message: &MessageDescriptor) -> Option<Typed> {
    let of = match message.full_name().strip_prefix("istio.policy.v1beta1.")? {
        "Value" => return Some(Typed::Value),
        "IPAddress" => ValueType::IpAddress,
        "TimeStamp" => ValueType::Timestamp,
        "Duration" => ValueType::Duration,
        "DNSName" => ValueType::DnsName,
        "EmailAddress" => ValueType::EmailAddress,
        "Uri" => ValueType::Uri,
        "StringMap" => ValueType::StringMap,
        _ => return None,
    };
    Some(Typed::Of(of))
}

fn scalar(kind: &Kind, path: &str) -> Compiled<Scalar> {
    Ok(match kind {
        Kind::String => Scalar::String,
        Kind::Int64 | Kind::Uint64 => Scalar::Int64,
        Kind::Sint64 => Scalar::Sint64,
        Kind::Fixed64 | Kind::Sfixed64 => Scalar::Fixed64,
        Kind::Fixed32 | Kind::Sfixed32 => Scalar::Fixed32,
        Kind::Int32 => Scalar::Int32,
        Kind::Sint32 => Scalar::Sint32,
        Kind::Uint32 => Scalar::Uint32,
        Kind::Double => Scalar::Double,
        Kind::Float => Scalar::Float,
        Kind::Bool => Scalar::Bool,
        Kind::Enum(descriptor) => Scalar::Enum(descriptor.clone()),
        Kind::Bytes | Kind::Message(_) => {
            return Err(ParamsError::single(path, "fields of bytes cannot be filled from attributes"));
        }
    })
}

/// Encodes a field with a constant that is not a text. Returns a description of the expected constant if it is another one.
fn scalar_constant(number: u32, scalar: &Scalar, json: &Json, field: &mut Vec<u8>) -> Option<String> {
    match (scalar, json) {
        (Scalar::Bool, Json::Bool(truth)) => prost::encoding::bool::encode(number, truth, field),
        (Scalar::Double | Scalar::Float, Json::Number(value)) => {
            super::encode::double(number, scalar, value.as_f64().unwrap_or_default(), field);
        }
        (Scalar::Enum(descriptor), Json::Number(value)) => {
            let value = whole(value).and_then(|value| i32::try_from(value).ok());
            let Some(value) = value else { return Some(format!("a value of {}", descriptor.name())) };
            prost::encoding::int32::encode(number, &value, field);
        }
        (Scalar::String | Scalar::Bool, _) => {
            return Some("a constant in quotes within the quotes of YAML".to_owned());
        }
        (_, Json::Number(value)) => {
            let Some(value) = whole(value) else { return Some("a whole number".to_owned()) };
            super::encode::integer(number, scalar, value, field);
        }
        _ => return Some("a number".to_owned()),
    }
    None
}

/// Converts a number of a Struct to an integer.
fn whole(number: &serde_json::Number) -> Option<i64> {
    number
        .as_i64()
        .or_else(|| number.as_f64().filter(|number| number.fract() == 0.0).map(|number| number as i64))
}

impl Compiler<'_> {
    fn message_fields(
        &mut self,
        message: &MessageDescriptor,
        params: Map<String, Json>,
        path: &str,
    ) -> Compiled<Vec<Field>> {
        let mut fields = Vec::new();
        let mut faults = Vec::new();
        for (name, json) in params {
            let field = message.get_field_by_name(&name).or_else(|| message.get_field_by_json_name(&name));
            let Some(field) = field.filter(|field| is_param(field, path)) else {
                let known: Vec<FieldDescriptor> =
                    message.fields().filter(|field| is_param(field, path)).collect();
                let known: Vec<&str> = known.iter().map(FieldDescriptor::name).collect();
                let known =
                    if known.is_empty() { "it has no fields".into() } else { suggestion(&name, &known) };
                let reason = format!("no such field in the template; {known}");
                faults.push(ParamsError::new(&join(path, &name), reason));
                continue;
            };
            if !json.is_null() {
                match self.compile_field(&field, json, &join(path, field.name())) {
                    Ok(compiled) => fields.extend(compiled),
                    Err(found) => faults.extend(found),
                }
            }
        }
        if !faults.is_empty() {
            return Err(faults);
        }
        // By field number, regardless of the order in the file.
        fields.sort_by_key(number);
        Ok(fields)
    }

    fn compile_field(&mut self, field: &FieldDescriptor, json: Json, path: &str) -> Compiled<Vec<Field>> {
        let number = field.number();
        if field.is_map() {
            let Json::Object(entries) = json else {
                return Err(ParamsError::single(path, "expected an object: the field is a map"));
            };
            let Kind::Message(entry) = field.kind() else { return Ok(Vec::new()) };
            let value = entry.map_entry_value_field();
            let (mut fields, mut faults) = (Vec::new(), Vec::new());
            for (key, json) in entries {
                let mut encoded_key = Vec::new();
                wire::bytes(1, key.as_bytes(), &mut encoded_key);
                let path = format!("{path}[{key:?}]");
                match self.compile_one(2, &value.kind(), json, &path) {
                    Ok(Some(value)) => {
                        fields.push(Field::Message(number, vec![Field::Constant(encoded_key), value]));
                    }
                    Ok(None) => {
                        let reason =
                            "an entry cannot be empty; leave it out, or write an empty text as \"\\\"\\\"\"";
                        faults.push(ParamsError::new(&path, reason));
                    }
                    Err(found) => faults.extend(found),
                }
            }
            return if faults.is_empty() { Ok(fields) } else { Err(faults) };
        }
        if field.is_list() {
            let Json::Array(items) = json else {
                return Err(ParamsError::single(path, "expected a list: the field is repeated"));
            };
            let items = items.into_iter().enumerate().filter_map(|(index, item)| {
                self.compile_one(number, &field.kind(), item, &format!("{path}[{index}]")).transpose()
            });
            let items = items.collect::<Result<Vec<_>, _>>()?;
            return Ok(if field.is_packed() { vec![Field::Packed(number, items)] } else { items });
        }
        Ok(self.compile_one(number, &field.kind(), json, path)?.into_iter().collect())
    }

    /// Compiles a single value; `None` if an empty string omits it.
    fn compile_one(&mut self, number: u32, kind: &Kind, json: Json, path: &str) -> Compiled<Option<Field>> {
        let Some(leaf) = leaf(kind, path)? else {
            let Kind::Message(message) = kind else { return Ok(None) };
            let Json::Object(params) = json else {
                let reason = format!("expected an object with the fields of {}", message.name());
                return Err(ParamsError::single(path, reason));
            };
            let fields = self.message_fields(message, params, path)?;
            return Ok(Some(Field::Message(number, fields)));
        };
        match (self.source, leaf) {
            (TemplateSource::Compiled, leaf) => match json {
                Json::String(text) if text.is_empty() => Ok(None),
                Json::String(text) => self.compile_expression(number, leaf, text, path).map(Some),
                Json::Number(_) | Json::Bool(_) => {
                    let reason =
                        format!("expected an expression, which is a text; write {:?}", json.to_string());
                    Err(ParamsError::single(path, reason))
                }
                _ => Err(ParamsError::single(path, "expected an expression, which is a text")),
            },
            (TemplateSource::Resource, Leaf::Typed(typed)) => {
                self.compile_typed(number, typed, json, path).map(Some)
            }
            (TemplateSource::Resource, Leaf::Scalar(scalar)) => {
                self.compile_scalar(number, scalar, json, path).map(Some)
            }
        }
    }

    /// Compiles an expression; constants are evaluated here.
    fn compile_expression(&mut self, number: u32, leaf: Leaf, text: String, path: &str) -> Compiled<Field> {
        let expression = self.expression(&text, path)?;
        let actual = expression.value_type();
        let wanted = match &leaf {
            Leaf::Typed(Typed::Value) if actual == ValueType::StringMap && !self.takes_maps() => {
                let reason =
                    "a STRING_MAP cannot be put into a Value; take one of its entries, `headers[\"x\"]`";
                return Err(ParamsError::single(path, reason));
            }
            Leaf::Scalar(Scalar::Enum(_)) if actual == ValueType::String => ValueType::String,
            leaf => leaf.expression_type().unwrap_or(actual),
        };
        if actual != wanted {
            return Err(wrong_type(path, wanted, &expression, &text));
        }
        let source = Arc::new(Source { path: path.into(), text: text.into(), expression });
        let field = match leaf {
            Leaf::Typed(typed) => Field::Typed(number, typed, source),
            Leaf::Scalar(scalar) => Field::Scalar(number, scalar, source),
        };
        constant::fold(field, &mut self.constants)
    }

    fn compile_typed(&mut self, number: u32, typed: Typed, json: Json, path: &str) -> Compiled<Field> {
        let text = match (typed, json) {
            // Params are a Struct, in which every number is a double.
            (Typed::Value, Json::Number(number_value)) => {
                let double = number_value.as_f64().unwrap_or_default();
                return Ok(constant_value(number, ValueType::Double, |content| {
                    prost::encoding::double::encode(3, &double, content);
                }));
            }
            (Typed::Value, Json::Bool(truth)) => {
                return Ok(constant_value(number, ValueType::Bool, |content| {
                    prost::encoding::bool::encode(4, &truth, content);
                }));
            }
            (_, Json::String(text)) => text,
            _ => {
                let reason = "expected an expression, or a constant in quotes within the quotes of YAML";
                return Err(ParamsError::single(path, reason));
            }
        };
        if let Some(literal) = quoted(&text) {
            self.constants.push(Constant::literal(path, &text, literal));
            return typed_constant(number, typed, literal, path);
        }
        self.compile_expression(number, Leaf::Typed(typed), text, path)
    }

    fn compile_scalar(&mut self, number: u32, scalar: Scalar, json: Json, path: &str) -> Compiled<Field> {
        let text = match json {
            Json::String(text) => text,
            json => {
                let mut field = Vec::new();
                return match scalar_constant(number, &scalar, &json, &mut field) {
                    None => Ok(Field::Constant(field)),
                    Some(expected) => {
                        Err(ParamsError::single(path, format!("expected {expected} or an expression")))
                    }
                };
            }
        };
        if let Some(literal) = quoted(&text) {
            self.constants.push(Constant::literal(path, &text, literal));
            let mut field = Vec::new();
            let value = match &scalar {
                Scalar::String => {
                    wire::bytes(number, literal.as_bytes(), &mut field);
                    Ok(())
                }
                Scalar::Enum(descriptor) => descriptor
                    .get_value_by_name(literal)
                    .map(|value| prost::encoding::int32::encode(number, &value.number(), &mut field))
                    .ok_or_else(|| {
                        let known: Vec<String> =
                            descriptor.values().map(|value| value.name().to_owned()).collect();
                        let known = known.join(", ");
                        format!("{literal:?} is not a value of {}; write one of {known}", descriptor.name())
                    }),
                _ => Err(format!("{literal:?} in quotes is a STRING; write the value itself")),
            };
            value.map_err(|reason| ParamsError::single(path, reason))?;
            return Ok(Field::Constant(field));
        }
        self.compile_expression(number, Leaf::Scalar(scalar), text, path)
    }

    fn expression(&self, text: &str, path: &str) -> Compiled<Expression> {
        Expression::compile_in(self.language, text, self.vocabulary).map_err(|error| {
            let reason = error.to_string();
            let expression = Some((text.to_owned(), error));
            vec![ParamsError { field: path.to_owned(), reason, expression }]
        })
    }

    /// Returns whether a STRING_MAP can be stored in a `Value`: the message for out-of-process adapters has no such
    /// variant.
    fn takes_maps(&self) -> bool {
        self.source == TemplateSource::Compiled
    }
}

fn merge_constants(fields: Vec<Field>) -> Vec<Field> {
    let mut merged: Vec<Field> = Vec::with_capacity(fields.len());
    for field in fields {
        match (merged.last_mut(), field) {
            (Some(Field::Constant(before)), Field::Constant(after)) => before.extend_from_slice(&after),
            (_, field) => merged.push(field),
        }
    }
    merged
}

fn number(field: &Field) -> u32 {
    match field {
        Field::Constant(bytes) => {
            prost::encoding::decode_key(&mut &bytes[..]).map_or(0, |(number, _)| number)
        }
        Field::ConstantValue(number, ..)
        | Field::Scalar(number, ..)
        | Field::Typed(number, ..)
        | Field::Message(number, _)
        | Field::Packed(number, _) => *number,
    }
}

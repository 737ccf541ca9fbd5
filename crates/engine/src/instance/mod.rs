//! Instances: what a request's attributes make of an `instance` resource, in the bytes an adapter is sent.

mod compile;
mod constant;
mod encode;
mod explain;
mod wire;

use std::sync::Arc;

pub use compile::InstanceFault;
pub use encode::InstanceError;

use self::constant::Constant;
use super::{
    attribute::{Attributes, Reads, Vocabulary},
    expression::{Expression, Language},
};
use mixer_adapter_core::{framework::dynamic::DynamicTemplate, value::ValueType};

/// Where the template of an instance comes from, by which Mixer reads the instance's params.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TemplateSource {
    /// It is compiled in: `compiledTemplate`, and the kinds that are named after a template. Every text is an expression,
    /// also one within quotes.
    Compiled,
    /// It is a resource: `template`. A text within quotes is a literal.
    Resource,
}

/// An instance resource, compiled against its template: fields that never change are bytes already, the others are
/// expressions.
#[derive(Debug)]
pub struct Instance {
    /// The full name, `requestcount.instance.istio-system`.
    pub name: Arc<str>,
    /// The template.
    pub template: Arc<DynamicTemplate>,
    fields: Vec<Field>,
    /// The params that are constant, which traces show.
    constants: Vec<Constant>,
}

/// One field of a message.
#[derive(Debug)]
enum Field {
    /// Whole fields that are the same for every request.
    Constant(Vec<u8>),
    /// A constant `Value`, whole field, with the type that sessions announce.
    ConstantValue(u32, ValueType, Vec<u8>),
    /// A scalar of an expression's value.
    Scalar(u32, Scalar, Source),
    /// One of `istio.policy.v1beta1`'s messages around a single value, or `Value` itself.
    Typed(u32, Typed, Source),
    /// A message, or an entry of a map.
    Message(u32, Vec<Field>),
    /// Repeated numbers in one piece.
    Packed(u32, Vec<Field>),
}

/// An expression and where it stands, for messages.
#[derive(Debug)]
struct Source {
    path: Box<str>,
    text: Box<str>,
    expression: Expression,
}

#[derive(Clone, Debug)]
enum Scalar {
    String,
    Int64,
    Sint64,
    Fixed32,
    Fixed64,
    Int32,
    Sint32,
    Uint32,
    Double,
    Float,
    Bool,
    Enum(prost_reflect::EnumDescriptor),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Typed {
    Value,
    Of(ValueType),
}

impl Instance {
    /// Compiles the parameters of an instance.
    pub fn compile(
        name: Arc<str>,
        source: TemplateSource,
        template: Arc<DynamicTemplate>,
        params: serde_json::Map<String, serde_json::Value>,
        vocabulary: &Vocabulary,
        language: Language,
    ) -> Result<Self, InstanceFault> {
        let mut compiler = compile::Compiler { vocabulary, language, source, constants: Vec::new() };
        let fields = compile::fields(&name, template.instance(), params, &mut compiler)?;
        Ok(Self { name, template, fields, constants: compiler.constants })
    }

    /// Its expressions that are no constants, each with the path of its field, `dimensions["code"]`.
    pub fn expressions(&self) -> impl Iterator<Item = (&str, &Expression)> {
        self.sources().into_iter().map(|source| (&*source.path, &source.expression))
    }

    fn sources(&self) -> Vec<&Source> {
        let mut found = Vec::new();
        let mut open: Vec<&Field> = self.fields.iter().collect();
        while let Some(field) = open.pop() {
            match field {
                Field::Constant(_) | Field::ConstantValue(..) => {}
                Field::Scalar(_, _, source) | Field::Typed(_, _, source) => found.push(source),
                Field::Message(_, fields) | Field::Packed(_, fields) => open.extend(fields),
            }
        }
        found
    }

    /// Appends the instance that these attributes make, an encoded `InstanceMsg`.
    pub fn encode(
        &self,
        attributes: Attributes<'_>,
        reads: &mut Reads,
        message: &mut Vec<u8>,
    ) -> Result<(), InstanceError> {
        encode::fields(&self.fields, attributes, reads, message)
    }

    /// The instance's `Type` message: the types of its `Value` fields, as a session announces them.
    pub fn inferred_type(&self) -> Vec<u8> {
        let mut message = Vec::new();
        encode::types(&self.fields, &mut message);
        message
    }
}

#[cfg(test)]
mod tests;

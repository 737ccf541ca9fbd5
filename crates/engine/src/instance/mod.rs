//! Instances: messages that are built from the attributes of a request and sent to adapters.

mod compile;
mod constant;
mod encode;
mod explain;
mod literal;
mod local;
mod params_error;
mod wrong_type;

use std::sync::{Arc, OnceLock};

pub use compile::FieldInput;
pub(crate) use encode::InstanceError;
pub(crate) use local::LocalForm;
pub(crate) use params_error::ParamsError;

use self::constant::Constant;
use super::{
    attribute::{Attributes, Reads, Vocabulary},
    expression::{Expression, Language},
    quota_settings::QuotaSettings,
};
use mixer_adapter_core::{framework::dynamic::DynamicTemplate, value::ValueType};
use mixer_adapter_host::handler::LocalInstance;

/// The origin of an instance's template, which determines how Mixer interprets its params.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TemplateSource {
    /// Compiled in: `compiledTemplate`, and the kinds that are named after a template. Every string is an expression,
    /// even a quoted one.
    Compiled,
    /// A resource: `template`. A quoted string is a literal.
    Resource,
}

/// An instance resource, compiled for its template: constant fields are encoded, the others are expressions.
#[derive(Debug)]
pub(crate) struct Instance {
    /// The full name, such as `requestcount.instance.istio-system`.
    pub name: Arc<str>,
    /// The template.
    pub template: Arc<DynamicTemplate>,
    /// The settings of a quota.
    pub(crate) quota: QuotaSettings,
    fields: Vec<Field>,
    /// The slots of the attributes that it reads.
    slots: Box<[u32]>,
    /// The constant params, for traces.
    constants: Vec<Constant>,
    /// The form for adapters in this process; `None` inside if they lack one of the fields.
    local: OnceLock<Option<Arc<LocalForm>>>,
}

/// One field of a message.
#[derive(Debug)]
enum Field {
    /// Encoded fields that are the same for every request.
    Constant(Vec<u8>),
    /// An encoded field with a constant `Value`, and its type for sessions.
    ConstantValue(u32, ValueType, Vec<u8>),
    /// A scalar field with the value of an expression.
    Scalar(u32, Scalar, Arc<Source>),
    /// A message of `istio.policy.v1beta1` with a single value, or `Value` itself.
    Typed(u32, Typed, Arc<Source>),
    /// A message, or an entry of a map.
    Message(u32, Vec<Field>),
    /// A packed repeated field.
    Packed(u32, Vec<Field>),
}

/// An expression and its source, for messages.
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
    /// Compiles the params of an instance, or returns all their faults.
    pub(crate) fn compile(
        name: Arc<str>,
        source: TemplateSource,
        template: Arc<DynamicTemplate>,
        params: serde_json::Map<String, serde_json::Value>,
        vocabulary: &Vocabulary,
        language: Language,
    ) -> Result<Self, Vec<ParamsError>> {
        let mut compiler = compile::Compiler { vocabulary, language, source, constants: Vec::new() };
        let fields = compile::fields(&name, template.instance(), params, &mut compiler)?;
        let quota = QuotaSettings::default();
        let constants = compiler.constants;
        let mut compiled =
            Self { name, template, quota, fields, slots: Box::default(), constants, local: OnceLock::new() };
        compiled.slots = compiled.expressions().flat_map(|(_, _, expression)| expression.slots()).collect();
        Ok(compiled)
    }

    /// Returns the form for adapters in this process; `decode` decodes the constants for the first of them. An adapter with messages of
    /// another type receives the encoded instance.
    pub(crate) fn local_form(
        &self,
        decode: impl FnOnce(&[u8]) -> Option<Box<dyn LocalInstance>>,
    ) -> Option<Arc<LocalForm>> {
        self.local.get_or_init(|| LocalForm::new(self, decode).map(Arc::new)).clone()
    }

    /// Iterates over the slots of the attributes that it reads.
    pub(crate) fn slots(&self) -> impl Iterator<Item = u32> {
        self.slots.iter().copied()
    }

    /// Iterates over the expressions that are not constant with their fields, such as `dimensions["code"]`, and their sources.
    pub(crate) fn expressions(&self) -> impl Iterator<Item = (&str, &str, &Expression)> {
        self.sources().into_iter().map(|source| (&*source.path, &*source.text, &source.expression))
    }

    fn sources(&self) -> Vec<&Arc<Source>> {
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

    /// Appends the instance for the given attributes, an encoded `InstanceMsg`.
    pub(crate) fn encode(
        &self,
        attributes: Attributes<'_>,
        reads: &mut Reads,
        message: &mut Vec<u8>,
    ) -> Result<(), InstanceError> {
        encode::fields(&self.fields, attributes, reads, message)
    }

    /// Returns the encoded `Type` message: the types of the `Value` fields, which sessions announce.
    pub(crate) fn inferred_type(&self) -> Vec<u8> {
        let mut message = Vec::new();
        encode::types(&self.fields, &mut message);
        message
    }
}

#[cfg(test)]
mod tests;

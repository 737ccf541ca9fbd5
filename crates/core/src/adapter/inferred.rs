use prost::{Message, bytes::Bytes};

use crate::template::Template;

/// The types of the instances that a session will send, by instance name: `inferred_types` of Validate and
/// CreateSession, each checked to be of a template that the adapter serves.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InferredTypes {
    types: Vec<InferredType>,
}

/// The type of one instance.
#[derive(Clone, Debug, PartialEq)]
pub struct InferredType {
    /// The instance's full name, `requestcount.instance.istio-system`.
    pub instance: String,
    /// The template's name.
    pub template: &'static str,
    /// The template's `Type` message, encoded.
    pub encoded: Bytes,
}

impl InferredTypes {
    /// Types in the order of their instances' names.
    pub fn new(mut types: Vec<InferredType>) -> Self {
        types.sort_by(|a, b| a.instance.cmp(&b.instance));
        Self { types }
    }

    /// All types, by instance name.
    pub fn iter(&self) -> impl Iterator<Item = &InferredType> {
        self.types.iter()
    }

    /// The instances of one template, with their types.
    pub fn of<T: Template>(&self) -> impl Iterator<Item = (&str, T::Type)> {
        self.types.iter().filter(|inferred| inferred.template == T::NAME).filter_map(|inferred| {
            Some((inferred.instance.as_str(), T::Type::decode(inferred.encoded.clone()).ok()?))
        })
    }
}

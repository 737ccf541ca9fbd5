use prost::{Message, bytes::Bytes};

use crate::template::Template;

/// The types of the instances that a session will send, ordered by instance name: `inferred_types` of Validate and
/// CreateSession. All of them belong to templates that the adapter serves.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InferredTypes {
    types: Vec<InferredType>,
}

/// The type of one instance.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct InferredType {
    /// The instance's full name, `requestcount.instance.istio-system`.
    pub instance: String,
    /// The template's name.
    pub template: &'static str,
    /// The template's `Type` message, encoded.
    pub encoded: Bytes,
}

impl InferredType {
    /// Creates the type of an instance from the encoded `Type` message of its template.
    pub fn new(instance: impl Into<String>, template: &'static str, encoded: impl Into<Bytes>) -> Self {
        Self { instance: instance.into(), template, encoded: encoded.into() }
    }
}

impl InferredTypes {
    /// Orders types by the names of their instances.
    pub fn new(mut types: Vec<InferredType>) -> Self {
        types.sort_by(|a, b| a.instance.cmp(&b.instance));
        Self { types }
    }

    /// Returns all types, by instance name.
    pub fn iter(&self) -> impl Iterator<Item = &InferredType> {
        self.types.iter()
    }

    /// Returns the instances of one template with their decoded types.
    ///
    /// ```
    /// use mixer_adapter_core::adapter::{InferredType, InferredTypes};
    /// use mixer_adapter_templates::{ListEntry, Quota};
    /// let types = InferredTypes::new(vec![InferredType::new("path.instance.shop", "listentry", &b""[..])]);
    /// assert_eq!(types.of::<ListEntry>().count(), 1);
    /// assert_eq!(types.of::<Quota>().count(), 0);
    /// ```
    pub fn of<T: Template>(&self) -> impl Iterator<Item = (&str, T::Type)> {
        self.types.iter().filter(|inferred| inferred.template == T::NAME).filter_map(|inferred| {
            Some((inferred.instance.as_str(), T::Type::decode(inferred.encoded.clone()).ok()?))
        })
    }
}

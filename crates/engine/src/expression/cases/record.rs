//! The file format of a case: one JSON object per line.

use std::{collections::BTreeMap, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use serde::Deserialize;

use crate::{
    attribute::{AttributeValue, Bag, ConflictingTypesError, Vocabulary},
    expression::{Language, formats::timestamp},
};
use mixer_adapter_core::value::ValueType;

/// An expression, the request it is evaluated for, and the recorded outcomes.
#[derive(Debug, Deserialize)]
pub(crate) struct Case {
    pub(crate) id: String,
    pub(crate) expr: String,
    /// The types of the declared attributes, by name.
    attributes: BTreeMap<String, String>,
    bag: BTreeMap<String, TypedValue>,
    expect: Outcome,
    expect_wire_referenced: Option<Vec<String>>,
    observed_cel: Option<Outcome>,
    observed_compat: Option<Outcome>,
    /// Functions that the case declares and no release of Mixer has.
    #[serde(default)]
    pub(crate) needs_functions: Option<serde_json::Value>,
}

/// A record that is not a case.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecordError {
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error("unknown attribute type {0}")]
    UnknownType(String),
    #[error("unknown kind of value {0:?}")]
    UnknownKind(String),
    #[error("{value} is not a valid {kind}")]
    InvalidValue { kind: String, value: serde_json::Value },
    #[error(transparent)]
    Declaration(#[from] ConflictingTypesError),
    #[error("neither a value nor an error is recorded")]
    NoOutcome,
}

/// The recorded outcome.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Outcome {
    #[serde(rename = "type")]
    value_type: Option<String>,
    value: Option<TypedValue>,
    pub(crate) error: Option<RecordedError>,
    pub(crate) referenced: Option<Vec<String>>,
    pub(crate) referenced_wire: Option<Vec<String>>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct RecordedError {
    pub(crate) phase: String,
    pub(crate) kind: String,
    pub(crate) message: String,
}

/// A value with the name of its kind.
#[derive(Clone, Debug, Deserialize)]
struct TypedValue {
    t: String,
    v: serde_json::Value,
}

impl Case {
    pub(crate) fn vocabulary(&self) -> Result<Arc<Vocabulary>, RecordError> {
        let mut vocabulary = Vocabulary::new();
        for (name, value_type) in &self.attributes {
            vocabulary.declare(name.as_str(), parse_type(value_type)?)?;
        }
        Ok(Arc::new(vocabulary))
    }

    pub(crate) fn bag(&self, vocabulary: Arc<Vocabulary>) -> Result<Bag, RecordError> {
        let mut bag = Bag::new(vocabulary);
        for (name, value) in &self.bag {
            bag.insert(name.as_str(), value.parse()?);
        }
        Ok(bag)
    }

    /// Returns the expected outcome in a language, if it was recorded.
    pub(crate) fn expected(&self, language: Language) -> Option<Outcome> {
        match language {
            Language::Cexl => {
                Some(Outcome { referenced_wire: self.expect_wire_referenced.clone(), ..self.expect.clone() })
            }
            Language::Cel => self.observed_cel.clone(),
            Language::Compat => self.observed_compat.clone(),
        }
    }
}

impl Outcome {
    pub(crate) fn value_type(&self) -> Result<Option<ValueType>, RecordError> {
        self.value_type.as_deref().map(parse_type).transpose()
    }

    pub(crate) fn value(&self) -> Result<Option<AttributeValue>, RecordError> {
        self.value.as_ref().map(TypedValue::parse).transpose()
    }
}

fn parse_type(name: &str) -> Result<ValueType, RecordError> {
    ValueType::from_str_name(name).ok_or_else(|| RecordError::UnknownType(name.to_owned()))
}

impl TypedValue {
    fn parse(&self) -> Result<AttributeValue, RecordError> {
        let value = match self.t.as_str() {
            "string" => self.v.as_str().map(AttributeValue::from),
            "int64" | "go_int" => self.number().map(AttributeValue::Int64),
            "double" => self.number().map(AttributeValue::Double),
            "bool" => self.v.as_bool().map(AttributeValue::Bool),
            "duration_ns" => self.number().map(AttributeValue::Duration),
            "timestamp" => {
                self.v.as_str().and_then(timestamp::parse).map(|(time, _)| AttributeValue::Timestamp(time))
            }
            "bytes" => {
                let bytes = self.v.as_str().and_then(|text| BASE64.decode(text).ok());
                bytes.map(|bytes| AttributeValue::Bytes(bytes.into()))
            }
            "string_map" => self.v.as_object().and_then(|entries| {
                let entries =
                    entries.iter().map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
                Some(AttributeValue::StringMap(entries.collect::<Option<_>>()?))
            }),
            other => return Err(RecordError::UnknownKind(other.to_owned())),
        };
        value.ok_or_else(|| RecordError::InvalidValue { kind: self.t.clone(), value: self.v.clone() })
    }

    fn number<T: std::str::FromStr>(&self) -> Option<T> {
        self.v.as_str()?.parse().ok()
    }
}

//! The format of a case: one JSON object on a line.

use std::{collections::BTreeMap, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use serde::Deserialize;

use crate::{
    attribute::{AttributeValue, Bag, Vocabulary},
    expression::{Language, format::timestamp},
};
use mixer_adapter_core::value::ValueType;

/// An expression, what it is evaluated against, and what came of it.
#[derive(Debug, Deserialize)]
pub(crate) struct Case {
    pub(crate) id: String,
    pub(crate) expr: String,
    /// Declared attributes, by name.
    attributes: BTreeMap<String, String>,
    bag: BTreeMap<String, TypedValue>,
    expect: Outcome,
    expect_wire_referenced: Option<Vec<String>>,
    observed_cel: Option<Outcome>,
    observed_compat: Option<Outcome>,
    /// Functions that no release has and the case declares.
    #[serde(default)]
    pub(crate) needs_functions: Option<serde_json::Value>,
}

/// What was observed.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Outcome {
    #[serde(rename = "type")]
    value_type: Option<String>,
    value: Option<TypedValue>,
    error: Option<Failure>,
    pub(crate) referenced: Option<Vec<String>>,
    pub(crate) referenced_wire: Option<Vec<String>>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Failure {
    pub(crate) phase: String,
    pub(crate) kind: String,
    pub(crate) message: String,
}

/// A value and the name of its kind.
#[derive(Clone, Debug, Deserialize)]
struct TypedValue {
    t: String,
    v: serde_json::Value,
}

impl Case {
    pub(crate) fn read(line: &str) -> Result<Self, String> {
        serde_json::from_str(line).map_err(|error| error.to_string())
    }

    pub(crate) fn vocabulary(&self) -> Result<Arc<Vocabulary>, String> {
        let mut vocabulary = Vocabulary::new();
        for (name, value_type) in &self.attributes {
            vocabulary
                .declare(name.as_str(), read_type(value_type)?)
                .map_err(|conflict| conflict.to_string())?;
        }
        Ok(Arc::new(vocabulary))
    }

    pub(crate) fn bag(&self, vocabulary: Arc<Vocabulary>) -> Result<Bag, String> {
        let mut bag = Bag::new(vocabulary);
        for (name, value) in &self.bag {
            bag.insert(name.as_str(), value.read()?);
        }
        Ok(bag)
    }

    /// What is expected in that language, if it was recorded.
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
    pub(crate) fn value_type(&self) -> Result<Option<ValueType>, String> {
        self.value_type.as_deref().map(read_type).transpose()
    }

    pub(crate) fn value(&self) -> Result<Option<AttributeValue>, String> {
        self.value.as_ref().map(TypedValue::read).transpose()
    }

    pub(crate) fn error(&self) -> Option<&Failure> {
        self.error.as_ref()
    }
}

fn read_type(name: &str) -> Result<ValueType, String> {
    ValueType::from_str_name(name).ok_or_else(|| format!("there is no type {name}"))
}

impl TypedValue {
    fn read(&self) -> Result<AttributeValue, String> {
        let value = match self.t.as_str() {
            "string" => self.v.as_str().map(AttributeValue::from),
            "int64" | "go_int" => self.number().map(AttributeValue::Int64),
            "double" => self.number().map(AttributeValue::Double),
            "bool" => self.v.as_bool().map(AttributeValue::Bool),
            "duration_ns" => self.number().map(AttributeValue::Duration),
            "timestamp" => self
                .v
                .as_str()
                .and_then(timestamp::parse)
                .map(|(instant, _)| AttributeValue::Timestamp(instant)),
            "bytes" => {
                let bytes = self.v.as_str().and_then(|text| BASE64.decode(text).ok());
                bytes.map(|bytes| AttributeValue::Bytes(bytes.into()))
            }
            "string_map" => self.v.as_object().and_then(|entries| {
                let text = |(key, value): (&String, &serde_json::Value)| {
                    Some((key.clone(), value.as_str()?.to_owned()))
                };
                Some(AttributeValue::StringMap(entries.iter().map(text).collect::<Option<_>>()?))
            }),
            other => return Err(format!("there is no kind of value `{other}`")),
        };
        value.ok_or_else(|| format!("{} is no {}", self.v, self.t))
    }

    fn number<T: std::str::FromStr>(&self) -> Option<T> {
        self.v.as_str()?.parse().ok()
    }
}

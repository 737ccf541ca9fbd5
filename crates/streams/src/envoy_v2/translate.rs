use prost_reflect::{DynamicMessage, EnumDescriptor, FieldDescriptor, MessageDescriptor};

use super::{adapt::adapt, modernize::modernize};
use crate::{ordered, types::Types};
use mixer_adapter_config::{
    envoy::{predecessor, successor},
    join_texts,
};
use mixer_adapter_core::{
    framework::translation::{self, Correspondence, Loss},
    proto::Any,
};

/// The prefix of the packages that have versions.
const ENVOY: &str = "envoy.";

/// The reason why a message cannot be translated to another version of Envoy's API.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TranslateError {
    /// The other version has no such message.
    #[error("{0} does not exist in the other version of Envoy's API")]
    Message(String),
    /// The bytes are not a message of the type.
    #[error("not a valid {0}: {1}")]
    Decode(String, prost::DecodeError),
    /// The other version cannot hold some values.
    #[error("the other version of Envoy's API cannot hold {}", join_texts(.0.iter().map(ToString::to_string)))]
    Losses(Vec<Loss>),
}

/// A version of Envoy's API, to which messages of the other one are translated. Fields correspond by their numbers, which v3
/// did not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    V2,
    V3,
}

/// Translates a message of v3 to v2. A message without versions is unchanged.
pub(crate) fn to_v2(body: &Any) -> Result<Any, TranslateError> {
    translate(body, Version::V2)
}

/// Translates a message of v2 to v3. A message without versions is unchanged.
pub(crate) fn to_v3(body: &Any) -> Result<Any, TranslateError> {
    translate(body, Version::V3)
}

fn translate(body: &Any, to: Version) -> Result<Any, TranslateError> {
    let name = body.message_name();
    if !to.is_versioned(name) {
        return Ok(body.clone());
    }
    let Some((from, into)) = to.counterpart(name) else {
        return Err(TranslateError::Message(name.to_owned()));
    };
    let message = DynamicMessage::decode(from, body.value.clone())
        .map_err(|error| TranslateError::Decode(name.to_owned(), error))?;
    let type_url = format!("{}{}", &body.type_url[..body.type_url.len() - name.len()], into.full_name());
    match translation::translate(&to, message, into) {
        (message, losses) if losses.is_empty() => {
            Ok(Any { type_url, value: ordered::encode(&message).into() })
        }
        (_, losses) => Err(TranslateError::Losses(losses)),
    }
}

impl Correspondence for Version {
    fn counterpart(&self, message: &str) -> Option<(MessageDescriptor, MessageDescriptor)> {
        match self {
            Self::V2 => Some((Types::v3(message)?, Types::v2(predecessor(message)?)?)),
            Self::V3 => Some((Types::v2(message)?, Types::v3(successor(message)?)?)),
        }
    }

    fn is_versioned(&self, message: &str) -> bool {
        message.starts_with(ENVOY)
    }

    fn field(&self, field: &FieldDescriptor, into: &MessageDescriptor) -> Option<FieldDescriptor> {
        into.get_field(field.number())
    }

    fn value(&self, _: &EnumDescriptor, into: &EnumDescriptor, number: i32) -> Option<i32> {
        // An alias of a name is another value of the same meaning.
        into.get_value(number).map(|value| value.number())
    }

    fn prepare(&self, message: &mut DynamicMessage) {
        modernize(message);
    }

    fn complete(&self, message: &mut DynamicMessage) {
        adapt(message);
    }

    fn encode(&self, message: &DynamicMessage) -> Vec<u8> {
        ordered::encode(message)
    }
}

use prost_reflect::{DynamicMessage, ReflectMessage as _};
use serde_json::{Map, Value as Json};

use mixer_adapter_core::{
    adapter::Config,
    framework::{json::read_params, optional_fields::pool_with_optional_fields},
    proto::Any,
};

/// The parameters of a handler or an instance.
#[derive(Clone, Debug, PartialEq)]
pub struct Params {
    fields: Map<String, Json>,
    /// The message, if they were made of one.
    message: Option<Any>,
}

/// Parameters of a handler or an instance: YAML or JSON text, a JSON value, or [`Params::message`] of an adapter's own `Params`.
///
/// # Panics
/// On text that is not YAML and on values that are not objects: a mistake in the test.
pub trait IntoParams {
    /// Converts into parameters.
    fn into_params(self) -> Params;
}

impl IntoParams for &str {
    #[track_caller]
    fn into_params(self) -> Params {
        match serde_saphyr::from_str::<Json>(self) {
            Ok(json) => json.into_params(),
            Err(error) => panic!("the parameters are not valid YAML: {error}\n{self}"),
        }
    }
}

impl IntoParams for Json {
    #[track_caller]
    fn into_params(self) -> Params {
        match self {
            Json::Null => Params { fields: Map::new(), message: None },
            Json::Object(fields) => Params { fields, message: None },
            other => panic!("parameters must be an object, not {other}"),
        }
    }
}

impl IntoParams for Params {
    fn into_params(self) -> Params {
        self
    }
}

impl Params {
    /// Makes the parameters of a handler from the adapter's configuration message.
    ///
    /// # Panics
    /// If the descriptor of the message is invalid.
    #[track_caller]
    pub fn message<C: Config>(config: &C) -> Self {
        let value = config.encode_to_vec();
        let message = pool_with_optional_fields(C::DESCRIPTOR)
            .ok()
            .and_then(|pool| pool.get_message_by_name(C::NAME))
            .and_then(|message| DynamicMessage::decode(message, &value[..]).ok());
        let Some(Ok(Json::Object(fields))) = message.map(serde_json::to_value) else {
            panic!("{} has no valid descriptor", C::NAME)
        };
        let message = Any { type_url: format!("type.googleapis.com/{}", C::NAME), value: value.into() };
        Params { fields, message: Some(message) }
    }

    pub(super) fn into_json(self) -> Json {
        Json::Object(self.fields)
    }

    /// Encodes the parameters as `adapter_config`: the original message, or a Struct that names the adapter.
    #[track_caller]
    pub(super) fn into_config(mut self, adapter: &str) -> Any {
        if let Some(message) = self.message {
            return message;
        }
        self.fields.insert("_adapter".to_owned(), adapter.into());
        let message = prost_types::Struct::default().descriptor();
        match read_params(&message, Json::Object(self.fields)) {
            Ok(value) => Any { type_url: "type.googleapis.com/google.protobuf.Struct".to_owned(), value },
            Err(error) => panic!("the parameters are not a valid Struct: {error}"),
        }
    }
}

//! Selects the adapter that a configuration is for.

use std::sync::Arc;

use prost::{Message as _, bytes::Bytes};
use serde_json::{Map, Value as Json};

use crate::{
    Host,
    handler::{AdapterInfo, CallError, quoted_list},
};
use mixer_adapter_core::{
    adapter::InferredTypes,
    framework::json::{JsonError, read_params, struct_to_json},
    proto::Any,
};

/// The field of a Struct that names the adapter configured by the other fields.
const ADAPTER_FIELD: &str = "_adapter";

impl Host {
    /// Returns the adapter of a configuration, and the canonical bytes of the configuration.
    ///
    /// A message belongs to the adapter that is configured by it. A Struct (all that Mixer's session client can send for an
    /// adapter it does not know), or no configuration, belongs to the adapter named by `_adapter`, or else to the only
    /// adapter that serves all of `templates` and accepts it. Configurations are validated for the connection.
    pub(crate) async fn select_adapter(
        &self,
        config: Option<Any>,
        templates: &[&str],
        types: &InferredTypes,
        connection: u64,
    ) -> Result<(Arc<AdapterInfo>, Bytes), CallError> {
        let Some(any) = config else {
            return self.select_by_fields(Map::new(), templates, types, connection).await;
        };
        match any.message_name() {
            "google.protobuf.Struct" => {
                let fields = prost_types::Struct::decode(any.value)
                    .map_err(|source| CallError::Undecodable { message: "google.protobuf.Struct", source })?;
                self.select_by_fields(struct_to_json(fields), templates, types, connection).await
            }
            message => {
                let Some(adapter) = self.adapters.configured_by(message) else {
                    return Err(CallError::UnknownConfig {
                        type_url: any.type_url,
                        known: self.adapters.config_names(),
                    });
                };
                ensure_served(adapter, templates)?;
                Ok((adapter.clone(), self.handlers.canonical(adapter, any.value)?))
            }
        }
    }

    async fn select_by_fields(
        &self,
        mut fields: Map<String, Json>,
        templates: &[&str],
        types: &InferredTypes,
        connection: u64,
    ) -> Result<(Arc<AdapterInfo>, Bytes), CallError> {
        if let Some(name) = fields.remove(ADAPTER_FIELD) {
            return self.select_by_name(&name, fields, templates);
        }
        let candidates: Vec<&Arc<AdapterInfo>> = self
            .adapters
            .iter()
            .filter(|adapter| templates.iter().all(|template| adapter.serves(template)))
            .collect();
        let mut accepting = Vec::new();
        let mut refusing = Vec::new();
        for adapter in candidates {
            let accepted = match self.read_fields(adapter, fields.clone()) {
                Ok(config) => {
                    self.handlers.validate(adapter, &config, types, connection).await.map(|()| config)
                }
                Err(error) => Err(error),
            };
            match accepted {
                Ok(config) => accepting.push((adapter.clone(), config)),
                Err(error) => refusing.push(error),
            }
        }
        match accepting.len() {
            1 => Ok(accepting.remove(0)),
            0 if refusing.len() == 1 => Err(refusing.remove(0)),
            0 => Err(CallError::Unassigned { reason: self.no_adapter_accepts(templates, &refusing) }),
            _ => Err(CallError::Unassigned {
                reason: format!(
                    "{} accept it; name one in \"{ADAPTER_FIELD}\", or send its configuration message",
                    quoted_list(accepting.iter().map(|(adapter, _)| adapter.name))
                ),
            }),
        }
    }

    fn select_by_name(
        &self,
        name: &Json,
        fields: Map<String, Json>,
        templates: &[&str],
    ) -> Result<(Arc<AdapterInfo>, Bytes), CallError> {
        let adapter = name.as_str().and_then(|name| self.adapters.find(name));
        let Some(adapter) = adapter else {
            return Err(CallError::Unassigned {
                reason: format!(
                    "\"{ADAPTER_FIELD}\" is {name}; expected one of: {}",
                    quoted_list(self.adapters.iter().map(|adapter| adapter.name))
                ),
            });
        };
        ensure_served(adapter, templates)?;
        Ok((adapter.clone(), self.read_fields(adapter, fields)?))
    }

    fn read_fields(&self, adapter: &AdapterInfo, fields: Map<String, Json>) -> Result<Bytes, CallError> {
        let config = read_params(&adapter.config, Json::Object(fields))
            .map_err(|source: JsonError| CallError::Unreadable { adapter: adapter.name, source })?;
        self.handlers.canonical(adapter, config)
    }

    fn no_adapter_accepts(&self, templates: &[&str], refusing: &[CallError]) -> String {
        if refusing.is_empty() {
            let known = quoted_list(self.adapters.iter().map(|adapter| adapter.name));
            return format!("no adapter serves {} together; adapters are {known}", quoted_list(templates));
        }
        let reasons: Vec<String> = refusing.iter().map(ToString::to_string).collect();
        format!("no adapter that serves {} accepts it: {}", quoted_list(templates), reasons.join("; "))
    }
}

fn ensure_served(adapter: &AdapterInfo, templates: &[&str]) -> Result<(), CallError> {
    match templates.iter().find(|template| !adapter.serves(template)) {
        None => Ok(()),
        Some(template) => Err(CallError::NotServed {
            adapter: adapter.name,
            template: (*template).to_owned(),
            served: adapter.template_names(),
        }),
    }
}

//! Responses as text, of files and of REST servers.

use serde::Deserialize;
use serde_json::Value as Json;

use mixer_adapter_core::framework::json::JsonError;

use crate::{proto::envoy::service::discovery::v3::DiscoveryResponse, stream::body, types::Types};

/// The reason why JSON is not a response.
#[derive(Debug, thiserror::Error)]
pub(super) enum ResponseError {
    #[error("it is not a DiscoveryResponse: {0}")]
    Response(serde_json::Error),
    #[error("resource {0}: {1}")]
    Resource(usize, JsonError),
}

#[derive(Deserialize)]
struct Response {
    #[serde(default, alias = "versionInfo")]
    version_info: String,
    #[serde(default)]
    resources: Vec<Json>,
    #[serde(default, alias = "typeUrl")]
    type_url: String,
    #[serde(default)]
    nonce: String,
}

/// Reads a `DiscoveryResponse` in the JSON of protobuf, in lower camel or snake case. The error names the resource by
/// its index.
pub(super) fn of_json(json: Json) -> Result<DiscoveryResponse, ResponseError> {
    let Response { version_info, resources, type_url, nonce } =
        serde_json::from_value(json).map_err(ResponseError::Response)?;
    let resources = resources.into_iter().enumerate().map(|(place, resource)| {
        body::of_any(&Types::default(), resource).map_err(|error| ResponseError::Resource(place + 1, error))
    });
    let resources = resources.collect::<Result<_, _>>()?;
    Ok(DiscoveryResponse { version_info, resources, type_url, nonce, ..DiscoveryResponse::default() })
}

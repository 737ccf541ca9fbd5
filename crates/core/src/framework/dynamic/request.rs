use prost::{
    Message as _,
    bytes::{Bytes, BytesMut},
    encoding,
};
use prost_reflect::{DynamicMessage, Value};

use super::DynamicTemplate;
use crate::proto::{Any, QuotaRequest};

/// An encoded request without its dedup_id, which differs from call to call.
#[derive(Clone, Debug)]
pub struct HandleRequest {
    encoded: Bytes,
    dedup_id: Option<u32>,
}

impl HandleRequest {
    /// Encodes the request with a dedup_id, if the template has the field.
    pub fn with_dedup_id(&self, id: &str) -> Bytes {
        let Some(tag) = self.dedup_id else { return self.encoded.clone() };
        let mut request = BytesMut::with_capacity(self.encoded.len() + id.len() + 16);
        request.extend_from_slice(&self.encoded);
        encoding::string::encode(tag, &id.to_owned(), &mut request);
        request.freeze()
    }
}

impl DynamicTemplate {
    /// Makes a request with the fields that the template's request message has, as Mixer does
    /// (docs/behaviour/adapter-calls.md#methods-and-request-fields). A template that is not a report takes the first instance.
    pub fn request(
        &self,
        instances: Vec<DynamicMessage>,
        adapter_config: Option<&Any>,
        quota_request: Option<&QuotaRequest>,
    ) -> HandleRequest {
        let mut request = DynamicMessage::new(self.request.clone());
        let mut instances = instances.into_iter().map(Value::Message);
        if self.request.get_field_by_name("instances").is_some_and(|field| field.is_list()) {
            request.set_field_by_name("instances", Value::List(instances.collect()));
        } else if let Some(instance) = instances.next() {
            request.set_field_by_name("instance", instance);
        }
        for (name, encoded) in [
            ("adapter_config", adapter_config.map(Any::encode_to_vec)),
            ("quota_request", quota_request.map(QuotaRequest::encode_to_vec)),
        ] {
            let field = self.request.get_field_by_name(name);
            let message = field.and_then(|field| field.kind().as_message().cloned());
            if let (Some(message), Some(encoded)) = (message, encoded)
                && let Ok(value) = DynamicMessage::decode(message, &encoded[..])
            {
                request.set_field_by_name(name, Value::Message(value));
            }
        }
        HandleRequest {
            encoded: request.encode_to_vec().into(),
            dedup_id: self.request.get_field_by_name("dedup_id").map(|field| field.number()),
        }
    }
}

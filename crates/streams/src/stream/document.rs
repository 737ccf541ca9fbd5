//! Resources of servers as documents, as files have them.

use serde_json::{Map, Value as Json, json};

use super::{body::BodyError, raw_resource::RawResource};
use mixer_adapter_config::Collection;

/// The envelope that gives a message of Envoy its name.
const ENVELOPE: &str = "type.googleapis.com/envoy.service.discovery.v3.Resource";

impl RawResource {
    /// Returns the resource of that collection as a document, which [`parse`](mixer_adapter_config::parse) reads; `None` for a collection without
    /// an API version and a kind.
    ///
    /// # Errors
    /// The body cannot be decoded.
    pub fn document(&self, collection: &Collection) -> Result<Option<Json>, BodyError> {
        let spec = self.spec()?;
        if collection.is_of_messages() {
            return Ok(Some(self.enveloped(spec)));
        }
        let Some((api_version, kind)) = api_version_and_kind(collection) else { return Ok(None) };
        let (namespace, name) = match self.name.rsplit_once('/') {
            Some((namespace, name)) => (Some(namespace), name),
            None => (None, self.name.as_str()),
        };
        let mut metadata = Map::new();
        metadata.insert("name".to_owned(), name.into());
        if let Some(namespace) = namespace {
            metadata.insert("namespace".to_owned(), namespace.into());
        }
        for (field, values) in [("labels", &self.labels), ("annotations", &self.annotations)] {
            if !values.is_empty() {
                metadata.insert(field.to_owned(), json!(values));
            }
        }
        Ok(Some(json!({ "apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec })))
    }

    /// Returns a discovery response with this resource alone.
    fn enveloped(&self, mut message: Json) -> Json {
        if let Some(fields) = message.as_object_mut() {
            fields.entry("@type").or_insert_with(|| self.body.type_url.as_str().into());
        }
        json!({ "resources": [{ "@type": ENVELOPE, "name": self.name, "resource": message }] })
    }
}

/// The newest API version and the kind of the resources in a collection.
fn api_version_and_kind(collection: &Collection) -> Option<(String, String)> {
    if let (Some(kind), Some(newest)) = (collection.kind(), collection.api_versions().into_iter().next()) {
        return Some((newest, kind.as_str().to_owned()));
    }
    let (api_version, kind) = collection.as_str().strip_prefix("k8s/")?.rsplit_once('/')?;
    Some((api_version.to_owned(), kind.to_owned()))
}

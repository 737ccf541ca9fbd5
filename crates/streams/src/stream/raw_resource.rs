use std::collections::BTreeMap;

use bytes::Bytes;
use prost::Message;
use prost_types::Timestamp;
use serde_json::Value as Json;
use sha2::{Digest, Sha256};

use super::{
    body::{self, BodyError},
    name,
    sink::nack::ResourceError,
};
use crate::proto::istio::mcp::v1alpha1::{Metadata, Resource as ResourceMessage};
use mixer_adapter_core::proto::Any;

/// A resource of a collection with an encoded body.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RawResource {
    /// `namespace/name`, or `name` alone: segments separated by slashes.
    pub name: String,
    /// The version from its source, or nothing. A different version means a change, but versions have no order: sources
    /// that restart count from the beginning, so that the same version may have another body.
    pub version: String,
    /// The creation time that its source sent: year 1 for Galley's resources from files.
    pub created: Option<Timestamp>,
    /// Labels, for selecting and grouping.
    pub labels: BTreeMap<String, String>,
    /// Annotations, for people and tools.
    pub annotations: BTreeMap<String, String>,
    /// The content.
    pub body: Any,
}

impl RawResource {
    /// Reads a resource of a message. A fault names it, by its index in the push if it has no name.
    pub(super) fn read(
        collection: &str,
        message: ResourceMessage,
        place: usize,
    ) -> Result<Self, ResourceError> {
        let metadata = message.metadata.unwrap_or_default();
        let name = &*name::normal(collection, &metadata.name);
        let fault = |text: String| {
            let resource = if name.is_empty() { format!("resource {}", place + 1) } else { name.to_owned() };
            ResourceError { resource, text }
        };
        name::check(collection, name).map_err(|error| fault(error.to_string()))?;
        let body = message.body.ok_or_else(|| fault("it has no body".to_owned()))?;
        if !body.type_url.contains('/') || body.message_name().is_empty() {
            return Err(fault(format!(
                "the type {:?} of its body is not written as HOST/MESSAGE",
                body.type_url
            )));
        }
        Ok(Self {
            name: name.to_owned(),
            version: metadata.version,
            created: metadata.create_time,
            labels: metadata.labels,
            annotations: metadata.annotations,
            body,
        })
    }

    /// Returns the resource as a message, which shares the bytes of the body.
    pub(crate) fn to_message(&self) -> ResourceMessage {
        ResourceMessage {
            metadata: Some(Metadata {
                name: self.name.clone(),
                create_time: self.created,
                version: self.version.clone(),
                labels: self.labels.clone(),
                annotations: self.annotations.clone(),
            }),
            body: Some(self.body.clone()),
        }
    }

    /// Decodes the body as JSON. A body of an unknown type becomes its bytes, in base64, under `@type` and `value`.
    pub fn spec(&self) -> Result<Json, BodyError> {
        body::readable(&self.body)
    }

    /// Copies the body, so that the resource does not hold the memory of its whole push.
    pub(super) fn detached(mut self) -> Self {
        self.body.value = Bytes::copy_from_slice(&self.body.value);
        self
    }

    /// Returns a digest of the whole resource.
    pub(super) fn digest(&self) -> u128 {
        let digest = Sha256::digest(self.to_message().encode_to_vec());
        digest[..16].iter().fold(0, |number, byte| number << 8 | u128::from(*byte))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn message(name: &str, type_url: &str) -> ResourceMessage {
        ResourceMessage {
            metadata: Some(Metadata {
                name: name.to_owned(),
                version: "v0".to_owned(),
                ..Metadata::default()
            }),
            body: Some(Any { type_url: type_url.to_owned(), value: Bytes::from_static(b"\x0a\x01x") }),
        }
    }

    #[test]
    fn a_resource_without_metadata_name_body_or_type_is_a_fault_that_names_it() {
        let read = |message, place| RawResource::read("a/b", message, place).unwrap_err().to_string();
        assert_eq!(read(ResourceMessage::default(), 0), "resource 1: it has no name");
        assert_eq!(read(message("", "a/b"), 4), "resource 5: it has no name");
        let bodiless = ResourceMessage { body: None, ..message("ns/a", "") };
        assert_eq!(read(bodiless, 0), "ns/a: it has no body");
        for type_url in ["", "a.b.C", "a.b/"] {
            let told = format!("ns/a: the type {type_url:?} of its body is not written as HOST/MESSAGE");
            assert_eq!(read(message("ns/a", type_url), 0), told);
        }
        assert_eq!(read(message("ns//a", "a/b"), 0), "ns//a: the name \"ns//a\" has an empty segment");
    }

    #[test]
    fn the_year_1_and_a_slash_in_front_are_taken() {
        let mut old = message("/ns/a", "type.googleapis.com/istio.policy.v1beta1.Rule");
        let year_1 = Timestamp { seconds: -62_135_596_800, nanos: 0 };
        old.metadata.as_mut().unwrap().create_time = Some(year_1);
        let read = RawResource::read("a/b", old, 0).unwrap();
        assert_eq!((read.name.as_str(), read.created), ("ns/a", Some(year_1)));
        assert_eq!(read.to_message().metadata.unwrap().create_time, Some(year_1));
    }

    #[test]
    fn the_digest_moves_with_every_part() {
        let resource = RawResource::read("a/b", message("ns/a", "a/b"), 0).unwrap();
        let mut digests = vec![resource.digest()];
        let change = |edit: fn(&mut RawResource)| {
            let mut other = resource.clone();
            edit(&mut other);
            other.digest()
        };
        digests.push(change(|r| r.name.push('b')));
        digests.push(change(|r| r.version.push('b')));
        digests.push(change(|r| _ = r.labels.insert("a".into(), "b".into())));
        digests.push(change(|r| _ = r.annotations.insert("a".into(), "b".into())));
        digests.push(change(|r| r.created = Some(Timestamp::default())));
        digests.push(change(|r| r.body.type_url.push('b')));
        digests.push(change(|r| r.body.value = Bytes::new()));
        assert_eq!(resource.clone().detached().digest(), digests[0]);
        digests.sort_unstable();
        digests.dedup();
        assert_eq!(digests.len(), 8);
    }
}

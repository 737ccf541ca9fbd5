//! The messages of bodies of resources.

use std::sync::LazyLock;

use prost_reflect::{DescriptorError, DescriptorPool, MessageDescriptor, prost_types::FileDescriptorSet};

use crate::proto::DESCRIPTORS;
use mixer_adapter_config::envoy;

/// The messages of Envoy's configuration and extensions (`descriptors/README.md`).
const ENVOY_DESCRIPTORS: &[u8] = include_bytes!("../descriptors/envoy.binpb");
/// The messages of Istio's own kinds, of releases 1.1 to 1.7.
pub(crate) const ISTIO_DESCRIPTORS: &[u8] = include_bytes!("../descriptors/istio.binpb");
/// The messages of version 2 of Envoy's API.
const ENVOY_V2_DESCRIPTORS: &[u8] = include_bytes!("../descriptors/envoy_v2.binpb");

static OWN: LazyLock<DescriptorPool> = LazyLock::new(|| {
    let mut pool = DescriptorPool::decode(DESCRIPTORS).unwrap_or_default();
    // On error, the pool is unchanged.
    let _ = pool.decode_file_descriptor_set(mixer_adapter_config::proto::DESCRIPTORS);
    pool
});
static ENVOY: LazyLock<DescriptorPool> =
    LazyLock::new(|| DescriptorPool::decode(ENVOY_DESCRIPTORS).unwrap_or_default());
static ISTIO: LazyLock<DescriptorPool> =
    LazyLock::new(|| DescriptorPool::decode(ISTIO_DESCRIPTORS).unwrap_or_default());
static ENVOY_V2: LazyLock<DescriptorPool> =
    LazyLock::new(|| DescriptorPool::decode(ENVOY_V2_DESCRIPTORS).unwrap_or_default());

/// The descriptors of known messages: this program's, Envoy's and Istio's (read on first use), and [added](Self::add)
/// messages.
///
/// An added message replaces Istio's of the same name: a later release may have more fields.
#[derive(Clone, Debug, Default)]
pub struct Types {
    /// Envoy's with others, so that each may contain the other.
    extended: Option<DescriptorPool>,
}

/// The reason why descriptors cannot be added.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TypesError {
    /// The bytes are not a set of descriptors.
    #[error("not an encoded FileDescriptorSet: {0}")]
    NoSet(#[from] prost::DecodeError),
    /// A file does not fit to the others, or an import is missing.
    #[error("{0}; a set has to hold what its files import (protoc --include_imports)")]
    Unfit(#[from] DescriptorError),
}

impl Types {
    /// Adds the messages of an encoded `FileDescriptorSet`. Files that are known already are ignored.
    pub fn add(&mut self, set: &[u8]) -> Result<(), TypesError> {
        let set: FileDescriptorSet = prost::Message::decode(set)?;
        let mut pool = self.extended.as_ref().unwrap_or(&ENVOY).clone();
        let new: Vec<_> =
            set.file.into_iter().filter(|file| pool.get_file_by_name(file.name()).is_none()).collect();
        pool.add_file_descriptor_protos(new)?;
        self.extended = Some(pool);
        Ok(())
    }

    /// Returns the message of that full name.
    pub(super) fn find(&self, name: &str) -> Option<MessageDescriptor> {
        let known = Self::own(name);
        let known = known.or_else(|| match &self.extended {
            Some(pool) => pool.get_message_by_name(name),
            // Envoy has none of these, and its descriptors take memory.
            None if name.starts_with("istio.") => None,
            None => Self::v3(name),
        });
        let known = known.or_else(|| ISTIO.get_message_by_name(name));
        known.or_else(|| Some(name).filter(|name| envoy::is_v2(name)).and_then(Self::v2))
    }

    /// Returns whether a message belongs to the built-in descriptors of Istio 1.1 to 1.7, not to added descriptors.
    pub(super) fn is_istios(message: &MessageDescriptor) -> bool {
        message.parent_pool() == &*ISTIO
    }

    /// Returns the message of that full name in version 3 of Envoy's API.
    pub(super) fn v3(name: &str) -> Option<MessageDescriptor> {
        ENVOY.get_message_by_name(name)
    }

    /// Returns the message of that full name in version 2 of Envoy's API.
    pub(super) fn v2(name: &str) -> Option<MessageDescriptor> {
        ENVOY_V2.get_message_by_name(name)
    }

    /// Returns the message of that full name, of those in the protocols of this program.
    pub(super) fn spoken(name: &str) -> Option<MessageDescriptor> {
        OWN.get_message_by_name(name)
    }

    /// Returns this program's message of that full name.
    pub(super) fn own(name: &str) -> Option<MessageDescriptor> {
        // This program's copies of Envoy's messages lack fields.
        OWN.get_message_by_name(name).filter(|_| !name.starts_with("envoy."))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use prost::Message as _;
    use prost_reflect::prost_types::{DescriptorProto, FileDescriptorProto};

    use super::*;

    fn set(file: &str, package: &str, imports: &[&str]) -> Vec<u8> {
        let message = DescriptorProto { name: Some("Widget".to_owned()), ..DescriptorProto::default() };
        let file = FileDescriptorProto {
            name: Some(file.to_owned()),
            package: Some(package.to_owned()),
            message_type: vec![message],
            dependency: imports.iter().map(|import| (*import).to_owned()).collect(),
            ..FileDescriptorProto::default()
        };
        FileDescriptorSet { file: vec![file] }.encode_to_vec()
    }

    #[test]
    fn envoys_messages_are_known_in_full_and_others_can_be_added() {
        let mut types = Types::default();
        let node = types.find("envoy.config.core.v3.Node").unwrap();
        assert!(node.get_field_by_name("locality").is_some());
        assert!(types.find("istio.policy.v1beta1.Rule").is_some());
        assert!(types.find("example.Widget").is_none());
        types.add(&set("example.proto", "example", &["envoy/config/core/v3/base.proto"])).unwrap();
        assert!(types.find("example.Widget").is_some());
        types.add(&set("example.proto", "example", &[])).unwrap();
        types.add(&set("another.proto", "another", &["example.proto"])).unwrap();
        assert!(types.find("another.Widget").is_some());
        assert!(types.find("envoy.config.listener.v3.Listener").is_some());
    }

    #[test]
    fn an_added_message_replaces_the_one_of_istio() {
        let mut types = Types::default();
        let gateway = "istio.networking.v1alpha3.Gateway";
        assert!(types.find(gateway).unwrap().get_field_by_name("servers").is_some());
        let message = DescriptorProto { name: Some("Gateway".to_owned()), ..DescriptorProto::default() };
        let file = FileDescriptorProto {
            name: Some("networking/v1alpha3/gateway.proto".to_owned()),
            package: Some("istio.networking.v1alpha3".to_owned()),
            message_type: vec![message],
            ..FileDescriptorProto::default()
        };
        types.add(&FileDescriptorSet { file: vec![file] }.encode_to_vec()).unwrap();
        assert_eq!(types.find(gateway).unwrap().fields().len(), 0);
        assert!(types.find("istio.networking.v1alpha3.Sidecar").is_some());
    }

    #[test]
    fn what_is_no_set_or_incomplete_is_refused() {
        let mut types = Types::default();
        let error = types.add(b"syntax = \"proto3\";").unwrap_err().to_string();
        assert!(error.starts_with("not an encoded FileDescriptorSet: "), "{error}");
        let error = types.add(&set("a.proto", "a", &["not/there.proto"])).unwrap_err().to_string();
        assert!(
            error.contains("not/there.proto") && error.ends_with("(protoc --include_imports)"),
            "{error}"
        );
        assert!(types.find("envoy.config.listener.v3.Listener").is_some(), "a failure costs nothing");
    }
}

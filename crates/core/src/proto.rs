//! Messages shared with Mixer, by package, with short names for the common ones: [`Status`], [`CheckResult`], [`Any`].
//!
//! Most adapters need none of these: [`Check`](crate::Check) and [`Grant`](crate::Grant) build the answers.

#![allow(missing_docs, unreachable_pub, clippy::all, clippy::unwrap_used)]

use prost::bytes::Bytes;

include!(concat!(env!("OUT_DIR"), "/protos.rs"));

/// An encoded `FileDescriptorSet` of the files in which these messages are, for configuration by descriptor.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

pub use google::rpc::Status;
pub use istio::mixer::adapter::model::v1beta1::{CheckResult, QuotaRequest, QuotaResult, ReportResult};

/// `google.protobuf.Any`. Its bytes share the buffer of the request.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct Any {
    /// The URL of the type: the name of the message follows the last slash.
    #[prost(string, tag = "1")]
    pub type_url: String,
    /// The encoded message.
    #[prost(bytes = "bytes", tag = "2")]
    pub value: Bytes,
}

impl Any {
    /// Packs a message, under the type URL of its full name.
    pub fn pack<M: prost::Name>(message: &M) -> Self {
        let type_url = format!("type.googleapis.com/{}", M::full_name());
        Self { type_url, value: message.encode_to_vec().into() }
    }

    /// Returns the full name of the message. The URL may lack a slash, as from Mixer's session client.
    pub fn message_name(&self) -> &str {
        self.type_url.rsplit('/').next().unwrap_or_default()
    }
}

//! The messages of Istio's interfaces, generated from `proto/` and `build/proto/`, by package; the usual ones by short names.

#![allow(missing_docs, unreachable_pub, clippy::all, clippy::unwrap_used)]

use prost::bytes::Bytes;

include!(concat!(env!("OUT_DIR"), "/protos.rs"));

/// An encoded `FileDescriptorSet` of all of it, templates included, for reflection and for configuration by descriptor.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

pub use google::rpc::Status;
pub use istio::mixer::adapter::model::v1beta1::{CheckResult, QuotaRequest, QuotaResult, ReportResult};

/// `google.protobuf.Any`, its bytes shared with the request they came in.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct Any {
    /// Where the message's name stands behind the last slash.
    #[prost(string, tag = "1")]
    pub type_url: String,
    /// The encoded message.
    #[prost(bytes = "bytes", tag = "2")]
    pub value: Bytes,
}

impl Any {
    /// The full name of the message inside; the text may lack a slash, as in what Mixer's session client sends.
    pub fn message_name(&self) -> &str {
        self.type_url.rsplit('/').next().unwrap_or_default()
    }
}

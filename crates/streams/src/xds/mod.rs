//! xDS, the protocol of Envoy, for the configuration of a mesh: whole sets of resources of a type, or their changes
//! (docs/behaviour/xds.md).

mod rest_path;
pub mod sink;
pub mod source;

/// The bytes of a value of JSON, about, with what it is decoded to and the room to grow of its list or object.
const JSON_VALUE: usize = 128;

/// Estimates by how many bytes the decoded form of a JSON message exceeds its text.
fn json_expansion(text: &[u8]) -> usize {
    // Texts are copied.
    text.len() + JSON_VALUE * text.iter().filter(|byte| matches!(byte, b',' | b'[' | b'{')).count()
}

/// The feature of clients that remove resources at the end of their time to live (docs/behaviour/xds.md#ttl).
const SUPPORTS_TTL: &str = "xds.config.supports-resource-ttl";
/// The features of clients that read the wrapper of resources in whole sets, which has the time to live. Envoy's documentation has both.
const READS_WRAPPER: [&str; 2] = ["xds.config.resource-in-sotw", "xds.config.supports-resource-in-sotw"];

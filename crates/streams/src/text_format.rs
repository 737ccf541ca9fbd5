//! Files in protobuf's text format, as in Envoy's documents (docs/behaviour/xds.md#files).

use std::path::Path;

use prost_reflect::{DynamicMessage, MessageDescriptor, text_format::ParseError};
use serde_json::Value as Json;

use crate::types::Types;
use mixer_adapter_config::source::FileFormat;

/// The endings of the names of such files.
const EXTENSIONS: [&str; 5] = ["pb_text", "textproto", "txtpb", "pbtxt", "prototxt"];
/// The formats of files with configuration, beside YAML and JSON.
pub const FILE_FORMATS: &[FileFormat] =
    &[FileFormat { extensions: &EXTENSIONS, to_json: |text| Ok(to_json(text)?) }];
/// The content of a file that does not state it, in both versions of Envoy's API.
const RESPONSES: [&str; 2] =
    ["envoy.service.discovery.v3.DiscoveryResponse", "envoy.api.v2.DiscoveryResponse"];
/// The comment in which a file states its message.
const HEADER: &str = "# proto-message:";
/// The maximum depth of messages: the reader recurses.
const MAX_DEPTH: usize = 64;

/// The reason why a file cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TextFormatError {
    #[error("its first comment names the unknown type {0}")]
    UnknownType(String),
    #[error("it is nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
    #[error("it is not the text format of {0}: {1}")]
    Parse(String, Box<ParseError>),
    #[error("it has no JSON: {0}")]
    Json(#[from] serde_json::Error),
}

/// Returns whether a file is in the text format, by its name.
pub(crate) fn is_text_format(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    extension.is_some_and(|extension| EXTENSIONS.contains(&extension))
}

/// Converts the text format of a `DiscoveryResponse`, or of the message that a comment names (`# proto-message:
/// envoy.config.cluster.v3.Cluster`), to the equivalent JSON.
pub(crate) fn to_json(text: &str) -> Result<Json, TextFormatError> {
    if depth(text) > MAX_DEPTH {
        return Err(TextFormatError::TooDeep);
    }
    let stated = text.lines().find_map(|line| line.strip_prefix(HEADER)).map(str::trim);
    if let Some(name) = stated {
        let descriptor = Types::default().find(name);
        let descriptor = descriptor.ok_or_else(|| TextFormatError::UnknownType(name.to_owned()))?;
        let mut json = serde_json::to_value(parse(descriptor, text)?)?;
        json["@type"] = format!("type.googleapis.com/{name}").into();
        return Ok(json);
    }
    let mut first = None;
    for descriptor in RESPONSES.iter().filter_map(|name| Types::default().find(name)) {
        match parse(descriptor, text) {
            Ok(message) => return Ok(serde_json::to_value(message)?),
            // The error of the current version is the useful one.
            Err(error) => _ = first.get_or_insert(error),
        }
    }
    Err(first.unwrap_or_else(|| TextFormatError::UnknownType(RESPONSES[0].to_owned())))
}

fn parse(descriptor: MessageDescriptor, text: &str) -> Result<DynamicMessage, TextFormatError> {
    let name = descriptor.full_name().to_owned();
    DynamicMessage::parse_text_format(descriptor, text)
        .map_err(|error| TextFormatError::Parse(name, Box::new(error)))
}

/// Returns the depth of brackets outside of quotes and comments.
fn depth(text: &str) -> usize {
    let (mut depth, mut deepest, mut quote, mut escaped, mut comment) = (0_usize, 0, None, false, false);
    for byte in text.bytes() {
        match (quote, byte) {
            _ if comment => comment = byte != b'\n',
            (None, b'#') => comment = true,
            (Some(_), _) if escaped => escaped = false,
            (Some(_), b'\\') => escaped = true,
            // A quoted text ends with its line.
            (Some(mark), _) if byte == mark || byte == b'\n' => quote = None,
            (None, b'"' | b'\'') => quote = Some(byte),
            (None, b'{' | b'<' | b'[') => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            (None, b'}' | b'>' | b']') => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_response_in_the_text_format_is_the_json_of_protobuf() {
        let text = r#"
            version_info: "1"
            resources {
              [type.googleapis.com/envoy.config.cluster.v3.Cluster] { name: "a" lb_policy: MAGLEV }
            }
        "#;
        let cluster = json!({ "@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "a", "lbPolicy": "MAGLEV" });
        assert_eq!(to_json(text).unwrap(), json!({ "versionInfo": "1", "resources": [cluster] }));
        let older = text.replace("envoy.config.cluster.v3", "envoy.api.v2");
        assert_eq!(
            to_json(&older).unwrap()["resources"][0]["@type"],
            "type.googleapis.com/envoy.api.v2.Cluster"
        );
    }

    #[test]
    fn a_comment_names_another_message() {
        let text = "# proto-file: envoy/config/cluster/v3/cluster.proto\n# proto-message: envoy.config.cluster.v3.Cluster\nname: \"a\"\n";
        let cluster = json!({ "@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "a" });
        assert_eq!(to_json(text).unwrap(), cluster);
        let error = to_json("# proto-message: a.b.C\n").unwrap_err();
        assert_eq!(error.to_string(), "its first comment names the unknown type a.b.C");
    }

    #[test]
    fn errors_are_reported_and_depth_is_bounded() {
        let error = to_json("resources { nmae: 1 }").unwrap_err().to_string();
        assert!(
            error.starts_with("it is not the text format of envoy.service.discovery.v3.DiscoveryResponse: "),
            "{error}"
        );
        let deep = "a { ".repeat(100_000);
        assert_eq!(to_json(&deep).unwrap_err().to_string(), "it is nested deeper than 64 levels");
        assert_eq!(depth(r#"a: "{{{" b { c: '\'{' d [ ] }"#), 2);
        let closed_in_comments = "a { # }\n".repeat(100_000);
        assert_eq!(
            to_json(&closed_in_comments).unwrap_err().to_string(),
            "it is nested deeper than 64 levels"
        );
        assert_eq!(depth("# {{{ \"\na: \"#\" b { }"), 1);
    }
}

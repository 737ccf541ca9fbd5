//! JSON and descriptors as arguments, inline or in files.

use std::{
    io::{self, Read as _},
    path::Path,
};

use serde_json::Value as Json;

use crate::cli::UsageError;
use mixer_adapter_core::framework::dynamic::DescriptorSet;
use mixer_adapter_net::read_file_within;

/// Reads an inline text, `@FILE`, or `@-` for stdin. Also returns the place of the text, for error messages.
pub(super) fn text(flag: &str, argument: &str) -> Result<(String, String), UsageError> {
    let (text, place) = match argument.strip_prefix('@') {
        None => (Ok(argument.to_owned()), String::new()),
        Some("-") => {
            let mut text = String::new();
            (std::io::stdin().read_to_string(&mut text).map(|_| text), " of stdin".to_owned())
        }
        Some(file) => (read_text(Path::new(file)), format!(" of {file}")),
    };
    let text = text.map_err(|error| {
        let file = argument.trim_start_matches('@');
        usage!("{flag}: cannot read {file}: {error}")
    })?;
    Ok((text, place))
}

/// The longest file in bytes.
const MAX_FILE: u64 = 64 << 20;

/// Reads a file of text.
pub(super) fn read_text(file: &Path) -> io::Result<String> {
    String::from_utf8(read_file_within(file, MAX_FILE)?).map_err(io::Error::other)
}

/// Reads JSON, inline or in a file.
pub(super) fn json(flag: &str, argument: &str) -> Result<Json, UsageError> {
    let (text, place) = text(flag, argument)?;
    serde_json::from_str(&text).map_err(|error| {
        usage!("{flag}: not valid JSON: {error}{place}; write it like '{{\"value\": \"x\"}}'")
    })
}

/// Reads a descriptor set: in a file, binary or in base64, or inline in base64.
pub(super) fn descriptor(flag: &str, argument: &str) -> Result<DescriptorSet, UsageError> {
    let fault = |what: &dyn std::fmt::Display| usage!("{flag}: {what}");
    if !Path::new(argument).is_file() {
        return DescriptorSet::from_base64(argument).map_err(|error| {
            fault(&format_args!(
                "{} is neither a file nor a descriptor set in base64: {error}",
                shortened(argument)
            ))
        });
    }
    let bytes = read_file_within(Path::new(argument), MAX_FILE)
        .map_err(|error| fault(&format_args!("{argument}: {error}")))?;
    let set = match std::str::from_utf8(&bytes) {
        Ok(text) if is_base64(text) => DescriptorSet::from_base64(text),
        _ => DescriptorSet::decode(bytes),
    };
    set.map_err(|error| fault(&format_args!("{argument}: {error}")))
}

/// No descriptor set consists of these characters only: it has names with dots and slashes.
fn is_base64(text: &str) -> bool {
    text.bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || byte.is_ascii_whitespace() || b"+/=".contains(&byte))
}

fn shortened(argument: &str) -> String {
    match argument.char_indices().nth(40) {
        None => format!("{argument:?}"),
        Some((end, _)) => format!("{:?}...", &argument[..end]),
    }
}

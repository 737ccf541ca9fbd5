//! What the command line hands over: JSON and descriptors, in place or in files.

use std::{fs, io::Read as _, path::Path};

use serde_json::Value as Json;

use crate::cli::Usage;
use mixer_adapter_core::framework::dynamic::DescriptorSet;

/// A text in place, `@FILE`, or `@-` for stdin; and where it was read, for messages.
pub(super) fn text(flag: &str, argument: &str) -> Result<(String, String), Usage> {
    let (text, place) = match argument.strip_prefix('@') {
        None => (Ok(argument.to_owned()), String::new()),
        Some("-") => {
            let mut text = String::new();
            (std::io::stdin().read_to_string(&mut text).map(|_| text), " of stdin".to_owned())
        }
        Some(file) => (fs::read_to_string(file), format!(" of {file}")),
    };
    let text = text.map_err(|error| Usage(format!("{flag}: {argument:?} cannot be read: {error}")))?;
    Ok((text, place))
}

/// JSON in place or in a file.
pub(super) fn json(flag: &str, argument: &str) -> Result<Json, Usage> {
    let (text, place) = text(flag, argument)?;
    serde_json::from_str(&text).map_err(|error| {
        Usage(format!("{flag}: this is no JSON: {error}{place}; write it like '{{\"value\": \"x\"}}'"))
    })
}

/// A descriptor set in a file, as such or in base64, or in base64 in place.
pub(super) fn descriptor(flag: &str, argument: &str) -> Result<DescriptorSet, Usage> {
    let fault = |what: &dyn std::fmt::Display| Usage(format!("{flag}: {what}"));
    if !Path::new(argument).is_file() {
        return DescriptorSet::from_base64(argument)
            .map_err(|error| fault(&format_args!("there is no file {}, and {error}", shortened(argument))));
    }
    let bytes = fs::read(argument).map_err(|error| fault(&format_args!("{argument}: {error}")))?;
    let set = match std::str::from_utf8(&bytes) {
        Ok(text) if is_base64(text) => DescriptorSet::from_base64(text),
        _ => DescriptorSet::decode(bytes),
    };
    set.map_err(|error| fault(&format_args!("{argument}: {error}")))
}

/// No descriptor set is text of this kind: its second byte is a length, and names with dots and slashes follow.
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

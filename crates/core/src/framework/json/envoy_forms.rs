//! Forms of JSON that Envoy reads in addition to proto3 JSON.

use prost_reflect::MessageDescriptor;
use serde_json::{Map, Value as Json};

/// Returns a value of a well-known type in the form of proto3 JSON.
pub(super) fn well_known(message: &MessageDescriptor, json: Json) -> Json {
    let name = message.full_name();
    let json = if is_wrapper(name) { unwrapped(json) } else { json };
    let parts = json.as_object().and_then(seconds_and_nanos);
    match (name, parts) {
        ("google.protobuf.Duration", Some((seconds, nanos))) => duration(seconds, nanos),
        ("google.protobuf.Timestamp", Some((seconds, nanos))) => {
            prost_types::Timestamp { seconds, nanos }.to_string().into()
        }
        ("google.protobuf.BoolValue", _) => bool_of_text(json),
        _ => json,
    }
}

fn unwrapped(json: Json) -> Json {
    match json {
        Json::Object(mut fields) if fields.len() == 1 && fields.contains_key("value") => {
            fields.remove("value").unwrap_or_default()
        }
        json => json,
    }
}

/// Reads `"true"` and `"false"`; returns any other value as it is.
pub(super) fn bool_of_text(json: Json) -> Json {
    match json.as_str() {
        Some("true") => Json::Bool(true),
        Some("false") => Json::Bool(false),
        _ => json,
    }
}

fn is_wrapper(name: &str) -> bool {
    let wrapped = name.strip_prefix("google.protobuf.").and_then(|name| name.strip_suffix("Value"));
    wrapped.is_some_and(|wrapped| {
        ["Bool", "Int32", "Int64", "UInt32", "UInt64", "Float", "Double", "String", "Bytes"]
            .contains(&wrapped)
    })
}

/// Returns the fields of a duration or a timestamp; `None` if there are others.
fn seconds_and_nanos(fields: &Map<String, Json>) -> Option<(i64, i32)> {
    if fields.keys().any(|name| !["seconds", "nanos"].contains(&name.as_str())) {
        return None;
    }
    let [seconds, nanos] = ["seconds", "nanos"].map(|name| match fields.get(name) {
        None => Some(0),
        Some(Json::String(text)) => text.parse().ok(),
        Some(number) => number.as_i64(),
    });
    let nanos = i32::try_from(nanos?).ok().filter(|nanos| nanos.unsigned_abs() < 1_000_000_000);
    Some((seconds?, nanos?))
}

pub(super) fn duration(seconds: i64, nanos: i32) -> Json {
    let sign = if seconds < 0 || nanos < 0 { "-" } else { "" };
    format!("{sign}{}.{:09}s", seconds.unsigned_abs(), nanos.unsigned_abs()).into()
}

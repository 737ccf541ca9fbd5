//! Short forms of attribute values in JSON.

use std::net::IpAddr;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value as Json, json};

use crate::value::IpAddress;

/// The expected form of the JSON.
#[derive(Debug, PartialEq)]
pub(super) struct ShortFormError(pub &'static str);

/// Expands a short form to proto3 JSON: `"x"`, `5` or `true` for a `Value`, `"1.2.3.4"` for an `IPAddress`, the text alone
/// for a `Duration`, `TimeStamp`, `DNSName`, `EmailAddress` or `Uri`. Other JSON, and messages of other packages than
/// `istio.policy.v1beta1`, are returned unchanged.
pub(super) fn expand(message: &str, json: Json) -> Result<Json, ShortFormError> {
    let Some(message) = message.strip_prefix("istio.policy.v1beta1.") else { return Ok(json) };
    match message {
        "Value" => expand_value(json),
        "IPAddress" => expand_address(json),
        "Duration" | "TimeStamp" | "DNSName" | "EmailAddress" | "Uri" if !json.is_object() => {
            Ok(json!({ "value": json }))
        }
        _ => Ok(json),
    }
}

fn expand_value(json: Json) -> Result<Json, ShortFormError> {
    match json {
        Json::String(_) => Ok(json!({ "string_value": json })),
        Json::Bool(_) => Ok(json!({ "bool_value": json })),
        Json::Number(ref number) if number.is_i64() => Ok(json!({ "int64_value": json })),
        Json::Number(_) => Ok(json!({ "double_value": json })),
        Json::Object(_) => Ok(json),
        Json::Array(_) | Json::Null => Err(ShortFormError(
            "expected a string, a number, true, false, or an object such as {\"string_value\": \"x\"}",
        )),
    }
}

fn expand_address(json: Json) -> Result<Json, ShortFormError> {
    let mut fields = match json {
        Json::Object(fields) => fields,
        text => serde_json::Map::from_iter([("value".to_owned(), text)]),
    };
    if let Some(Json::String(text)) = fields.get_mut("value") {
        if let Ok(address) = text.parse::<IpAddr>() {
            *text = STANDARD.encode(IpAddress::from(address).value);
        } else if STANDARD.decode(text.as_str()).is_err() {
            return Err(ShortFormError(
                "expected an address such as \"10.0.0.1\" or \"::1\", or its bytes in base64",
            ));
        }
    }
    Ok(Json::Object(fields))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(message: &str, json: Json) -> Json {
        expand(&format!("istio.policy.v1beta1.{message}"), json).expect("a short form")
    }

    #[test]
    fn the_kind_of_a_short_value_follows_from_its_json() {
        let cases = [
            (json!("x"), json!({"string_value": "x"})),
            (json!(5), json!({"int64_value": 5})),
            (json!(5.5), json!({"double_value": 5.5})),
            (json!(true), json!({"bool_value": true})),
            (json!({"uri_value": "/x"}), json!({"uri_value": "/x"})),
        ];
        for (short, long) in cases {
            assert_eq!(expanded("Value", short), long);
        }
        assert!(expand("istio.policy.v1beta1.Value", json!(["x"])).is_err());
    }

    #[test]
    fn addresses_are_text_or_base64() {
        for address in [json!("1.2.3.4"), json!({"value": "1.2.3.4"}), json!("AQIDBA==")] {
            assert_eq!(expanded("IPAddress", address), json!({"value": "AQIDBA=="}));
        }
        assert_eq!(expanded("IPAddress", json!("::1")), json!({"value": "AAAAAAAAAAAAAAAAAAAAAQ=="}));
        assert!(expand("istio.policy.v1beta1.IPAddress", json!("1.2.3")).is_err());
    }

    #[test]
    fn other_messages_are_unchanged() {
        assert_eq!(expand("listentry.InstanceMsg", json!("x")), Ok(json!("x")));
        assert_eq!(expanded("Duration", json!("5s")), json!({"value": "5s"}));
    }
}

//! Attribute values as people write them in JSON.

use std::net::IpAddr;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value as Json, json};

/// A value in short as proto3 JSON has it: `"x"`, `5` or `true` for a `Value`, `"1.2.3.4"` for an `IPAddress`, the text
/// alone for a `Duration`, `TimeStamp`, `DNSName`, `EmailAddress` or `Uri`. What is written out, and messages that are
/// not of `istio.policy.v1beta1`, stay as they are. An error says what was expected.
pub(crate) fn write_out(message: &str, json: Json) -> Result<Json, &'static str> {
    let Some(message) = message.strip_prefix("istio.policy.v1beta1.") else { return Ok(json) };
    match message {
        "Value" => write_out_value(json),
        "IPAddress" => write_out_address(json),
        "Duration" | "TimeStamp" | "DNSName" | "EmailAddress" | "Uri" if !json.is_object() => {
            Ok(json!({ "value": json }))
        }
        _ => Ok(json),
    }
}

fn write_out_value(json: Json) -> Result<Json, &'static str> {
    match json {
        Json::String(_) => Ok(json!({ "string_value": json })),
        Json::Bool(_) => Ok(json!({ "bool_value": json })),
        Json::Number(ref number) if number.is_i64() => Ok(json!({ "int64_value": json })),
        Json::Number(_) => Ok(json!({ "double_value": json })),
        Json::Object(_) => Ok(json),
        Json::Array(_) | Json::Null => {
            Err("expected a string, a number, true, false, or an object such as {\"string_value\": \"x\"}")
        }
    }
}

fn write_out_address(json: Json) -> Result<Json, &'static str> {
    let mut fields = match json {
        Json::Object(fields) => fields,
        text => serde_json::Map::from_iter([("value".to_owned(), text)]),
    };
    if let Some(Json::String(text)) = fields.get_mut("value") {
        if let Ok(address) = text.parse::<IpAddr>() {
            *text = STANDARD.encode(super::IpAddress::from(address).value);
        } else if STANDARD.decode(text.as_str()).is_err() {
            return Err("expected an address such as \"10.0.0.1\" or \"::1\", or its bytes in base64");
        }
    }
    Ok(Json::Object(fields))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written_out(message: &str, json: Json) -> Json {
        write_out(&format!("istio.policy.v1beta1.{message}"), json).expect("can be written out")
    }

    #[test]
    fn a_bare_value_is_of_the_kind_it_looks_like() {
        let cases = [
            (json!("x"), json!({"string_value": "x"})),
            (json!(5), json!({"int64_value": 5})),
            (json!(5.5), json!({"double_value": 5.5})),
            (json!(true), json!({"bool_value": true})),
            (json!({"uri_value": "/x"}), json!({"uri_value": "/x"})),
        ];
        for (short, long) in cases {
            assert_eq!(written_out("Value", short), long);
        }
        assert!(write_out("istio.policy.v1beta1.Value", json!(["x"])).is_err());
    }

    #[test]
    fn addresses_are_text_or_base64() {
        for address in [json!("1.2.3.4"), json!({"value": "1.2.3.4"}), json!("AQIDBA==")] {
            assert_eq!(written_out("IPAddress", address), json!({"value": "AQIDBA=="}));
        }
        assert_eq!(written_out("IPAddress", json!("::1")), json!({"value": "AAAAAAAAAAAAAAAAAAAAAQ=="}));
        assert!(write_out("istio.policy.v1beta1.IPAddress", json!("1.2.3")).is_err());
    }

    #[test]
    fn other_messages_stay_as_they_are() {
        assert_eq!(write_out("listentry.InstanceMsg", json!("x")), Ok(json!("x")));
        assert_eq!(written_out("Duration", json!("5s")), json!({"value": "5s"}));
    }
}

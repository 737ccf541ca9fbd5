//! Values that are replaced in the log.

use mixer_adapter_core::framework::log_text::log_text;
use percent_encoding::percent_decode_str;
use serde_json::Value as Json;

use crate::attribute::AttributeValue;

/// The text in place of a masked value.
pub const MASK: &str = "***";

/// The attribute with the parameters of a query as a map.
const QUERY_PARAMS: &str = "request.query_params";

/// Attributes, keys and parameters of queries whose values hold credentials.
pub const DEFAULT_MASKS: [&str; 19] = [
    "request.api_key",
    "request.auth.raw_claims",
    "request.headers[authorization]",
    "request.headers[cookie]",
    "request.headers[proxy-authorization]",
    "request.headers[x-api-key]",
    "response.headers[set-cookie]",
    "?access_token",
    "?api_key",
    "?apikey",
    "?client_secret",
    "?id_token",
    "?key",
    "?password",
    "?refresh_token",
    "?secret",
    "?sig",
    "?signature",
    "?token",
];

/// The values to replace.
#[derive(Debug, Default)]
pub(super) struct Masks {
    attributes: Vec<String>,
    /// Keys of attributes that are maps.
    keys: Vec<(String, String)>,
    /// Parameters of the queries in all texts.
    parameters: Vec<String>,
}

impl Masks {
    /// Parses `ATTRIBUTE`, `ATTRIBUTE[KEY]` and `?PARAMETER`.
    pub(super) fn new<'m>(masks: impl IntoIterator<Item = &'m str>) -> Self {
        let mut parsed = Self::default();
        for mask in masks {
            let key = mask.strip_suffix(']').and_then(|mask| mask.split_once('['));
            match (mask.strip_prefix('?'), key) {
                (Some(parameter), _) => parsed.parameters.push(parameter.to_owned()),
                (None, Some((map, key))) => parsed.keys.push((map.to_owned(), key.to_owned())),
                (None, None) => parsed.attributes.push(mask.to_owned()),
            }
        }
        parsed
    }

    fn covers_key(&self, map: &str, key: &str) -> bool {
        self.keys.iter().any(|(of, masked)| of == map && masked.eq_ignore_ascii_case(key))
    }

    fn covers_parameter(&self, name: &str) -> bool {
        let name = percent_decode_str(name).decode_utf8_lossy();
        self.parameters.iter().any(|masked| masked.eq_ignore_ascii_case(&name))
    }

    /// Returns an attribute's value for the log.
    pub(super) fn value(&self, name: &str, value: &AttributeValue) -> Json {
        if self.attributes.iter().any(|masked| masked == name) {
            return MASK.into();
        }
        match value {
            AttributeValue::String(text) => self.text(text).into(),
            AttributeValue::Int64(number) => (*number).into(),
            AttributeValue::Double(number) => (*number).into(),
            AttributeValue::Bool(value) => (*value).into(),
            AttributeValue::StringMap(map) => {
                let entries = map.iter().map(|(key, value)| {
                    let value = if self.covers_key(name, key) {
                        MASK.to_owned()
                    } else if name == QUERY_PARAMS {
                        // As in a query, where a value may hold further parameters.
                        let parameter = self.text(format_args!("?{key}={value}"));
                        parameter.split_once('=').map_or(MASK, |(_, value)| value).to_owned()
                    } else {
                        self.text(value)
                    };
                    (log_text(key), value.into())
                });
                Json::Object(entries.collect())
            }
            other => log_text(other).into(),
        }
    }

    /// Returns a text for the log, in which the values of masked parameters after a question mark are replaced.
    pub(super) fn text(&self, text: impl std::fmt::Display) -> String {
        let text = log_text(text);
        let Some(start) = text.find('?') else { return text };
        let (before, query) = text.split_at(start + 1);
        let mut masked = before.to_owned();
        for part in query.split_inclusive(is_end) {
            match part.split_once('=') {
                Some((name, value)) if self.covers_parameter(name) => {
                    masked.extend([name, "=", MASK]);
                    masked.extend(value.chars().next_back().filter(|&last| is_end(last)));
                }
                _ => masked.push_str(part),
            }
        }
        masked
    }
}

fn is_end(end: char) -> bool {
    matches!(end, '&' | ';' | '#' | '?' | '"' | '\'') || end.is_whitespace()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_masked_parameters_are_replaced_wherever_a_text_has_a_query() {
        let masks = Masks::new(DEFAULT_MASKS);
        for (text, logged) in [
            ("/a", "/a"),
            ("/token=1", "/token=1"),
            ("/a?token=1", "/a?token=***"),
            ("/a?x=1&Token=a=b&y=2", "/a?x=1&Token=***&y=2"),
            ("/a?x=1;key=2", "/a?x=1;key=***"),
            ("/a?acc%65ss_token=1#key=2", "/a?acc%65ss_token=***#key=***"),
            ("/a?token", "/a?token"),
            ("/a?tokens=1", "/a?tokens=1"),
            ("/a?b?token=1", "/a?b?token=***"),
            (r#"the path "/a?token=1" is closed, key=1"#, r#"the path "/a?token=***" is closed, key=***"#),
        ] {
            assert_eq!(masks.text(text), logged);
        }
    }

    #[test]
    fn a_masked_parameter_is_one_of_the_map_of_parameters_too() {
        let masks = Masks::new(["?session"]);
        let params =
            AttributeValue::from([("Session", "1"), ("page", "2"), ("s%65ssion", "3"), ("x", "1;session=4")]);
        let logged = serde_json::json!({
            "Session": "***", "page": "2", "s%65ssion": "***", "x": "1;session=***",
        });
        assert_eq!(masks.value("request.query_params", &params), logged);
        assert_eq!(masks.value("request.headers", &params)["Session"], "1");
    }
}

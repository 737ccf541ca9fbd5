//! The answers of the service.

use mixer_adapter_core::{
    Check, Code,
    prost::Message as _,
    prost_types::{ListValue, NullValue, Struct, Value, value::Kind},
};
use serde::Deserialize;
use serde_json::Value as Json;

/// Limits on the texts of a denial.
const MAX_CHARACTERS: usize = 500;
const MAX_LANGUAGES: usize = 8;

/// Limits on a context that becomes metadata: its size in bytes, and its nested values.
const MAX_METADATA: usize = 8 << 10;
const MAX_DEPTH: usize = 16;

/// The name of the context in the metadata.
const METADATA: &str = "authzen";

/// A decision, and the context with its reasons.
#[derive(Debug, Deserialize)]
pub(super) struct Decision {
    decision: bool,
    #[serde(default)]
    context: Json,
}

/// The answer about several evaluations, in their order.
#[derive(Debug, Deserialize)]
pub(super) struct Decisions {
    evaluations: Vec<Decision>,
}

impl Decisions {
    /// Returns the first denial, or the last decision if all evaluations are allowed. Without a denial each one must be decided, and
    /// no answer has more decisions than evaluations.
    pub(super) fn combine(self, evaluations: usize) -> Option<Decision> {
        let decided = self.evaluations.len();
        if decided > evaluations {
            return None;
        }
        let mut decisions = self.evaluations.into_iter().enumerate();
        let (_, decision) =
            decisions.find(|(index, decision)| !decision.decision || index + 1 == evaluations)?;
        Some(decision)
    }
}

impl Decision {
    /// Returns the answer to the request, with the context as metadata.
    pub(super) fn into_check(self) -> Check {
        let check = if self.decision { Check::allow() } else { self.denial() };
        match metadata(self.context) {
            Some(metadata) => check.with_metadata(&metadata),
            None => check,
        }
    }

    /// Denies the request. The text is the reason for users, in English if there are several.
    fn denial(&self) -> Check {
        // `reason_admin` must not be sent to users.
        let reason = match &self.context["reason_user"] {
            Json::Null => &self.context["reason"],
            reason => reason,
        };
        let languages: Vec<(&str, String)> = match reason {
            Json::Object(reasons) => {
                let texts =
                    reasons.iter().filter_map(|(tag, text)| Some((tag.as_str(), cut(text.as_str()?))));
                texts.take(MAX_LANGUAGES).collect()
            }
            text => text.as_str().map(|text| ("", cut(text))).into_iter().collect(),
        };
        let english = languages.iter().find(|(tag, _)| tag.starts_with("en"));
        let text = english.or(languages.first()).map_or("denied by the decision service", |(_, text)| text);
        let denial = Check::deny(Code::PermissionDenied, text);
        let localized =
            languages.iter().filter(|(tag, _)| tag.starts_with(|c: char| c.is_ascii_alphabetic()));
        localized.fold(denial, |denial, (tag, text)| denial.localized(*tag, text))
    }
}

/// Returns the metadata with a context; `None` if it has no fields or exceeds a limit.
fn metadata(context: Json) -> Option<Struct> {
    if context.as_object().is_none_or(serde_json::Map::is_empty) {
        return None;
    }
    let metadata = Struct { fields: [(METADATA.to_owned(), value(context, MAX_DEPTH)?)].into() };
    (metadata.encoded_len() <= MAX_METADATA).then_some(metadata)
}

/// Converts a value with at most `depth` levels of nested values.
fn value(json: Json, depth: usize) -> Option<Value> {
    let inner = |json| value(json, depth.checked_sub(1)?);
    let kind = match json {
        Json::Null => Kind::NullValue(NullValue::NullValue.into()),
        Json::Bool(truth) => Kind::BoolValue(truth),
        Json::Number(number) => Kind::NumberValue(number.as_f64()?),
        Json::String(text) => Kind::StringValue(text),
        Json::Array(items) => {
            Kind::ListValue(ListValue { values: items.into_iter().map(inner).collect::<Option<_>>()? })
        }
        Json::Object(fields) => {
            let fields = fields.into_iter().map(|(name, json)| Some((name, inner(json)?)));
            Kind::StructValue(Struct { fields: fields.collect::<Option<_>>()? })
        }
    };
    Some(Value { kind: Some(kind) })
}

fn cut(text: &str) -> String {
    text.chars().take(MAX_CHARACTERS).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use mixer_adapter_core::proto::{Any, google::rpc::LocalizedMessage};
    use serde_json::json;

    use super::*;

    fn details(check: &Check, is_metadata: bool) -> Vec<&Any> {
        let named = |detail: &&Any| detail.type_url.ends_with("Struct") == is_metadata;
        check.details().iter().filter(named).collect()
    }

    fn denied(context: Json) -> Check {
        let answer = json!({ "decision": false, "context": context });
        let check = serde_json::from_value::<Decision>(answer).unwrap().into_check();
        assert_eq!(check.status().code, Code::PermissionDenied as i32);
        check
    }

    #[test]
    fn the_reason_for_users_is_the_text_and_that_for_administrators_is_not_sent() {
        // The example of the specification.
        let check = denied(json!({
            "id": "0",
            "reason_admin": { "en": "Request failed policy C076E82F" },
            "reason_user": {
                "en-403": "Insufficient privileges. Contact your administrator",
                "es-403": "Privilegios insuficientes. Póngase en contacto con su administrador",
            },
        }));
        assert_eq!(check.status().message, "Insufficient privileges. Contact your administrator");
        let languages = details(&check, false)
            .into_iter()
            .map(|detail| LocalizedMessage::decode(detail.value.clone()).unwrap().locale);
        assert_eq!(languages.collect::<Vec<_>>(), ["en-403", "es-403"]);
        assert_eq!(denied(json!({ "reason": "resource not found" })).status().message, "resource not found");
    }

    #[test]
    fn a_denial_needs_no_reason_and_no_particular_context() {
        let contexts =
            [json!(null), json!("x"), json!([1]), json!({ "reason_user": 5, "reason_admin": "secret" })];
        for context in contexts {
            let check = denied(context.clone());
            assert_eq!(check.status().message, "denied by the decision service", "{context}");
            assert!(details(&check, false).is_empty());
        }
    }

    #[test]
    fn the_context_is_metadata_of_each_decision() {
        let context = json!({ "obligations": [{ "id": "log", "level": 2 }], "mfa": true, "none": null });
        for decision in [true, false] {
            let check = Decision { decision, context: context.clone() }.into_check();
            assert_eq!(check.is_allowed(), decision);
            let metadata = Struct::decode(details(&check, true)[0].value.clone()).unwrap();
            let shown = format!("{metadata:?}");
            for part in ["\"authzen\"", "\"obligations\"", "\"log\"", "NumberValue(2.0)", "BoolValue(true)"] {
                assert!(shown.contains(part), "{part}: {shown}");
            }
        }
        let deep = (0..100).fold(json!({}), |inner, _| json!({ "a": inner }));
        for none in [json!(null), json!({}), json!("x"), json!({ "a": "x".repeat(8 << 10) }), deep] {
            let check = Decision { decision: true, context: none }.into_check();
            assert!(check.details().is_empty(), "{check:?}");
        }
    }

    #[test]
    fn a_long_reason_is_cut() {
        let check = denied(json!({ "reason": "ä".repeat(10_000) }));
        assert_eq!(check.status().message, "ä".repeat(MAX_CHARACTERS));
    }
}

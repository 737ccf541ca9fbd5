//! The answers of the service.

use std::collections::BTreeMap;

use mixer_adapter_core::{
    Check, Code, DirectHttpResponse,
    adapter::HeaderOperation,
    http::{HeaderValue, header},
    log::{log_text, warn_limited},
    prost::Message as _,
    prost_types::{ListValue, NullValue, Struct, Value, value::Kind},
};
use serde::Deserialize;
use serde_json::Value as Json;

use super::{error::EvaluationError, settings::ContextHeader};

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
    /// Returns the answer to the request, with the context as metadata, and values of it as headers.
    ///
    /// # Errors
    ///
    /// Fails if the request is allowed and a header of the upstream cannot have its value.
    pub(super) fn into_check(
        self,
        upstream_headers: &[ContextHeader],
        client_headers: &[ContextHeader],
    ) -> Result<Check, EvaluationError> {
        let check = if self.decision { self.allow(upstream_headers)? } else { self.deny(client_headers) };
        Ok(match metadata(self.context) {
            Some(metadata) => check.with_metadata(&metadata),
            None => check,
        })
    }

    /// Allows the request. The upstream receives these headers as the context has them: the client cannot give itself one.
    fn allow(&self, headers: &[ContextHeader]) -> Result<Check, EvaluationError> {
        let operations = headers.iter().map(|header| {
            Ok(match header.value(&self.context)? {
                Some(value) => HeaderOperation::replace(header.name.as_str(), value),
                None => HeaderOperation::remove(header.name.as_str()),
            })
        });
        let operations = operations.collect::<Result<_, EvaluationError>>()?;
        Ok(Check::allow().with_header_operations(operations, Vec::new()))
    }

    /// Denies the request. The text is the reason for users, in English if there are several. A header that cannot have its value is skipped.
    fn deny(&self, headers: &[ContextHeader]) -> Check {
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
        let denial = localized.fold(denial, |denial, (tag, text)| denial.localized(*tag, text));
        let headers = headers.iter().filter_map(|header| match header.client_value(&self.context) {
            Ok(value) => Some((header.name.to_string(), value?)),
            Err(error) => {
                warn_limited!(error = log_text(error), "a header of a denial was skipped");
                None
            }
        });
        let headers: BTreeMap<String, String> = headers.collect();
        if headers.is_empty() {
            return denial;
        }
        denial.with_direct_response(&DirectHttpResponse { headers, ..DirectHttpResponse::default() })
    }
}

impl ContextHeader {
    /// Returns the value in a context; `None` if it is absent.
    fn value(&self, context: &Json) -> Result<Option<String>, EvaluationError> {
        let text = match context.pointer(&self.pointer) {
            None | Some(Json::Null) => return Ok(None),
            Some(Json::String(text)) => Some(text.clone()),
            Some(value) => (value.is_number() || value.is_boolean()).then(|| value.to_string()),
        };
        let valid = text.filter(|text| HeaderValue::from_bytes(text.as_bytes()).is_ok());
        valid.map(Some).ok_or_else(|| EvaluationError::Header(self.name.clone()))
    }

    /// Returns the value that a client receives. Commas separate cookies, and dates of the attribute `expires` are valid without theirs
    /// (RFC 6265, section 5.1.1).
    fn client_value(&self, context: &Json) -> Result<Option<String>, EvaluationError> {
        let value = self.value(context)?;
        if self.name != header::SET_COOKIE {
            return Ok(value);
        }
        let cookie = value.map(|value| value.replace(", ", " "));
        if cookie.as_ref().is_some_and(|cookie| cookie.contains(',')) {
            return Err(EvaluationError::Cookie);
        }
        Ok(cookie)
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
    let below = depth.checked_sub(1);
    let kind = match json {
        Json::Null => Kind::NullValue(NullValue::NullValue.into()),
        Json::Bool(truth) => Kind::BoolValue(truth),
        Json::Number(number) => Kind::NumberValue(number.as_f64()?),
        Json::String(text) => Kind::StringValue(text),
        Json::Array(items) => {
            let values = items.into_iter().map(|json| value(json, below?));
            Kind::ListValue(ListValue { values: values.collect::<Option<_>>()? })
        }
        Json::Object(fields) => {
            let fields = fields.into_iter().map(|(name, json)| Some((name, value(json, below?)?)));
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

    use mixer_adapter_core::{
        http::HeaderName,
        proto::{Any, google::rpc::LocalizedMessage},
    };
    use serde_json::json;

    use super::*;

    fn details(check: &Check, is_metadata: bool) -> Vec<&Any> {
        let named = |detail: &&Any| detail.type_url.ends_with("Struct") == is_metadata;
        check.details().iter().filter(named).collect()
    }

    fn denied(context: Json) -> Check {
        let answer = json!({ "decision": false, "context": context });
        let check = serde_json::from_value::<Decision>(answer).unwrap().into_check(&[], &[]).unwrap();
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
            let check = Decision { decision, context: context.clone() }.into_check(&[], &[]).unwrap();
            assert_eq!(check.is_allowed(), decision);
            let metadata = Struct::decode(details(&check, true)[0].value.clone()).unwrap();
            let shown = format!("{metadata:?}");
            for part in ["\"authzen\"", "\"obligations\"", "\"log\"", "NumberValue(2.0)", "BoolValue(true)"] {
                assert!(shown.contains(part), "{part}: {shown}");
            }
        }
        let deep = (0..100).fold(json!({}), |inner, _| json!({ "a": inner }));
        for none in [json!(null), json!({}), json!("x"), json!({ "a": "x".repeat(8 << 10) }), deep] {
            let check = Decision { decision: true, context: none }.into_check(&[], &[]).unwrap();
            assert!(check.details().is_empty(), "{check:?}");
        }
    }

    #[test]
    fn a_long_reason_is_cut() {
        let check = denied(json!({ "reason": "ä".repeat(10_000) }));
        assert_eq!(check.status().message, "ä".repeat(MAX_CHARACTERS));
    }

    #[test]
    fn values_of_the_context_are_headers() {
        let header = |name: &'static str, pointer: &str| ContextHeader {
            name: HeaderName::from_static(name),
            pointer: pointer.to_owned(),
        };
        let named = [
            header("x-role", "/roles/0"),
            header("x-level", "/level"),
            header("x-none", "/none"),
            header("set-cookie", "/cookie"),
        ];
        let context = json!({ "roles": ["admin"], "level": 2, "none": null });
        let check = |decision, context: &Json| {
            Decision { decision, context: context.clone() }.into_check(&named, &named)
        };
        let operations = vec![
            HeaderOperation::replace("x-role", "admin"),
            HeaderOperation::replace("x-level", "2"),
            HeaderOperation::remove("x-none"),
            HeaderOperation::remove("set-cookie"),
        ];
        let expected = Check::allow().with_header_operations(operations, Vec::new());
        assert_eq!(check(true, &context).unwrap().details()[0], expected.details()[0]);
        let response = |context: &Json| {
            let denial = check(false, context).unwrap();
            let detail = details(&denial, false).pop().cloned();
            detail.map(|detail| DirectHttpResponse::decode(detail.value).unwrap().headers).unwrap_or_default()
        };
        let expected = [("x-level", "2"), ("x-role", "admin")];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(response(&context), BTreeMap::from(expected));
        for invalid in [json!("a\r\nx-b: c"), json!(["admin"]), json!({})] {
            let context = json!({ "level": invalid });
            check(true, &context).unwrap_err();
            assert!(response(&context).is_empty(), "{invalid}");
        }
        // The response has one value of each header, which is split at commas (docs/behaviour/adapter-calls.md#direct-responses).
        for (cookie, sent) in [
            ("a=1; Expires=Wed, 21 Oct 2026 07:28:00 GMT", Some("a=1; Expires=Wed 21 Oct 2026 07:28:00 GMT")),
            ("a=1,b=2", None),
        ] {
            let headers = response(&json!({ "cookie": cookie }));
            assert_eq!(headers.get("set-cookie").map(String::as_str), sent, "{cookie}");
        }
    }
}

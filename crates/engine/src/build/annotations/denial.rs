//! The annotation of rules with the form of their denials (docs/envoy/answers.md#the-form-of-a-denial).

use std::{collections::BTreeMap, sync::Arc};

use http::HeaderName;
use serde::Deserialize;
use serde_json::Value as Json;

use super::super::{
    faults::{of_compilation, of_expression},
    index::language,
};
use crate::{
    attribute::Vocabulary,
    denial::{BodyTemplate, CODE, DenialForm, JsonTemplate, MESSAGE, Redirect},
    expression::Expression,
};
use mixer_adapter_config::{Resource, ValidationError, annotations::DENIAL};
use mixer_adapter_core::{framework::is_framing_header, value::ValueType};

/// Maximum nesting of a JSON body.
const MAX_NESTING: usize = 32;

/// The value of the annotation, in YAML. Texts are expressions.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct DenialSpec {
    status: Option<u32>,
    headers: BTreeMap<String, String>,
    redirect: Option<String>,
    query: BTreeMap<String, String>,
    body: Option<String>,
    json: Option<Json>,
}

/// Compiles the form of the denials of a rule. Returns `None` if a part of it is not valid.
pub(in super::super) fn denial_form(
    resource: &Resource,
    vocabulary: &Arc<Vocabulary>,
    faults: &mut Vec<ValidationError>,
) -> Option<Arc<DenialForm>> {
    let text = resource.annotations.get(DENIAL)?;
    let spec: DenialSpec = match serde_saphyr::from_str(text) {
        Ok(spec) => spec,
        Err(error) => {
            let reason = error.without_snippet().to_string();
            faults.push(resource.annotation_error(DENIAL, reason));
            return None;
        }
    };
    let mut extended = Vocabulary::extending(vocabulary.clone());
    for name in [CODE, MESSAGE] {
        // Cannot conflict: the vocabulary is new.
        let _ = extended.declare(name, ValueType::String);
    }
    let mut compiler = Compiler { resource, vocabulary: &extended, slots: Vec::new(), faults };
    let before = compiler.faults.len();
    let parts = compiler.parts(spec);
    let (slots, added) = (compiler.slots.into(), &faults[before..]);
    let (status, headers, redirect, body) = parts.filter(|_| !added.iter().any(ValidationError::is_error))?;
    Some(Arc::new(DenialForm { vocabulary: Arc::new(extended), slots, status, headers, redirect, body }))
}

struct Compiler<'c> {
    resource: &'c Resource,
    vocabulary: &'c Vocabulary,
    slots: Vec<u32>,
    faults: &'c mut Vec<ValidationError>,
}

/// Status, headers, redirect and body of a form.
type Parts = (Option<u32>, Vec<(HeaderName, Expression)>, Option<Redirect>, Option<BodyTemplate>);

impl Compiler<'_> {
    /// Compiles the parts of a form; `None` if an expression does not compile. Other faults are added.
    fn parts(&mut self, spec: DenialSpec) -> Option<Parts> {
        let DenialSpec { status, headers, redirect, query, body, json } = spec;
        let is_empty =
            status.is_none() && headers.is_empty() && redirect.is_none() && body.is_none() && json.is_none();
        for (is_wrong, reason) in [
            (is_empty, "it is empty; write one of status, headers, redirect, body, json"),
            (status.is_some_and(|status| !(200..600).contains(&status)), "status is not from 200 to 599"),
            (redirect.is_none() && !query.is_empty(), "query is for the location of redirect"),
            (body.is_some() && json.is_some(), "body and json exclude each other"),
            (
                redirect.is_some() && headers.keys().any(|name| name.eq_ignore_ascii_case("location")),
                "redirect and the header location exclude each other",
            ),
        ] {
            if is_wrong {
                self.faults.push(self.resource.annotation_error(DENIAL, reason));
            }
        }
        let headers: Vec<_> = headers.iter().map(|(name, value)| self.header(name, value)).collect();
        let redirect = redirect.map(|location| {
            let location = self.text("redirect", &location);
            let query = query.into_iter().map(|(name, value)| {
                let value = self.expression(&format!("query.{name}"), &value);
                value.map(|value| (name, value))
            });
            // All are compiled: each has its faults.
            let query: Vec<_> = query.collect();
            Some(Redirect { location: location?, query: query.into_iter().collect::<Option<_>>()? })
        });
        let body = body.map(|text| self.text("body", &text).map(Box::new).map(BodyTemplate::Text));
        let json = json.map(|json| self.json("json", json, 0).map(BodyTemplate::Json));
        let headers = headers.into_iter().collect::<Option<_>>()?;
        let body = match body.or(json) {
            Some(body) => Some(body?),
            None => None,
        };
        let redirect = match redirect {
            Some(redirect) => Some(redirect?),
            None => None,
        };
        Some((status, headers, redirect, body))
    }

    fn header(&mut self, name: &str, value: &str) -> Option<(HeaderName, Expression)> {
        let valid = HeaderName::from_bytes(name.as_bytes()).ok().filter(|name| !is_framing_header(name));
        if valid.is_none() {
            let reason = format!("headers.{name}: a response cannot have this header");
            self.faults.push(self.resource.annotation_error(DENIAL, reason));
        }
        let value = self.text(&format!("headers.{name}"), value);
        valid.zip(value)
    }

    fn json(&mut self, field: &str, value: Json, nesting: usize) -> Option<JsonTemplate> {
        if nesting > MAX_NESTING {
            let reason = format!("json is nested more than {MAX_NESTING} levels deep");
            self.faults.push(self.resource.annotation_error(DENIAL, reason));
            return None;
        }
        Some(match value {
            Json::String(text) => JsonTemplate::Value(Box::new(self.expression(field, &text)?)),
            Json::Array(items) => {
                let items = items.into_iter().enumerate();
                let items: Vec<_> = items
                    .map(|(index, item)| self.json(&format!("{field}[{index}]"), item, nesting + 1))
                    .collect();
                JsonTemplate::Array(items.into_iter().collect::<Option<_>>()?)
            }
            Json::Object(fields) => {
                let fields: Vec<_> = fields
                    .into_iter()
                    .map(|(name, value)| {
                        let value = self.json(&format!("{field}.{name}"), value, nesting + 1);
                        value.map(|value| (name, value))
                    })
                    .collect();
                JsonTemplate::Object(fields.into_iter().collect::<Option<_>>()?)
            }
            constant => JsonTemplate::Constant(constant),
        })
    }

    /// Compiles an expression whose value is a text.
    fn text(&mut self, field: &str, text: &str) -> Option<Expression> {
        let expression = self.expression(field, text)?;
        let value_type = expression.value_type();
        if matches!(
            value_type,
            ValueType::String | ValueType::Uri | ValueType::DnsName | ValueType::EmailAddress
        ) {
            return Some(expression);
        }
        let reason = format!("{field}: the expression is of type {value_type}; write one of type STRING");
        self.faults.push(self.resource.annotation_error(DENIAL, reason));
        None
    }

    fn expression(&mut self, field: &str, text: &str) -> Option<Expression> {
        let resource = self.resource;
        let place = format!("metadata.annotations[{DENIAL:?}].{field}");
        match Expression::compile_in(language(resource), text, self.vocabulary) {
            Ok(expression) => {
                let found = of_expression(resource, "", text, &expression);
                self.faults.extend(found.map(|fault| fault.in_field(place.as_str())));
                self.slots.extend(expression.slots());
                Some(expression)
            }
            Err(error) => {
                let found = of_compilation(resource, "", text, &error);
                self.faults.extend(found.map(|fault| fault.in_field(place.as_str())));
                None
            }
        }
    }
}

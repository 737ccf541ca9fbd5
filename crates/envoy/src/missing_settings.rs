//! Settings of Envoy that its traffic shows to be missing.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use mixer_adapter_engine::attribute::Standard;

use crate::{
    metadata::METADATA,
    proto::envoy::{
        config::core::v3::Metadata,
        service::auth::v3::{AttributeContext, attribute_context::HttpRequest},
    },
    request_headers::RequestHeaders,
};

/// Data that arrives only if Envoy is configured for it.
#[derive(Clone, Copy, Debug)]
enum Setting {
    Body,
    Token,
    ServerName,
    CheckMetadata,
    DecisionId,
}

/// What is missing of each [`Setting`], in their order, and how to set it.
const TEXTS: [&str; 5] = [
    "a rule reads request.body, and no body arrives: set `with_request_body` in Envoy's ext_authz filter",
    "a rule reads request.auth.principal, and no verified token arrives: name envoy.filters.http.jwt_authn in \
     `metadata_context_namespaces` of Envoy's ext_authz filter, and set `payload_in_metadata` of jwt_authn",
    "a rule reads connection.requested_server_name, and none arrives: set `include_tls_session` in Envoy's ext_authz filter",
    "no entry of access logs has the metadata of its check, such as check.decision_id: \
     `enable_dynamic_metadata_ingestion` of Envoy's ext_authz filter is off, or the log's listener has no such filter",
    "no rate limit has the id of the decision on its request: add to `rate_limits` of Envoy's ratelimit filter an action \
     `metadata` with the entry decision_id, as `envoy-config` prints it",
];

/// Number of times that expected data is missing, and has never arrived, before its setting is reported. A route may have other
/// settings.
const PATIENCE: u32 = 20;

/// The observations for each setting.
#[derive(Debug, Default)]
pub(crate) struct MissingSettings {
    settings: [State; TEXTS.len()],
    /// Whether there was a check: rate limits and logs of listeners without checks have no decisions.
    has_checked: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    /// It has arrived once.
    arrived: AtomicBool,
    missed: AtomicU32,
}

impl State {
    fn is_missing(&self) -> bool {
        !self.arrived.load(Relaxed) && self.missed.load(Relaxed) >= PATIENCE
    }
}

impl MissingSettings {
    /// Records the data of a check; `reads` returns whether rules have read an attribute.
    pub(crate) fn note_check(&self, context: &AttributeContext, reads: impl Fn(Standard) -> bool) {
        if !self.has_checked.load(Relaxed) {
            self.has_checked.store(true, Relaxed);
        }
        if let Some(http) = context.request.as_ref().and_then(|request| request.http.as_ref()) {
            let body = !http.body.is_empty() || !http.raw_body.is_empty();
            self.note(Setting::Body, body, || reads(standard!("request.body")) && declares_body(http));
            let token = metadata_of(context.metadata_context.as_ref(), JWT_AUTHN);
            self.note(Setting::Token, token, || {
                reads(standard!("request.auth.principal")) && has_bearer(http)
            });
        }
        self.note(Setting::ServerName, context.tls_session.is_some(), || {
            let mut peers = [&context.source, &context.destination].into_iter().flatten();
            reads(standard!("connection.requested_server_name"))
                && peers.any(|peer| !peer.principal.is_empty())
        });
    }

    /// Notes whether an entry of an access log has the metadata of a check.
    pub(crate) fn note_log(&self, metadata: Option<&Metadata>) {
        let checked = metadata.is_some_and(|metadata| {
            metadata.filter_metadata.values().any(|filter| filter.fields.contains_key(METADATA))
        });
        self.note(Setting::CheckMetadata, checked, || self.has_checked.load(Relaxed));
    }

    /// Notes whether a rate limit has the id of a decision.
    pub(crate) fn note_rate_limit(&self, has_decision_id: bool) {
        self.note(Setting::DecisionId, has_decision_id, || self.has_checked.load(Relaxed));
    }

    fn note(&self, setting: Setting, arrived: bool, is_expected: impl FnOnce() -> bool) {
        let state = &self.settings[setting as usize];
        if state.arrived.load(Relaxed) {
            return;
        }
        if arrived {
            state.arrived.store(true, Relaxed);
        } else if state.missed.load(Relaxed) < PATIENCE
            && is_expected()
            && state.missed.fetch_add(1, Relaxed) + 1 == PATIENCE
        {
            tracing::warn!("{}", TEXTS[setting as usize]);
        }
    }

    /// Returns the settings that are missing now.
    pub(crate) fn texts(&self) -> Vec<String> {
        let missing = TEXTS.iter().zip(&self.settings).filter(|(_, state)| state.is_missing());
        missing.map(|(text, _)| (*text).to_owned()).collect()
    }
}

/// The filter that verifies tokens.
const JWT_AUTHN: &str = "envoy.filters.http.jwt_authn";

fn metadata_of(metadata: Option<&Metadata>, filter: &str) -> bool {
    metadata.is_some_and(|metadata| metadata.filter_metadata.contains_key(filter))
}

/// Whether a request has a body by its headers: without `with_request_body` its size is 0.
fn declares_body(http: &HttpRequest) -> bool {
    RequestHeaders::of(http).is_ok_and(|headers| {
        headers.get("content-length").is_some_and(|length| length != "0")
            || headers.get("transfer-encoding").is_some()
    })
}

fn has_bearer(http: &HttpRequest) -> bool {
    let is_bearer = |value: &str| value.get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case("bearer "));
    RequestHeaders::of(http)
        .is_ok_and(|headers| headers.get("authorization").is_some_and(|value| is_bearer(&value)))
}

#[cfg(test)]
mod tests {
    use prost_types::{Struct, Value};

    use super::*;
    use crate::proto::{
        envoy::service::auth::v3::attribute_context::{Peer, Request},
        header_entry,
    };

    fn check(http: HttpRequest) -> AttributeContext {
        let request = Some(Request { time: None, http: Some(http) });
        AttributeContext { request, ..AttributeContext::default() }
    }

    fn repeated(settings: &MissingSettings, context: &AttributeContext, read: &str) {
        (0..PATIENCE).for_each(|_| settings.note_check(context, |attribute| attribute.name() == read));
    }

    /// The only setting that is missing.
    fn missing(settings: &MissingSettings) -> String {
        let texts = settings.texts();
        assert_eq!(texts.len(), 1, "{texts:?}");
        texts[0].clone()
    }

    #[test]
    fn a_body_that_a_rule_reads_and_that_never_arrives_is_missing_until_it_does() {
        let settings = MissingSettings::default();
        let headers = vec![header_entry("content-length", "3")];
        let without = check(HttpRequest { headers, ..HttpRequest::default() });
        repeated(&settings, &without, "request.path");
        repeated(&settings, &check(HttpRequest::default()), "request.body");
        assert!(settings.texts().is_empty(), "no rule reads it, or there is none");
        repeated(&settings, &without, "request.body");
        assert!(missing(&settings).contains("`with_request_body`"));
        let with = check(HttpRequest { body: "abc".to_owned(), ..HttpRequest::default() });
        settings.note_check(&with, |_| true);
        assert!(settings.texts().is_empty());
        repeated(&settings, &without, "request.body");
        assert!(settings.texts().is_empty(), "another route may have no bodies");
    }

    #[test]
    fn a_token_that_was_sent_and_is_not_in_the_metadata_is_missing() {
        let settings = MissingSettings::default();
        let headers = vec![header_entry("authorization", "Bearer x")];
        let context = check(HttpRequest { headers, ..HttpRequest::default() });
        repeated(&settings, &context, "request.auth.principal");
        assert!(missing(&settings).contains("`metadata_context_namespaces`"));
        let filter_metadata = [(JWT_AUTHN.to_owned(), Struct::default())].into();
        let metadata_context = Some(Metadata { filter_metadata });
        settings.note_check(&AttributeContext { metadata_context, ..context }, |_| true);
        assert!(settings.texts().is_empty());
    }

    #[test]
    fn the_server_name_is_missing_only_on_connections_with_tls() {
        let settings = MissingSettings::default();
        let read = "connection.requested_server_name";
        repeated(&settings, &AttributeContext::default(), read);
        assert!(settings.texts().is_empty());
        let peer = Some(Peer { principal: "spiffe://a".to_owned(), ..Peer::default() });
        repeated(&settings, &AttributeContext { destination: peer, ..AttributeContext::default() }, read);
        assert!(missing(&settings).contains("`include_tls_session`"));
    }

    #[test]
    fn decisions_are_missing_in_logs_and_rate_limits_only_if_there_are_checks() {
        let settings = MissingSettings::default();
        let note = || {
            (0..PATIENCE).for_each(|_| settings.note_log(None));
            (0..PATIENCE).for_each(|_| settings.note_rate_limit(false));
        };
        note();
        assert!(settings.texts().is_empty());
        settings.note_check(&AttributeContext::default(), |_| false);
        note();
        let [log, limit] = &settings.texts()[..] else { panic!("{:?}", settings.texts()) };
        assert!(log.contains("`enable_dynamic_metadata_ingestion`") && limit.contains("entry decision_id"));
        let own = Struct { fields: [(METADATA.to_owned(), Value::default())].into() };
        let filter_metadata = [("envoy.filters.http.ext_authz".to_owned(), own)].into();
        settings.note_log(Some(&Metadata { filter_metadata }));
        settings.note_rate_limit(true);
        assert!(settings.texts().is_empty());
    }
}

//! Descriptors of rate limits, by the quotas of a configuration.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use mixer_adapter_core::framework::suggest::suggest;

use super::{
    EnvoyConfig,
    requirements::{Quota, Requirements},
};
use crate::cli::{UsageError, template::quoted, value_parsers::DescriptorEntry};

/// The rate limits of a filter.
pub(super) struct RateLimits {
    pub(super) domain: String,
    pub(super) limits: Vec<RateLimit>,
}

#[derive(Serialize)]
pub(super) struct RateLimit {
    quota: String,
    actions: Vec<String>,
    comments: Vec<String>,
    /// Whether a header has an underscore in its name.
    has_underscores: bool,
    /// Whether the hits are the bytes of the response.
    counts_bytes: bool,
}

impl RateLimits {
    /// Creates the limits of the quotas that flags name, else of all quotas of rules for all requests or for the namespace.
    pub(super) fn new(options: &EnvoyConfig, requirements: &Requirements) -> Self {
        let of_rules = requirements.quotas.iter().filter(|(_, quota)| applies(quota, options));
        let mut quotas: BTreeSet<&str> = named(options).map(|quota| short_name(quota)).collect();
        if options.rate_limit.is_empty() {
            quotas.extend(of_rules.map(|(name, _)| name.name()));
        }
        let limits = quotas.iter().map(|quota| RateLimit::new(quota, requirements, options)).collect();
        let namespace = namespace(options).map(|namespace| format!("{namespace}/")).unwrap_or_default();
        let domain = match quotas.first() {
            Some(quota) if quotas.len() == 1 => quota,
            _ => "mixer-adapter",
        };
        Self { domain: format!("{namespace}{domain}"), limits }
    }

    /// Checks the quotas that flags name, and their keys: a mistake would lift the limit.
    pub(super) fn check(options: &EnvoyConfig, requirements: &Requirements) -> Result<(), UsageError> {
        let flags = [
            ("--rate-limit", &options.rate_limit),
            ("--count-response-bytes", &options.count_response_bytes),
        ];
        for (flag, quota) in
            flags.iter().flat_map(|(flag, quotas)| quotas.iter().map(move |quota| (flag, quota)))
        {
            if let (Some((own, _)), Some(namespace)) = (quota.split_once('/'), namespace(options))
                && own != namespace
            {
                return Err(usage!(
                    "{flag} {quota}: the rate limits of one filter are of one namespace, here {namespace}"
                ));
            }
            let name = short_name(quota);
            let known = requirements.quotas.iter().filter(|(known, _)| known.name() == name);
            if let Some((_, other)) = known.clone().next()
                && !known.clone().any(|(_, quota)| applies(quota, options))
            {
                let namespace = other.namespaces.first().map_or("", String::as_str);
                return Err(usage!(
                    "{flag} {quota}: no rule that applies requests this quota; did you mean {namespace}/{name}?"
                ));
            }
        }
        Self::check_keys(options, requirements)
    }

    /// Checks that each key of `--descriptor` is read by a quota, unless none of them is of this configuration.
    fn check_keys(options: &EnvoyConfig, requirements: &Requirements) -> Result<(), UsageError> {
        let is_known =
            |quota: &String| requirements.quotas.keys().any(|known| known.name() == short_name(quota));
        let mut named = named(options).peekable();
        if named.peek().is_some() && !named.any(is_known) {
            return Ok(());
        }
        let read: BTreeSet<&str> =
            requirements.quotas.values().flat_map(|quota| quota.entries.keys()).map(String::as_str).collect();
        let unknown = options.descriptor.iter().find(|entry| !read.contains(entry.key.as_str()));
        let Some(DescriptorEntry { key, .. }) = unknown else { return Ok(()) };
        let hint = match suggest(key, read.iter().copied()) {
            Some(similar) => format!("; did you mean {similar}?"),
            None if read.is_empty() => "; no quota of the configuration reads any".to_owned(),
            None => format!("; the quotas read {}", Vec::from_iter(read).join(", ")),
        };
        Err(usage!("--descriptor {key}: no quota of the configuration reads this key{hint}"))
    }

    /// Returns whether a descriptor is of a header with an underscore in its name.
    pub(super) fn have_underscores(&self) -> bool {
        self.limits.iter().any(|limit| limit.has_underscores)
    }
}

/// Returns the quotas that flags name.
fn named(options: &EnvoyConfig) -> impl Iterator<Item = &String> {
    options.rate_limit.iter().chain(&options.count_response_bytes)
}

/// Returns the name of a quota without its namespace.
fn short_name(quota: &str) -> &str {
    quota.rsplit('/').next().unwrap_or(quota)
}

/// Returns the namespace of the flags, whose rules apply beside the rules of the default namespace.
fn namespace(options: &EnvoyConfig) -> Option<&str> {
    let of_flag = options.namespace.as_deref();
    of_flag.or_else(|| named(options).find_map(|quota| Some(quota.split_once('/')?.0)))
}

/// Returns whether a rule that requests the quota applies.
fn applies(quota: &Quota, options: &EnvoyConfig) -> bool {
    let default = options.configuration.default_config_namespace.as_str();
    quota.namespaces.iter().any(|own| own == default || Some(own.as_str()) == namespace(options))
}

impl RateLimit {
    fn new(name: &str, requirements: &Requirements, options: &EnvoyConfig) -> Self {
        let known = requirements.quotas.iter();
        let known = known.filter(|(known, quota)| known.name() == name && applies(quota, options));
        let known: Vec<_> = known.collect();
        let mut entries: BTreeMap<&str, bool> = BTreeMap::new();
        for (key, is_optional) in known.iter().flat_map(|(_, quota)| &quota.entries) {
            *entries.entry(key).or_insert(true) &= is_optional;
        }
        let mut actions =
            vec![format!("{{generic_key: {{descriptor_key: quota, descriptor_value: {name}}}}}")];
        let mut comments = Vec::new();
        let mut has_underscores = false;
        for DescriptorEntry { key, header } in &options.descriptor {
            // Envoy sends no descriptor without all its headers: another quota's would lift this limit.
            let is_optional = match entries.remove(key.as_str()) {
                Some(is_optional) => is_optional,
                None if known.is_empty() => false,
                None => continue,
            };
            if !is_optional {
                comments.push(format!("Requests without the header {header} are not limited."));
            }
            has_underscores |= header.contains('_');
            actions.push(request_header(key, header, is_optional));
        }
        for (key, is_optional) in entries {
            match Source::of(key) {
                Source::Supplied => {}
                Source::Action(action) => actions.push(action),
                Source::Header => {
                    let unlimited = if is_optional {
                        "An entry is"
                    } else {
                        "Requests without the header are not limited; an entry is"
                    };
                    comments.push(format!(
                        "{unlimited} taken from the header {key}; --descriptor {key}=HEADER chooses another one."
                    ));
                    has_underscores |= key.contains('_');
                    actions.push(request_header(key, key, is_optional));
                }
                Source::Unknown => comments.push(format!(
                    "Rate limits do not know {key}; --descriptor {key}=HEADER takes it from a header."
                )),
            }
        }
        if known.is_empty() && options.descriptor.is_empty() {
            actions.push("{remote_address: {}}".to_owned());
        }
        actions.push(from_check("decision_id", "decision_id"));
        let counts_bytes = options.count_response_bytes.iter().any(|counted| short_name(counted) == name);
        Self { quota: name.to_owned(), actions, comments, has_underscores, counts_bytes }
    }
}

/// Where Envoy has the value of an entry.
enum Source {
    /// Entries that are always there.
    Supplied,
    Action(String),
    /// The header of the same name.
    Header,
    /// An attribute that Envoy has no action for.
    Unknown,
}

impl Source {
    fn of(key: &str) -> Self {
        let header = match key {
            "decision_id" | "phase" | "quota" => return Self::Supplied,
            "remote_address" => return Self::Action("{remote_address: {}}".to_owned()),
            "source.principal" | "source.user" => return Self::Action(from_check(key, "source_principal")),
            "request.path" => ":path",
            "request.method" => ":method",
            "request.host" => ":authority",
            "request.scheme" => ":scheme",
            "request.useragent" => "user-agent",
            "request.referer" => "referer",
            "request.api_key" => "x-api-key",
            "request.id" => "x-request-id",
            key if key.contains('.') => return Self::Unknown,
            _ => return Self::Header,
        };
        Self::Action(request_header(key, header, true))
    }
}

/// The action that makes a header an entry. Without the header there is no descriptor, or no entry if it is optional.
fn request_header(key: &str, header: &str, is_optional: bool) -> String {
    let optional = if is_optional { ", skip_if_absent: true" } else { "" };
    let header = if header.starts_with(':') { quoted(header) } else { header.to_owned() };
    format!("{{request_headers: {{descriptor_key: {key}, header_name: {header}{optional}}}}}")
}

/// The action that makes a field of the check's metadata an entry, if it is there.
fn from_check(key: &str, field: &str) -> String {
    format!(
        "{{metadata: {{descriptor_key: {key}, skip_if_absent: true, metadata_key: {{key: envoy.filters.http.ext_authz, \
         path: [{{key: mixer_adapter}}, {{key: {field}}}]}}}}}}"
    )
}

//! The configuration.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use mixer_adapter_core::{
    adapter::{Faults, Settings, is_framing_header},
    http::{HeaderName, Uri, header},
};

use super::{
    Params,
    params::{EvaluationsSemantic, OnError},
};

const MILLISECOND: Duration = Duration::from_millis(1);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The paths of the API, without discovery.
pub(super) const EVALUATION_PATH: &str = "/access/v1/evaluation";
pub(super) const EVALUATIONS_PATH: &str = "/access/v1/evaluations";

/// A valid configuration.
#[derive(Debug)]
pub struct AuthZenSettings {
    pub(super) url: ServiceUrl,
    pub(super) discovery: bool,
    pub(super) token_file: String,
    pub(super) ca_file: String,
    pub(super) timeout: Duration,
    pub(super) caching_interval: Duration,
    pub(super) on_error: OnError,
    pub(super) groups_property: String,
    pub(super) evaluations_semantic: EvaluationsSemantic,
    pub(super) upstream_headers: Vec<ContextHeader>,
    pub(super) client_headers: Vec<ContextHeader>,
}

/// A header with a value of the context.
#[derive(Debug)]
pub(super) struct ContextHeader {
    pub(super) name: HeaderName,
    /// A JSON pointer into the context (RFC 6901).
    pub(super) pointer: String,
}

/// The URL of a decision service, by which its metadata names it.
#[derive(Clone, Debug)]
pub(super) struct ServiceUrl {
    /// Scheme, host and port.
    origin: String,
    /// The path of the service on its host, without a slash at the end.
    path: String,
}

/// The URL is not valid for a service.
#[derive(Debug, thiserror::Error)]
enum UrlError {
    #[error("must not have a query")]
    Query,
    #[error("must not have the path {0}, which is added")]
    Endpoint(&'static str),
}

impl Settings for AuthZenSettings {
    type Params = Params;

    fn parse(params: Params, faults: &mut Faults<'_>) -> Option<Self> {
        let (on_error, evaluations_semantic) = (params.on_error(), params.evaluations_semantic());
        let timeout = faults.duration("timeout", params.timeout).range(MILLISECOND..=10_000 * MILLISECOND);
        let timeout = timeout.or(1000 * MILLISECOND);
        let caching_interval = faults.duration("caching_interval", params.caching_interval);
        let caching_interval = caching_interval.range(Duration::ZERO..=DAY).or(Duration::ZERO);
        let groups_property = faults.text("groups_property", params.groups_property).length(1..=100);
        let groups_property = groups_property.or("groups".to_owned());
        let upstream_headers = ContextHeader::parse("upstream_headers", params.upstream_headers, faults);
        let client_headers = ContextHeader::parse("client_headers", params.client_headers, faults);
        let url = faults.url("url", &params.url).required()?;
        faults.ca_file("ca_file", &params.ca_file, &url);
        faults.secret_file("token_file", &params.token_file, &url);
        let url = faults.check("url", ServiceUrl::parse(&url))?;
        let (discovery, token_file) = (params.discovery, params.token_file);
        Some(Self {
            url,
            discovery,
            token_file,
            ca_file: params.ca_file,
            timeout,
            caching_interval,
            on_error,
            groups_property,
            evaluations_semantic,
            upstream_headers,
            client_headers,
        })
    }
}

impl ContextHeader {
    fn parse(field: &str, given: BTreeMap<String, String>, faults: &mut Faults<'_>) -> Vec<Self> {
        let mut names = BTreeSet::new();
        let parsed = given.into_iter().filter_map(|(name, pointer)| {
            let field = format!("{field}[{name:?}]");
            let name = faults.check(&field, name.parse::<HeaderName>())?;
            if !names.insert(name.to_string()) {
                faults.push(&field, format!("{name} is set twice; names of headers have no case"));
            }
            if is_framing_header(&name) || name == header::HOST {
                faults.push(&field, format!("{name} cannot be changed"));
            }
            if !pointer.starts_with('/') {
                faults.push(&field, "must be a JSON pointer into the context, such as /roles/0");
            }
            Some(Self { name, pointer })
        });
        parsed.collect()
    }
}

impl ServiceUrl {
    fn parse(url: &Uri) -> Result<Self, UrlError> {
        let path = url.path().trim_end_matches('/');
        if url.query().is_some() {
            return Err(UrlError::Query);
        }
        if let Some(added) =
            [EVALUATION_PATH, EVALUATIONS_PATH].into_iter().find(|added| path.ends_with(added))
        {
            return Err(UrlError::Endpoint(added));
        }
        Ok(Self { origin: origin(url), path: path.to_owned() })
    }

    /// Returns the URL of the metadata.
    pub(super) fn metadata(&self) -> String {
        format!("{}/.well-known/authzen-configuration{}", self.origin, self.path)
    }

    /// Returns the URL of a path of the API.
    pub(super) fn below(&self, path: &str) -> String {
        format!("{}{}{path}", self.origin, self.path)
    }

    /// Returns whether a URL identifies the service.
    pub(super) fn is(&self, url: &str) -> bool {
        url.trim_end_matches('/').strip_prefix(&self.origin) == Some(&self.path)
    }

    /// Returns whether a URL has the scheme, the host and the port of the service.
    pub(super) fn has_origin_of(&self, url: &str) -> bool {
        url.parse().is_ok_and(|url| origin(&url) == self.origin)
    }
}

fn origin(url: &Uri) -> String {
    let authority = url.authority().map(|authority| authority.as_str().to_ascii_lowercase());
    format!("{}://{}", url.scheme_str().unwrap_or_default(), authority.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_metadata_of_a_service_with_a_path_is_below_the_host() {
        let url = ServiceUrl::parse(&Uri::from_static("https://PDP.example.com:8443/tenant1/")).unwrap();
        let metadata = "https://pdp.example.com:8443/.well-known/authzen-configuration/tenant1";
        assert_eq!(url.metadata(), metadata);
        assert_eq!(url.below(EVALUATION_PATH), "https://pdp.example.com:8443/tenant1/access/v1/evaluation");
        assert!(url.is("https://pdp.example.com:8443/tenant1"));
        assert!(!url.is("https://pdp.example.com:8443") && !url.is("https://pdp.example.com:8443/tenant10"));
        assert!(url.has_origin_of("https://pdp.example.com:8443/evaluate"));
        for other in [
            "https://pdp.example.com/",
            "http://pdp.example.com:8443/",
            "https://x@pdp.example.com:8443/",
            "/a",
        ] {
            assert!(!url.has_origin_of(other), "{other}");
        }
    }

    #[test]
    fn a_token_is_not_sent_in_the_clear_to_another_machine() {
        let fields = |url: &str| {
            let params = Params { url: url.to_owned(), token_file: "token".to_owned(), ..Params::default() };
            let faults = Faults::parse::<AuthZenSettings>(params).err();
            let violations = faults.into_iter().flat_map(|errors| errors.into_violations());
            violations.map(|violation| violation.field).collect::<Vec<_>>()
        };
        assert_eq!(fields("http://pdp.example.com"), ["token_file"]);
        for allowed in ["https://pdp.example.com", "http://127.0.0.1:8080", "http://localhost"] {
            assert_eq!(fields(allowed), [""; 0], "{allowed}");
        }
    }
}

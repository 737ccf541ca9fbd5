//! The configuration.

use std::time::Duration;

use mixer_adapter_core::{
    adapter::{Faults, Settings, is_framing_header},
    http::{HeaderName, header},
};

use super::{
    Params,
    params::{OnError, Protocol},
};

const MILLISECOND: Duration = Duration::from_millis(1);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The headers of a denial that the client receives by default.
const CLIENT_HEADERS: [HeaderName; 6] = [
    header::CONTENT_TYPE,
    header::LOCATION,
    header::PROXY_AUTHENTICATE,
    header::RETRY_AFTER,
    header::SET_COOKIE,
    header::WWW_AUTHENTICATE,
];

/// A valid configuration.
#[derive(Debug)]
pub struct ExtAuthzSettings {
    pub(super) url: String,
    pub(super) protocol: Protocol,
    pub(super) token_file: String,
    pub(super) ca_file: String,
    pub(super) timeout: Duration,
    pub(super) caching_interval: Duration,
    pub(super) on_error: OnError,
    pub(super) max_concurrent_calls: usize,
    pub(super) client_headers: Vec<HeaderName>,
    pub(super) upstream_headers: Vec<HeaderName>,
}

impl Settings for ExtAuthzSettings {
    type Params = Params;

    fn parse(params: Params, faults: &mut Faults<'_>) -> Option<Self> {
        let (protocol, on_error) = (params.protocol(), params.on_error());
        let timeout = faults.duration("timeout", params.timeout).range(MILLISECOND..=10_000 * MILLISECOND);
        let timeout = timeout.or(1000 * MILLISECOND);
        let caching_interval = faults.duration("caching_interval", params.caching_interval);
        let caching_interval = caching_interval.range(Duration::ZERO..=DAY).or(Duration::ZERO);
        let calls = (params.max_concurrent_calls != 0).then_some(params.max_concurrent_calls);
        let calls = faults.number("max_concurrent_calls", calls).range(1..=10_000).or(100);
        let mut names = |field: &str, names: &[String]| -> Vec<HeaderName> {
            let parsed = names.iter().enumerate().filter_map(|(index, name)| {
                faults.check(format!("{field}[{index}]"), name.parse::<HeaderName>())
            });
            parsed.collect()
        };
        let client_headers = names("client_headers", &params.client_headers);
        let upstream_headers = names("upstream_headers", &params.upstream_headers);
        if protocol == Protocol::Grpc && !upstream_headers.is_empty() {
            faults.push("upstream_headers", "have no effect with GRPC, whose answers have header operations");
        }
        let unchanged = upstream_headers.iter().enumerate();
        for (index, name) in unchanged.filter(|(_, name)| is_framing_header(name) || **name == header::HOST) {
            faults.push(format!("upstream_headers[{index}]"), format!("{name} cannot be changed"));
        }
        let client_headers =
            if params.client_headers.is_empty() { CLIENT_HEADERS.to_vec() } else { client_headers };
        let url = faults.url("url", &params.url).required()?;
        if url.query().is_some() && protocol != Protocol::ForwardAuth {
            faults.push("url", "must not have a query, except with FORWARD_AUTH");
        }
        faults.ca_file("ca_file", &params.ca_file, &url);
        faults.secret_file("token_file", &params.token_file, &url);
        Some(Self {
            url: params.url,
            protocol,
            token_file: params.token_file,
            ca_file: params.ca_file,
            timeout,
            caching_interval,
            on_error,
            max_concurrent_calls: usize::try_from(calls).unwrap_or(1),
            client_headers,
            upstream_headers,
        })
    }
}

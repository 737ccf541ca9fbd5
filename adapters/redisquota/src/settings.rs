//! The configuration.

use std::time::Duration;

use http::uri::Authority;
use mixer_adapter_core::{
    adapter::{Faults, Settings},
    framework::is_this_machine,
};
use mixer_adapter_quota::{Limits, OverrideParams, QuotaParams};

use super::{
    config::{
        Params,
        params::{OnError, QuotaAlgorithm},
    },
    window::Algorithm,
};

const PORT: u16 = 6379;
const MILLISECOND: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(60 * 60);

/// A valid configuration.
#[derive(Debug)]
pub struct RedisQuotaSettings {
    pub(super) limits: Limits<Algorithm>,
    pub(super) servers: Servers,
    pub(super) key_prefix: String,
    pub(super) timeout: Duration,
    pub(super) on_error: OnError,
    pub(super) allocation: Duration,
    pub(super) lease: bool,
}

/// A host and a port.
pub(super) type Address = (String, u16);

/// How Redis is reached.
#[derive(Clone, Debug)]
pub(super) struct Servers {
    pub(super) topology: Topology,
    pub(super) addresses: Vec<Address>,
    pub(super) tls: bool,
    pub(super) database: i64,
    pub(super) username: String,
    pub(super) password_file: String,
    pub(super) ca_file: String,
}

/// What the servers are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Topology {
    /// One server with all keys.
    Single,
    /// Sentinels that know the server with this name.
    Sentinel(String),
    /// Nodes of a cluster.
    Cluster,
}

/// A URL that names no servers. Its text is not shown, because it could have a password.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum UrlError {
    #[error("is not the URL of a Redis; write it like `redis://host:6379/0` or `rediss://host:6379`")]
    Invalid,
    #[error("must not have a user name or a password; they are in username and password_file")]
    UserInfo,
    #[error("must have a database from 0 to 9999 after the host: `redis://host:6379/0`")]
    Database,
}

impl Settings for RedisQuotaSettings {
    type Params = Params;

    fn parse(params: Params, faults: &mut Faults<'_>) -> Option<Self> {
        let algorithms = params.quotas.iter().enumerate().map(|(index, quota)| {
            let bucket = faults.duration(format!("quotas[{index}].bucket_duration"), quota.bucket_duration);
            let window = quota.valid_duration.and_then(|valid| Duration::try_from(valid).ok());
            let shorter = |bucket: &Duration| window.is_none_or(|window| *bucket < window);
            let bucket = bucket.must("be shorter than valid_duration", shorter).optional();
            match quota.rate_limit_algorithm() {
                QuotaAlgorithm::FixedWindow => Algorithm::Fixed,
                QuotaAlgorithm::RollingWindow => {
                    Algorithm::Rolling(bucket.filter(|bucket| !bucket.is_zero()))
                }
            }
        });
        let algorithms: Vec<Algorithm> = algorithms.collect();
        let quotas = params.quotas.iter().zip(algorithms).map(|(quota, extra)| QuotaParams {
            name: &quota.name,
            max_amount: quota.max_amount,
            valid_duration: quota.valid_duration,
            overrides: quota
                .overrides
                .iter()
                .map(|given| OverrideParams {
                    dimensions: &given.dimensions,
                    max_amount: given.max_amount,
                    valid_duration: given.valid_duration.or(quota.valid_duration),
                })
                .collect(),
            extra,
        });
        let limits = Limits::parse(quotas.collect(), params.min_deduplication_duration, faults);
        faults.number("connection_pool_size", params.connection_pool_size).at_least(0).optional();
        let on_error = params.on_error();
        let servers = Servers::parse(&params, faults);
        let timeout = faults.duration("timeout", params.timeout).range(MILLISECOND..=1000 * MILLISECOND);
        let timeout = timeout.or(30 * MILLISECOND);
        let allocation = faults.duration("allocation_duration", params.allocation_duration);
        let allocation = allocation.range(1000 * MILLISECOND..=24 * HOUR).or(HOUR);
        let key_prefix = faults.text("key_prefix", params.key_prefix).length(1..=100);
        let has_no_tag = |prefix: &String| !prefix.contains(['{', '}']);
        let key_prefix = key_prefix.must("not have braces", has_no_tag).or("redisquota".to_owned());
        let lease = params.lease.unwrap_or(true);
        Some(Self { limits, servers: servers?, key_prefix, timeout, on_error, allocation, lease })
    }
}

impl Servers {
    fn parse(params: &Params, faults: &mut Faults<'_>) -> Option<Self> {
        let (field, url) = match (params.url.as_str(), params.redis_server_url.as_str()) {
            ("", "") => ("url", "redis://localhost:6379".to_owned()),
            ("", address) => ("redis_server_url", format!("redis://{address}")),
            (url, "") => ("url", url.to_owned()),
            _ => {
                faults.push("redis_server_url", "must not be given with url, which names the servers");
                return None;
            }
        };
        let (tls, addresses, database) = faults.check(field, parse_url(&url))?;
        for (host, _) in &addresses {
            faults.host(field, host);
        }
        let topology = match (params.sentinel_master.as_str(), params.cluster) {
            ("", false) => Topology::Single,
            (name, false) => Topology::Sentinel(name.to_owned()),
            ("", true) => Topology::Cluster,
            _ => {
                faults.push("cluster", "must not be true with sentinel_master");
                return None;
            }
        };
        match topology {
            Topology::Single if addresses.len() > 1 => {
                faults.push(field, "has several servers, which needs sentinel_master or cluster");
            }
            Topology::Cluster if database != 0 => faults.push(field, "a cluster has database 0 only"),
            Topology::Sentinel(_) if faults.access().is_limited() => {
                let reason = "may not be given in a configuration from a call, a session or a server: Sentinels name other hosts";
                faults.push("sentinel_master", reason);
            }
            _ => {}
        }
        for (field, path) in [("password_file", &params.password_file), ("ca_file", &params.ca_file)] {
            if !path.is_empty() {
                faults.file(field, path);
            }
        }
        if !params.password_file.is_empty()
            && !tls
            && !addresses.iter().all(|(host, _)| is_this_machine(host))
        {
            faults.push("password_file", "would be sent without TLS; write rediss:// in url");
        }
        if !params.ca_file.is_empty() && !tls {
            faults.push("ca_file", "is for TLS; write rediss:// in url");
        }
        Some(Self {
            topology,
            addresses,
            tls,
            database,
            username: params.username.clone(),
            password_file: params.password_file.clone(),
            ca_file: params.ca_file.clone(),
        })
    }
}

/// Returns whether a URL is for TLS, its hosts and ports, and its database.
fn parse_url(url: &str) -> Result<(bool, Vec<Address>, i64), UrlError> {
    let (scheme, rest) = url.split_once("://").ok_or(UrlError::Invalid)?;
    let tls = match scheme {
        "redis" => false,
        "rediss" => true,
        _ => return Err(UrlError::Invalid),
    };
    if rest.contains('@') {
        return Err(UrlError::UserInfo);
    }
    let (hosts, database) = rest.split_once('/').unwrap_or((rest, ""));
    let database = match database {
        "" => 0,
        number => {
            number.parse().ok().filter(|number| (0..=9999).contains(number)).ok_or(UrlError::Database)?
        }
    };
    let addresses = hosts.split(',').map(|host| {
        let authority: Authority = host.parse().map_err(|_| UrlError::Invalid)?;
        let name = authority.host().trim_matches(['[', ']']);
        // `host:` and `host:port` with another port than a number have none.
        let has_port = authority.as_str().len() > authority.host().len();
        let port = if has_port { authority.port_u16().ok_or(UrlError::Invalid)? } else { PORT };
        if name.is_empty() { Err(UrlError::Invalid) } else { Ok((name.to_owned(), port)) }
    });
    Ok((tls, addresses.collect::<Result<_, _>>()?, database))
}

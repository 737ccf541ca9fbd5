//! The configuration.

use std::time::Duration;

use mixer_adapter_core::adapter::{Faults, Settings};
use mixer_adapter_quota::{Limits, OverrideParams, QuotaParams};
use mixer_adapter_redis::{Servers, Topology};

use super::{
    Params,
    params::{OnError, QuotaAlgorithm},
    window::Algorithm,
};

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

impl Settings for RedisQuotaSettings {
    type Params = Params;

    fn parse(params: Params, faults: &mut Faults<'_>) -> Option<Self> {
        let algorithms = params.quotas.iter().enumerate().map(|(index, quota)| {
            let bucket = faults.duration(format!("quotas[{index}].bucket_duration"), quota.bucket_duration);
            let window = quota.valid_duration.and_then(|valid| Duration::try_from(valid).ok());
            let bucket = bucket.must("be shorter than valid_duration", |bucket| {
                window.is_none_or(|window| *bucket < window)
            });
            let bucket = bucket.optional();
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
        let servers = servers(&params, faults);
        let timeout = faults.duration("timeout", params.timeout).range(MILLISECOND..=1000 * MILLISECOND);
        let timeout = timeout.or(30 * MILLISECOND);
        let allocation = faults.duration("allocation_duration", params.allocation_duration);
        let allocation = allocation.range(1000 * MILLISECOND..=24 * HOUR).or(HOUR);
        let key_prefix = faults.text("key_prefix", params.key_prefix).length(1..=100);
        let key_prefix = key_prefix.must("not have braces", |prefix| !prefix.contains(['{', '}']));
        let key_prefix = key_prefix.or("redisquota".to_owned());
        let lease = params.lease.unwrap_or(true);
        Some(Self { limits, servers: servers?, key_prefix, timeout, on_error, allocation, lease })
    }
}

/// Reads which servers there are, and how they are reached.
fn servers(params: &Params, faults: &mut Faults<'_>) -> Option<Servers> {
    let (field, url) = match (params.url.as_str(), params.redis_server_url.as_str()) {
        ("", "") => ("url", "redis://localhost:6379".to_owned()),
        ("", address) => ("redis_server_url", format!("redis://{address}")),
        (url, "") => ("url", url.to_owned()),
        _ => {
            faults.push("redis_server_url", "must not be given with url, which names the servers");
            return None;
        }
    };
    let named = faults.check(field, Servers::parse(&url))?;
    for (host, _) in &named.addresses {
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
        Topology::Single if named.addresses.len() > 1 => {
            faults.push(field, "has several servers, which needs sentinel_master or cluster");
        }
        Topology::Cluster if named.database != 0 => faults.push(field, "a cluster has database 0 only"),
        Topology::Sentinel(_) if faults.access().is_limited() => {
            let reason = "may not be given in a configuration from a call, a session or a server: Sentinels name other hosts";
            faults.push("sentinel_master", reason);
        }
        _ => {}
    }
    if params.sentinel_master.is_empty() && !params.sentinel_password_file.is_empty() {
        faults.push("sentinel_password_file", "is for Sentinels; write sentinel_master");
    }
    for (field, path) in [
        ("password_file", &params.password_file),
        ("sentinel_password_file", &params.sentinel_password_file),
        ("ca_file", &params.ca_file),
    ] {
        if !path.is_empty() {
            faults.file(field, path);
        }
    }
    let servers = Servers {
        topology,
        username: params.username.clone(),
        password_file: params.password_file.clone(),
        sentinel_password_file: params.sentinel_password_file.clone(),
        ca_file: params.ca_file.clone(),
        ..named
    };
    if servers.exposes_password() {
        let field = if params.password_file.is_empty() { "sentinel_password_file" } else { "password_file" };
        faults.push(field, "can be sent to another machine without TLS; write rediss:// in url");
    }
    if !params.ca_file.is_empty() && !servers.tls {
        faults.push("ca_file", "is for TLS; write rediss:// in url");
    }
    Some(servers)
}

//! Configurations that come with calls.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::try_join_all;
use mixer_adapter_core::{
    adapter::Config,
    proto::{
        Any, CheckResult, QuotaRequest, QuotaResult, ReportResult,
        istio::mixer::adapter::model::v1beta1::quota_request::QuotaParams,
    },
    template::Template as _,
    value::Value,
};
use mixer_adapter_list as list;
use mixer_adapter_memquota as memquota;
use mixer_adapter_prometheus as prometheus;
use mixer_adapter_stdio as stdio;
use mixer_adapter_templates::{ListEntry, LogEntry, Metric, Quota, listentry, logentry, metric, quota};
use prost::Message as _;
use tokio::task::JoinSet;
use tonic::{Code, Status};

use super::Expectation;
use crate::{
    client::Client,
    server::{Addresses, get},
};

const INSTANCE: &str = "i.instance.istio-system";

pub(super) fn any<C: Config>(config: &C) -> Any {
    Any {
        type_url: format!("type.googleapis.com/{}", <C as Config>::NAME),
        value: Bytes::from(config.encode_to_vec()),
    }
}

pub(super) fn entry(config: Option<Any>, value: &str) -> listentry::HandleListEntryRequest {
    let instance = listentry::InstanceMsg { name: INSTANCE.to_owned(), value: Some(Value::from(value)) };
    listentry::HandleListEntryRequest {
        instance: Some(instance),
        adapter_config: config,
        ..listentry::HandleListEntryRequest::default()
    }
}

/// A request with a list of one entry.
fn overriding(listed: String, entry_type: list::params::ListEntryType) -> listentry::HandleListEntryRequest {
    let params =
        list::Params { overrides: vec![listed], entry_type: entry_type.into(), ..list::Params::default() };
    entry(Some(any(&params)), "a")
}

type CheckOutcome = Result<CheckResult, Status>;

/// Three lists of 100,000 short patterns each, again and again.
pub(super) async fn many_patterns(addresses: Addresses, sent: &mut u64) -> anyhow::Result<Expectation> {
    let mut calls = JoinSet::new();
    for number in 0.. {
        let params = list::Params {
            overrides: (0..100_000).map(|index| format!("a{number}[0-9]{index}.*b")).collect(),
            entry_type: list::params::ListEntryType::Regex.into(),
            ..list::Params::default()
        };
        let request = entry(Some(any(&params)), "a");
        *sent += request.encoded_len() as u64;
        let client = Client::connect(addresses.grpc).await?;
        calls.spawn(async move { client.call::<CheckResult>(ListEntry::METHOD, &request).await });
        if calls.len() >= 3
            && let Some(outcome) = calls.join_next().await
        {
            let _refused_or_served: CheckOutcome = outcome??;
        }
    }
    Ok(Expectation::Met)
}

/// Calls of one connection, each with an expression that takes long to compile. Calls of others with configurations of their own must be
/// answered meanwhile.
pub(super) async fn costly_openings(addresses: Addresses, sent: &mut u64) -> anyhow::Result<Expectation> {
    openings_of(1, addresses, sent).await
}

/// The same on 50 connections.
pub(super) async fn openings_of_50(addresses: Addresses, sent: &mut u64) -> anyhow::Result<Expectation> {
    openings_of(50, addresses, sent).await
}

/// The same on 200 connections.
pub(super) async fn openings_of_200(addresses: Addresses, sent: &mut u64) -> anyhow::Result<Expectation> {
    openings_of(200, addresses, sent).await
}

async fn openings_of(
    connections: usize,
    addresses: Addresses,
    sent: &mut u64,
) -> anyhow::Result<Expectation> {
    const PATIENCE: Duration = Duration::from_secs(1);
    let clients = try_join_all((0..connections).map(|_| Client::connect(addresses.grpc))).await?;
    let mut calls = JoinSet::new();
    for number in 0.. {
        while calls.len() < 200 {
            let pattern = format!(r"(?:\pL{{900}}|{number}z{})", *sent);
            let request = overriding(pattern, list::params::ListEntryType::Regex);
            *sent += request.encoded_len() as u64;
            let client = clients[calls.len() % connections].clone();
            calls.spawn(async move { client.call::<CheckResult>(ListEntry::METHOD, &request).await });
        }
        let request = overriding(format!("honest{number}"), list::params::ListEntryType::Strings);
        let other = Client::connect(addresses.grpc).await?;
        let call = other.call::<CheckResult>(ListEntry::METHOD, &request);
        match tokio::time::timeout(PATIENCE, call).await {
            Ok(answer) => drop(answer??),
            Err(_) => {
                return Ok(Expectation::Missed(format!("another handler was not open after {PATIENCE:?}")));
            }
        }
        while let Some(outcome) = calls.try_join_next() {
            let _refused_or_served: CheckOutcome = outcome??;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(Expectation::Met)
}

/// 3,000 short expressions that take a megabyte each when they are compiled.
pub(super) async fn large_expressions(addresses: Addresses, sent: &mut u64) -> anyhow::Result<Expectation> {
    let mut clients = Vec::new();
    for _ in 0..8 {
        clients.push(Client::connect(addresses.grpc).await?);
    }
    let mut calls = JoinSet::new();
    for number in 0..3_000 {
        let request = overriding(format!(r"(?:\pL{{20}}|z{number})"), list::params::ListEntryType::Regex);
        *sent += request.encoded_len() as u64;
        let client = clients[number % clients.len()].clone();
        calls.spawn(async move { client.call::<CheckResult>(ListEntry::METHOD, &request).await });
        if calls.len() >= 64
            && let Some(outcome) = calls.join_next().await
        {
            let _refused_or_served: CheckOutcome = outcome??;
        }
    }
    while let Some(outcome) = calls.join_next().await {
        let _refused_or_served: CheckOutcome = outcome??;
    }
    Ok(Expectation::Met)
}

/// 250 configurations of almost 4 MB.
pub(super) async fn large_configurations(
    addresses: Addresses,
    sent: &mut u64,
) -> anyhow::Result<Expectation> {
    let client = Client::connect(addresses.grpc).await?;
    for number in 0..250 {
        let overrides = (0..40_000).map(|index| format!("{number:010}{index:080}")).collect();
        let params = list::Params { overrides, ..list::Params::default() };
        let request = entry(Some(any(&params)), "a");
        *sent += request.encoded_len() as u64;
        let _refused_or_served: CheckOutcome = client.call(ListEntry::METHOD, &request).await?;
    }
    Ok(Expectation::Met)
}

/// 12,000 configurations that are used once; a quota that is exhausted before must remain so.
pub(super) async fn foreign_configurations(
    addresses: Addresses,
    sent: &mut u64,
) -> anyhow::Result<Expectation> {
    let client = Client::connect(addresses.grpc).await?;
    take(&client, 0, sent).await?;
    anyhow::ensure!(take(&client, 0, sent).await? == 0, "a quota of 10 granted more");
    for number in 1..=12_000 {
        take(&client, number, sent).await?;
        if number % 1_000 == 0 && take(&client, 0, sent).await? > 0 {
            let reason =
                format!("an exhausted quota was granted again after {number} foreign configurations");
            return Ok(Expectation::Missed(reason));
        }
    }
    Ok(Expectation::Met)
}

/// Takes 10 of a quota of 10 in an hour, which the number identifies; returns the amount granted.
async fn take(client: &Client, number: i64, sent: &mut u64) -> anyhow::Result<i64> {
    let limit = |name: &str, max_amount| memquota::params::Quota {
        name: name.to_owned(),
        max_amount,
        valid_duration: Some(prost_types::Duration { seconds: 3600, nanos: 0 }),
        ..memquota::params::Quota::default()
    };
    let quotas = vec![limit(INSTANCE, 10), limit("other", number)];
    let params = memquota::Params { quotas, ..memquota::Params::default() };
    let request = quota::HandleQuotaRequest {
        instance: Some(quota::InstanceMsg { name: INSTANCE.to_owned(), ..Default::default() }),
        adapter_config: Some(any(&params)),
        quota_request: Some(QuotaRequest {
            quotas: [(
                INSTANCE.to_owned(),
                QuotaParams { amount: 10, best_effort: true, ..QuotaParams::default() },
            )]
            .into(),
        }),
        ..quota::HandleQuotaRequest::default()
    };
    *sent += request.encoded_len() as u64;
    let result: QuotaResult = client.call(Quota::METHOD, &request).await??;
    Ok(result.quotas.get(INSTANCE).map_or(0, |result| result.granted_amount))
}

/// 12,000 configurations that are used once; a counter that was 20 before must remain so.
pub(super) async fn foreign_metrics(addresses: Addresses, sent: &mut u64) -> anyhow::Result<Expectation> {
    const COUNT: usize = 20;
    let client = Client::connect(addresses.grpc).await?;
    // Over some time, as a Mixer would.
    for _ in 0..COUNT {
        count(&client, "counted", sent).await?;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for number in 1..=12_000 {
        count(&client, &format!("foreign_{number}"), sent).await?;
        if number % 1_000 == 0 {
            let page = get(addresses.prometheus, "/metrics").await?;
            let shown = page.lines().find_map(|line| line.strip_prefix("istio_counted ")).map(str::to_owned);
            if shown.as_deref() != Some("20") {
                let reason = format!("a counter of 20 is {shown:?} after {number} foreign configurations");
                return Ok(Expectation::Missed(reason));
            }
        }
    }
    Ok(Expectation::Met)
}

/// Adds 1 to a counter, which its name identifies.
async fn count(client: &Client, name: &str, sent: &mut u64) -> anyhow::Result<()> {
    let counter = prometheus::params::MetricInfo {
        name: name.to_owned(),
        instance_name: INSTANCE.to_owned(),
        kind: prometheus::params::metric_info::Kind::Counter.into(),
        ..prometheus::params::MetricInfo::default()
    };
    let params = prometheus::Params { metrics: vec![counter], ..prometheus::Params::default() };
    let instance = metric::InstanceMsg {
        name: INSTANCE.to_owned(),
        value: Some(Value::from(1_i64)),
        ..metric::InstanceMsg::default()
    };
    let request = metric::HandleMetricRequest {
        instances: vec![instance],
        adapter_config: Some(any(&params)),
        ..metric::HandleMetricRequest::default()
    };
    *sent += request.encoded_len() as u64;
    let _reported: ReportResult = client.call(Metric::METHOD, &request).await??;
    Ok(())
}

/// A configuration that writes a file, and one that fetches from this machine.
pub(super) async fn files_and_addresses(addresses: Addresses, sent: &mut u64) -> anyhow::Result<Expectation> {
    let client = Client::connect(addresses.grpc).await?;
    let path = std::env::temp_dir().join(format!("mixer-adapter-stress-{}", std::process::id()));
    let params = stdio::Params {
        log_stream: stdio::params::Stream::File.into(),
        output_path: path.to_string_lossy().into_owned(),
        ..stdio::Params::default()
    };
    let instance = logentry::InstanceMsg { name: INSTANCE.to_owned(), ..Default::default() };
    let request = logentry::HandleLogEntryRequest {
        instances: vec![instance],
        adapter_config: Some(any(&params)),
        ..logentry::HandleLogEntryRequest::default()
    };
    *sent += request.encoded_len() as u64;
    let outcome: Result<ReportResult, Status> = client.call(LogEntry::METHOD, &request).await?;
    let written = path.exists();
    if written {
        std::fs::remove_file(&path)?;
    }
    if let Some(reason) = not_refused("file", outcome.err(), written) {
        return Ok(Expectation::Missed(reason));
    }
    let provider_url = format!("http://{}/metrics", addresses.admin);
    let params = list::Params { provider_url, ..list::Params::default() };
    let request = entry(Some(any(&params)), "a");
    *sent += request.encoded_len() as u64;
    let outcome: CheckOutcome = client.call(ListEntry::METHOD, &request).await?;
    Ok(not_refused("address", outcome.err(), false).map_or(Expectation::Met, Expectation::Missed))
}

fn not_refused(what: &str, status: Option<Status>, used: bool) -> Option<String> {
    match status {
        Some(status) if !used && matches!(status.code(), Code::InvalidArgument | Code::PermissionDenied) => {
            None
        }
        status => Some(format!("a configuration that names a {what} was not refused: {status:?}")),
    }
}

//! The configuration.

use std::{collections::HashSet, time::Duration};

use mixer_adapter_core::{
    adapter::{Faults, Settings, is_framing_header},
    http::{HeaderMap, HeaderName, HeaderValue},
};
use mixer_adapter_telemetry::{
    amount::check_amount,
    otlp::{ExportLimits, KeyValue, Protocol, attribute},
    series::{DEFAULT_BOUNDS, Kind, check_bounds},
};
use mixer_adapter_templates::Metric as MetricTemplate;

use super::{
    Params,
    params::{MetricInfo, Protocol as GivenProtocol, Temporality, metric_info},
};

const MILLISECOND: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

/// A valid configuration.
#[derive(Debug)]
pub struct OtlpSettings {
    pub(super) url: String,
    pub(super) protocol: Protocol,
    pub(super) token_file: String,
    pub(super) ca_file: String,
    pub(super) headers: HeaderMap,
    /// Sorted by name.
    pub(super) resource: Vec<KeyValue>,
    pub(super) resource_attributes: HashSet<String>,
    pub(super) metrics: Vec<MetricSettings>,
    pub(super) temporality: Temporality,
    pub(super) metric_interval: Duration,
    pub(super) limits: ExportLimits,
    pub(super) timeout: Duration,
}

/// A valid metric.
#[derive(Debug)]
pub(super) struct MetricSettings {
    pub(super) instance: String,
    pub(super) name: String,
    pub(super) description: String,
    pub(super) unit: String,
    pub(super) kind: Kind,
}

impl Settings for OtlpSettings {
    type Params = Params;

    fn parse(params: Params, faults: &mut Faults<'_>) -> Option<Self> {
        let protocol = match params.protocol() {
            GivenProtocol::Grpc => Protocol::Grpc,
            GivenProtocol::Http => Protocol::Http,
        };
        let temporality = params.temporality();
        let url = faults.url("url", &params.url);
        let url = url.must("have no query", |url| url.query().is_none()).required();
        if let Some(url) = url {
            faults.ca_file("ca_file", &params.ca_file, &url);
            faults.secret_file("token_file", &params.token_file, &url);
        }
        let headers = params.headers.into_iter().filter_map(|(name, value)| {
            let field = format!("headers[{name:?}]");
            let parsed = faults.check(&field, name.parse::<HeaderName>())?;
            let is_text = value.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
            let value = HeaderValue::try_from(value).ok().filter(|_| is_text && !is_framing_header(&parsed));
            let Some(mut value) = value else {
                faults.push(field, "delimits messages, or its value is not ASCII text");
                return None;
            };
            value.set_sensitive(true);
            Some((parsed, value))
        });
        let headers = headers.collect();
        let indexed = params.metrics.into_iter().enumerate();
        let metrics: Vec<_> =
            indexed.filter_map(|(index, info)| MetricSettings::parse(index, info, faults)).collect();
        faults.unique("metrics", "instance_name", metrics.iter().map(|metric| &metric.instance));
        let default = ExportLimits::default();
        let metric_interval = faults.duration("metric_interval", params.metric_interval);
        let metric_interval = metric_interval.range(100 * MILLISECOND..=HOUR).or(30 * SECOND);
        let batch_size = count(faults, "batch_size", params.batch_size, 1..=10_000, default.batch_size);
        let batch_delay = faults.duration("batch_delay", params.batch_delay);
        let batch_delay = batch_delay.range(MILLISECOND..=60 * SECOND).or(default.batch_delay);
        let queue_size = count(faults, "queue_size", params.queue_size, 1..=1_000_000, default.queue_size);
        let bytes = 1 << 20..=1 << 30;
        let queue_bytes = count(faults, "queue_bytes", params.queue_bytes, bytes, default.queue_bytes);
        let timeout = faults.duration("timeout", params.timeout).range(100 * MILLISECOND..=60 * SECOND);
        let timeout = timeout.or(10 * SECOND);
        let retry_time = faults.duration("retry_time", params.retry_time);
        let retry_time = retry_time.range(Duration::ZERO..=HOUR).or(default.retry_time);
        Some(Self {
            url: params.url,
            protocol,
            token_file: params.token_file,
            ca_file: params.ca_file,
            headers,
            resource: params.resource.iter().map(|(name, value)| attribute(name, value.as_str())).collect(),
            resource_attributes: params.resource_attributes.into_iter().collect(),
            metrics,
            temporality,
            metric_interval,
            limits: ExportLimits { batch_size, batch_delay, queue_size, queue_bytes, retry_time },
            timeout,
        })
    }
}

/// Reads a number that is absent if it is 0.
fn count(
    faults: &mut Faults<'_>,
    field: &str,
    given: i32,
    range: std::ops::RangeInclusive<i32>,
    default: usize,
) -> usize {
    let given = (given != 0).then_some(given);
    let number = faults.number(field, given).range(range).or(i32::try_from(default).unwrap_or(i32::MAX));
    usize::try_from(number).unwrap_or(1)
}

impl MetricSettings {
    fn parse(index: usize, info: MetricInfo, faults: &mut Faults<'_>) -> Option<Self> {
        let field = |name: &str| format!("metrics[{index}].{name}");
        let instance = faults.text(field("instance_name"), &*info.instance_name).required();
        let kind = match info.kind() {
            metric_info::Kind::Gauge => Some(Kind::Gauge),
            metric_info::Kind::Counter => Some(Kind::Counter),
            metric_info::Kind::Distribution if info.bounds.is_empty() => {
                Some(Kind::Distribution(DEFAULT_BOUNDS.to_vec()))
            }
            metric_info::Kind::Distribution => {
                faults.check(field("bounds"), check_bounds(info.bounds)).map(Kind::Distribution)
            }
            metric_info::Kind::Unspecified => {
                faults.push(field("kind"), "must be GAUGE, COUNTER or DISTRIBUTION");
                None
            }
        };
        let instance = instance?;
        let inferred = faults.types().of::<MetricTemplate>().find(|(name, _)| *name == instance);
        if let Some((_, inferred)) = inferred {
            check_amount(faults, field("instance_name"), &instance, inferred.value);
        }
        let name = if info.name.is_empty() { instance.clone() } else { info.name };
        Some(Self { instance, name, description: info.description, unit: info.unit, kind: kind? })
    }
}

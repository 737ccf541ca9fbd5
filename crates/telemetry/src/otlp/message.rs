//! The messages of opentelemetry-proto, with the fields that are sent. By hand, because the crate of that name brings the whole SDK; a test
//! decodes them with the published descriptors.

#![expect(missing_docs, reason = "the names are those of the protocol, which documents them")]

use std::time::{SystemTime, UNIX_EPOCH};

use mixer_adapter_core::value::Value;
use prost::{Message, Oneof, bytes::Bytes};

/// The instrumentation scope of everything that is sent.
const SCOPE: &str = "mixer-adapter";

#[derive(Clone, PartialEq, Message)]
pub struct KeyValue {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(message, optional, tag = "2")]
    pub value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub struct AnyValue {
    #[prost(oneof = "AnyKind", tags = "1, 2, 3, 4, 6")]
    pub value: Option<AnyKind>,
}

/// `AnyValue.value`
#[derive(Clone, PartialEq, Oneof)]
pub enum AnyKind {
    #[prost(string, tag = "1")]
    String(String),
    #[prost(bool, tag = "2")]
    Bool(bool),
    #[prost(int64, tag = "3")]
    Int(i64),
    #[prost(double, tag = "4")]
    Double(f64),
    #[prost(message, tag = "6")]
    Map(KeyValueList),
}

#[derive(Clone, PartialEq, Message)]
pub struct KeyValueList {
    #[prost(message, repeated, tag = "1")]
    pub values: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct InstrumentationScope {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    version: String,
}

/// `ExportTraceServiceRequest`, `ExportLogsServiceRequest` and `ExportMetricsServiceRequest`, which have the same structure. Resources and
/// items are encoded messages.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ExportRequest {
    #[prost(message, repeated, tag = "1")]
    pub(super) resources: Vec<ResourceItems>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ResourceItems {
    #[prost(bytes = "bytes", tag = "1")]
    resource: Bytes,
    #[prost(message, repeated, tag = "2")]
    pub(super) scopes: Vec<ScopeItems>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ScopeItems {
    #[prost(message, optional, tag = "1")]
    scope: Option<InstrumentationScope>,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub(super) items: Vec<Bytes>,
}

/// `ExportTraceServiceResponse`, and the responses of the other signals.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ExportResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) partial_success: Option<PartialSuccess>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PartialSuccess {
    #[prost(int64, tag = "1")]
    pub(super) rejected: i64,
    #[prost(string, tag = "2")]
    pub(super) error_message: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct Span {
    #[prost(bytes = "vec", tag = "1")]
    pub trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub span_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    pub parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    pub name: String,
    #[prost(int32, tag = "6")]
    pub kind: i32,
    #[prost(fixed64, tag = "7")]
    pub start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    pub end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    pub attributes: Vec<KeyValue>,
    #[prost(message, optional, tag = "15")]
    pub status: Option<Status>,
    #[prost(fixed32, tag = "16")]
    pub flags: u32,
}

impl Span {
    pub const INTERNAL: i32 = 1;
    pub const SERVER: i32 = 2;
    pub const CLIENT: i32 = 3;
    /// The flag of a recorded trace.
    pub const SAMPLED: u32 = 1;
}

#[derive(Clone, PartialEq, Message)]
pub struct Status {
    #[prost(int32, tag = "3")]
    pub code: i32,
}

impl Status {
    pub const ERROR: i32 = 2;
}

#[derive(Clone, PartialEq, Message)]
pub struct LogRecord {
    #[prost(fixed64, tag = "1")]
    pub time_unix_nano: u64,
    #[prost(int32, tag = "2")]
    pub severity_number: i32,
    #[prost(string, tag = "3")]
    pub severity_text: String,
    #[prost(message, optional, tag = "5")]
    pub body: Option<AnyValue>,
    #[prost(message, repeated, tag = "6")]
    pub attributes: Vec<KeyValue>,
    #[prost(bytes = "vec", tag = "9")]
    pub trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "10")]
    pub span_id: Vec<u8>,
    #[prost(fixed64, tag = "11")]
    pub observed_time_unix_nano: u64,
    #[prost(string, tag = "12")]
    pub event_name: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct Metric {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub description: String,
    #[prost(string, tag = "3")]
    pub unit: String,
    #[prost(oneof = "MetricData", tags = "5, 7, 9")]
    pub data: Option<MetricData>,
}

/// `Metric.data`
#[derive(Clone, PartialEq, Oneof)]
pub enum MetricData {
    #[prost(message, tag = "5")]
    Gauge(Gauge),
    #[prost(message, tag = "7")]
    Sum(Sum),
    #[prost(message, tag = "9")]
    Histogram(Histogram),
}

#[derive(Clone, PartialEq, Message)]
pub struct Gauge {
    #[prost(message, repeated, tag = "1")]
    pub data_points: Vec<NumberDataPoint>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Sum {
    #[prost(message, repeated, tag = "1")]
    pub data_points: Vec<NumberDataPoint>,
    #[prost(int32, tag = "2")]
    pub aggregation_temporality: i32,
    #[prost(bool, tag = "3")]
    pub is_monotonic: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct Histogram {
    #[prost(message, repeated, tag = "1")]
    pub data_points: Vec<HistogramDataPoint>,
    #[prost(int32, tag = "2")]
    pub aggregation_temporality: i32,
}

#[derive(Clone, PartialEq, Message)]
pub struct NumberDataPoint {
    #[prost(fixed64, tag = "2")]
    pub start_time_unix_nano: u64,
    #[prost(fixed64, tag = "3")]
    pub time_unix_nano: u64,
    #[prost(double, optional, tag = "4")]
    pub as_double: Option<f64>,
    #[prost(message, repeated, tag = "7")]
    pub attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub struct HistogramDataPoint {
    #[prost(fixed64, tag = "2")]
    pub start_time_unix_nano: u64,
    #[prost(fixed64, tag = "3")]
    pub time_unix_nano: u64,
    #[prost(fixed64, tag = "4")]
    pub count: u64,
    #[prost(double, optional, tag = "5")]
    pub sum: Option<f64>,
    #[prost(fixed64, repeated, tag = "6")]
    pub bucket_counts: Vec<u64>,
    #[prost(double, repeated, tag = "7")]
    pub explicit_bounds: Vec<f64>,
    #[prost(message, repeated, tag = "9")]
    pub attributes: Vec<KeyValue>,
}

impl ExportRequest {
    /// Makes a request of the items of each resource.
    pub(super) fn new(resources: impl IntoIterator<Item = (Bytes, Vec<Bytes>)>) -> Self {
        let scope =
            || InstrumentationScope { name: SCOPE.to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() };
        let resources = resources.into_iter().map(|(resource, items)| ResourceItems {
            resource,
            scopes: vec![ScopeItems { scope: Some(scope()), items }],
        });
        Self { resources: resources.collect() }
    }
}

impl From<&Value> for AnyValue {
    /// Kinds that the protocol does not have become texts.
    fn from(value: &Value) -> Self {
        let kind = match value {
            Value::Unspecified => return Self { value: None },
            Value::Int64(number) => AnyKind::Int(*number),
            Value::Double(number) => AnyKind::Double(*number),
            Value::Bool(truth) => AnyKind::Bool(*truth),
            Value::StringMap(map) => {
                let pairs = map.value.iter().map(|(key, text)| attribute(key, text.as_str()));
                AnyKind::Map(KeyValueList { values: pairs.collect() })
            }
            text => AnyKind::String(text.to_string()),
        };
        Self { value: Some(kind) }
    }
}

impl From<&str> for AnyValue {
    fn from(text: &str) -> Self {
        Self { value: Some(AnyKind::String(text.to_owned())) }
    }
}

impl From<i64> for AnyValue {
    fn from(number: i64) -> Self {
        Self { value: Some(AnyKind::Int(number)) }
    }
}

/// Makes an attribute.
pub fn attribute(key: &str, value: impl Into<AnyValue>) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(value.into()) }
}

/// Encodes a resource.
pub fn encode_resource(attributes: Vec<KeyValue>) -> Bytes {
    Resource { attributes }.encode_to_vec().into()
}

/// Returns the nanoseconds since 1970; 0 before.
pub fn unix_nanos(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

//! What the adapter sends.

use std::{net::IpAddr, time::Duration};

use mixer_adapter::{
    prost_types::Timestamp,
    proto::istio::mixer::adapter::model::v1beta1::ReportResult,
    template::{LogEntry, Metric, Template, TraceSpan, logentry, metric, tracespan},
    testing::{Answer, FakeHandler, FakeMixer},
    value::{TimeStamp, Value},
};
use mixer_adapters::otlp::Otlp;
use serde_json::{Value as Json, json};
use tokio::runtime::Runtime;

use super::{
    collector::{Collector, Item},
    id,
};

/// A handler, and where it runs.
struct Handler {
    handler: FakeHandler,
    runtime: Runtime,
}

impl Handler {
    fn new(collector: &Collector, settings: &str) -> Self {
        let runtime = Runtime::new().unwrap();
        let params = format!("{{url: '{}', {settings}}}", collector.url);
        let handler = runtime.block_on(async { FakeMixer::with::<Otlp>().params(&*params) });
        Self { handler, runtime }
    }

    fn report<T: Template<Response = ReportResult>>(
        &self,
        instances: impl IntoIterator<Item = T::Instance>,
    ) -> Answer<()> {
        self.runtime.block_on(self.handler.report::<T>(Vec::from_iter(instances)))
    }

    /// Closes the handler, which sends everything.
    fn close(self) {
        self.runtime.block_on(self.handler.close());
    }
}

fn values<const N: usize>(pairs: [(&str, Value); N]) -> std::collections::BTreeMap<String, Value> {
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn measured(name: &str, value: impl Into<Value>, dimensions: &[(&str, Value)]) -> metric::InstanceMsg {
    metric::InstanceMsg {
        name: name.to_owned(),
        value: Some(value.into()),
        dimensions: dimensions.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect(),
        ..Default::default()
    }
}

fn at(seconds: i64) -> Option<TimeStamp> {
    Some(TimeStamp { value: Some(Timestamp { seconds, nanos: 5 }) })
}

const METRICS: &str = "metrics: [\
    {instance_name: count, name: requests, kind: COUNTER, unit: '{request}', description: Requests},\
    {instance_name: size, kind: GAUGE},\
    {instance_name: time, kind: DISTRIBUTION, bounds: [0.1, 1], unit: s}]";

/// The value of a sum that has one data point.
fn sum(item: &Item) -> &Json {
    &item.item["sum"]["dataPoints"][0]
}

#[test]
fn metrics_have_their_kinds_dimensions_and_resources() {
    let collector = Collector::grpc();
    let settings = "resource: {service.name: mesh, zone: east}, resource_attributes: [service.name]";
    let handler = Handler::new(&collector, &format!("{settings}, {METRICS}"));
    let monitored = metric::InstanceMsg {
        monitored_resource_type: "pod".to_owned(),
        monitored_resource_dimensions: values([("pod", "a".into())]),
        ..measured("size", 7, &[])
    };
    let report = [
        measured("count", 2, &[("code", 200.into()), ("service.name", "shop".into())]),
        measured("count", 0.5, &[("code", 200.into()), ("service.name", "shop".into())]),
        measured("count", 1, &[("code", 404.into()), ("absent", Value::Unspecified)]),
        monitored,
        measured("time", Duration::from_millis(100), &[]),
        measured("time", Duration::from_millis(300), &[]),
        measured("time", 30, &[]),
    ];
    handler.report::<Metric>(report).expect_ok();
    handler.close();
    let mut items = collector.items();
    items.sort_by_key(|item| (item.name().to_owned(), item.resource.to_string()));
    let described: Vec<_> = items.iter().map(|item| (item.name(), item.resource.clone())).collect();
    let mesh = json!({"service.name": "mesh", "zone": "east"});
    let expected = [
        ("requests", mesh.clone()),
        ("requests", json!({"service.name": "shop", "zone": "east"})),
        (
            "size",
            json!({"service.name": "mesh", "zone": "east", "pod": "a", "monitored_resource_type": "pod"}),
        ),
        ("time", mesh),
    ];
    assert_eq!(described, expected);
    let [not_found, found, size, time] = &items[..] else { unreachable!("four were compared") };
    assert_eq!((&found.item["unit"], &found.item["description"]), (&json!("{request}"), &json!("Requests")));
    assert_eq!(found.item["sum"]["isMonotonic"], true);
    assert_eq!(found.item["sum"]["aggregationTemporality"], "AGGREGATION_TEMPORALITY_CUMULATIVE");
    assert_eq!((&sum(found)["asDouble"], &sum(found)["attributes"]), (&json!(2.5), &json!({"code": 200})));
    assert_eq!(
        (&sum(not_found)["asDouble"], &sum(not_found)["attributes"]),
        (&json!(1.0), &json!({"code": 404}))
    );
    assert_eq!(size.item["gauge"]["dataPoints"][0]["asDouble"], 7.0);
    let histogram = &time.item["histogram"]["dataPoints"][0];
    assert_eq!(histogram["explicitBounds"], json!([0.1, 1.0]));
    // A value at a bound is below it.
    assert_eq!(histogram["bucketCounts"], json!(["1", "1", "1"]));
    assert_eq!((&histogram["count"], &histogram["sum"]), (&json!("3"), &json!(30.4)));
}

#[test]
fn cumulative_values_grow_and_delta_values_begin_anew() {
    for (temporality, is_delta) in [("CUMULATIVE", false), ("DELTA", true)] {
        let collector = Collector::grpc();
        let settings = format!("temporality: {temporality}, metric_interval: 100ms, {METRICS}");
        let handler = Handler::new(&collector, &settings);
        let values = |items: &[Item]| -> Vec<f64> {
            items.iter().map(|item| sum(item)["asDouble"].as_f64().unwrap()).collect()
        };
        handler.report::<Metric>([measured("count", 2, &[])]).expect_ok();
        collector.items_until(|items| !items.is_empty());
        handler.report::<Metric>([measured("count", 3, &[])]).expect_ok();
        let last = if is_delta { 3.0 } else { 5.0 };
        let items = collector.items_until(|items| values(items).last() == Some(&last));
        let kind = format!("AGGREGATION_TEMPORALITY_{temporality}");
        assert!(items.iter().all(|item| item.item["sum"]["aggregationTemporality"] == kind), "{items:?}");
        let time = |item: &Item, field: &str| sum(item)[field].as_str().unwrap().parse::<u64>().unwrap();
        let (first, last) = (&items[0], &items[items.len() - 1]);
        if is_delta {
            assert_eq!(values(&items), [2.0, 3.0], "an interval without a value sends nothing");
            assert!(time(last, "startTimeUnixNano") >= time(first, "timeUnixNano"));
        } else {
            assert_eq!(time(last, "startTimeUnixNano"), time(first, "startTimeUnixNano"));
        }
        assert!(time(last, "timeUnixNano") > time(first, "timeUnixNano"));
        handler.close();
    }
}

#[test]
fn faults_of_a_report_are_named_and_the_rest_is_sent() {
    let collector = Collector::grpc();
    let handler = Handler::new(&collector, METRICS);
    let report = [
        measured("other", 1, &[]),
        measured("count", -1, &[]),
        measured("size", "much", &[]),
        measured("size", 3, &[]),
    ];
    let answer = handler.report::<Metric>(report);
    for fault in
        ["no metric is configured for the instance other", "cannot grow by -1", "\"much\" is not a number"]
    {
        answer.expect_error(mixer_adapter::adapter::Code::InvalidArgument, fault);
    }
    handler.close();
    assert_eq!(collector.items().iter().map(Item::name).collect::<Vec<_>>(), ["size"]);
}

#[test]
fn log_entries_become_log_records() {
    let collector = Collector::grpc();
    let handler = Handler::new(&collector, "resource: {service.name: mesh}, resource_attributes: [pod]");
    let variables = values([
        ("message", "denied".into()),
        ("pod", "a".into()),
        ("latency", Duration::from_millis(1500).into()),
        ("code", 403.into()),
        ("is_mtls", true.into()),
        ("trace_id", "4bf92f3577b34da6a3ce929d0e0e4736".into()),
        ("span_id", "00f067aa0ba902b7".into()),
    ]);
    let entry = logentry::InstanceMsg {
        name: "access.instance.istio-system".to_owned(),
        variables,
        timestamp: at(1_500_000_000),
        severity: "Warning".to_owned(),
        ..Default::default()
    };
    let plain = logentry::InstanceMsg {
        name: "plain".to_owned(),
        variables: values([("trace_id", "not an id".into())]),
        severity: "odd".to_owned(),
        ..Default::default()
    };
    handler.report::<LogEntry>([entry, plain]).expect_ok();
    handler.close();
    let mut items = collector.items();
    items.sort_by_key(|item| item.item["eventName"].to_string());
    let [entry, plain] = &items[..] else { panic!("{items:?}") };
    assert_eq!(entry.resource, json!({"service.name": "mesh", "pod": "a"}));
    let mut record = entry.item.clone();
    let observed = record["observedTimeUnixNano"].take();
    assert!(observed.as_str().unwrap().parse::<u64>().unwrap() > 1_600_000_000_000_000_000);
    let expected = json!({
        "timeUnixNano": "1500000000000000005",
        "observedTimeUnixNano": null,
        "severityNumber": "SEVERITY_NUMBER_WARN",
        "severityText": "Warning",
        "body": "denied",
        "attributes": {"latency": "1.5s", "code": 403, "is_mtls": true},
        "traceId": id(&0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736_u128.to_be_bytes()),
        "spanId": id(&0x00f0_67aa_0ba9_02b7_u64.to_be_bytes()),
        "eventName": "access.instance.istio-system",
    });
    assert_eq!(record, expected);
    assert_eq!(plain.item["attributes"], json!({"trace_id": "not an id"}));
    assert_eq!((&plain.item["severityText"], &plain.item["traceId"]), (&json!("odd"), &Json::Null));
}

fn span(id: &str, client_span: bool) -> tracespan::InstanceMsg {
    tracespan::InstanceMsg {
        trace_id: "a3ce929d0e0e4736".to_owned(),
        span_id: id.to_owned(),
        span_name: "/cart".to_owned(),
        start_time: at(1_500_000_000),
        end_time: at(1_500_000_001),
        span_tags: values([("http.method", "GET".into())]),
        http_status_code: 404,
        client_span,
        source_name: "web".to_owned(),
        source_ip: Some(IpAddr::from([10, 0, 0, 1]).into()),
        destination_name: "cart".to_owned(),
        request_size: 12,
        ..Default::default()
    }
}

#[test]
fn instances_of_tracespan_become_spans_of_their_workloads() {
    let collector = Collector::grpc();
    let handler = Handler::new(&collector, "");
    let server = tracespan::InstanceMsg { parent_span_id: "ff".to_owned(), ..span("b7", false) };
    let no_trace = tracespan::InstanceMsg { trace_id: String::new(), ..span("b8", false) };
    handler.report::<TraceSpan>([server, span("b9", true), no_trace]).expect_ok();
    let bad = handler.report::<TraceSpan>([span("xyz", false)]);
    bad.expect_error(mixer_adapter::adapter::Code::InvalidArgument, "the span_id \"xyz\"");
    handler.close();
    let items = collector.items();
    let of = |service: &str| items.iter().find(|item| item.service() == service).unwrap();
    assert_eq!(items.len(), 2, "{items:?}");
    let expected = json!({
        "traceId": id(&0xa3ce_929d_0e0e_4736_u128.to_be_bytes()),
        "spanId": id(&0xb7_u64.to_be_bytes()),
        "parentSpanId": id(&0xff_u64.to_be_bytes()),
        "flags": 1,
        "name": "/cart",
        "kind": "SPAN_KIND_SERVER",
        "startTimeUnixNano": "1500000000000000005",
        "endTimeUnixNano": "1500000001000000005",
        "attributes": {
            "http.method": "GET",
            "source.name": "web",
            "source.address": "10.0.0.1",
            "destination.name": "cart",
            "http.response.status_code": 404,
            "http.request.body.size": 12,
        },
    });
    assert_eq!(of("cart").item, expected);
    // To the client, 404 is an error.
    let client = &of("web").item;
    assert_eq!(
        (&client["kind"], &client["status"]["code"]),
        (&json!("SPAN_KIND_CLIENT"), &json!("STATUS_CODE_ERROR"))
    );
}

/// A proxy that shares the id of a span between client and server: the server's becomes a child of the client's.
#[test]
fn a_shared_id_is_divided_if_the_instance_says_so() {
    let collector = Collector::grpc();
    let handler = Handler::new(&collector, "");
    let shared =
        |client_span| tracespan::InstanceMsg { rewrite_client_span_id: true, ..span("b7", client_span) };
    handler.report::<TraceSpan>([shared(false), shared(true)]).expect_ok();
    handler.close();
    let items = collector.items();
    let of = |service: &str| &items.iter().find(|item| item.service() == service).unwrap().item;
    assert_eq!(of("cart")["spanId"], id(&0xb7_u64.to_be_bytes()));
    assert_eq!(of("cart")["parentSpanId"], of("web")["spanId"]);
    assert_ne!(of("web")["spanId"], of("cart")["spanId"]);
}

#[test]
fn each_signal_has_its_path_by_http() {
    let collector = Collector::http();
    let handler = Handler::new(&collector, &format!("protocol: HTTP, {METRICS}"));
    handler.report::<Metric>([measured("size", 7, &[])]).expect_ok();
    handler.report::<LogEntry>([logentry::InstanceMsg::default()]).expect_ok();
    handler.report::<TraceSpan>([span("b7", false)]).expect_ok();
    handler.close();
    let mut paths: Vec<String> = collector.requests().into_iter().map(|(path, _)| path).collect();
    paths.sort();
    assert_eq!(paths, ["/v1/logs", "/v1/metrics", "/v1/traces"]);
    assert_eq!(collector.items().len(), 3);
}

#[test]
fn what_is_reported_while_the_collector_is_away_arrives_when_it_is_back() {
    let collector = Collector::grpc();
    let address = collector.url.trim_start_matches("http://").to_owned();
    let handler = Handler::new(&collector, "batch_delay: 1ms");
    handler.report::<TraceSpan>([span("1", false)]).expect_ok();
    collector.items_until(|items| items.len() == 1);
    drop(collector);
    for id in ["2", "3"] {
        handler.report::<TraceSpan>([span(id, false)]).expect_ok();
    }
    let back = Collector::grpc_on(&address);
    let arrived = back.items_until(|items| items.len() >= 2);
    assert_eq!(arrived.len(), 2, "{arrived:?}");
    handler.close();
}

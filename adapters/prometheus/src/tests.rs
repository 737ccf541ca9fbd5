//! The adapter as a whole: instances in, a page out.

#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;

use mixer_adapter::testing::{FakeMixer, attributes};
use mixer_adapter_core::{adapter::Faults, metrics::Metrics, prost_types, value::Value};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::{
    params::{MetricInfo, MetricsExpirationPolicy, metric_info::Kind},
    *,
};

fn exporter() -> Arc<Exporter> {
    Arc::new(Exporter::new("127.0.0.1:0".to_owned(), Metrics::default()))
}

fn open_on(exporter: &Arc<Exporter>, params: &Params) -> Result<Prometheus, AdapterError> {
    Prometheus::open_on(exporter, Faults::parse(params.clone())?)
}

/// The adapter with the exporter of a test.
struct OnExporter(Prometheus);

impl Adapter<Arc<Exporter>> for OnExporter {
    const NAME: &str = "prometheus";
    const DESCRIPTION: &str = "Makes metrics on the exporter of a test.";
    type Config = PrometheusSettings;
    type Templates = (Metric,);

    async fn open(
        settings: PrometheusSettings,
        context: Context<Arc<Exporter>>,
    ) -> Result<Self, AdapterError> {
        Prometheus::open_on(context.state(), settings).map(Self)
    }
}

impl Handle<Metric> for OnExporter {
    async fn handle(&self, call: Call<Vec<metric::InstanceMsg>>) -> Result<(), AdapterError> {
        self.0.handle(call).await
    }
}

fn info(instance: &str, kind: Kind, labels: &[&str]) -> MetricInfo {
    MetricInfo {
        instance_name: instance.to_owned(),
        kind: kind.into(),
        label_names: labels.iter().map(ToString::to_string).collect(),
        ..MetricInfo::default()
    }
}

fn params(metrics: &[MetricInfo]) -> Params {
    Params { metrics: metrics.to_vec(), metrics_expiration_policy: None }
}

fn instance(name: &str, value: impl Into<Value>, dimensions: &[(&str, Value)]) -> metric::InstanceMsg {
    metric::InstanceMsg {
        name: name.to_owned(),
        value: Some(value.into()),
        dimensions: dimensions.iter().map(|(name, value)| (name.to_string(), value.clone())).collect(),
        ..Default::default()
    }
}

/// Asks by HTTP/1.0, whose answers have no chunks.
async fn ask(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("{request} HTTP/1.0\r\nHost: x\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

/// The page without what it says of itself.
async fn scrape(exporter: &Exporter) -> Vec<String> {
    let page = ask(exporter.bound().unwrap(), "GET /metrics").await;
    let (_, body) = page.split_once("\r\n\r\n").unwrap();
    body.lines().filter(|line| !line.contains("mixer_adapter_")).map(str::to_owned).collect()
}

fn labelled() -> [(&'static str, Value); 3] {
    [("bool", true.into()), ("string", "testing".into()), ("email", "test@istio.io".into())]
}

// The values of TestProm_HandleMetrics, on the page.
#[tokio::test]
async fn what_is_reported_is_on_the_page() {
    let exporter = exporter();
    let handler = open_on(
        &exporter,
        &params(&[
            info("the.counter", Kind::Counter, &[]),
            info("/funky::gauge", Kind::Gauge, &[]),
            info("special_counter", Kind::Counter, &["bool", "string", "email"]),
            info("happy_histogram", Kind::Distribution, &[]),
            info("never_reported", Kind::Counter, &[]),
        ]),
    )
    .unwrap();
    let report = vec![
        instance("the.counter", 16.0, &[]),
        instance("/funky::gauge", 993, &[]),
        instance("/funky::gauge", Duration::from_millis(386), &[]),
        instance("special_counter", 45.0, &labelled()),
        instance("special_counter", "8.5", &labelled()),
        instance("happy_histogram", 8, &[]),
    ];
    handler.handle(Call::new(report)).await.unwrap();
    let page = scrape(&exporter).await;
    let samples: Vec<_> = page
        .iter()
        .map(String::as_str)
        .filter(|line| !line.contains("# HELP") && !line.contains("le=\"0"))
        .collect();
    assert_eq!(
        samples,
        [
            "# TYPE istio_funky::gauge gauge",
            "istio_funky::gauge 0.386",
            "# TYPE istio_happy_histogram histogram",
            "istio_happy_histogram_bucket{le=\"1\"} 0",
            "istio_happy_histogram_bucket{le=\"2.5\"} 0",
            "istio_happy_histogram_bucket{le=\"5\"} 0",
            "istio_happy_histogram_bucket{le=\"10\"} 1",
            "istio_happy_histogram_bucket{le=\"+Inf\"} 1",
            "istio_happy_histogram_sum 8",
            "istio_happy_histogram_count 1",
            "# TYPE istio_special_counter counter",
            "istio_special_counter{bool=\"true\",email=\"test@istio.io\",string=\"testing\"} 53.5",
            "# TYPE istio_the_counter counter",
            "istio_the_counter 16",
        ]
    );
}

// TestProm_HandleMetricFailures; what is right in the same report is recorded all the same.
#[tokio::test]
async fn faults_are_named_and_the_rest_is_recorded() {
    let exporter = exporter();
    let metrics = [info("g", Kind::Gauge, &[]), info("c", Kind::Counter, &[])];
    let handler = open_on(&exporter, &params(&metrics)).unwrap();
    let report = vec![
        instance("unknown", 1, &[]),
        instance("g", true, &[]),
        instance("c", "not a value", &[]),
        instance("c", -3, &[]),
        metric::InstanceMsg { name: "c".to_owned(), ..Default::default() },
        instance("g", 7, &[]),
        instance("unknown", 1, &[]),
    ];
    let error = handler.handle(Call::new(report)).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "no metric is configured for the instance unknown; the value of g: a BOOL is not a number; \
         the value of c: \"not a value\" is not a number; c: the counter istio_c cannot grow by -3; \
         the value of c: it is absent; and 1 more"
    );
    assert!(scrape(&exporter).await.contains(&"istio_g 7".to_owned()));
    let page = ask(exporter.bound().unwrap(), "GET /metrics").await;
    let dropped =
        "mixer_adapter_prometheus_dropped_total{metric=\"istio_c\",reason=\"negative_increment\"} 1\n";
    assert!(page.contains(dropped), "{page}");
}

// The original panicked at each; docs/behaviour/adapters.md#defects-of-prometheus.
#[tokio::test]
async fn dimensions_need_not_match_labels() {
    let exporter = exporter();
    let metrics = [info("c", Kind::Counter, &["missing", "dotted.name"])];
    let handler = open_on(&exporter, &params(&metrics)).unwrap();
    let dimensions = [("dotted.name", "x".into()), ("extra", "y".into())];
    handler.handle(Call::new(vec![instance("c", 1, &dimensions)])).await.unwrap();
    let expected = "istio_c{dotted_name=\"x\",missing=\"\"} 1".to_owned();
    assert!(scrape(&exporter).await.contains(&expected));
}

#[tokio::test]
async fn handlers_that_define_a_metric_alike_share_it() {
    let exporter = exporter();
    let metric = MetricInfo { description: "old".to_owned(), ..info("c", Kind::Counter, &["a"]) };
    let old = open_on(&exporter, &params(std::slice::from_ref(&metric))).unwrap();
    old.handle(Call::new(vec![instance("c", 2, &[("a", "x".into())])])).await.unwrap();
    let changed = MetricInfo { description: "new".to_owned(), ..metric };
    let new = open_on(&exporter, &params(&[changed, info("g", Kind::Gauge, &[])])).unwrap();
    new.handle(Call::new(vec![instance("c", 3, &[("a", "x".into())])])).await.unwrap();
    old.close().await;
    let expected = ["# HELP istio_c new", "# TYPE istio_c counter", "istio_c{a=\"x\"} 5"];
    assert_eq!(scrape(&exporter).await, expected);
}

#[tokio::test]
async fn of_metrics_of_one_name_the_newest_is_shown() {
    let exporter = exporter();
    let counter = params(&[info("m", Kind::Counter, &["a"])]);
    let old = open_on(&exporter, &counter).unwrap();
    old.handle(Call::new(vec![instance("m", 2, &[])])).await.unwrap();
    let gauge = open_on(&exporter, &params(&[info("m", Kind::Gauge, &["b"])])).unwrap();
    gauge.handle(Call::new(vec![instance("m", 3, &[])])).await.unwrap();
    let newest = ["# HELP istio_m m", "# TYPE istio_m gauge", "istio_m{b=\"\"} 3"];
    assert_eq!(scrape(&exporter).await, newest);
    let page = ask(exporter.bound().unwrap(), "GET /metrics").await;
    assert!(page.contains("mixer_adapter_prometheus_hidden_metrics 1\n"), "{page}");
    // Asked for again, the other one is the newest, with what it had.
    let again = open_on(&exporter, &counter).unwrap();
    let newest = ["# HELP istio_m m", "# TYPE istio_m counter", "istio_m{a=\"\"} 2"];
    assert_eq!(scrape(&exporter).await, newest);
    old.close().await;
    again.close().await;
    assert!(scrape(&exporter).await.contains(&"istio_m{b=\"\"} 3".to_owned()));
}

// TestMetricExpiration, over the page.
#[tokio::test]
async fn series_that_are_not_updated_go_away() {
    let exporter = exporter();
    let expiry = prost_types::Duration { seconds: 0, nanos: 300_000_000 };
    let policy = MetricsExpirationPolicy {
        metrics_expiry_duration: Some(expiry),
        expiry_check_interval_duration: Some(prost_types::Duration { seconds: 0, nanos: 10_000_000 }),
    };
    let metrics = [info("c", Kind::Counter, &["a"])];
    let params = Params { metrics_expiration_policy: Some(policy), ..params(&metrics) };
    let handler = open_on(&exporter, &params).unwrap();
    handler.handle(Call::new(vec![instance("c", 1, &[("a", "stale".into())])])).await.unwrap();
    assert!(scrape(&exporter).await.contains(&"istio_c{a=\"stale\"} 1".to_owned()));
    for _ in 0..100 {
        handler.handle(Call::new(vec![instance("c", 1, &[("a", "fresh".into())])])).await.unwrap();
        tokio::time::sleep(Duration::from_millis(10)).await;
        let page = scrape(&exporter).await;
        assert!(page.iter().any(|line| line.contains("fresh")), "{page:?}");
        if !page.iter().any(|line| line.contains("stale")) {
            return;
        }
    }
    panic!("the series stayed");
}

// server_test.go: one server for all handlers, from the first to the last, and again afterwards.
#[tokio::test]
async fn the_page_is_served_from_the_first_handler_to_the_last() {
    let exporter = exporter();
    assert!(exporter.bound().is_none());
    let first = open_on(&exporter, &params(&[])).unwrap();
    let address = exporter.bound().unwrap();
    let second = open_on(&exporter, &params(&[])).unwrap();
    assert_eq!(exporter.bound(), Some(address));
    first.close().await;
    assert!(ask(address, "GET /metrics").await.starts_with("HTTP/1.0 200 OK\r\n"));
    second.close().await;
    assert!(exporter.bound().is_none());
    assert!(TcpStream::connect(address).await.is_err());
    // The address is free at once.
    let exporter = Arc::new(Exporter::new(address.to_string(), Metrics::default()));
    for _ in 0..20 {
        open_on(&exporter, &params(&[])).unwrap().close().await;
    }
}

#[tokio::test]
async fn only_the_page_is_served() {
    let exporter = exporter();
    let _handler = open_on(&exporter, &params(&[])).unwrap();
    let address = exporter.bound().unwrap();
    let page = ask(address, "GET /metrics").await;
    assert!(page.contains("content-type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{page}");
    assert!(ask(address, "GET /").await.starts_with("HTTP/1.0 404"));
    assert!(ask(address, "POST /metrics").await.starts_with("HTTP/1.0 405"));
}

// TestBuild_ServerFail and server_test.go: the port is in use.
#[tokio::test]
async fn an_address_that_cannot_be_had_refuses_the_handler_and_says_which() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for address in [address.as_str(), "nonsense"] {
        let exporter = Arc::new(Exporter::new(address.to_owned(), Metrics::default()));
        let error = open_on(&exporter, &params(&[])).unwrap_err();
        let expected = format!("metrics cannot be served on {address}: ");
        assert!(error.to_string().starts_with(&expected), "{error}");
    }
    drop(taken);
    let exporter = Arc::new(Exporter::new(address, Metrics::default()));
    open_on(&exporter, &params(&[])).unwrap().close().await;
}

#[tokio::test]
async fn a_mixer_s_reports_are_on_the_page() {
    let exporter = exporter();
    let mixer = FakeMixer::with_state::<OnExporter, _>(exporter.clone())
        .handler(
            "page",
            "metrics: [{instance_name: requests.instance.istio-system, kind: COUNTER, label_names: [code]}]",
        )
        .instance::<Metric>("requests", "{value: '1', dimensions: {code: response.code | 200}}")
        .rule(r#"context.protocol == "http""#, "page", ["requests"])
        .start()
        .await
        .unwrap();
    let answered = |code: i64| attributes! { "context.protocol" => "http", "response.code" => code };
    mixer.report([answered(200), answered(404), answered(200)]).await.expect_calls(1).expect_ok();
    let page = scrape(&exporter).await.join("\n");
    // Dots become underscores and hyphens go, as in the original.
    assert!(page.contains("istio_requests_instance_istiosystem{code=\"200\"} 2"), "{page}");
    assert!(page.contains("istio_requests_instance_istiosystem{code=\"404\"} 1"), "{page}");
}

//! The page in Prometheus' text format, version 0.0.4. OpenMetrics would append `_total` to the names of counters. Not from a
//! crate, because none formats numbers as the Go client does.

use std::{sync::Arc, time::Instant};

use mixer_adapter_core::value::format_float;
use mixer_adapter_telemetry::series::{Dropped, Kind, Sample};

use super::{
    definition::{Definition, OWN_PREFIX},
    family::Family,
};

pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The contents of the page.
#[derive(Debug, Default)]
pub(super) struct Contents {
    /// The metrics by name.
    pub(super) families: Vec<Arc<Family>>,
    /// The number of metrics hidden by another one with the same name.
    pub(super) hidden: usize,
    /// The number of metrics without a handler that were evicted before their time.
    pub(super) evicted: u64,
}

/// Returns the lines of the page, each with its end. They are made when they are taken: the labels of a series are in each line of
/// its buckets, so that a page may be many times as long as all labels.
pub(super) fn lines(contents: Contents, now: Instant) -> impl Iterator<Item = String> + Send {
    let own = own_lines(&contents);
    contents.families.into_iter().flat_map(move |family| family_lines(family, now)).chain(own)
}

fn family_lines(family: Arc<Family>, now: Instant) -> impl Iterator<Item = String> + Send {
    let samples = family.series.samples(now);
    let kind = match family.definition.kind {
        Kind::Gauge => "gauge",
        Kind::Counter => "counter",
        Kind::Distribution(_) => "histogram",
    };
    let head = (!samples.is_empty()).then(|| head(&family.definition.name, &family.help(), kind));
    let values = samples.into_iter().flat_map(move |(labels, sample)| {
        let name = &family.definition.name;
        let one = match sample {
            Sample::Gauge(value) => Some(line(name, "", &labels, None, value)),
            Sample::Counter { whole, rest } => Some(line(name, "", &labels, None, rest + whole as f64)),
            Sample::Distribution { .. } => None,
        };
        let buckets = match sample {
            Sample::Distribution { counts, sum } => Some(distribution(family.clone(), labels, counts, sum)),
            Sample::Gauge(_) | Sample::Counter { .. } => None,
        };
        one.into_iter().chain(buckets.into_iter().flatten())
    });
    head.into_iter().chain(values)
}

/// The metrics about the page itself.
fn own_lines(contents: &Contents) -> Vec<String> {
    let dropped = format!("{OWN_PREFIX}dropped_total");
    let mut lines = vec![head(&dropped, "Updates that were not recorded, by metric and reason", "counter")];
    for family in &contents.families {
        for (reason, text) in Dropped::ALL {
            let count = family.series.dropped(reason);
            if count > 0 {
                let labels = format!("metric=\"{}\",reason=\"{text}\"", family.definition.name);
                lines.push(line(&dropped, "", &labels, None, count as f64));
            }
        }
    }
    let mut add = |name: &str, help: &str, kind: &str, value: f64| {
        let name = format!("{OWN_PREFIX}{name}");
        lines.extend([head(&name, help, kind), line(&name, "", "", None, value)]);
    };
    add(
        "hidden_metrics",
        "Metrics not shown because a newer one has the same name and another definition",
        "gauge",
        contents.hidden as f64,
    );
    add(
        "evicted_metrics_total",
        "Metrics without a handler that were removed early, because they took too much memory",
        "counter",
        contents.evicted as f64,
    );
    lines
}

fn head(name: &str, help: &str, kind: &str) -> String {
    let help = help.replace('\\', r"\\").replace('\n', r"\n");
    format!("# HELP {name} {help}\n# TYPE {name} {kind}\n")
}

/// Returns the lines of a series of a histogram.
fn distribution(
    family: Arc<Family>,
    labels: Arc<str>,
    counts: Box<[u64]>,
    sum: f64,
) -> impl Iterator<Item = String> + Send {
    let mut total = 0;
    (0..counts.len() + 2).map(move |index| {
        let Definition { name, kind, .. } = &family.definition;
        match (counts.get(index), kind) {
            (Some(count), Kind::Distribution(bounds)) => {
                total += count;
                let bound = bounds.get(index).copied().unwrap_or(f64::INFINITY);
                line(name, "_bucket", &labels, Some(bound), total as f64)
            }
            _ if index == counts.len() => line(name, "_sum", &labels, None, sum),
            _ => line(name, "_count", &labels, None, total as f64),
        }
    })
}

/// Returns a line; `bound` is the value of the label `le`.
fn line(name: &str, suffix: &str, labels: &str, bound: Option<f64>, value: f64) -> String {
    let mut line = String::with_capacity(name.len() + suffix.len() + labels.len() + 64);
    line.push_str(name);
    line.push_str(suffix);
    if !labels.is_empty() || bound.is_some() {
        line.push('{');
        line.push_str(labels);
        if let Some(bound) = bound {
            line.push_str(if labels.is_empty() { "le=\"" } else { ",le=\"" });
            number(&mut line, bound);
            line.push('"');
        }
        line.push('}');
    }
    line.push(' ');
    number(&mut line, value);
    line.push('\n');
    line
}

fn number(text: &mut String, number: f64) {
    // A negative zero is written without its sign.
    let number = if number == 0.0 { 0.0 } else { number };
    text.push_str(&format_float(number));
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use tokio::sync::Semaphore;

    use super::{super::family::LABEL_BYTES, *};

    fn family(name: &str, kind: Kind, help: &str, values: &[(&str, f64)]) -> Arc<Family> {
        let definition = Definition { name: name.to_owned(), kind, labels: Vec::new() };
        let family = Family::new(definition, Arc::new(Semaphore::new(2 * LABEL_BYTES)));
        family.set_help(help.to_owned());
        for (labels, value) in values {
            // The page shows refused updates.
            let _ = family.series.record(labels, *value, None);
        }
        Arc::new(family)
    }

    // By https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format.
    #[test]
    fn the_page_is_in_the_text_format() {
        let families = vec![
            family(
                "c_total",
                Kind::Counter,
                "back\\slash\nline",
                &[("a=\"2\"", 1e21), ("a=\"1\"", 3.0), ("a=\"1\"", -1.0)],
            ),
            family("d", Kind::Distribution(vec![0.5, 1e-7]), "none", &[]),
            family("g", Kind::Gauge, "g", &[("", f64::NAN)]),
            family(
                "h",
                Kind::Distribution(vec![0.5, 5.0]),
                "h",
                &[("x=\"y\"", 0.5), ("x=\"y\"", 7.25), ("", 1.0)],
            ),
        ];
        let page: String = lines(Contents { families, hidden: 1, evicted: 2 }, Instant::now()).collect();
        let expected = r#"# HELP c_total back\\slash\nline
# TYPE c_total counter
c_total{a="1"} 3
c_total{a="2"} 1e+21
# HELP g g
# TYPE g gauge
g NaN
# HELP h h
# TYPE h histogram
h_bucket{le="0.5"} 0
h_bucket{le="5"} 1
h_bucket{le="+Inf"} 1
h_sum 1
h_count 1
h_bucket{x="y",le="0.5"} 1
h_bucket{x="y",le="5"} 1
h_bucket{x="y",le="+Inf"} 2
h_sum{x="y"} 7.75
h_count{x="y"} 2
# HELP mixer_adapter_prometheus_dropped_total Updates that were not recorded, by metric and reason
# TYPE mixer_adapter_prometheus_dropped_total counter
mixer_adapter_prometheus_dropped_total{metric="c_total",reason="negative_increment"} 1
# HELP mixer_adapter_prometheus_hidden_metrics Metrics not shown because a newer one has the same name and another definition
# TYPE mixer_adapter_prometheus_hidden_metrics gauge
mixer_adapter_prometheus_hidden_metrics 1
# HELP mixer_adapter_prometheus_evicted_metrics_total Metrics without a handler that were removed early, because they took too much memory
# TYPE mixer_adapter_prometheus_evicted_metrics_total counter
mixer_adapter_prometheus_evicted_metrics_total 2
"#;
        assert_eq!(page, expected);
    }

    #[test]
    fn a_line_is_made_when_it_is_taken() {
        let bounds = (1..=100).map(f64::from).collect();
        let label = format!("a=\"{}\"", "x".repeat(LABEL_BYTES - 4));
        let families = vec![family("h", Kind::Distribution(bounds), "h", &[(&label, 1.0)])];
        let page = lines(Contents { families, ..Contents::default() }, Instant::now());
        let lengths: Vec<_> = page.map(|line| line.len()).collect();
        assert_eq!(lengths.iter().filter(|length| **length > LABEL_BYTES).count(), 103);
    }

    // Recorded.
    #[test]
    fn numbers_are_written_as_by_the_original() {
        for (value, expected) in [
            (-0.5, "-0.5"),
            (1e-7, "1e-07"),
            (4e6, "4e+06"),
            (f64::NEG_INFINITY, "-Inf"),
            (0.0, "0"),
            (-0.0, "0"),
        ] {
            let mut text = String::new();
            number(&mut text, value);
            assert_eq!(text, expected);
        }
    }
}

//! The page in Prometheus' text format, version 0.0.4. OpenMetrics would append `_total` to the names of counters. Not from a
//! crate, because none formats numbers as the Go client does.

use std::{fmt::Write as _, sync::Arc, time::Instant};

use mixer_adapter_core::value::format_float;

use super::{
    definition::{Kind, OWN_PREFIX},
    family::{Dropped, Family, Sample},
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

/// Writes the page.
pub(super) fn render(contents: &Contents, now: Instant) -> String {
    let mut page = String::new();
    for family in &contents.families {
        let samples = family.samples(now);
        if samples.is_empty() {
            continue;
        }
        let definition = family.definition();
        let kind = match definition.kind {
            Kind::Gauge => "gauge",
            Kind::Counter => "counter",
            Kind::Distribution(_) => "histogram",
        };
        head(&mut page, &definition.name, &family.help(), kind);
        for (labels, sample) in &samples {
            match (sample, &definition.kind) {
                (Sample::Distribution { counts, sum }, Kind::Distribution(bounds)) => {
                    distribution(&mut page, &definition.name, labels, bounds, counts, *sum);
                }
                (Sample::Gauge(value), _) => line(&mut page, &definition.name, "", labels, *value),
                (Sample::Counter { whole, rest }, _) => {
                    line(&mut page, &definition.name, "", labels, rest + *whole as f64);
                }
                (Sample::Distribution { .. }, Kind::Gauge | Kind::Counter) => {}
            }
        }
    }
    own(&mut page, contents);
    page
}

/// The metrics about the page itself.
fn own(page: &mut String, contents: &Contents) {
    let dropped = format!("{OWN_PREFIX}dropped_total");
    head(page, &dropped, "Updates that were not recorded, by metric and reason", "counter");
    for family in &contents.families {
        for (reason, text) in Dropped::ALL {
            let count = family.dropped(reason);
            if count > 0 {
                let labels = format!("metric=\"{}\",reason=\"{text}\"", family.definition().name);
                line(page, &dropped, "", &labels, count as f64);
            }
        }
    }
    let hidden = format!("{OWN_PREFIX}hidden_metrics");
    head(
        page,
        &hidden,
        "Metrics not shown because a newer one has the same name and another definition",
        "gauge",
    );
    line(page, &hidden, "", "", contents.hidden as f64);
    let evicted = format!("{OWN_PREFIX}evicted_metrics_total");
    head(
        page,
        &evicted,
        "Metrics without a handler that were removed early, because they took too much memory",
        "counter",
    );
    line(page, &evicted, "", "", contents.evicted as f64);
}

fn head(page: &mut String, name: &str, help: &str, kind: &str) {
    let help = help.replace('\\', r"\\").replace('\n', r"\n");
    // Writing to a String does not fail.
    let _ = writeln!(page, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn distribution(page: &mut String, name: &str, labels: &str, bounds: &[f64], counts: &[u64], sum: f64) {
    let comma = if labels.is_empty() { "" } else { "," };
    let mut total = 0;
    let mut bucket = String::new();
    for (bound, count) in bounds.iter().chain([&f64::INFINITY]).zip(counts) {
        total += count;
        bucket.clear();
        bucket.push_str(labels);
        bucket.push_str(comma);
        bucket.push_str("le=\"");
        number(&mut bucket, *bound);
        bucket.push('"');
        line(page, name, "_bucket", &bucket, total as f64);
    }
    line(page, name, "_sum", labels, sum);
    line(page, name, "_count", labels, total as f64);
}

fn line(page: &mut String, name: &str, suffix: &str, labels: &str, value: f64) {
    page.push_str(name);
    page.push_str(suffix);
    if !labels.is_empty() {
        page.push('{');
        page.push_str(labels);
        page.push('}');
    }
    page.push(' ');
    number(page, value);
    page.push('\n');
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

    use super::{
        super::{definition::Definition, family::LABEL_BYTES},
        *,
    };

    fn family(name: &str, kind: Kind, help: &str, values: &[(&str, f64)]) -> Arc<Family> {
        let definition = Definition { name: name.to_owned(), kind, labels: Vec::new() };
        let family = Family::new(definition, Arc::new(Semaphore::new(LABEL_BYTES)));
        family.set_help(help.to_owned());
        for (labels, value) in values {
            // A refusal is part of what is shown.
            let _ = family.record(labels, *value, None);
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
        let page = render(&Contents { families, hidden: 1, evicted: 2 }, Instant::now());
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

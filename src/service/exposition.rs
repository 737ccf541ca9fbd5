//! `/metrics`, in one of the two text formats, chosen by the `Accept` header of the scraper. By hand: `prometheus-client`
//! writes OpenMetrics alone.

use std::sync::Arc;

use axum::{
    extract::State,
    http::{
        HeaderMap, StatusCode,
        header::{ACCEPT, CONTENT_TYPE},
    },
    response::{IntoResponse as _, Response},
};
use mixer_adapter_host::Host;
use prometheus_client::{
    encoding::text::{encode_eof, encode_registry},
    registry::Registry,
};
use tokio::{sync::Mutex, task::spawn_blocking};

/// The metrics of a process, and its host if it has adapters, for the metrics of the handlers.
pub(super) type MetricsPage = (Registry, Option<Arc<Host>>);

/// The metrics, in the format that the client accepts. One request is answered at a time, on a thread that may block: files of the
/// system are read.
pub(super) async fn metrics(State(page): State<Arc<Mutex<MetricsPage>>>, headers: HeaderMap) -> Response {
    let page = page.lock_owned().await;
    let encoded = spawn_blocking(move || {
        let (registry, host) = &*page;
        let mut text = String::new();
        encode_registry(&mut text, registry)?;
        if let Some(host) = host {
            text += &host.adapters().handler_metrics()?;
        }
        encode_eof(&mut text).map(|()| text)
    });
    match encoded.await {
        Ok(Ok(page)) if prefers_open_metrics(&headers) => {
            let version = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(CONTENT_TYPE, version)], page).into_response()
        }
        Ok(Ok(page)) => {
            let version = "text/plain; version=0.0.4; charset=utf-8";
            ([(CONTENT_TYPE, version)], prometheus_text(&page)).into_response()
        }
        Ok(Err(error)) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

/// Returns whether the client prefers OpenMetrics. Clients that do not name it receive the format of Prometheus, as from Prometheus'
/// own libraries.
fn prefers_open_metrics(headers: &HeaderMap) -> bool {
    let accepted: Vec<&str> =
        headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
    let open_metrics = weight(&accepted, "application/openmetrics-text");
    open_metrics > 0.0 && open_metrics >= weight(&accepted, "text/plain")
}

/// Returns the largest weight of a type in the values of `Accept`; 0 without it.
fn weight(accepted: &[&str], name: &str) -> f32 {
    let ranges = accepted.iter().flat_map(|value| value.split(','));
    ranges.filter_map(|range| weight_of(range, name)).fold(0.0, f32::max)
}

/// Returns the weight of a media range if it is of the type `name`: 1 by default, and 0 if it cannot be parsed.
fn weight_of(range: &str, name: &str) -> Option<f32> {
    let mut parts = range.split(';').map(str::trim);
    if !parts.next()?.eq_ignore_ascii_case(name) {
        return None;
    }
    let weight = parts.find_map(|parameter| {
        let (key, value) = parameter.split_once('=')?;
        key.trim().eq_ignore_ascii_case("q").then(|| value.trim().parse().unwrap_or(0.0))
    });
    Some(weight.unwrap_or(1.0))
}

/// Converts a page of OpenMetrics to the text format of Prometheus, in which a family has the name of its series (`_total`,
/// `_info`), and neither a unit nor an end.
fn prometheus_text(page: &str) -> String {
    let mut text = String::with_capacity(page.len());
    // OpenMetrics writes the help before the type, on which the name of the family depends.
    let mut help = None;
    for line in page.lines() {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some("HELP"), Some(name), explanation) => {
                help = Some((name, explanation.unwrap_or_default()));
            }
            (Some("#"), Some("TYPE"), Some(name), Some(kind)) => {
                let (suffix, kind) = match kind {
                    "counter" => ("_total", "counter"),
                    "info" => ("_info", "gauge"),
                    "unknown" => ("", "untyped"),
                    kind => ("", kind),
                };
                if let Some((_, explanation)) = help.take_if(|(of, _)| *of == name) {
                    text += &format!("# HELP {name}{suffix} {explanation}\n");
                }
                text += &format!("# TYPE {name}{suffix} {kind}\n");
            }
            (Some("#"), ..) => {}
            _ => {
                text += line;
                text.push('\n');
            }
        }
    }
    text
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn prefers(values: &[&str]) -> bool {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(ACCEPT, value.parse().unwrap());
        }
        prefers_open_metrics(&headers)
    }

    #[test]
    fn open_metrics_is_served_to_clients_that_prefer_it() {
        // As Prometheus 2 and 3 send it.
        let prometheus_2 =
            "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1";
        let prometheus_3 = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        let alone = "Application/OpenMetrics-Text";
        for values in [&[prometheus_2][..], &[prometheus_3], &[alone], &["text/plain;q=0.5", alone]] {
            assert!(prefers(values), "{values:?}");
        }
    }

    #[test]
    fn everybody_else_receives_the_format_of_prometheus() {
        let refused = "application/openmetrics-text;q=0";
        let less = "application/openmetrics-text;q=0.2, text/plain;q=0.3";
        let broken = "application/openmetrics-text;q=much";
        for values in [&[][..], &["*/*"], &["text/html,application/xml"], &[refused], &[less], &[broken]] {
            assert!(!prefers(values), "{values:?}");
        }
    }

    #[test]
    fn families_have_the_names_of_their_series_in_the_format_of_prometheus() {
        let open_metrics = "\
# HELP calls Calls with \"quotes\".
# TYPE calls counter
calls_total{code=\"OK\"} 1
# HELP took_seconds Time.
# TYPE took_seconds histogram
# UNIT took_seconds seconds
took_seconds_sum 0.5
took_seconds_count 1
took_seconds_bucket{le=\"+Inf\"} 1
# HELP build Build.
# TYPE build info
build_info{version=\"1\"} 1
# HELP odd # not a comment
# TYPE odd unknown
odd 3
# EOF
";
        let prometheus = "\
# HELP calls_total Calls with \"quotes\".
# TYPE calls_total counter
calls_total{code=\"OK\"} 1
# HELP took_seconds Time.
# TYPE took_seconds histogram
took_seconds_sum 0.5
took_seconds_count 1
took_seconds_bucket{le=\"+Inf\"} 1
# HELP build_info Build.
# TYPE build_info gauge
build_info{version=\"1\"} 1
# HELP odd # not a comment
# TYPE odd untyped
odd 3
";
        assert_eq!(prometheus_text(open_metrics), prometheus);
    }
}

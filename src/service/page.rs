use std::{fmt::Write as _, sync::atomic::Ordering::Relaxed};

use mixer_adapter_config::source::{CollectionStatus, SourceStatus};
use mixer_adapter_engine::Snapshot;
use mixer_adapter_host::Host;

use super::Readiness;

/// Renders the front page of the admin port: adapters, sessions, cached answers, sources, and links.
pub(super) fn render(
    host: &Host,
    readiness: &Readiness,
    snapshot: Option<&Snapshot>,
    sources: &[SourceStatus],
) -> String {
    let mut page = String::from(HEAD);
    for warning in readiness.warnings() {
        // Writing to a String cannot fail.
        let _ = write!(page, "<p><b>Warning: {}</b></p>", escape(&warning));
    }
    page.push_str(ADAPTERS);
    let counts = host.sessions().counts();
    for adapter in host.adapters().iter() {
        let sessions = counts.iter().find(|(name, _)| *name == adapter.name).map_or(0, |(_, count)| *count);
        let templates: Vec<&str> = adapter.templates.iter().map(|template| template.name).collect();
        // Names and descriptions are constants of the program.
        let _ = writeln!(
            page,
            "<tr><td><b>{}</b></td><td>{}</td><td>{}</td><td>{sessions}</td></tr>",
            escape(adapter.name),
            escape(adapter.description),
            templates.join(", "),
        );
    }
    let _ = write!(
        page,
        "</table><p>{} open handlers, {} of them cached for calls that carry their configuration.</p>",
        host.handlers().live_count(),
        host.handlers().cached_count()
    );
    if let Some(snapshot) = snapshot {
        check_cache(&mut page, snapshot);
    }
    for status in sources {
        source(&mut page, status);
    }
    page + TAIL
}

/// Renders what the cache of check answers saves; nothing if it was not used.
fn check_cache(page: &mut String, snapshot: &Snapshot) {
    let counts = snapshot.cache_counts();
    // In the order of CacheOutcome.
    let [hit, miss, coalesced, stale] = counts.requests.each_ref().map(|count| count.load(Relaxed));
    let (found, all) = (hit + coalesced + stale, hit + coalesced + stale + miss);
    if all == 0 {
        return;
    }
    let size = snapshot.cache_size();
    let _ = write!(
        page,
        "<p>Check cache: {found} of {all} checks ({} %): {hit} hits, {coalesced} coalesced, {stale} stale. They saved {} calls of adapters and {:.1} s of \
         evaluation. It has {} answers in {} kB; {} were evicted.</p>",
        found * 100 / all,
        counts.saved_calls.load(Relaxed),
        counts.saved_time().as_secs_f64(),
        size.answers,
        size.bytes.div_ceil(1024),
        counts.evictions.load(Relaxed),
    );
}

/// Renders a source of configuration: collections, results of pushes, and the last messages.
fn source(page: &mut String, status: &SourceStatus) {
    let _ = write!(page, "<h2>Configuration from {}</h2>", escape(&status.source));
    if !status.id.is_empty() {
        let peers = if status.peers.is_empty() { "nobody".to_owned() } else { status.peers.join(", ") };
        let _ = write!(page, "<p>As {}; connected: {}.</p>", escape(&status.id), escape(&peers));
    }
    page.push_str("<table><tr><th>collection<th>resources<th>version<th>accepted<th>refused</tr>\n");
    for collection in &status.collections {
        let _ = writeln!(
            page,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escape(&collection.collection),
            collection.resources,
            escape(&collection.version),
            accepted(collection),
            collection.refused.as_ref().map_or_else(String::new, |refused| escape(&format!(
                "{}: {}",
                refused.version, refused.reason
            ))),
        );
    }
    page.push_str("</table><details><summary>the last messages</summary><table>\n");
    for message in &status.messages {
        let _ = writeln!(
            page,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            message.time,
            message.kind,
            escape(&message.collection),
            escape(&message.nonce),
            escape(&message.what),
        );
    }
    page.push_str("</table></details>\n");
}

fn accepted(collection: &CollectionStatus) -> String {
    match collection.accepted_seconds_ago {
        _ if collection.unsupported => "not served by the source".to_owned(),
        Some(seconds) if collection.synced => format!("{seconds} s ago"),
        Some(seconds) => format!("{seconds} s ago, from the cache"),
        None => "not yet".to_owned(),
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

const HEAD: &str = "<!doctype html><meta charset=utf-8><title>mixer-adapter</title>\
<style>body{font:16px/1.5 system-ui;margin:2rem auto;max-width:60rem}td,th{text-align:left;padding:.2rem 1rem .2rem 0}</style>\
<h1>mixer-adapter</h1>\n";

const ADAPTERS: &str = "<table><tr><th>adapter<th>description<th>templates<th>sessions</tr>\n";

const TAIL: &str = "<p><a href=/healthz>healthz</a> · <a href=/readyz>readyz</a> · <a href=/metrics>metrics</a> · \
<a href=/sessions>sessions</a> · <a href=/config>config</a></p>\n";

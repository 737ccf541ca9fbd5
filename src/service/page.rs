use std::fmt::Write as _;

use crate::host::Host;

/// The admin port's front page: what is served, and where the rest is.
pub(super) fn render(host: &Host) -> String {
    let mut page = String::from(HEAD);
    let counts = host.sessions().counts();
    for adapter in host.adapters().iter() {
        let sessions = counts.iter().find(|(name, _)| *name == adapter.name).map_or(0, |(_, count)| *count);
        let templates: Vec<&str> = adapter.templates.iter().map(|template| template.name).collect();
        // Names and descriptions are constants of the program. Writing to a String cannot fail.
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
        "</table><p>{} open handlers, {} of them kept for calls that bring their configuration.</p>{TAIL}",
        host.handlers().live_count(),
        host.handlers().cached_count()
    );
    page
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

const HEAD: &str = "<!doctype html><meta charset=utf-8><title>mixer-adapter</title>\
<style>body{font:16px/1.5 system-ui;margin:2rem auto;max-width:60rem}td,th{text-align:left;padding:.2rem 1rem .2rem 0}</style>\
<h1>mixer-adapter</h1><table><tr><th>adapter<th>what it does<th>templates<th>sessions</tr>\n";

const TAIL: &str = "<p><a href=/healthz>healthz</a> · <a href=/readyz>readyz</a> · <a href=/metrics>metrics</a> · \
<a href=/sessions>sessions</a> · <a href=/config>config</a></p>\n";

use http::HeaderName;

/// Headers that delimit messages or concern one connection.
const FRAMING: [&str; 9] = [
    "connection",
    "content-length",
    "http2-settings",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Returns whether a header delimits a message or concerns one connection, so that no configuration and no peer may set it.
pub fn is_framing_header(name: &HeaderName) -> bool {
    FRAMING.contains(&name.as_str())
}

//! How this program identifies itself to sources.

/// Returns the id of this program's sink: the host's name, which in a pod is the pod's name, distinguishes replicas.
pub fn sink_id() -> String {
    match environment("HOSTNAME") {
        Some(host) => format!("mixer-adapter~{host}"),
        None => "mixer-adapter".to_owned(),
    }
}

/// Returns an environment variable that is set and not empty.
pub(crate) fn environment(variable: &str) -> Option<String> {
    std::env::var(variable).ok().filter(|value| !value.is_empty())
}

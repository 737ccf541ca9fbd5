use std::collections::BTreeMap;

use crate::{
    proto::envoy::config::core::v3::{BuildVersion, Extension, Node, node::UserAgentVersionType},
    stream::source::dialogue::SinkId,
};
use mixer_adapter_config::{MAX_TEXT, join_texts, truncate};

fn version_text(build: &BuildVersion) -> Option<String> {
    let version = build.version.as_ref()?;
    Some(format!("{}.{}.{}", version.major_number, version.minor_number, version.patch))
}

fn name_and_version(extension: &Extension) -> String {
    match extension.version.as_ref().and_then(version_text) {
        Some(version) => format!("{} {version}", extension.name),
        None => extension.name.clone(),
    }
}

/// Returns the identity of a client, for observers of the source: its location, its program, and its extensions with
/// their versions.
pub(super) fn sink_id(node: &Node) -> SinkId {
    let locality = node.locality.clone().unwrap_or_default();
    let locality = [locality.region, locality.zone, locality.sub_zone];
    let locality: Vec<&str> = locality.iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
    let version = match &node.user_agent_version_type {
        Some(UserAgentVersionType::UserAgentVersion(version)) => version.clone(),
        Some(UserAgentVersionType::UserAgentBuildVersion(version)) => {
            version_text(version).unwrap_or_default()
        }
        None => node.build_version.clone(),
    };
    // Envoys have hundreds.
    let extensions = join_texts(node.extensions.iter().map(name_and_version));
    let annotations = [
        ("cluster", node.cluster.clone()),
        ("locality", locality.join("/")),
        ("user_agent_name", node.user_agent_name.clone()),
        ("user_agent_version", version),
        ("extensions", extensions),
    ];
    let given = annotations.into_iter().filter(|(_, value)| !value.is_empty());
    let annotations: BTreeMap<_, _> =
        given.map(|(key, value)| (key.to_owned(), truncate(&value, MAX_TEXT))).collect();
    SinkId { id: truncate(&node.id, MAX_TEXT), annotations }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::envoy::{config::core::v3::Locality, r#type::v3::SemanticVersion};

    #[test]
    fn a_node_is_shown_with_its_user_agent_and_extensions_with_versions() {
        let version = SemanticVersion { major_number: 1, minor_number: 9, patch: 2 };
        let build = BuildVersion { version: Some(version), ..BuildVersion::default() };
        let extension = |name: &str, version: Option<BuildVersion>| Extension {
            name: name.to_owned(),
            version,
            ..Extension::default()
        };
        let node = Node {
            id: "edge-1".to_owned(),
            cluster: "edge".to_owned(),
            locality: Some(Locality { region: "eu".to_owned(), zone: "a".to_owned(), ..Locality::default() }),
            user_agent_name: "envoy".to_owned(),
            user_agent_version_type: Some(UserAgentVersionType::UserAgentBuildVersion(build.clone())),
            extensions: vec![extension("router", Some(build)), extension("lua", None)],
            ..Node::default()
        };
        let sink = sink_id(&node);
        let shown: Vec<_> = sink.annotations.iter().map(|(key, value)| format!("{key}={value}")).collect();
        assert_eq!(sink.id, "edge-1");
        assert_eq!(
            shown,
            [
                "cluster=edge",
                "extensions=router 1.9.2; lua",
                "locality=eu/a",
                "user_agent_name=envoy",
                "user_agent_version=1.9.2",
            ]
        );
    }
}

//! Resources in Envoy's file format: a `DiscoveryResponse` whose resources have an `@type`
//! (docs/behaviour/xds.md#files).

use std::sync::Arc;

use serde_json::Value as Json;

use crate::{
    annotations::{ALIASES, SELECTOR, TTL},
    collection::Collection,
    document::Document,
    envoy::successor,
    lines::Lines,
    name::{Kind, ResourceName},
    parsed::Parsed,
    resource::Resource,
    validation_error::{Origin, ValidationError},
};

const RESOURCES: &str = "resources";
const TYPE: &str = "@type";
/// An additional field: the nodes that can see the resources.
const NODE: &str = "node";
/// The wrapper of a resource for its names and time to live (docs/behaviour/xds.md#ttl).
const ENVELOPE: &str = "envoy.service.discovery.v3.Resource";

/// The fields of an envelope. The version of a resource is made from its content.
const ENVELOPED: [&str; 6] = [TYPE, "name", "aliases", "ttl", "resource", NODE];

/// The fields of the message, in both cases.
const FIELDS: [&str; 13] = [
    "version_info",
    "versionInfo",
    RESOURCES,
    "canary",
    "type_url",
    "typeUrl",
    "nonce",
    "control_plane",
    "controlPlane",
    "resource_errors",
    "resourceErrors",
    TYPE,
    NODE,
];

/// Returns whether a document is a response. Kustomize has `resources` in its files, too, but those are paths.
pub(super) fn is_response(json: &Json) -> bool {
    let Some(fields) = json.as_object() else { return false };
    let resources = fields.get(RESOURCES).and_then(Json::as_array);
    resources.is_some_and(|items| items.iter().all(Json::is_object))
        && fields.keys().all(|field| FIELDS.contains(&field.as_str()))
}

/// Returns whether a document is a single message, with its type.
pub(super) fn is_message(json: &Json) -> bool {
    json.get(TYPE).is_some_and(Json::is_string) && json.get("kind").is_none()
}

/// Reads the resource that a document is. Its faults are warnings, because Mixer does not use it.
pub(super) fn read_message(document: Document, source: &Arc<str>) -> Parsed {
    let mut parsed = Parsed::default();
    match resource(document.json, document.lines, source) {
        Ok(resource) => parsed.resources.push(Arc::new(resource)),
        Err(fault) => parsed.faults.push(fault),
    }
    parsed
}

/// Fields that only one message of Envoy has at its top, and the message.
const FIELDS_OF: [(&str, &str); 6] = [
    ("virtual_hosts", "envoy.config.route.v3.RouteConfiguration"),
    ("virtualHosts", "envoy.config.route.v3.RouteConfiguration"),
    ("filter_chains", "envoy.config.listener.v3.Listener"),
    ("load_assignment", "envoy.config.cluster.v3.Cluster"),
    ("lb_policy", "envoy.config.cluster.v3.Cluster"),
    ("cluster_name", "envoy.config.endpoint.v3.ClusterLoadAssignment"),
];

/// Fields of other messages of Envoy that are one resource, and its message.
const FIELDS_WITH: [(&str, &str); 4] = [
    ("route_config", "envoy.config.route.v3.RouteConfiguration"),
    ("routeConfig", "envoy.config.route.v3.RouteConfiguration"),
    ("load_assignment", "envoy.config.endpoint.v3.ClusterLoadAssignment"),
    ("loadAssignment", "envoy.config.endpoint.v3.ClusterLoadAssignment"),
];

/// Returns Envoy's message with these fields, if a field identifies it.
fn by_fields(json: &Json) -> Option<&'static str> {
    FIELDS_OF.iter().find(|(field, _)| json.get(field).is_some()).map(|(_, message)| *message)
}

/// Returns the correction of a document without a kind, if it looks like a part of Envoy's configuration.
pub(super) fn hint(json: &Json) -> Option<String> {
    let fields = json.as_object()?;
    let only = fields.iter().next().filter(|_| fields.len() == 1);
    let inner = only.and_then(|(name, inner)| {
        let by_name = FIELDS_WITH.iter().find(|(field, _)| field == name).map(|(_, message)| *message);
        Some((name, by_name.filter(|_| inner.is_object()).or_else(|| by_fields(inner))?))
    });
    if let Some((name, message)) = inner {
        return Some(format!(
            "write the content of {name} at the top of the document, with '@type': type.googleapis.com/{message}"
        ));
    }
    by_fields(json).map(|message| format!("if it is a {message}, add '@type': type.googleapis.com/{message}"))
}

/// Reads the resources of a document. Their faults are warnings that do not affect others, because Mixer does not use
/// them.
pub(super) fn read(mut document: Document, source: &Arc<str>) -> Parsed {
    let mut lines = document.lines.take(&document.json, RESOURCES);
    let Json::Array(items) = document.json[RESOURCES].take() else { return Parsed::default() };
    let nodes = document.json[NODE].take();
    let mut parsed = Parsed::default();
    for (index, (mut json, lines)) in items.into_iter().zip(&mut lines.children).enumerate() {
        if let (Json::Object(fields), false) = (&mut json, nodes.is_null()) {
            fields.entry(NODE).or_insert_with(|| nodes.clone());
        }
        match resource(json, std::mem::take(lines), source) {
            Ok(resource) => parsed.resources.push(Arc::new(resource)),
            Err(fault) => {
                let field = format!("{RESOURCES}[{index}].{}", fault.field);
                parsed.faults.push(fault.in_field(field));
            }
        }
    }
    parsed
}

fn resource(mut json: Json, mut lines: Lines, source: &Arc<str>) -> Result<Resource, ValidationError> {
    let message = json.get(TYPE).and_then(Json::as_str).and_then(|url| url.rsplit('/').next());
    if message == Some(ENVELOPE) {
        let own = lines.take(&json, "resource");
        let envelope = std::mem::take(&mut json);
        return enveloped(&envelope, &lines, own, source);
    }
    bare(json, lines, source, None)
}

/// Reads the resource that a message is, with its own name unless another one is given.
fn bare(
    json: Json,
    lines: Lines,
    source: &Arc<str>,
    given: Option<&str>,
) -> Result<Resource, ValidationError> {
    let wrong = |field, reason: String| {
        Err(ValidationError::warning(reason).at(source, lines.of_field(&json, field)).in_field(field))
    };
    let text = |field: &str| json.get(field).and_then(Json::as_str).filter(|text| !text.is_empty());
    let Some(type_url) = text(TYPE) else {
        return wrong(
            TYPE,
            "no type is given, such as type.googleapis.com/envoy.config.cluster.v3.Cluster".to_owned(),
        );
    };
    let Some((_, message)) = type_url.rsplit_once('/') else {
        return wrong(TYPE, format!("{type_url:?} is not a type URL; write type.googleapis.com/{type_url}"));
    };
    let (field, camel) = match message.rsplit('.').next() {
        Some("ClusterLoadAssignment") => ("cluster_name", "clusterName"),
        _ => ("name", "name"),
    };
    let Some(name) = given.or_else(|| text(field)).or_else(|| text(camel)) else {
        return wrong(field, format!("a {message} is called by its {field}, and it has none"));
    };
    let name = ResourceName::new(name, Kind::Other(message.into()), "");
    // Version 2 of Envoy's API shares the collections of version 3.
    let collection = Collection::of_message(message)
        .unwrap_or_else(|| Collection::new(successor(message).unwrap_or(message)));
    let mut spec = json;
    let nodes = spec.as_object_mut().and_then(|fields| fields.remove(NODE));
    Ok(Resource {
        annotations: nodes.map(|nodes| (SELECTOR.to_owned(), nodes.to_string())).into_iter().collect(),
        origin: Origin { source: source.clone(), line: lines.line, column: lines.column },
        lines,
        ..Resource::new(name, collection, spec, source)
    })
}

/// Reads the resource in an envelope, with the name of the envelope. Its time to live and its aliases become
/// annotations.
fn enveloped(
    envelope: &Json,
    lines: &Lines,
    own: Lines,
    source: &Arc<str>,
) -> Result<Resource, ValidationError> {
    let wrong = |field, reason: String| {
        Err(ValidationError::warning(reason).at(source, lines.of_field(envelope, field)).in_field(field))
    };
    let unknown = envelope
        .as_object()
        .and_then(|fields| fields.keys().find(|field| !ENVELOPED.contains(&field.as_str())));
    if let Some(field) = unknown {
        return wrong(
            TYPE,
            format!("an {ENVELOPE} of a file has no field {field:?}; it has {}", ENVELOPED.join(", ")),
        );
    }
    let inner = envelope.get("resource").filter(|inner| inner.is_object());
    let Some(inner) = inner.filter(|inner| inner[TYPE].as_str().is_none_or(|url| !url.ends_with(ENVELOPE)))
    else {
        return wrong("resource", "no resource is given".to_owned());
    };
    let name = match &envelope["name"] {
        Json::Null => None,
        Json::String(name) if !name.is_empty() => Some(name.as_str()),
        name => return wrong("name", format!("expected a name, not {name}")),
    };
    let mut resource = bare(inner.clone(), own, source, name)?;
    for (field, annotation) in [(NODE, SELECTOR), ("ttl", TTL), ("aliases", ALIASES)] {
        let text = match &envelope[field] {
            Json::Null => continue,
            Json::String(text) => text.clone(),
            value => value.to_string(),
        };
        resource.annotations.insert(annotation.to_owned(), text);
    }
    Ok(resource)
}

#[cfg(test)]
mod tests {
    use crate::{parse::parse, parsed::Parsed};

    fn read(text: &str) -> (Vec<String>, Vec<String>) {
        let Parsed { resources, faults } = parse(text, "x.yaml", "default");
        let resources =
            resources.iter().map(|resource| format!("{} in {}", resource.name.name(), resource.collection));
        (resources.collect(), faults.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn resources_belong_to_the_collection_of_their_message_and_are_called_as_envoy_calls_them() {
        let text = "version_info: '1'\nresources:\n- '@type': type.googleapis.com/envoy.config.cluster.v3.Cluster\n  name: outbound|80||a.b\n\
                    - {'@type': type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment, clusterName: a/b c}\n";
        let clusters = "outbound|80||a.b in envoy.config.cluster.v3.Cluster";
        let endpoints = "a/b c in envoy.config.endpoint.v3.ClusterLoadAssignment";
        assert_eq!(read(text), (vec![clusters.to_owned(), endpoints.to_owned()], vec![]));
        let json = r#"{"resources": [{"@type": "type.googleapis.com/istio.networking.v1alpha3.Gateway", "name": "g"}]}"#;
        assert_eq!(read(json).0, ["g in istio/networking/v1alpha3/gateways"]);
    }

    #[test]
    fn a_broken_one_is_reported_with_its_line_and_costs_its_neighbours_nothing() {
        let text = "resources:\n- name: a\n- '@type': type.googleapis.com/envoy.config.cluster.v3.Cluster\n\
                    - {'@type': envoy.config.cluster.v3.Cluster, name: b}\n- {'@type': t/a.C, name: c}\n";
        let (resources, faults) = read(text);
        assert_eq!(resources, ["c in a.C"]);
        assert_eq!(
            faults,
            [
                "x.yaml:2: warning: resources[0].@type: no type is given, such as type.googleapis.com/envoy.config.cluster.v3.Cluster",
                "x.yaml:3: warning: resources[1].name: a envoy.config.cluster.v3.Cluster is called by its name, and it has none",
                "x.yaml:4: warning: resources[2].@type: \"envoy.config.cluster.v3.Cluster\" is not a type URL; write type.googleapis.com/envoy.config.cluster.v3.Cluster",
            ]
        );
    }

    #[test]
    fn a_document_that_is_one_message_is_a_resource() {
        let routes = "'@type': type.googleapis.com/envoy.config.route.v3.RouteConfiguration\nname: local_route\nvirtual_hosts: []\n";
        let expected = "local_route in envoy.config.route.v3.RouteConfiguration";
        assert_eq!(read(routes), (vec![expected.to_owned()], vec![]));
        let (_, faults) = read(
            "'@type': type.googleapis.com/envoy.config.route.v3.RouteConfiguration\nvirtual_hosts: []\n",
        );
        assert_eq!(
            faults,
            [
                "x.yaml:1: warning: name: a envoy.config.route.v3.RouteConfiguration is called by its name, and it has none"
            ]
        );
    }

    #[test]
    fn a_part_of_envoys_configuration_is_answered_with_what_to_write() {
        let of = "'@type': type.googleapis.com/envoy.config.route.v3.RouteConfiguration";
        for (text, hint) in [
            (
                "route_config:\n  name: local_route\n  virtual_hosts: []\n",
                format!("write the content of route_config at the top of the document, with {of}"),
            ),
            (
                "route_config:\n  name: local_route\n",
                format!("write the content of route_config at the top of the document, with {of}"),
            ),
            (
                "name: local_route\nvirtual_hosts: []\n",
                format!("if it is a envoy.config.route.v3.RouteConfiguration, add {of}"),
            ),
        ] {
            assert_eq!(read(text).1, [format!("x.yaml:1: kind: no kind is given; {hint}")]);
        }
    }

    #[test]
    fn what_only_looks_like_one_is_read_as_before() {
        let kustomization = "resources:\n- a.yaml\n";
        assert_eq!(read(kustomization).1, ["x.yaml:1: kind: no kind is given"]);
        assert_eq!(read("resources: []\nimages: []\n").1, ["x.yaml:1: kind: no kind is given"]);
    }
}

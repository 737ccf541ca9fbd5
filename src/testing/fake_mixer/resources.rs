//! The resources that every test has besides its own.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use serde_json::{Value as Json, json};

use mixer_adapter_config::{Collection, Kind, Resource, ResourceName};
use mixer_adapter_core::value::ValueType;
use mixer_adapter_engine::attribute::Vocabulary;
use mixer_adapter_host::handler::Adapters;

/// The namespace of resources without one, whose rules apply to every request.
pub(super) const NAMESPACE: &str = "istio-system";

pub(super) fn resource(kind: Kind, name: &str, spec: Json) -> Resource {
    let collection = Collection::of("config.istio.io/v1alpha2", &kind);
    Resource::new(ResourceName::new(name, kind, NAMESPACE), collection, spec, "the test")
}

/// The resource of a template.
pub(super) fn template(name: &str, descriptor: &[u8]) -> Resource {
    resource(Kind::Template, name, json!({ "descriptor": BASE64.encode(descriptor) }))
}

/// The resources of adapters and of their templates, as `mixer-adapter manifest` prints them.
pub(super) fn manifest(adapters: &Adapters, session_based: bool) -> Vec<Resource> {
    let templates = adapters.templates().map(|served| template(served.name, served.descriptor));
    let adapters = adapters.iter().map(|adapter| {
        let templates: Vec<&str> = adapter.templates.iter().map(|template| template.name).collect();
        let spec = json!({
            "description": adapter.description,
            "session_based": session_based,
            "templates": templates,
            "config": BASE64.encode(adapter.config_descriptor),
        });
        resource(Kind::Adapter, adapter.name, spec)
    });
    templates.chain(adapters).collect()
}

/// A manifest of the standard attributes and of additional ones.
pub(super) fn attributes(more: &BTreeMap<String, ValueType>) -> Resource {
    let mut standard = Vocabulary::new();
    standard.declare_standard();
    let standard = standard.iter().map(|declared| (declared.name.to_string(), declared.value_type));
    let more = more.iter().map(|(name, value_type)| (name.clone(), *value_type));
    let attributes: BTreeMap<String, Json> = standard
        .chain(more)
        .map(|(name, value_type)| (name, json!({ "value_type": value_type.as_str_name() })))
        .collect();
    resource(Kind::AttributeManifest, "the-test", json!({ "attributes": attributes }))
}

//! Attributes, templates and adapters of a configuration.

use std::{collections::BTreeMap, sync::Arc};

use prost_reflect::MessageDescriptor;

use super::index::{of_kind, resolve};
use crate::attribute::{ENVOY, Vocabulary, standard_attributes};
use mixer_adapter_config::{
    ConfigSet, Kind, Resource, ResourceName, Spec, ValidationError,
    proto::istio::mixer::adapter::model::v1beta1::Info,
};
use mixer_adapter_core::{
    framework::{
        dynamic::{DescriptorSet, DynamicTemplate},
        name::is_valid_name,
        optional_fields::message_with_optional_fields,
    },
    value::ValueType,
};

pub(super) type Templates = BTreeMap<ResourceName, Arc<DynamicTemplate>>;
pub(super) type Adapters = BTreeMap<ResourceName, AdapterSpec>;

/// An adapter resource, which describes an out-of-process adapter.
#[derive(Debug)]
pub(super) struct AdapterSpec {
    /// The templates it supports.
    pub(super) templates: Vec<Arc<DynamicTemplate>>,
    /// Its configuration message, if it has one.
    pub(super) params: Option<MessageDescriptor>,
    pub(super) session_based: bool,
}

/// The attributes that determine a request's namespace are used by the engine itself.
const IDENTITY: [&str; 3] = ["context.reporter.kind", "destination.namespace", "source.namespace"];

/// Returns the attributes that are declared without any attribute manifest.
pub fn standard() -> Vocabulary {
    vocabulary(&ConfigSet::default(), &mut Vec::new())
}

/// Merges the attributes of all manifests into a vocabulary; without any manifest, returns the standard one.
pub(super) fn vocabulary(set: &ConfigSet, faults: &mut Vec<ValidationError>) -> Vocabulary {
    let mut vocabulary = Vocabulary::new();
    let manifests = of_kind(set, Kind::AttributeManifest, faults);
    for (resource, spec) in &manifests {
        let Spec::AttributeManifest(manifest) = spec else { continue };
        for (name, info) in &manifest.attributes {
            let value_type = ValueType::try_from(info.value_type).unwrap_or_default();
            let field = format!("attributes[{name:?}].value_type");
            if value_type == ValueType::Unspecified {
                faults.push(resource.error(&field, "an attribute needs a type, STRING for example"));
            } else if let Err(conflict) = vocabulary.declare(name.as_str(), value_type) {
                let reason = format!(
                    "{} is declared as {} by another manifest; which of both counts would be chance",
                    conflict.name, conflict.first
                );
                faults.push(resource.error(&field, reason));
            }
        }
    }
    if manifests.is_empty() {
        vocabulary.declare_standard();
    }
    for name in IDENTITY {
        if vocabulary.find(name).is_none() {
            // Cannot conflict: it is not declared.
            let _ = vocabulary.declare(name, ValueType::String);
        }
    }
    for attribute in standard_attributes().filter(|attribute| attribute.produced_by == ENVOY) {
        // A declaration of a manifest remains in effect.
        let _ = vocabulary.declare(attribute.name, attribute.value_type);
    }
    vocabulary
}

pub(super) fn templates(set: &ConfigSet, faults: &mut Vec<ValidationError>) -> Templates {
    let mut templates = Templates::new();
    for (resource, spec) in of_kind(set, Kind::Template, faults) {
        let Spec::Template(template) = spec else { continue };
        match DescriptorSet::from_base64(&template.descriptor).and_then(|set| DynamicTemplate::new(&set)) {
            Ok(template) => {
                templates.insert(resource.name.clone(), Arc::new(template));
            }
            Err(error) => faults.push(resource.error("descriptor", error.to_string())),
        }
    }
    templates
}

/// Reads the adapters. As in Mixer, one with a name that is not valid is used; it is a fault nevertheless.
pub(super) fn adapters(
    set: &ConfigSet,
    templates: &Templates,
    faults: &mut Vec<ValidationError>,
) -> Adapters {
    let mut adapters = Adapters::new();
    for (resource, spec) in of_kind(set, Kind::Adapter, faults) {
        let Spec::Adapter(info) = spec else { continue };
        if !is_valid_name(resource.name.name()) {
            let reason = format!(
                "{:?} is not a valid name of an adapter; write at most 63 lower-case letters, digits and hyphens, such as my-adapter",
                resource.name.name()
            );
            faults.push(resource.error("", reason));
        }
        match adapter(set, resource, info, templates) {
            Ok(adapter) => {
                adapters.insert(resource.name.clone(), adapter);
            }
            Err(fault) => faults.push(*fault),
        }
    }
    adapters
}

/// As in Mixer, a template that does not resolve invalidates the whole adapter.
fn adapter(
    set: &ConfigSet,
    resource: &Resource,
    info: &Info,
    templates: &Templates,
) -> Result<AdapterSpec, Box<ValidationError>> {
    let namespace = resource.name.namespace();
    let mut served = Vec::new();
    for (index, reference) in info.templates.iter().enumerate() {
        let found = resolve(set, &Kind::Template, reference, namespace, templates);
        let (_, template) = found.map_err(|why| resource.error(&format!("templates[{index}]"), why))?;
        served.push(template.clone());
    }
    let params = match info.config.is_empty() {
        true => None,
        false => {
            let params = DescriptorSet::from_base64(&info.config).and_then(|set| set.params());
            let params = params.and_then(|params| message_with_optional_fields(&params));
            Some(params.map_err(|error| resource.error("config", error.to_string()))?)
        }
    };
    Ok(AdapterSpec { templates: served, params, session_based: info.session_based })
}

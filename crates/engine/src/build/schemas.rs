//! Attributes, templates and adapters of a configuration.

use std::sync::Arc;

use prost_reflect::MessageDescriptor;

use super::{Former, index::Index};
use crate::attribute::{ENVOY, Vocabulary, standard_attributes};
use mixer_adapter_config::{
    ConfigSet, Kind, Resource, Spec, ValidationError, proto::istio::mixer::adapter::model::v1beta1::Info,
};
use mixer_adapter_core::{
    framework::{
        dynamic::{DescriptorSet, DynamicTemplate},
        name::is_valid_name,
        optional_fields::message_with_optional_fields,
    },
    value::ValueType,
};

pub(super) type Templates = Index<Arc<DynamicTemplate>>;
pub(super) type Adapters = Index<AdapterSpec>;

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
    let declare = |resource: &Resource, spec: &Spec, faults: &mut Vec<ValidationError>| {
        let Spec::AttributeManifest(manifest) = spec else { return Err(Vec::new()) };
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
        Ok(())
    };
    let manifests = Index::read(set, Kind::AttributeManifest, faults, None, declare);
    if manifests.iter().next().is_none() {
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

pub(super) fn templates(
    set: &ConfigSet,
    former: Option<&Former<'_>>,
    faults: &mut Vec<ValidationError>,
) -> Templates {
    Index::read(
        set,
        Kind::Template,
        faults,
        former.map(|former| (&former.compiled.templates, &former.changed[..])),
        |resource, spec, _| {
            let Spec::Template(template) = spec else { return Err(Vec::new()) };
            let template =
                DescriptorSet::from_base64(&template.descriptor).and_then(|set| DynamicTemplate::new(&set));
            template.map(Arc::new).map_err(|error| vec![resource.error("descriptor", error.to_string())])
        },
    )
}

/// Reads the adapters. As in Mixer, an adapter whose name is not valid is used; it is a fault nevertheless.
pub(super) fn adapters(
    set: &ConfigSet,
    templates: &Templates,
    former: Option<&Former<'_>>,
    faults: &mut Vec<ValidationError>,
) -> Adapters {
    let former = former.filter(|former| templates.is_same(&former.compiled.templates));
    Index::read(
        set,
        Kind::Adapter,
        faults,
        former.map(|former| (&former.compiled.adapters, &former.changed[..])),
        |resource, spec, faults| {
            let Spec::Adapter(info) = spec else { return Err(Vec::new()) };
            if !is_valid_name(resource.name.name()) {
                let reason = format!(
                    "{:?} is not a valid name of an adapter; write at most 63 lower-case letters, digits and hyphens, such as my-adapter",
                    resource.name.name()
                );
                faults.push(resource.error("", reason));
            }
            adapter(set, resource, info, templates).map_err(|fault| vec![*fault])
        },
    )
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
        let found = templates.resolve(set, &Kind::Template, reference, namespace);
        let (_, template) = found.map_err(|why| resource.error(&format!("templates[{index}]"), why))?;
        served.push(template.clone());
    }
    let mut params = None;
    if !info.config.is_empty() {
        let message = DescriptorSet::from_base64(&info.config).and_then(|set| set.params());
        let message = message.and_then(|message| message_with_optional_fields(&message));
        params = Some(message.map_err(|error| resource.error("config", error.to_string()))?);
    }
    Ok(AdapterSpec { templates: served, params, session_based: info.session_based })
}

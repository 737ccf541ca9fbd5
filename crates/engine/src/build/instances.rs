//! Instances, compiled for their templates, and the bindings of attribute generators.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;

use super::{
    Former,
    annotations::quota_settings,
    faults::{compile, of_compilation, of_expression},
    index::{Index, language},
    schemas::Templates,
};
use crate::{
    attribute::Vocabulary,
    instance::{Instance, ParamsError, TemplateSource},
    output::Outputs,
    rules::Bindings,
};
use mixer_adapter_config::{self as config, ConfigSet, Kind, Resource, Spec, Target, ValidationError};
use mixer_adapter_core::{
    framework::{
        dynamic::{DescriptorError, DescriptorSet, DynamicTemplate},
        suggest::suggestion,
    },
    template::Variety,
};
use mixer_adapter_host::{Host, handler::Adapters};
use mixer_adapter_templates::STANDARD;

/// An instance as rules refer to it.
#[derive(Clone, Debug)]
pub(super) struct InstanceSpec {
    pub(super) instance: Arc<Instance>,
    pub(super) bindings: Option<Arc<Bindings>>,
}

impl InstanceSpec {
    pub(super) fn is_check(&self) -> bool {
        self.instance.template.variety() == Variety::Check
    }

    pub(super) fn is_quota(&self) -> bool {
        self.instance.template.variety() == Variety::Quota
    }

    /// Iterates over the slots of all attributes that the instance reads or its bindings set.
    pub(super) fn slots(&self) -> impl Iterator<Item = u32> {
        let bindings = self.bindings.iter().flat_map(|bindings| &bindings.attributes);
        let bound = bindings.flat_map(|(slot, _, expression)| expression.slots().chain([*slot]));
        self.instance.slots().chain(bound)
    }
}

pub(super) type Instances = Index<InstanceSpec>;

pub(super) fn read(
    set: &ConfigSet,
    templates: &Templates,
    vocabulary: &Arc<Vocabulary>,
    host: &Host,
    former: Option<&Former<'_>>,
    faults: &mut Vec<ValidationError>,
) -> Instances {
    let former = former.filter(|Former { compiled, .. }| {
        Arc::ptr_eq(vocabulary, &compiled.vocabulary) && templates.is_same(&compiled.templates)
    });
    let known = known_templates(host.adapters());
    Index::read(
        set,
        Kind::Instance,
        faults,
        former.map(|former| (&former.compiled.instances, &former.changed[..])),
        |resource, spec, faults| match spec {
            Spec::Instance(spec) => instance(set, resource, spec, templates, &known, vocabulary, faults),
            _ => Err(Vec::new()),
        },
    )
}

/// The descriptors of templates by name.
type Descriptors = BTreeMap<&'static str, &'static [u8]>;

/// Returns the templates of this program, to which `compiledTemplate` refers: the standard templates and the adapters' own.
pub fn known_templates(adapters: &Adapters) -> Descriptors {
    let served = adapters.templates().map(|template| (template.name, template.descriptor));
    STANDARD.iter().copied().chain(served).collect()
}

fn compiled_template(
    resource: &Resource,
    name: &str,
    known: &Descriptors,
) -> Result<Arc<DynamicTemplate>, Vec<ValidationError>> {
    let Some(&descriptor) = known.get(name) else {
        let known: Vec<&str> = known.keys().copied().collect();
        let reason = format!("there is no template {name:?} in this program; {}", suggestion(name, &known));
        return Err(vec![resource.error("compiled_template", reason)]);
    };
    decoded(descriptor).map_err(|error| vec![resource.error("compiled_template", error.to_string())])
}

/// Decodes a template of this program once: instances of one template are reported together.
fn decoded(descriptor: &'static [u8]) -> Result<Arc<DynamicTemplate>, DescriptorError> {
    static DECODED: Mutex<BTreeMap<&[u8], Arc<DynamicTemplate>>> = Mutex::new(BTreeMap::new());
    let mut decoded = DECODED.lock();
    if let Some(template) = decoded.get(descriptor) {
        return Ok(template.clone());
    }
    let template = Arc::new(DynamicTemplate::new(&DescriptorSet::decode(descriptor)?)?);
    decoded.insert(descriptor, template.clone());
    Ok(template)
}

fn instance(
    set: &ConfigSet,
    resource: &Resource,
    spec: &config::Instance,
    templates: &Templates,
    known: &Descriptors,
    vocabulary: &Arc<Vocabulary>,
    faults: &mut Vec<ValidationError>,
) -> Result<InstanceSpec, Vec<ValidationError>> {
    let (source, template) = match &spec.template {
        Target::Compiled(name) => (TemplateSource::Compiled, compiled_template(resource, name, known)?),
        Target::Resource(reference) => {
            let found = templates.resolve(set, &Kind::Template, reference, resource.name.namespace());
            (TemplateSource::Resource, found.map_err(|why| vec![resource.error("template", why)])?.1.clone())
        }
    };
    let params = spec.params.clone().unwrap_or_default();
    let name: Arc<str> = resource.name.to_string().into();
    let mut instance =
        Instance::compile(name, source, template.clone(), params, vocabulary, language(resource)).map_err(
            |faults| faults.iter().flat_map(|fault| param_faults(resource, fault)).collect::<Vec<_>>(),
        )?;
    instance.quota = quota_settings(resource, template.variety())?;
    for (path, text, expression) in instance.expressions() {
        faults.extend(of_expression(resource, &format!("params.{path}"), text, expression));
    }
    let bindings = match (template.variety(), template.output()) {
        (Variety::AttributeGenerator, Some(output)) => {
            Some(Arc::new(bindings(resource, &spec.attribute_bindings, output.clone(), vocabulary, faults)))
        }
        _ => None,
    };
    Ok(InstanceSpec { instance: Arc::new(instance), bindings })
}

fn param_faults(resource: &Resource, fault: &ParamsError) -> Vec<ValidationError> {
    let field = format!("params.{}", fault.field);
    match &fault.expression {
        Some((text, error)) => of_compilation(resource, &field, text, error).collect(),
        None => vec![resource.error(&field, fault.reason.as_str())],
    }
}

/// Compiles the bindings. As in Mixer, a binding that does not compile is dropped; it is a fault nevertheless.
fn bindings(
    resource: &Resource,
    expressions: &BTreeMap<String, String>,
    output: prost_reflect::MessageDescriptor,
    vocabulary: &Arc<Vocabulary>,
    faults: &mut Vec<ValidationError>,
) -> Bindings {
    let mut extended = Vocabulary::extending(vocabulary.clone());
    let outputs = Outputs::declare(output, "output", &mut extended);
    let extended = Arc::new(extended);
    let mut attributes = Vec::new();
    for (attribute, text) in expressions {
        let field = format!("attribute_bindings[{attribute:?}]");
        let Some(declared) = vocabulary.find(attribute) else {
            faults.push(resource.error(&field, format!("there is no attribute {attribute:?}")));
            continue;
        };
        let target = ("the attribute", declared.value_type);
        if let Some(expression) = compile(resource, &field, text, &extended, target, faults) {
            faults.extend(of_expression(resource, &field, text, &expression));
            attributes.push((declared.slot, declared.name.clone(), expression));
        }
    }
    Bindings { vocabulary: extended, outputs, attributes }
}

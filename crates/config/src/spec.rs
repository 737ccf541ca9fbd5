//! Interpreted specs: the messages of docs/behaviour/configuration.md#specs, read by their descriptors.

use std::{collections::BTreeMap, sync::LazyLock};

use prost_reflect::{DescriptorPool, MessageDescriptor};
use serde_json::{Map, Value as Json};

use crate::proto::DESCRIPTORS;
use crate::proto::istio::{
    mixer::adapter::model::v1beta1::{Info, Template},
    policy::v1beta1::{self, AttributeManifest, Connection, Rule},
};
use crate::{
    evolution::{Finding, findings},
    name::Kind,
    resource::Resource,
    validation_error::ValidationError,
};
use mixer_adapter_core::framework::json::read_json_all;

/// The spec of a resource, by its kind for Mixer.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Spec {
    /// The attributes that a part of the mesh produces.
    AttributeManifest(AttributeManifest),
    /// The schema of the input of adapters.
    Template(Template),
    /// A plugin.
    Adapter(Info),
    /// An adapter with a configuration.
    Handler(Handler),
    /// The expressions that build a template's instance from attributes.
    Instance(Instance),
    /// A condition with actions.
    Rule(Rule),
}

/// An adapter with a configuration: the spec of a `handler`, or of a legacy kind that is named after an adapter.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Handler {
    /// The adapter.
    pub adapter: Target,
    /// The adapter's configuration as written; `None` if missing, which differs from `{}`.
    pub params: Option<Map<String, Json>>,
    /// The address of the adapter, if it is not in this process.
    pub connection: Option<Connection>,
}

/// The expressions that build a template's instance: the spec of an `instance`, or of a legacy kind that is named after
/// a template.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Instance {
    /// The template.
    pub template: Target,
    /// An expression or a literal for each of the template's fields, as written. `None` without params: these crash a
    /// real Mixer, `{}` does not (docs/behaviour/configuration.md#what-ends-the-process).
    pub params: Option<Map<String, Json>>,
    /// For attribute generators: names of attributes, and expressions over the output.
    pub attribute_bindings: BTreeMap<String, String>,
}

/// The adapter of a handler or the template of an instance.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// Compiled in, by its own name: `compiledAdapter`, `compiledTemplate`.
    Compiled(String),
    /// A resource, by a reference that is resolved from the namespace of the referring resource.
    Resource(String),
}

static POOL: LazyLock<DescriptorPool> =
    LazyLock::new(|| DescriptorPool::decode(DESCRIPTORS).unwrap_or_default());

impl Spec {
    /// Returns the message of the spec of a kind; `None` for kinds that are not Mixer's own.
    pub fn message(kind: &Kind) -> Option<MessageDescriptor> {
        POOL.get_message_by_name(match kind {
            Kind::AttributeManifest => "istio.policy.v1beta1.AttributeManifest",
            Kind::Template => "istio.mixer.adapter.model.v1beta1.Template",
            Kind::Adapter => "istio.mixer.adapter.model.v1beta1.Info",
            Kind::Handler => "istio.policy.v1beta1.Handler",
            Kind::Instance => "istio.policy.v1beta1.Instance",
            Kind::Rule => "istio.policy.v1beta1.Rule",
            Kind::Other(_) => return None,
        })
    }

    /// Interprets the spec of a resource, or returns all its faults: field names are in snake or camel case, durations
    /// `90s` or in Go's form. An unknown field or a wrong type is an error, as in a real Mixer, and so is a resource
    /// that Mixer does not use. The findings are the deprecated fields in it.
    pub fn read(resource: &Resource) -> Result<(Self, Vec<Finding>), Vec<ValidationError>> {
        let Some(role) = resource.role() else {
            return Err(vec![resource.error("", "this kind is nothing to Mixer")]);
        };
        if let Kind::Other(compiled) = resource.name.kind() {
            return Ok((legacy(compiled, &role, resource), Vec::new()));
        }
        let Some(descriptor) = Self::message(&role) else {
            return Err(vec![resource.error("", "the program's own descriptors cannot be read")]);
        };
        let spec = resource.spec.clone();
        match role {
            Kind::AttributeManifest => message(resource, &descriptor, spec, Self::AttributeManifest),
            Kind::Template => message(resource, &descriptor, spec, Self::Template),
            Kind::Adapter => message(resource, &descriptor, spec, Self::Adapter),
            Kind::Handler => handler(resource, &descriptor, spec),
            Kind::Instance => instance(resource, &descriptor, spec),
            Kind::Rule | Kind::Other(_) => message(resource, &descriptor, spec, Self::Rule),
        }
    }
}

/// Makes the whole spec of a legacy resource the params of the adapter or template that its kind names.
fn legacy(compiled: &str, role: &Kind, resource: &Resource) -> Spec {
    let target = Target::Compiled(compiled.to_owned());
    let params = resource.spec.as_object().cloned();
    match role {
        Kind::Instance => {
            Spec::Instance(Instance { template: target, params, attribute_bindings: BTreeMap::new() })
        }
        _ => Spec::Handler(Handler { adapter: target, params, connection: None }),
    }
}

type Params = Map<String, Json>;
type Understood = Result<(Spec, Vec<Finding>), Vec<ValidationError>>;

fn handler(resource: &Resource, descriptor: &MessageDescriptor, spec: Json) -> Understood {
    let (params, rest) = split_params(resource, spec)?;
    let (read, found) = message(resource, descriptor, rest, |read: v1beta1::Handler| read)?;
    let adapter = target(resource, "adapter", read.compiled_adapter, read.adapter)?;
    Ok((Spec::Handler(Handler { adapter, params, connection: read.connection }), found))
}

fn instance(resource: &Resource, descriptor: &MessageDescriptor, spec: Json) -> Understood {
    let (params, rest) = split_params(resource, spec)?;
    let (read, found) = message(resource, descriptor, rest, |read: v1beta1::Instance| read)?;
    let template = target(resource, "template", read.compiled_template, read.template)?;
    let attribute_bindings = read.attribute_bindings;
    Ok((Spec::Instance(Instance { template, params, attribute_bindings }), found))
}

fn target(
    resource: &Resource,
    field: &str,
    compiled: String,
    named: String,
) -> Result<Target, Vec<ValidationError>> {
    let (field, reason) = match (compiled.is_empty(), named.is_empty()) {
        (false, true) => return Ok(Target::Compiled(compiled)),
        (true, false) => return Ok(Target::Resource(named)),
        (true, true) => ("", format!("spec names no {field}; give {field} or compiled_{field}")),
        (false, false) => (field, format!("compiled_{field} is given as well; leave one out")),
    };
    Err(vec![resource.error(field, reason)])
}

/// Separates the params as they are written from the rest of the spec: a Struct cannot distinguish absent params from
/// empty ones.
fn split_params(resource: &Resource, mut rest: Json) -> Result<(Option<Params>, Json), Vec<ValidationError>> {
    let params = rest.as_object_mut().and_then(|fields| fields.remove("params"));
    match params {
        None | Some(Json::Null) => Ok((None, rest)),
        Some(Json::Object(params)) => Ok((Some(params), rest)),
        Some(_) => Err(vec![resource.error("params", "expected an object")]),
    }
}

fn message<M: prost::Message + Default, S>(
    resource: &Resource,
    descriptor: &MessageDescriptor,
    json: Json,
    spec: impl FnOnce(M) -> S,
) -> Result<(S, Vec<Finding>), Vec<ValidationError>> {
    let read = read_json_all(descriptor, json).map_err(|errors| -> Vec<ValidationError> {
        errors.into_iter().map(|error| resource.error(&error.field, error.reason)).collect()
    })?;
    let found = findings(&read, None);
    let message = read.transcode_to().map_err(|error| vec![resource.error("", error.to_string())])?;
    Ok((spec(message), found))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::parse::parse;

    fn read(kind: &str, spec: &str) -> Result<Spec, String> {
        let text = format!(
            "apiVersion: config.istio.io/v1alpha2\nkind: {kind}\nmetadata: {{name: x, namespace: ns}}\nspec:\n{spec}"
        );
        let parsed = parse(&text, "x.yaml", "");
        assert_eq!(parsed.faults, [], "{text}");
        Spec::read(&parsed.resources[0]).map(|(spec, _)| spec).map_err(|faults| faults[0].to_string())
    }

    #[test]
    fn absent_params_are_distinct_from_empty_ones() {
        for (text, params) in [("", None), ("  params:\n", None), ("  params: {}\n", Some(Map::new()))] {
            let Spec::Instance(instance) = read("instance", &format!("  template: t\n{text}")).unwrap()
            else {
                panic!()
            };
            assert_eq!(instance.params, params, "{text:?}");
        }
    }

    #[test]
    fn handlers_are_read_in_both_cases_and_with_durations_in_both_forms() {
        let snake = "  compiled_adapter: denier\n  params: {code: 1}\n  connection: {address: \"h:1\", timeout: 1m30s}\n";
        let camel = "  compiledAdapter: denier\n  params: {code: 1}\n  connection: {address: \"h:1\", timeout: 90s}\n";
        let Spec::Handler(handler) = read("handler", snake).unwrap() else { panic!() };
        assert_eq!(Ok(Spec::Handler(handler.clone())), read("handler", camel));
        assert_eq!(handler.adapter, Target::Compiled("denier".to_owned()));
        assert_eq!(handler.params, json!({"code": 1}).as_object().cloned());
        assert_eq!(handler.connection.unwrap().timeout.unwrap().seconds, 90);
    }

    #[test]
    fn a_kind_named_after_a_template_or_adapter_has_its_params_for_a_spec() {
        let Spec::Instance(entry) = read("listentry", "  value: source.ip\n").unwrap() else { panic!() };
        assert_eq!(entry.template, Target::Compiled("listentry".to_owned()));
        assert_eq!(entry.params, json!({"value": "source.ip"}).as_object().cloned());
        let Spec::Handler(denier) = read("denier", "  status: {code: 7}\n").unwrap() else { panic!() };
        assert_eq!(denier.adapter, Target::Compiled("denier".to_owned()));
    }

    #[test]
    fn a_spec_that_cannot_be_read_names_the_line_and_the_field() {
        let cases = [
            (
                "rule",
                "  match: \"true\"\n  actoins: []\n",
                "x.yaml:6: x.rule.ns: spec.actoins: no such field; did you mean actions?",
            ),
            (
                "attributemanifest",
                "  attributes:\n    source.ip:\n      valueType: STRNG\n",
                "x.yaml:7: x.attributemanifest.ns: spec.attributes[\"source.ip\"].value_type: \"STRNG\" is not a value of ValueType; did you mean STRING?",
            ),
            (
                "handler",
                "  params: {}\n",
                "x.yaml:1: x.handler.ns: spec names no adapter; give adapter or compiled_adapter",
            ),
            (
                "instance",
                "  template: t\n  compiledTemplate: quota\n",
                "x.yaml:5: x.instance.ns: spec.template: compiled_template is given as well; leave one out",
            ),
            (
                "instance",
                "  template: t\n  params: [1]\n",
                "x.yaml:6: x.instance.ns: spec.params: expected an object",
            ),
            (
                "handler",
                "  adapter: a\n  connection:\n    address: h\n    timeout: 5\n",
                "x.yaml:8: x.handler.ns: spec.connection.timeout: expected a duration such as \"300ms\", \"5s\" or \"1m30s\"",
            ),
        ];
        for (kind, spec, reason) in cases {
            assert_eq!(read(kind, spec), Err(reason.to_owned()));
        }
    }
}

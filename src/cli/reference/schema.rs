//! JSON Schemas of resources, for editors: of a kind, with the params of each adapter and template, and of all kinds.

use std::collections::{BTreeMap, BTreeSet};

use prost_reflect::{FieldDescriptor, Kind as FieldKind, MessageDescriptor};
use serde_json::{Map, Value as Json, json};

use super::{
    item::{append, camel_case, in_order, value_kind},
    topics::Catalogue,
};
use mixer_adapter_config::{Collection, Kind, Spec};
use mixer_adapter_core::adapter::Declared;
use mixer_adapter_engine::FieldInput;

/// The draft that editors with a YAML server support best.
const DRAFT: &str = "http://json-schema.org/draft-07/schema#";
/// A duration as Go writes it.
const DURATION: &str = "^[-+]?([0-9]+(\\.[0-9]*)?|\\.[0-9]+)(ns|us|µs|ms|s|m|h)(([0-9]+(\\.[0-9]*)?|\\.[0-9]+)(ns|us|µs|ms|s|m|h))*$";

/// Returns the schema of documents of a kind, or of all kinds with `None`.
pub(super) fn of(kind: Option<&Kind>, catalogue: &Catalogue<'_>) -> Json {
    let mut writer = Writer { catalogue, definitions: BTreeMap::from([("metadata".to_owned(), metadata())]) };
    let mut schema = match kind {
        Some(kind) => writer.resource(kind),
        None => writer.any_resource(),
    };
    schema["$schema"] = DRAFT.into();
    schema["definitions"] = writer.definitions.into_iter().collect::<Map<_, _>>().into();
    schema
}

struct Writer<'a> {
    catalogue: &'a Catalogue<'a>,
    /// The schemas of messages, by their full names.
    definitions: BTreeMap<String, Json>,
}

impl Writer<'_> {
    /// Any resource of a kind of Mixer, or a list of such. Resources of other API groups are not described.
    fn any_resource(&mut self) -> Json {
        let mut kinds: Vec<Kind> = Kind::ALL.to_vec();
        let adapters = self.catalogue.adapters.iter().map(|adapter| adapter.name);
        let names = adapters.chain(self.catalogue.templates.keys().map(String::as_str));
        // The kinds that are named after an adapter or a template.
        let legacy = names.map(Kind::from).filter(|kind| Collection::of("", kind).role().is_some());
        kinds.extend(legacy);
        kinds.sort();
        kinds.dedup();
        let mut cases: Vec<Json> = Vec::new();
        for kind in &kinds {
            cases.push(when("kind", kind.as_str(), self.resource(kind)));
        }
        cases.push(when("kind", "List", json!({ "properties": { "items": array(json!({ "$ref": "#" })) } })));
        let ours = json!({
            "properties": { "kind": { "enum": names_and(&kinds, "List") } },
            "required": ["kind"],
            "allOf": cases,
        });
        let group = json!({ "properties": { "apiVersion": { "type": "string", "pattern": "^config\\.istio\\.io/|^v1$" } } });
        json!({ "title": "Resources of mixer-adapter", "type": "object", "if": group, "then": ours })
    }

    fn resource(&mut self, kind: &Kind) -> Json {
        let role = Collection::of("", kind).role();
        let (description, spec) = match (Spec::message(kind), role) {
            (Some(message), _) => {
                (self.catalogue.comments.of(message.full_name()), self.spec(kind, &message))
            }
            (None, Some(Kind::Handler)) => {
                (format!("A handler of the adapter {kind}."), self.adapter_params(kind.as_str()))
            }
            (None, _) => {
                (format!("An instance of the template {kind}."), self.template_params(kind.as_str()))
            }
        };
        json!({
            "title": kind.as_str(),
            "description": description,
            "type": "object",
            "properties": {
                "apiVersion": { "type": "string", "pattern": "^config\\.istio\\.io/", "default": "config.istio.io/v1alpha2" },
                "kind": { "const": kind.as_str() },
                "metadata": { "$ref": "#/definitions/metadata" },
                "spec": spec,
                "status": {},
            },
            "required": ["kind", "metadata"],
            "additionalProperties": false,
        })
    }

    fn spec(&mut self, kind: &Kind, message: &MessageDescriptor) -> Json {
        let mut spec = self.message(message);
        let (field, names): (_, Vec<String>) = match kind {
            Kind::Handler => {
                let names = self.catalogue.adapters.iter().map(|adapter| adapter.name.to_owned());
                ("compiled_adapter", names.collect())
            }
            Kind::Instance => ("compiled_template", self.catalogue.templates.keys().cloned().collect()),
            _ => return spec,
        };
        let mut cases = Vec::new();
        for name in &names {
            let params = match kind {
                Kind::Handler => self.adapter_params(name),
                _ => self.template_params(name),
            };
            let then = json!({ "properties": { "params": params } });
            cases.extend([field.to_owned(), camel_case(field)].map(|field| when(&field, name, then.clone())));
        }
        for field in [field.to_owned(), camel_case(field)] {
            spec["properties"][&field]["enum"] = names.clone().into();
        }
        spec["allOf"] = cases.into();
        spec
    }

    fn adapter_params(&mut self, name: &str) -> Json {
        let Some(adapter) = self.catalogue.adapters.find(name).cloned() else { return json!({}) };
        let is_new = !self.definitions.contains_key(adapter.config.full_name());
        let reference = self.reference(&adapter.config);
        if let Some(params) = self.definitions.get_mut(adapter.config.full_name()).filter(|_| is_new) {
            adapter.settings.iter().for_each(|declared| declare(params, &declared.field, declared));
        }
        reference
    }

    fn template_params(&mut self, name: &str) -> Json {
        let Some(template) = self.catalogue.templates.get(name) else { return json!({}) };
        let definition = format!("template.{name}");
        if !self.definitions.contains_key(&definition) {
            let schema = self.expressions(template.instance(), true);
            self.definitions.insert(definition.clone(), schema);
        }
        json!({ "$ref": format!("#/definitions/{definition}") })
    }

    /// A reference to the definition of a message.
    fn reference(&mut self, message: &MessageDescriptor) -> Json {
        let name = message.full_name().to_owned();
        if !self.definitions.contains_key(&name) {
            // The message may contain itself.
            self.definitions.insert(name.clone(), Json::Null);
            let schema = self.message(message);
            self.definitions.insert(name.clone(), schema);
        }
        json!({ "$ref": format!("#/definitions/{name}") })
    }

    /// A message as JSON: fields in snake or camel case.
    fn message(&mut self, message: &MessageDescriptor) -> Json {
        let mut properties = Map::new();
        for field in in_order(message) {
            let value = self.json(&value_kind(&field));
            self.property(&mut properties, &field, value);
        }
        self.object(message, properties)
    }

    /// The fields of an instance as expressions. The message itself has the name of the instance, which is not a param.
    fn expressions(&mut self, message: &MessageDescriptor, is_instance: bool) -> Json {
        let mut properties = Map::new();
        for field in in_order(message).filter(|field| !(is_instance && field.name() == "name")) {
            let kind = value_kind(&field);
            let value = match (FieldInput::of(&kind), &kind) {
                (Some(FieldInput::Fields), FieldKind::Message(inner)) => self.expressions(inner, false),
                (Some(FieldInput::Value(value_type)), _) => {
                    json!({ "type": "string", "description": format!("An expression of type {value_type}.") })
                }
                _ => json!({ "type": "string", "description": "An expression." }),
            };
            self.property(&mut properties, &field, value);
        }
        self.object(message, properties)
    }

    fn object(&self, message: &MessageDescriptor, properties: Map<String, Json>) -> Json {
        let mut schema = json!({ "type": "object", "properties": properties, "additionalProperties": false });
        let meaning = self.catalogue.comments.of(message.full_name());
        if !meaning.is_empty() {
            schema["description"] = meaning.into();
        }
        schema
    }

    fn property(&self, properties: &mut Map<String, Json>, field: &FieldDescriptor, value: Json) {
        let mut schema = match (field.is_map(), field.is_list()) {
            (true, _) => json!({ "type": "object", "additionalProperties": value }),
            (_, true) => array(value),
            // Draft 7 ignores keywords beside a reference.
            _ if value.get("$ref").is_some() => json!({ "allOf": [value] }),
            _ => value,
        };
        let meaning = self.catalogue.comments.of(field.full_name());
        if !meaning.is_empty() {
            schema["description"] = match schema.get("description").and_then(Json::as_str) {
                Some(what) => format!("{meaning} {what}").into(),
                None => meaning.into(),
            };
        }
        let camel = camel_case(field.name());
        if camel != field.name() {
            properties.insert(camel, schema.clone());
        }
        properties.insert(field.name().to_owned(), schema);
    }

    /// A value as proto3 JSON, with durations as Go writes them and attribute values in their short forms.
    fn json(&mut self, kind: &FieldKind) -> Json {
        match kind {
            FieldKind::Message(message) => match message.full_name() {
                "google.protobuf.Duration" => {
                    json!({ "type": "string", "pattern": DURATION, "examples": ["300ms", "5s", "1m30s"] })
                }
                "google.protobuf.Timestamp" => json!({ "type": "string", "format": "date-time" }),
                "google.protobuf.Struct" => json!({ "type": "object" }),
                "google.protobuf.Any" => json!({ "type": "object", "required": ["@type"] }),
                name if name.starts_with("google.protobuf.") => json!({}),
                name if name.starts_with("istio.policy.v1beta1.")
                    && message.get_field_by_name("value").is_some()
                    || name == "istio.policy.v1beta1.Value" =>
                {
                    json!({})
                }
                _ => self.reference(message),
            },
            FieldKind::Enum(values) => {
                let names: Vec<String> = values.values().map(|value| value.name().to_owned()).collect();
                json!({ "anyOf": [{ "enum": names }, { "type": "integer" }] })
            }
            FieldKind::Double | FieldKind::Float => json!({ "type": ["number", "string"] }),
            FieldKind::Bool => json!({ "type": "boolean" }),
            FieldKind::String | FieldKind::Bytes => json!({ "type": "string" }),
            _ => json!({ "type": ["integer", "string"], "pattern": "^[-+0-9.eE]+$" }),
        }
    }
}

fn metadata() -> Json {
    let texts = json!({ "type": "object", "additionalProperties": { "type": "string" } });
    json!({
        "type": "object",
        "properties": {
            "name": { "type": "string" },
            "namespace": { "type": "string" },
            "labels": texts,
            "annotations": texts,
        },
        "required": ["name"],
    })
}

/// The schema of objects in which a field has a value.
fn when(field: &str, value: &str, then: Json) -> Json {
    json!({ "if": { "properties": { field: { "const": value } }, "required": [field] }, "then": then })
}

fn array(items: Json) -> Json {
    json!({ "type": "array", "items": items })
}

fn names_and(kinds: &[Kind], last: &str) -> Vec<String> {
    kinds.iter().map(ToString::to_string).chain([last.to_owned()]).collect()
}

/// Adds the limits and the default that the settings of an adapter declare for the field at a path. Another field may refer to the
/// same message, and so the fields of a message are described beside the reference to it.
fn declare(schema: &mut Json, path: &str, declared: &Declared) {
    let (name, rest) = path.split_once('.').unwrap_or((path, ""));
    for name in BTreeSet::from([name.to_owned(), camel_case(name)]) {
        let field = &mut schema["properties"][name];
        if !rest.is_empty() {
            declare(field, rest, declared);
            continue;
        }
        if let Some(sentence) = declared.sentence() {
            let mut description = field["description"].as_str().unwrap_or_default().to_owned();
            append(&mut description, &sentence);
            field["description"] = description.into();
        }
        if let Some(default) = &declared.default {
            field["default"] = serde_json::from_str(default).unwrap_or_else(|_| default.clone().into());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mixer_adapter_core::adapter::{Access, Faults, InferredTypes};

    use super::*;

    #[test]
    fn fields_have_their_limits_and_defaults_at_any_depth() {
        let (types, access) = (InferredTypes::default(), Access::unrestricted());
        let mut faults = Faults::new(&types, &access);
        faults.number("attempts", Some(3_i32)).or(2);
        faults.text("name", "").required();
        let timeout = faults.duration("connection.read_timeout", None);
        timeout.at_least(Duration::from_secs(1)).or(Duration::from_secs(5));
        let connection = json!({ "allOf": [{ "$ref": "#/definitions/Connection" }] });
        let mut schema =
            json!({ "properties": { "name": { "description": "A name." }, "connection": connection } });
        for declared in faults.into_declared() {
            declare(&mut schema, &declared.field, &declared);
        }
        let timeout = json!({ "description": "Must be at least 1s.", "default": "5s" });
        let fields = json!({ "read_timeout": timeout, "readTimeout": timeout });
        let expected = json!({
            "attempts": { "default": 2 },
            "name": { "description": "A name. Required." },
            "connection": { "allOf": connection["allOf"], "properties": fields },
        });
        assert_eq!(schema["properties"], expected);
    }
}

//! The question to the service.

use mixer_adapter_templates::authorization::InstanceMsg;
use serde::Serialize;
use serde_json::{Map, Value as Json};

/// An access evaluation: subject, action, resource and context.
#[derive(Debug, Serialize)]
pub(super) struct Evaluation {
    subject: Entity,
    action: Action,
    resource: Entity,
    #[serde(skip_serializing_if = "Map::is_empty")]
    context: Map<String, Json>,
}

/// A subject or a resource.
#[derive(Debug, Serialize)]
struct Entity {
    #[serde(rename = "type")]
    entity_type: Json,
    id: Json,
    #[serde(skip_serializing_if = "Map::is_empty")]
    properties: Map<String, Json>,
}

#[derive(Debug, Serialize)]
struct Action {
    name: String,
    #[serde(skip_serializing_if = "Map::is_empty")]
    properties: Map<String, Json>,
}

impl Evaluation {
    /// Asks about an instance: may its subject perform the action of the method on the resource of the path?
    ///
    /// Properties of the action whose names begin with `resource.` or `context.` belong to these.
    pub(super) fn new(instance: &InstanceMsg, groups_property: &str) -> Self {
        let given = instance.subject.clone().unwrap_or_default();
        let mut subject = Entity::new("user", given.user);
        let groups = given.groups.split(',').map(str::trim).filter(|group| !group.is_empty());
        let groups: Vec<Json> = groups.map(Json::from).collect();
        if !groups.is_empty() {
            subject.properties.insert(groups_property.to_owned(), groups.into());
        }
        for (name, value) in given.properties {
            subject.set(&name, value.into());
        }
        let given = instance.action.clone().unwrap_or_default();
        let mut resource = Entity::new("route", given.path);
        for (name, text) in [("namespace", given.namespace), ("service", given.service)] {
            if !text.is_empty() {
                resource.properties.insert(name.to_owned(), text.into());
            }
        }
        let mut action = Action { name: given.method, properties: Map::new() };
        let mut context = Map::new();
        for (name, value) in given.properties {
            let value = Json::from(value);
            match name.split_once('.') {
                Some(("resource", name)) => resource.set(name, value),
                Some(("context", name)) => _ = context.insert(name.to_owned(), value),
                _ => _ = action.properties.insert(name, value),
            }
        }
        Self { subject, action, resource, context }
    }
}

impl Entity {
    fn new(entity_type: &str, id: String) -> Self {
        Self { entity_type: entity_type.into(), id: id.into(), properties: Map::new() }
    }

    fn set(&mut self, name: &str, value: Json) {
        match name {
            "type" => self.entity_type = value,
            "id" => self.id = value,
            _ => _ = self.properties.insert(name.to_owned(), value),
        }
    }
}

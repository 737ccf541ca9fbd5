//! The question to the service.

use mixer_adapter_templates::authorization::InstanceMsg;
use serde::Serialize;
use serde_json::{Map, Value as Json};

use super::{error::EvaluationError, params::EvaluationsSemantic, settings::AuthZenSettings};

/// The prefix of properties of the action that describe further evaluations.
const FURTHER: &str = "evaluations.";

/// The access evaluations of an instance.
#[derive(Debug, Serialize)]
pub(super) struct Question {
    #[serde(flatten)]
    first: Evaluation,
    /// All evaluations, if there are several. Parts that an element lacks come from `first`, whose own element is empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    evaluations: Vec<Evaluation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    options: Option<Options>,
}

#[derive(Debug, Serialize)]
struct Options {
    evaluations_semantic: &'static str,
}

/// An access evaluation: subject, action, resource and context.
#[derive(Debug, Default, Serialize)]
struct Evaluation {
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<Entity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    action: Option<Entity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource: Option<Entity>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    context: Map<String, Json>,
}

/// A subject or a resource, with a type and an id, or an action, with a name.
#[derive(Debug, Default, Serialize)]
struct Entity {
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    entity_type: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<Json>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    properties: Map<String, Json>,
}

impl Question {
    /// Asks about an instance: may its subject perform the action of the method on the resource of the path?
    ///
    /// Properties of the action whose names begin with `resource.` or `context.` belong to these. Those that begin with
    /// `evaluations.NAME.` belong to a further evaluation.
    ///
    /// # Errors
    ///
    /// Fails if a property of a further evaluation belongs to no part of it.
    pub(super) fn new(instance: &InstanceMsg, settings: &AuthZenSettings) -> Result<Self, EvaluationError> {
        let given = instance.subject.clone().unwrap_or_default();
        let mut subject = Entity::new("user", given.user);
        let groups = given.groups.split(',').map(str::trim).filter(|group| !group.is_empty());
        let groups: Vec<Json> = groups.map(Json::from).collect();
        if !groups.is_empty() {
            subject.properties.insert(settings.groups_property.clone(), groups.into());
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
        let action = Entity { name: Some(given.method.into()), ..Entity::default() };
        let mut first = Evaluation {
            subject: Some(subject),
            action: Some(action),
            resource: Some(resource),
            context: Map::new(),
        };
        let mut evaluations = Vec::new();
        let mut last_name: Option<String> = None;
        // Sorted by name, so that the properties of an evaluation follow each other.
        for (name, value) in given.properties {
            let Some(further) = name.strip_prefix(FURTHER) else {
                first.set_own(&name, value.into());
                continue;
            };
            let (evaluation, place) = further.split_once('.').unwrap_or((further, ""));
            if last_name.as_deref() != Some(evaluation) {
                last_name = Some(evaluation.to_owned());
                evaluations.push(Evaluation::default());
            }
            if !evaluations.last_mut().is_some_and(|last| last.set(place, value.into())) {
                return Err(EvaluationError::Property(name));
            }
        }
        if !evaluations.is_empty() {
            evaluations.insert(0, Evaluation::default());
        }
        let ends_early = settings.evaluations_semantic == EvaluationsSemantic::DenyOnFirstDeny;
        let options = Options { evaluations_semantic: "deny_on_first_deny" };
        let options = (ends_early && !evaluations.is_empty()).then_some(options);
        Ok(Self { first, evaluations, options })
    }

    /// Returns the number of evaluations.
    pub(super) fn len(&self) -> usize {
        self.evaluations.len().max(1)
    }
}

impl Evaluation {
    /// Sets a value by the name of a property of the action.
    fn set_own(&mut self, name: &str, value: Json) {
        if name.starts_with("resource.") || name.starts_with("context.") {
            self.set(name, value);
        } else {
            self.action.get_or_insert_default().properties.insert(name.to_owned(), value);
        }
    }

    /// Sets a value by its place in the evaluation. Returns whether it has such a place.
    fn set(&mut self, place: &str, value: Json) -> bool {
        match place.split_once('.') {
            None if place == "action" => self.action.get_or_insert_default().name = Some(value),
            Some(("action", name)) => {
                self.action.get_or_insert_default().properties.insert(name.to_owned(), value);
            }
            Some(("resource", name)) => self.resource.get_or_insert_default().set(name, value),
            Some(("context", name)) => _ = self.context.insert(name.to_owned(), value),
            _ => return false,
        }
        true
    }
}

impl Entity {
    fn new(entity_type: &str, id: String) -> Self {
        Self { entity_type: Some(entity_type.into()), id: Some(id.into()), ..Self::default() }
    }

    fn set(&mut self, name: &str, value: Json) {
        match name {
            "type" => self.entity_type = Some(value),
            "id" => self.id = Some(value),
            _ => _ = self.properties.insert(name.to_owned(), value),
        }
    }
}

use std::{collections::BTreeMap, sync::OnceLock};

use mixer_adapter_core::framework::digest::Digest;
use prost_types::Timestamp;
use serde_json::Value as Json;

use crate::{
    collection::Collection,
    difference::differences,
    evolution::Finding,
    lines::Lines,
    name::{Kind, ResourceName},
    validation_error::{Origin, ValidationError},
};

/// A resource with its name, its metadata, and its spec as JSON that is not decoded yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// The full name.
    pub name: ResourceName,
    /// The collection of the resource.
    pub collection: Collection,
    /// `metadata.creationTimestamp`.
    pub created: Option<Timestamp>,
    /// `metadata.labels`.
    pub labels: BTreeMap<String, String>,
    /// `metadata.annotations`.
    pub annotations: BTreeMap<String, String>,
    /// The spec, an object; for a resource without a spec, such as Envoy's, the whole resource.
    pub spec: Json,
    /// Fields of its sender's version of the API that this version does not have.
    pub unknown: Vec<Finding>,
    /// The position of its beginning.
    pub origin: Origin,
    pub(super) lines: Lines,
    /// The lines of annotations.
    pub(super) annotation_lines: BTreeMap<String, u32>,
    pub(super) digest: CachedDigest,
}

/// The digest of a resource as soon as it is needed. A clone has none, because its resource may be changed.
#[derive(Debug, Default)]
pub(super) struct CachedDigest(OnceLock<Digest>);

impl Clone for CachedDigest {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl PartialEq for CachedDigest {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for CachedDigest {}

impl Resource {
    /// Creates a resource without lines: made by a program, or received.
    pub fn new(name: ResourceName, collection: Collection, spec: Json, source: &str) -> Self {
        Self {
            name,
            collection,
            created: None,
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            spec,
            unknown: Vec::new(),
            origin: Origin { source: source.into(), line: 0, column: 0 },
            lines: Lines::default(),
            annotation_lines: BTreeMap::new(),
            digest: CachedDigest::default(),
        }
    }

    /// Returns a digest of its name, its metadata and its spec, which are not changed any more.
    pub(crate) fn digest(&self) -> &Digest {
        self.digest.0.get_or_init(|| {
            let created = self.created.map(|time| (time.seconds, time.nanos));
            let content = (created, &self.labels, &self.annotations, &self.spec);
            // Maps with text keys can always be written.
            let content = serde_json::to_vec(&content).unwrap_or_default();
            Digest::of([self.name.to_string().as_bytes(), &content])
        })
    }

    /// Returns whether it was received from a server or made by a program, and not read from a file in YAML or JSON.
    pub fn is_received(&self) -> bool {
        self.origin.line == 0
    }

    /// Returns its kind for Mixer (a legacy kind as its successor); `None` if Mixer does not use it.
    pub fn role(&self) -> Option<Kind> {
        self.collection.role()
    }

    /// Creates an error in a field of the spec, `actions[0].handler`; empty for the whole resource.
    pub fn error(&self, field: &str, reason: impl Into<Box<str>>) -> ValidationError {
        self.locate(field, ValidationError::error(reason))
    }

    /// Creates an error in the value of an annotation.
    pub fn annotation_error(&self, name: &str, reason: impl Into<Box<str>>) -> ValidationError {
        let line = self.annotation_lines.get(name).copied().unwrap_or(self.origin.line);
        let fault = ValidationError::error(reason).of(self.name.clone()).at(&self.origin.source, line);
        fault.in_field(format!("metadata.annotations[{name:?}]"))
    }

    /// Creates a warning about a field of the spec; empty for the whole resource.
    pub fn warning(&self, field: &str, reason: impl Into<Box<str>>) -> ValidationError {
        self.locate(field, ValidationError::warning(reason))
    }

    /// Creates a warning about a finding in the message of a field; empty for the whole spec.
    pub fn finding(&self, finding: &Finding, field: &str) -> ValidationError {
        let field =
            [field, &finding.field].iter().filter(|part| !part.is_empty()).copied().collect::<Vec<_>>();
        ValidationError {
            topic: finding.topic,
            deprecation: finding.deprecation.clone().map(Box::new),
            ..self.warning(&field.join("."), finding.reason.as_str())
        }
    }

    /// Describes the first fields of its spec that differ from an earlier one.
    pub(crate) fn changed_fields(&self, before: &Self) -> Vec<String> {
        let differing = differences(&before.spec, &self.spec).into_iter();
        let described = differing.map(|(field, values)| {
            let place = self.error(&field, "").origin.unwrap_or_else(|| self.origin.clone());
            format!("{field} of {} ({place}): {values}", self.name)
        });
        described.collect()
    }

    fn locate(&self, field: &str, fault: ValidationError) -> ValidationError {
        let fault = fault.of(self.name.clone());
        if field.is_empty() {
            return ValidationError { origin: Some(self.origin.clone()), ..fault };
        }
        let fault = fault.at(&self.origin.source, self.lines.of_field(&self.spec, field));
        if self.collection.is_of_messages() {
            return fault.in_field(field);
        }
        let separator = if field.starts_with('[') { "" } else { "." };
        fault.in_field(format!("spec{separator}{field}"))
    }
}

//! Parses text into resources.

use std::{collections::BTreeMap, ops::Range, sync::Arc, thread};

use prost_types::Timestamp;
use serde_json::{Map, Value as Json};

use crate::{
    collection::{self, Collection},
    discovery,
    document::{self, Boolean, Document},
    lines::Lines,
    name::{Kind, ResourceName},
    parsed::Parsed,
    resource::{CachedDigest, Resource},
    scope::is_cluster_scoped,
    validation_error::{Origin, Position, ValidationError},
};
use mixer_adapter_core::framework::suggest::suggest;

/// Reads resources from YAML or JSON.
///
/// The text contains documents with `kind`, `metadata.name` and `spec`, lists of them (`kind: List`, as kubectl
/// prints), or documents with `resources`, as in Envoy's own files. A resource without a namespace is of the default
/// one. `source` is the name of the text in faults, usually a path.
pub fn parse(text: &str, source: &str, default_namespace: &str) -> Parsed {
    let (mut read, mut edits) = (ParsedText::default(), Edits::default());
    let failure = read.replace(text.to_owned(), source, default_namespace, &mut edits).err();
    Parsed { resources: edits.new, faults: read.faults().cloned().chain(failure).collect() }
}

/// The resources by which the versions of texts differ.
#[derive(Debug, Default)]
pub(crate) struct Edits {
    /// Resources of documents that are gone.
    pub(crate) gone: Vec<Arc<Resource>>,
    /// Resources of new documents, in the order of the texts.
    pub(crate) new: Vec<Arc<Resource>>,
}

/// A text with the resources of each document, which the next version of the text shares where it has the same documents at the same
/// lines.
#[derive(Debug, Default)]
pub(crate) struct ParsedText {
    text: String,
    /// In the order of the text.
    documents: Vec<ParsedDocument>,
}

#[derive(Debug)]
struct ParsedDocument {
    first_line: u32,
    place: Range<usize>,
    parsed: Parsed,
}

/// The changed part of a text, in whole documents.
struct Changed {
    place: Range<usize>,
    first_line: u32,
    /// The documents of the former text in its place.
    former: Range<usize>,
}

impl ParsedText {
    /// Replaces the text, parses the documents that the former text does not have, and adds the differing resources to `edits`.
    ///
    /// # Errors
    /// The text cannot be read. There are no documents then.
    pub(crate) fn replace(
        &mut self,
        text: String,
        source: &str,
        default_namespace: &str,
        edits: &mut Edits,
    ) -> Result<(), ValidationError> {
        let text = match text.strip_prefix('\u{feff}') {
            Some(text) => text.to_owned(),
            None => text,
        };
        let Changed { place, first_line, former } = self.changed(&text);
        let mut after = self.documents.split_off(former.end);
        for document in &mut after {
            let start = document.place.start + text.len() - self.text.len();
            document.place = start..start + document.place.len();
        }
        let mut former = self.documents.split_off(former.start).into_iter().peekable();
        let mut new = Vec::new();
        for (line, within) in document::split(&text[place.clone()]) {
            let first_line = first_line + line - 1;
            let place = place.start + within.start..place.start + within.end;
            while let Some(gone) = former.next_if(|known| known.first_line < first_line) {
                edits.gone.extend(gone.parsed.resources);
            }
            let is_known = |known: &ParsedDocument| {
                known.first_line == first_line && self.text[known.place.clone()] == text[place.clone()]
            };
            let known = former.next_if(is_known);
            if known.is_none() {
                new.push(self.documents.len());
            }
            let parsed = known.map(|known| known.parsed).unwrap_or_default();
            self.documents.push(ParsedDocument { first_line, place, parsed });
        }
        edits.gone.extend(former.flat_map(|gone| gone.parsed.resources));
        let texts = new.iter().map(|index| &self.documents[*index]);
        let texts: Vec<_> = texts.map(|new| (new.first_line, &text[new.place.clone()])).collect();
        match parse_documents(&texts, source, default_namespace) {
            Ok(parsed) => {
                for (new, parsed) in new.into_iter().zip(parsed) {
                    edits.new.extend_from_slice(&parsed.resources);
                    self.documents[new].parsed = parsed;
                }
            }
            Err(fault) => {
                let gone = std::mem::take(self).documents.into_iter().chain(after);
                edits.gone.extend(gone.flat_map(|gone| gone.parsed.resources));
                return Err(fault);
            }
        }
        self.documents.append(&mut after);
        self.text = text;
        Ok(())
    }

    /// Compares a text with the former one. Equal lines before and after the change are equal documents, because lines separate
    /// documents. Only the last document before the change may have grown.
    fn changed(&self, text: &str) -> Changed {
        let (before, now) = (self.text.as_bytes(), text.as_bytes());
        let same = common_prefix(before, now);
        let same_lines = now[..same].iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let begun = self.documents.partition_point(|document| document.place.start < same_lines);
        let (start, first_line) = match self.documents[..begun].last() {
            Some(document) => (document.place.start, document.first_line),
            None => (0, 1),
        };
        let differing = before.len() - common_suffix(&before[same..], &now[same..]);
        let line_end = before[differing..].iter().position(|byte| *byte == b'\n');
        let last_lines = line_end.map_or(before.len(), |end| differing + end + 1);
        let mut end = self.documents.partition_point(|document| document.place.start < last_lines);
        let mut place = start..now.len();
        if let Some(document) = self.documents.get(end) {
            place.end -= before.len() - document.place.start;
            let lines = now[place.clone()].iter().filter(|byte| **byte == b'\n').count();
            if usize::try_from(document.first_line - first_line) != Ok(lines) {
                (end, place.end) = (self.documents.len(), now.len());
            }
        }
        Changed { place, first_line, former: begun.saturating_sub(1)..end }
    }

    /// Iterates over the resources of all documents.
    pub(crate) fn resources(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.documents.iter().flat_map(|document| &document.parsed.resources)
    }

    /// Iterates over the faults of all documents.
    pub(crate) fn faults(&self) -> impl Iterator<Item = &ValidationError> {
        self.documents.iter().flat_map(|document| &document.parsed.faults)
    }
}

/// The number of bytes that are compared at once.
const STEP: usize = 4096;

fn common_prefix(one: &[u8], other: &[u8]) -> usize {
    let steps = one.chunks_exact(STEP).zip(other.chunks_exact(STEP)).take_while(|(one, other)| one == other);
    let start = steps.count() * STEP;
    start + one[start..].iter().zip(&other[start..]).take_while(|(one, other)| one == other).count()
}

fn common_suffix(one: &[u8], other: &[u8]) -> usize {
    let steps =
        one.rchunks_exact(STEP).zip(other.rchunks_exact(STEP)).take_while(|(one, other)| one == other);
    let length = steps.count() * STEP;
    let rest = one[..one.len() - length].iter().rev().zip(other[..other.len() - length].iter().rev());
    length + rest.take_while(|(one, other)| one == other).count()
}

/// Parses documents, each with its first line, on a stack that is large enough for any caller.
///
/// # Errors
/// The thread of the stack cannot be started, or panicked.
fn parse_documents(
    texts: &[(u32, &str)],
    source: &str,
    default_namespace: &str,
) -> Result<Vec<Parsed>, ValidationError> {
    if texts.is_empty() {
        return Ok(Vec::new());
    }
    let mut parser = Parser {
        source: source.into(),
        default_namespace: default_namespace.into(),
        parsed: Parsed::default(),
    };
    let parsed = thread::scope(|scope| {
        let thread = thread::Builder::new().stack_size(document::STACK);
        let reading = thread.spawn_scoped(scope, || {
            texts.iter().map(|(first_line, text)| parser.parse(*first_line, text)).collect()
        });
        reading.map(|reading| reading.join())
    });
    let reason = match parsed {
        Ok(Ok(parsed)) => return Ok(parsed),
        Ok(Err(_)) => "the reader failed; please report this text as a bug".to_owned(),
        Err(error) => format!("no thread can be started to read it: {error}"),
    };
    Err(ValidationError::error(reason).at(&source.into(), 0))
}

struct Parser {
    source: Arc<str>,
    default_namespace: Arc<str>,
    parsed: Parsed,
}

impl Parser {
    /// Parses one document, which begins at a line of its text.
    fn parse(&mut self, first_line: u32, text: &str) -> Parsed {
        match Document::read(text, first_line) {
            Ok(Document { json: Json::Null, .. }) => {}
            Ok(document) => self.document(document),
            Err(error) => {
                let reason = format!("cannot be read: {}", error.reason);
                self.fault(error.position, ValidationError::error(reason));
            }
        }
        std::mem::take(&mut self.parsed)
    }

    fn document(&mut self, mut document: Document) {
        if discovery::is_response(&document.json) {
            let read = discovery::read(document, &self.source);
            self.parsed.resources.extend(read.resources);
            return self.parsed.faults.extend(read.faults);
        }
        if discovery::is_message(&document.json) {
            let read = discovery::read_message(document, &self.source);
            self.parsed.resources.extend(read.resources);
            return self.parsed.faults.extend(read.faults);
        }
        let is_list = document.json["kind"].as_str().is_some_and(|kind| kind.ends_with("List"));
        if !(is_list && document.json["items"].is_array()) {
            return self.resource(document);
        }
        let mut lines = document.lines.take(&document.json, "items");
        let Json::Array(items) = document.json["items"].take() else { return };
        for (index, (json, lines)) in items.into_iter().zip(&mut lines.children).enumerate() {
            let within = format!("items[{index}].");
            let mut booleans: Vec<_> =
                document.booleans.extract_if(.., |boolean| boolean.field.starts_with(&within)).collect();
            booleans.iter_mut().for_each(|boolean| _ = boolean.field.drain(..within.len()));
            self.resource(Document { json, lines: std::mem::take(lines), booleans });
        }
    }

    fn resource(&mut self, document: Document) {
        match self.read(document) {
            Ok(resource) => self.parsed.resources.push(Arc::new(resource)),
            Err(fault) => self.parsed.faults.push(fault),
        }
    }

    fn read(&mut self, document: Document) -> Result<Resource, ValidationError> {
        let Document { json, mut lines, booleans } = document;
        let refuse = |field: &str, fault: ValidationError| {
            fault.in_field(field).at(&self.source, lines.of_field(&json, field))
        };
        if !json.is_object() {
            return Err(refuse(
                "",
                ValidationError::error("expected a resource: an object with kind and metadata"),
            ));
        }
        let Some(kind) = json.get("kind").and_then(Json::as_str).map(Kind::from) else {
            return Err(refuse("kind", ValidationError::error(without_kind(&json))));
        };
        let api_version = json.get("apiVersion").and_then(Json::as_str).unwrap_or_default();
        if let Some(meant) = collection::meant_for_mixer(api_version) {
            let reason = format!("unknown API version {api_version}; did you mean {meant}?");
            return Err(refuse("apiVersion", ValidationError::error(reason)));
        }
        let is_mixers = collection::is_mixers(api_version);
        let spec = json.get("spec").unwrap_or(&Json::Null);
        if !is_mixers && collection::resembles_mixers(api_version, kind.as_str(), spec) {
            let reason = format!(
                "{kind} with these fields is a kind of Mixer, which would ignore it in {api_version}; write \
                 config.istio.io/v1alpha2"
            );
            return Err(refuse("apiVersion", ValidationError::error(reason)));
        }
        let identity = |field: &str, default: Option<&Arc<str>>| {
            let path = format!("metadata.{field}");
            let written = booleans.iter().find(|boolean| !boolean.is_key && boolean.field == path);
            let given = match written {
                Some(boolean) => Ok(Some(boolean.word.as_str())),
                None => text(json.pointer(&format!("/metadata/{field}"))),
            };
            identity(field, given, default).map_err(|error| {
                let reason = format!("{error}{}", identity_hint(&json, field));
                // Names of resources that are not for Mixer are not restricted.
                let fault =
                    if is_mixers { ValidationError::error(reason) } else { ValidationError::warning(reason) };
                refuse(&path, fault)
            })
        };
        // Mixer does not know resources without a namespace.
        let has_none = !is_mixers && json.pointer("/metadata/namespace").and_then(Json::as_str) == Some("");
        let namespace = if has_none || is_cluster_scoped(api_version, kind.as_str()) {
            "".into()
        } else {
            identity("namespace", Some(&self.default_namespace))?
        };
        let name = ResourceName::new(identity("name", None)?, kind, namespace);
        let created = creation_time(&json).unwrap_or_else(|fault| {
            self.parsed.faults.push(refuse("metadata.creationTimestamp", fault.of(name.clone())));
            None
        });
        let spec = match json.get("spec") {
            None | Some(Json::Null) => Json::Object(Map::new()),
            Some(spec @ Json::Object(_)) => spec.clone(),
            Some(_) => return Err(refuse("spec", ValidationError::error("expected an object").of(name))),
        };
        let collection = Collection::of(api_version, name.kind());
        if is_mixers {
            self.oddities(&name, &collection, &json, &lines, &booleans);
        }
        let annotations = texts(&json, "annotations");
        Ok(Resource {
            name,
            collection,
            created,
            labels: texts(&json, "labels"),
            digest: CachedDigest::default(),
            annotation_lines: annotations
                .keys()
                .map(|name| {
                    let field = format!("metadata.annotations[{name:?}]");
                    (name.clone(), lines.of_field(&json, &field).line)
                })
                .collect(),
            annotations,
            spec,
            unknown: Vec::new(),
            origin: Origin { source: self.source.clone(), line: lines.line, column: lines.column },
            lines: match json.get("spec") {
                Some(_) => lines.take(&json, "spec"),
                // A missing part is a fault of the resource.
                None => Lines::leaf(Position { line: lines.line, column: lines.column }),
            },
        })
    }

    /// Finds values that a real Mixer reads in another way than they look.
    fn oddities(
        &mut self,
        name: &ResourceName,
        collection: &Collection,
        json: &Json,
        lines: &Lines,
        booleans: &[Boolean],
    ) {
        if let (None, Kind::Other(kind)) = (collection.kind(), name.kind()) {
            let known = Kind::ALL.iter().map(Kind::as_str).chain(collection::legacy_kinds());
            // A resource with a misspelled kind is meant for Mixer: without it, a rule that denies would be missing.
            let fault = match suggest(kind, known) {
                Some(meant) => ValidationError::error(format!("unknown kind {kind}; did you mean {meant}?")),
                None => ValidationError::warning("nothing here reads this kind"),
            };
            self.fault(lines.of_field(json, "kind"), fault.of(name.clone()).in_field("kind"));
        }
        for field in json.as_object().into_iter().flat_map(Map::keys) {
            const READ: [&str; 5] = ["apiVersion", "kind", "metadata", "spec", "status"];
            if !READ.contains(&field.as_str()) {
                let reason = match suggest(field, READ) {
                    Some(meant) => format!("is not read; did you mean {meant}?"),
                    None => "is not read; does it belong under spec?".to_owned(),
                };
                let fault = ValidationError::warning(reason).of(name.clone()).in_field(field.as_str());
                self.fault(lines.of_field(json, field), fault);
            }
        }
        for boolean in booleans {
            let (word, truth) = (&boolean.word, boolean.truth);
            let reason = match (boolean.is_key, boolean.field.as_str()) {
                (true, _) => format!("a real Mixer reads the name {word} as {truth}; quote it"),
                (_, "metadata.name" | "metadata.namespace") => {
                    format!("a real Mixer reads {word} as {truth} and loses the resource; quote it")
                }
                _ => format!("{word} is read as {truth}; write {truth}, or quote it if the text is meant"),
            };
            self.fault(
                boolean.line,
                ValidationError::warning(reason).of(name.clone()).in_field(boolean.field.as_str()),
            );
        }
    }

    fn fault(&mut self, position: impl Into<Position>, fault: ValidationError) {
        self.parsed.faults.push(fault.at(&self.source, position));
    }
}

/// Describes the fault of a document without a kind.
fn without_kind(json: &Json) -> String {
    let hint = match misspelled(json, "kind") {
        Some(key) => format!("; write kind in place of {key}"),
        None => discovery::hint(json).map(|hint| format!("; {hint}")).unwrap_or_default(),
    };
    format!("no kind is given{hint}")
}

/// Returns the correction of a misspelled field of the metadata, or of the field `metadata`.
fn identity_hint(json: &Json, field: &str) -> String {
    let metadata = json.get("metadata").unwrap_or(&Json::Null);
    let key = misspelled(metadata, field).map(|key| (field, key));
    let key = key.or_else(|| Some(("metadata", misspelled(json, "metadata")?)));
    key.map(|(field, key)| format!("; write {field} in place of {key}")).unwrap_or_default()
}

/// The reason why a name or a namespace is invalid.
#[derive(Debug, thiserror::Error)]
enum IdentityError {
    #[error("expected text, not {0}; quote it")]
    NotText(Json),
    #[error("no {0} is given")]
    Missing(String),
    #[error("{0:?} is not a valid name; use letters, digits, hyphens, underscores and dots")]
    Name(Arc<str>),
    #[error("{0:?} is not a valid namespace; use letters, digits, hyphens and underscores")]
    Namespace(Arc<str>),
}

/// `metadata.name` or `metadata.namespace`.
fn identity(
    field: &str,
    given: Result<Option<&str>, IdentityError>,
    default: Option<&Arc<str>>,
) -> Result<Arc<str>, IdentityError> {
    let name = match (given, default) {
        (Err(error), _) => return Err(error),
        (Ok(Some(name)), _) => name.into(),
        (Ok(None), Some(default)) => default.clone(),
        (Ok(None), None) => return Err(IdentityError::Missing(field.to_owned())),
    };
    match field {
        "name" if is_valid(&name) => Ok(name),
        "name" => Err(IdentityError::Name(name)),
        // A path in a hierarchy of any depth.
        _ => {
            let path = name.strip_prefix('/').unwrap_or(&name);
            if path.split('/').all(|part| is_valid(part) && !part.contains('.')) {
                Ok(if path.len() < name.len() { path.into() } else { name })
            } else {
                Err(IdentityError::Namespace(name))
            }
        }
    }
}

fn text(json: Option<&Json>) -> Result<Option<&str>, IdentityError> {
    match json {
        None | Some(Json::Null) => Ok(None),
        Some(Json::String(text)) => Ok(Some(text)),
        Some(other) => Err(IdentityError::NotText(other.clone())),
    }
}

/// Reads the time at which a resource was created.
///
/// # Errors
/// A warning: a time that cannot be read is not served.
fn creation_time(json: &Json) -> Result<Option<Timestamp>, ValidationError> {
    let unreadable = "expected a time like 2019-03-19T10:00:00Z; it is not served";
    match text(json.pointer("/metadata/creationTimestamp")) {
        Ok(None) => Ok(None),
        Ok(Some(time)) => time.parse().map(Some).map_err(|_| ValidationError::warning(unreadable)),
        Err(_) => Err(ValidationError::warning(unreadable)),
    }
}

fn is_valid(name: &str) -> bool {
    (1..=253).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

/// Reads a map of strings in the metadata; other values are skipped.
fn texts(json: &Json, field: &str) -> BTreeMap<String, String> {
    let map = json.pointer(&format!("/metadata/{field}")).and_then(Json::as_object);
    let entries = map.into_iter().flatten();
    entries.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

/// Returns the field of an object that is meant to have this name, if it has none of the name.
fn misspelled<'j>(json: &'j Json, name: &str) -> Option<&'j str> {
    let fields = json.as_object().filter(|fields| !fields.contains_key(name))?;
    suggest(name, fields.keys().map(String::as_str))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

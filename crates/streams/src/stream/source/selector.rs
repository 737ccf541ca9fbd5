//! Selectors, by which resources are visible to some clients only.

use std::collections::BTreeMap;

use prost::Message as _;
use serde_json::{Map, Value as Json};

use crate::proto::envoy::config::core::v3::Node;
use mixer_adapter_config::annotations::SELECTOR;
use mixer_adapter_core::framework::{json::struct_to_json, suggest::suggest};

/// The maximum length of a node's metadata for selectors, in bytes. Longer metadata is ignored.
const MAX_METADATA: usize = 64 << 10;

/// The part of a client's node that decides what it can see.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct NodeView {
    id: String,
    cluster: String,
    region: String,
    zone: String,
    sub_zone: String,
    metadata: Map<String, Json>,
}

impl NodeView {
    pub(crate) fn of(node: &Node) -> Self {
        let locality = node.locality.clone().unwrap_or_default();
        let metadata = node.metadata.as_ref().filter(|metadata| metadata.encoded_len() <= MAX_METADATA);
        Self {
            id: node.id.clone(),
            cluster: node.cluster.clone(),
            region: locality.region,
            zone: locality.zone,
            sub_zone: locality.sub_zone,
            metadata: metadata.cloned().map(struct_to_json).unwrap_or_default(),
        }
    }

    /// Returns its approximate size in bytes.
    pub(crate) fn size(&self) -> usize {
        let texts = [&self.id, &self.cluster, &self.region, &self.zone, &self.sub_zone];
        texts.iter().map(|text| text.len()).sum::<usize>()
            + self.metadata.iter().map(field_size).sum::<usize>()
    }
}

fn field_size((key, value): (&String, &Json)) -> usize {
    size_of::<String>() + key.len() + value_size(value)
}

fn value_size(value: &Json) -> usize {
    let within = match value {
        Json::Null | Json::Bool(_) | Json::Number(_) => 0,
        Json::String(text) => text.len(),
        Json::Array(items) => items.iter().map(value_size).sum(),
        Json::Object(fields) => fields.iter().map(field_size).sum(),
    };
    size_of::<Json>() + within
}

/// The nodes that can see a resource. All conditions have to hold.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Selector {
    id: Patterns,
    cluster: Patterns,
    region: Patterns,
    zone: Patterns,
    sub_zone: Patterns,
    metadata: Map<String, Json>,
}

/// Alternative patterns; without any, everything matches. A `*` at the beginning or the end matches
/// anything.
#[derive(Clone, Debug, Default, PartialEq)]
struct Patterns(Option<Vec<String>>);

/// The reason why a selector is invalid.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SelectorError {
    #[error("{0:?} is not a selector of nodes; write it like {{id: \"edge-*\", locality: {{zone: a}}}}")]
    NotAnObject(String),
    #[error("a selector of nodes has no field {field:?}{}", .similar.as_ref().map(|name| format!("; did you mean {name}?")).unwrap_or_default())]
    UnknownField { field: String, similar: Option<String> },
    #[error("{field}: expected text or a list of texts, not {value}")]
    NotText { field: String, value: String },
}

const FIELDS: [&str; 4] = ["id", "cluster", "locality", "metadata"];
const LOCALITY: [&str; 3] = ["region", "zone", "sub_zone"];

impl Selector {
    /// Returns the selector of a resource with these annotations, if it has one.
    pub(crate) fn of(annotations: &BTreeMap<String, String>) -> Result<Option<Self>, SelectorError> {
        let Some(text) = annotations.get(SELECTOR) else { return Ok(None) };
        let wrong = || SelectorError::NotAnObject(text.clone());
        let Ok(Json::Object(fields)) = serde_saphyr::from_str(text) else { return Err(wrong()) };
        let mut selector = Self::default();
        for (field, value) in fields {
            match (field.as_str(), value) {
                ("id", value) => selector.id = Patterns::read("id", value)?,
                ("cluster", value) => selector.cluster = Patterns::read("cluster", value)?,
                ("locality", Json::Object(parts)) => selector.locality(parts)?,
                ("metadata", Json::Object(metadata)) => selector.metadata = metadata,
                ("locality" | "metadata", _) => return Err(wrong()),
                _ => return Err(unknown(&field, &FIELDS)),
            }
        }
        Ok(Some(selector))
    }

    /// Creates a selector that selects no node.
    pub(crate) fn none() -> Self {
        Self { id: Patterns(Some(Vec::new())), ..Self::default() }
    }

    fn locality(&mut self, parts: Map<String, Json>) -> Result<(), SelectorError> {
        for (part, value) in parts {
            let patterns = match part.as_str() {
                "region" => &mut self.region,
                "zone" => &mut self.zone,
                "sub_zone" => &mut self.sub_zone,
                _ => return Err(unknown(&part, &LOCALITY)),
            };
            *patterns = Patterns::read(&part, value)?;
        }
        Ok(())
    }

    /// Returns whether that node can see the resource.
    pub(crate) fn selects(&self, node: &NodeView) -> bool {
        let texts = [
            (&self.id, &node.id),
            (&self.cluster, &node.cluster),
            (&self.region, &node.region),
            (&self.zone, &node.zone),
            (&self.sub_zone, &node.sub_zone),
        ];
        texts.iter().all(|(patterns, text)| patterns.matches(text)) && within(&self.metadata, &node.metadata)
    }
}

fn unknown(field: &str, known: &[&str]) -> SelectorError {
    let similar = suggest(field, known.iter().copied()).map(str::to_owned);
    SelectorError::UnknownField { field: field.to_owned(), similar }
}

/// Returns whether each of these fields is in the metadata with its value; fields of objects likewise.
fn within(expected: &Map<String, Json>, metadata: &Map<String, Json>) -> bool {
    expected.iter().all(|(key, value)| match (value, metadata.get(key)) {
        (Json::Object(expected), Some(Json::Object(actual))) => within(expected, actual),
        // Numbers of a node are floating-point numbers.
        (Json::Number(expected), Some(Json::Number(actual))) => expected.as_f64() == actual.as_f64(),
        (expected, Some(actual)) => expected == actual,
        (_, None) => false,
    })
}

impl Patterns {
    fn read(field: &str, value: Json) -> Result<Self, SelectorError> {
        let texts = match value {
            Json::Array(texts) if !texts.is_empty() => texts,
            value => vec![value],
        };
        let texts = texts.into_iter().map(|value| match value {
            Json::String(text) => Ok(text),
            other => Err(SelectorError::NotText { field: field.to_owned(), value: other.to_string() }),
        });
        Ok(Self(Some(texts.collect::<Result<_, _>>()?)))
    }

    fn matches(&self, text: &str) -> bool {
        self.0.as_ref().is_none_or(|patterns| {
            patterns.iter().any(|pattern| match (pattern.strip_suffix('*'), pattern.strip_prefix('*')) {
                (Some(start), _) => text.starts_with(start),
                (None, Some(end)) => text.ends_with(end),
                (None, None) => text == pattern,
            })
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use prost_types::{Struct, value::Kind};

    use super::*;
    use crate::proto::envoy::config::core::v3::Locality;

    fn selector(text: &str) -> Result<Option<Selector>, SelectorError> {
        Selector::of(&BTreeMap::from([(SELECTOR.to_owned(), text.to_owned())]))
    }

    fn node() -> NodeView {
        let value = |kind| prost_types::Value { kind: Some(kind) };
        let labels =
            Struct { fields: [("app".to_owned(), value(Kind::StringValue("shop".to_owned())))].into() };
        let metadata = Struct {
            fields: [
                ("labels".to_owned(), value(Kind::StructValue(labels))),
                ("slot".to_owned(), value(Kind::NumberValue(3.0))),
                ("canary".to_owned(), value(Kind::BoolValue(true))),
            ]
            .into(),
        };
        let locality = Locality { region: "eu".to_owned(), zone: "a".to_owned(), ..Locality::default() };
        NodeView::of(&Node {
            id: "edge-7".to_owned(),
            cluster: "front".to_owned(),
            locality: Some(locality),
            metadata: Some(metadata),
            ..Node::default()
        })
    }

    #[test]
    fn nodes_are_selected_by_id_cluster_locality_and_metadata() {
        for (text, selects) in [
            ("{}", true),
            ("{id: edge-7}", true),
            ("{id: edge-*}", true),
            ("{id: '*-7'}", true),
            ("{id: edge}", false),
            ("{id: [a, edge-7]}", true),
            ("{id: edge-*, cluster: back}", false),
            ("{cluster: [front, back], locality: {region: eu}}", true),
            ("{locality: {region: eu, zone: b}}", false),
            ("{locality: {sub_zone: x}}", false),
            ("{metadata: {labels: {app: shop}}}", true),
            ("{metadata: {labels: {app: shop}, slot: 3, canary: true}}", true),
            ("{metadata: {labels: {app: other}}}", false),
            ("{metadata: {missing: x}}", false),
        ] {
            assert_eq!(selector(text).unwrap().unwrap().selects(&node()), selects, "{text}");
        }
        assert_eq!(Selector::of(&BTreeMap::new()), Ok(None), "for every node");
    }

    #[test]
    fn a_selector_that_cannot_be_read_says_why() {
        for (text, reason) in [
            (
                "edge",
                "\"edge\" is not a selector of nodes; write it like {id: \"edge-*\", locality: {zone: a}}",
            ),
            ("{locality: eu}", "\"{locality: eu}\" is not a selector of nodes"),
            ("{clutser: a}", "a selector of nodes has no field \"clutser\"; did you mean cluster?"),
            ("{locality: {subzone: a}}", "has no field \"subzone\"; did you mean sub_zone?"),
            ("{id: 7}", "id: expected text or a list of texts, not 7"),
            ("{id: []}", "id: expected text or a list of texts, not []"),
        ] {
            let error = selector(text).unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}

//! Translation between major versions: renames and moves survive it and its reverse, and losses are named.

use std::collections::HashMap;

use crate::support::Protos;
use mixer_adapter_versioning::{TranslateError, Translator};
use proptest::prelude::*;
use prost::Message as _;
use prost_reflect::{DynamicMessage, Kind, MapKey, MessageDescriptor, ReflectMessage as _, Value};

const OLD: &str = r#"package shop.v1;
import "google/protobuf/any.proto";
message Order {
  string name = 1;
  int32 amount = 2;
  repeated Line lines = 3;
  map<string, Line> by_name = 4;
  oneof pay { string card = 5; bool cash = 6; }
  State state = 7;
  optional int64 note = 8;
  google.protobuf.Any extra = 9;
  Order parent = 10;
  bytes blob = 11;
  double weight = 12;
  message Line { string item = 1; repeated State states = 2; }
}
message Lost { int32 n = 1; }
message Changed { int32 kept = 1; int32 gone = 2; string other = 3; Way way = 4; }
enum Way { UNSET = 0; FAX = 1; POST = 2; }
enum State { UNKNOWN = 0; OPEN = 1; CLOSED = 2; }"#;

const NEW: &str = r#"package shop.v2alpha;
import "google/protobuf/any.proto";
import "mixer_adapter/versioning/v1/versioning.proto";
// Renamed, and its fields renamed, renumbered and moved into a oneof.
message Purchase {
  option (mixer_adapter.versioning.v1.message).previous = "shop.v1.Order";
  string title = 1;
  int32 amount = 22;
  repeated Line lines = 3;
  map<string, Line> by_name = 4;
  oneof pay { string card = 5; bool cash = 6; }
  State state = 7;
  optional int64 note = 8;
  google.protobuf.Any extra = 9;
  Purchase parent = 10;
  bytes payload = 31 [(mixer_adapter.versioning.v1.field).previous = "blob"];
  double weight = 12;
}
// Moved out of the message.
message Line {
  option (mixer_adapter.versioning.v1.message).previous = "shop.v1.Order.Line";
  string item = 1;
  repeated State states = 2;
}
message Changed { int32 kept = 1; int32 other = 3; Way way = 4; int32 more = 9; }
enum Way { UNSET = 0; POST = 2; }
enum State { UNKNOWN = 0; OPENED = 1; CLOSED = 7; }"#;

fn translator() -> Translator {
    let protos = Protos::new(&[("shop/v1.proto", OLD), ("shop/v2.proto", NEW)]);
    Translator::between(&protos.set(), "shop.v1", "shop.v2alpha").unwrap()
}

fn read(translator: &Translator, from: &str, json: serde_json::Value) -> DynamicMessage {
    // The counterpart of the counterpart is the message itself.
    let other = translator.counterpart(from).unwrap();
    let of = translator.counterpart(other.full_name()).unwrap();
    DynamicMessage::deserialize(of, json).unwrap()
}

#[test]
fn renamed_moved_and_renumbered_elements_are_translated() {
    let translator = translator();
    let old = serde_json::json!({
        "name": "a", "amount": 3, "lines": [{ "item": "x", "states": ["OPEN", "CLOSED"] }], "card": "1", "state": "OPEN",
        "blob": "AQ==", "parent": { "name": "b" },
        "extra": { "@type": "type.googleapis.com/shop.v1.Order", "name": "inner" },
    });
    let translated = translator.translate(&read(&translator, "shop.v1.Order", old)).unwrap();
    assert_eq!(translated.losses, []);
    assert_eq!(
        serde_json::to_value(&translated.message).unwrap(),
        serde_json::json!({
            "title": "a", "amount": 3, "lines": [{ "item": "x", "states": ["OPENED", "CLOSED"] }], "card": "1", "state": "OPENED",
            "payload": "AQ==", "parent": { "title": "b" },
            "extra": { "@type": "type.googleapis.com/shop.v2alpha.Purchase", "title": "inner" },
        })
    );
}

#[test]
fn what_the_other_version_cannot_hold_is_named() {
    let translator = translator();
    let old = serde_json::json!({ "kept": 1, "gone": 2, "other": "x", "way": "FAX" });
    let translated = translator.translate(&read(&translator, "shop.v1.Changed", old)).unwrap();
    let mut losses: Vec<_> = translated.losses.iter().map(|loss| (&*loss.path, loss.reason)).collect();
    losses.sort_unstable();
    assert_eq!(losses, [("gone", "no such field"), ("other", "no such field"), ("way", "no such value"),]);
    assert_eq!(serde_json::to_value(&translated.message).unwrap(), serde_json::json!({ "kept": 1 }));
    assert_eq!(translator.counterpart("shop.v1.Lost"), None);
    let rows: Vec<_> = translator.rows().iter().map(|row| (&*row.from, &*row.to, row.note)).collect();
    for expected in [
        ("shop.v1.Order", "shop.v2alpha.Purchase", "moved"),
        ("shop.v1.Order.Line", "shop.v2alpha.Line", "moved"),
        ("shop.v1.Order.name", "shop.v2alpha.Purchase.title", "renamed"),
        ("shop.v1.Order.amount", "shop.v2alpha.Purchase.amount", "renumbered"),
        ("shop.v1.State.OPEN", "shop.v2alpha.State.OPENED", "renamed"),
        ("shop.v1.Lost", "", "cannot be translated: no counterpart"),
        ("shop.v1.Changed.gone", "", "cannot be translated: no counterpart"),
        ("", "shop.v2alpha.Changed.more", "new"),
    ] {
        assert!(rows.contains(&expected), "{expected:?} in {rows:?}");
    }
}

/// A field may be deprecated where what replaces it can be had from it: a tool without state translates the one to the other.
#[test]
fn litmus_test_of_a_deprecation_a_stateless_translation_loses_nothing() {
    let old = "package shop.v1; message Http2 { uint32 window = 1 [deprecated = true]; string name = 2; }";
    let removed = "package shop.v2alpha; message Http2 { reserved 1; string name = 2; }";
    let replaced = "package shop.v2alpha; import \"mixer_adapter/versioning/v1/versioning.proto\"; \
                    message Http2 { reserved 1; string name = 2; \
                    uint32 stream_window = 3 [(mixer_adapter.versioning.v1.field).previous = \"window\"]; }";
    for (new, losses, translated) in [
        (removed, vec!["window"], serde_json::json!({ "name": "x" })),
        (replaced, vec![], serde_json::json!({ "name": "x", "streamWindow": 9 })),
    ] {
        let protos = Protos::new(&[("shop/v1.proto", old), ("shop/v2.proto", new)]);
        let translator = Translator::between(&protos.set(), "shop.v1", "shop.v2alpha").unwrap();
        let message = read(&translator, "shop.v1.Http2", serde_json::json!({ "name": "x", "window": 9 }));
        let now = translator.translate(&message).unwrap();
        assert_eq!(now.losses.iter().map(|loss| &*loss.path).collect::<Vec<_>>(), losses);
        assert_eq!(serde_json::to_value(&now.message).unwrap(), translated);
        let back = translator.translate(&now.message).unwrap();
        assert_eq!(back.message == message, losses.is_empty());
    }
}

#[test]
fn unknown_packages_and_messages_without_a_counterpart_are_errors() {
    let protos = Protos::new(&[("shop/v1.proto", OLD), ("shop/v2.proto", NEW)]);
    let error = Translator::between(&protos.set(), "shop.v1", "shop.v3").unwrap_err();
    assert_eq!(error, TranslateError::UnknownPackage("shop.v3".to_owned()));
    let lost = DynamicMessage::new(protos.set().pool().get_message_by_name("shop.v1.Lost").unwrap());
    let error = translator().translate(&lost).unwrap_err();
    assert_eq!(error, TranslateError::NoCounterpart("shop.v1.Lost".to_owned()));
}

/// A message whose debug format has its fields only: descriptors refer to each other in circles.
#[derive(Clone, PartialEq)]
struct Shown(DynamicMessage);

impl std::fmt::Debug for Shown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map()
            .entries(self.0.fields().map(|(field, value)| (field.name().to_owned(), shown(value))))
            .finish()
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Message(message) => format!("{:?}", Shown(message.clone())),
        Value::List(items) => items.iter().map(shown).collect::<Vec<_>>().join(", "),
        Value::Map(entries) => {
            entries.iter().map(|(key, value)| format!("{key:?}: {}", shown(value))).collect()
        }
        scalar => format!("{scalar:?}"),
    }
}

/// Any message of a type, with messages in it to a depth.
fn any_message(of: &MessageDescriptor, depth: u32) -> BoxedStrategy<DynamicMessage> {
    let fields: Vec<_> = of
        .fields()
        .filter(|field| depth > 1 || !matches!(field.kind(), Kind::Message(_)))
        .filter(|field| !matches!(field.kind(), Kind::Message(inner) if inner.full_name() == "google.protobuf.Any"))
        .map(|field| {
            let value = any_value(&field.kind(), depth);
            let value = if field.is_map() {
                let Kind::Message(entry) = field.kind() else { unreachable!() };
                let values = any_value(&entry.map_entry_value_field().kind(), depth - 1);
                let entries = prop::collection::hash_map("[a-c]", values, 0..3);
                entries
                    .prop_map(|entries| {
                        let entries = entries.into_iter().map(|(key, value)| (MapKey::String(key), value));
                        Value::Map(entries.collect::<HashMap<_, _>>())
                    })
                    .boxed()
            } else if field.is_list() {
                prop::collection::vec(value, 0..3).prop_map(Value::List).boxed()
            } else {
                value
            };
            prop::option::of(value).prop_map(move |value| (field.clone(), value)).boxed()
        })
        .collect();
    let of = of.clone();
    fields
        .prop_map(move |fields| {
            let mut message = DynamicMessage::new(of.clone());
            for (field, value) in fields {
                if let Some(value) = value {
                    message.set_field(&field, value);
                }
            }
            // As it arrives: without values that are the default.
            DynamicMessage::decode(of.clone(), &*message.encode_to_vec()).unwrap()
        })
        .boxed()
}

fn any_value(kind: &Kind, depth: u32) -> BoxedStrategy<Value> {
    match kind {
        Kind::Bool => any::<bool>().prop_map(Value::Bool).boxed(),
        Kind::Int32 => any::<i32>().prop_map(Value::I32).boxed(),
        Kind::Int64 => any::<i64>().prop_map(Value::I64).boxed(),
        Kind::Double => (-1e9..1e9).prop_map(Value::F64).boxed(),
        Kind::String => "[a-z]{0,4}".prop_map(Value::String).boxed(),
        Kind::Bytes => {
            prop::collection::vec(any::<u8>(), 0..4).prop_map(|bytes| Value::Bytes(bytes.into())).boxed()
        }
        Kind::Enum(of) => {
            let numbers: Vec<i32> = of.values().map(|value| value.number()).collect();
            prop::sample::select(numbers).prop_map(Value::EnumNumber).boxed()
        }
        // The field of a map, whose entries are made by the caller.
        Kind::Message(of) if of.is_map_entry() => Just(Value::Map(HashMap::new())).boxed(),
        Kind::Message(of) => any_message(of, depth - 1).prop_map(Value::Message).boxed(),
        kind => unreachable!("no field of the test has the type {kind:?}"),
    }
}

#[test]
fn a_translation_and_its_reverse_change_nothing() {
    let translator = translator();
    for name in ["shop.v1.Order", "shop.v2alpha.Purchase"] {
        let other = translator.counterpart(name).unwrap();
        let of = translator.counterpart(other.full_name()).unwrap();
        proptest!(ProptestConfig { cases: 200, failure_persistence: None, ..Default::default() }, |(message in any_message(&of, 2).prop_map(Shown))| {
            let there = translator.translate(&message.0).unwrap();
            prop_assert_eq!(&there.losses, &[]);
            prop_assert!(there.message.descriptor() == other);
            let back = translator.translate(&there.message).unwrap();
            prop_assert_eq!(Shown(back.message), message);
        });
    }
}

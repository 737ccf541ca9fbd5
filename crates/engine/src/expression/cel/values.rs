//! Values of Mixer's attribute types, which CEL does not have.

use std::{
    any::Any,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
};

use bytes::Bytes;
use cel::{
    ExecutionError,
    common::{
        traits::{Container, Indexer},
        types::{CelString, MAP_TYPE, Type},
        value::{CowVal, StaticVal, Val},
    },
};
use parking_lot::Mutex;
use regex::Regex;

use crate::{
    attribute::{AttributeValue, Reads, StringMap},
    expression::{
        JsonMemo,
        code::{MAX_CONCATENATED, StrFormat, addresses_equal},
    },
};

/// The reads of an evaluation, shared with the maps whose keys it reads.
pub(crate) type SharedReads = Arc<Mutex<Reads>>;

/// IP_ADDRESS
#[derive(Clone, Debug)]
pub(crate) struct IpValue(pub(crate) Bytes);

/// EMAIL_ADDRESS, URI or DNS_NAME
#[derive(Clone, Debug)]
pub(crate) struct FormattedStr {
    pub(crate) format: StrFormat,
    pub(crate) text: Arc<str>,
}

/// STRING_MAP, and the recorder of its reads, if it is an attribute.
#[derive(Clone, Debug)]
pub(crate) struct MapValue {
    pub(crate) entries: StringMap,
    pub(crate) recorder: Option<Arc<MapRecorder>>,
}

/// Records how a value that was read as a STRING_MAP is used.
#[derive(Debug)]
pub(crate) struct MapRecorder {
    slot: u32,
    reads: SharedReads,
    /// Whether a key was looked up.
    is_by_key: AtomicBool,
}

impl MapRecorder {
    pub(crate) fn new(slot: u32, reads: SharedReads) -> Self {
        Self { slot, reads, is_by_key: AtomicBool::new(false) }
    }

    fn record_key(&self, key: &Arc<str>, present: bool) {
        let mut reads = self.reads.lock();
        if !self.is_by_key.swap(true, Relaxed) {
            reads.record_by_key(self.slot);
        }
        reads.record_key(self.slot, key, present, || Arc::clone(key));
    }
}

/// A regular expression compiled with the expression.
#[derive(Clone, Debug)]
pub(crate) struct PatternValue(pub(crate) Regex);

/// The parsed JSON of the request.
#[derive(Clone, Debug)]
pub(crate) struct JsonValue(pub(crate) Arc<JsonMemo>);

/// Maximum number of nodes that the macros of an expression evaluate together, which takes some 10 ms.
const MAX_STEPS: usize = 100_000;

/// The work of an evaluation, including the next step.
#[derive(Clone, Debug, Default)]
pub(crate) struct WorkCounter(Arc<Work>);

#[derive(Debug, Default)]
struct Work {
    /// Nodes that macros evaluate.
    steps: AtomicUsize,
    /// Bytes of concatenated texts.
    concatenated: AtomicUsize,
}

fn counted(counter: &AtomicUsize, more: usize) -> usize {
    counter.fetch_add(more, Relaxed).saturating_add(more)
}

impl WorkCounter {
    /// Counts bytes of a concatenation, and returns whether they are too many.
    pub(crate) fn exceeds_concatenated(&self, bytes: usize) -> bool {
        counted(&self.0.concatenated, bytes) > MAX_CONCATENATED
    }

    /// Counts nodes.
    ///
    /// # Errors
    /// They are too many.
    pub(crate) fn add_steps(&self, nodes: usize) -> Result<(), ExecutionError> {
        if counted(&self.0.steps, nodes) > MAX_STEPS {
            let message = format!("the macros of this expression take more than {MAX_STEPS} steps");
            return Err(ExecutionError::function_error("macros", message));
        }
        Ok(())
    }
}

impl MapValue {
    /// Returns all entries, and records that they were read.
    pub(crate) fn read(&self) -> StringMap {
        if let Some(MapRecorder { slot, reads, .. }) = self.recorder.as_deref() {
            let map = AttributeValue::StringMap(self.entries.clone());
            reads.lock().record(*slot, Some(&map));
        }
        self.entries.clone()
    }

    fn find(&self, key: &dyn Val) -> Result<(Arc<str>, Option<&Arc<str>>), ExecutionError> {
        let Some(key) = key.downcast_ref::<CelString<'_>>() else {
            let got = key.get_type().name().to_owned();
            return Err(ExecutionError::UnexpectedType { got, want: "string".to_owned() });
        };
        let key: Arc<str> = Arc::from(key.inner());
        let value = self.entries.get(&key);
        if let Some(recorder) = &self.recorder {
            recorder.record_key(&key, value.is_some());
        }
        Ok((key, value))
    }
}

impl Indexer for MapValue {
    fn get<'b, 'v>(&'b self, key: &dyn Val) -> Result<CowVal<'b, 'v>, ExecutionError>
    where
        Self: 'v,
    {
        match self.find(key)? {
            (_, Some(value)) => Ok(CowVal::owned(CelString::from(value.to_string()))),
            (key, None) => Err(ExecutionError::no_such_key(&key)),
        }
    }

    fn steal<'v>(self: Box<Self>, key: &dyn Val) -> Result<Box<dyn Val + 'v>, ExecutionError>
    where
        Self: 'v,
    {
        self.get(key).map(CowVal::into_owned)
    }
}

impl Container for MapValue {
    fn contains(&self, key: &dyn Val) -> Result<bool, ExecutionError> {
        Ok(self.find(key)?.1.is_some())
    }
}

static IP: Type = Type::new_unspecified_type("istio.policy.v1beta1.IPAddress");
static FORMATTED: Type = Type::new_unspecified_type("istio.policy.v1beta1.text");
static MAP: Type = MAP_TYPE;
static PATTERN: Type = Type::new_unspecified_type("pattern");
static JSON: Type = Type::new_unspecified_type("json");
static WORK: Type = Type::new_unspecified_type("work");

macro_rules! val {
    ($name:ident, $type:ident { $($extra:tt)* }) => {
        impl Val for $name {
            fn get_type(&self) -> &Type {
                &$type
            }

            fn cel_type() -> &'static Type {
                &$type
            }

            fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v> {
                Box::new(self.clone())
            }

            fn as_any(&self) -> Option<&dyn Any> {
                Some(self)
            }

            $($extra)*
        }

        impl StaticVal for $name {}
    };
}

val!(IpValue, IP {
    fn equals(&self, other: &dyn Val) -> bool {
        other.downcast_ref::<IpValue>().is_some_and(|other| addresses_equal(&self.0, &other.0))
    }
});

val!(FormattedStr, FORMATTED {
    /// Invalid strings, which a request may send, are equal to none.
    fn equals(&self, other: &dyn Val) -> bool {
        other.downcast_ref::<FormattedStr>().is_some_and(|other| {
            let span = Default::default();
            self.format == other.format
                && self.format.equal(&self.text, &other.text, span).unwrap_or(false)
        })
    }
});

val!(MapValue, MAP {
    fn as_indexer<'b, 'v>(&'b self) -> Option<&'b (dyn Indexer + 'v)>
    where
        Self: 'v,
    {
        Some(self)
    }

    fn as_container(&self) -> Option<&dyn Container> {
        Some(self)
    }
});

val!(PatternValue, PATTERN {});

val!(WorkCounter, WORK {});

val!(JsonValue, JSON {});

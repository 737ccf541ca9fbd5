use std::sync::Arc;

use super::{Env, Kind, Map, Never};
use crate::{
    attribute::{AttributeValue, StringMap},
    expression::error::EvalError,
};

/// A map, and the slot of its attribute, under which reads of its keys are recorded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MapRef<'a> {
    pub(crate) entries: &'a StringMap,
    slot: Option<u32>,
}

impl<'a> MapRef<'a> {
    pub(super) fn get(
        self,
        key: &str,
        env: &mut Env<'_, '_>,
        new_key: impl FnOnce() -> Arc<str>,
    ) -> Option<&'a str> {
        let value = self.entries.get(key);
        if let Some(slot) = self.slot {
            env.reads.record_lookup(slot, key, value.is_some(), new_key);
        }
        value.map(|value| &**value)
    }
}

impl Kind for Map {
    type Constant = StringMap;
    type Value<'a> = MapRef<'a>;
    type Operation = Never;

    fn constant(entries: &StringMap) -> MapRef<'_> {
        MapRef { entries, slot: None }
    }

    fn read(value: &AttributeValue, slot: u32) -> Option<MapRef<'_>> {
        match value {
            AttributeValue::StringMap(entries) => Some(MapRef { entries, slot: Some(slot) }),
            _ => None,
        }
    }

    fn run<'a>(operation: &'a Never, _: &mut Env<'a, '_>) -> Result<MapRef<'a>, EvalError> {
        match *operation {}
    }
}

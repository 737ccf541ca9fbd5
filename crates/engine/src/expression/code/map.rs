use std::sync::Arc;

use super::{Env, Kind, Never};
use crate::{
    attribute::{AttributeValue, StringMap},
    expression::error::EvalError,
};

/// STRING_MAP
#[derive(Debug)]
pub(crate) enum Map {}

/// A map, and the slot of the attribute it is the value of, for which keys are noted as read.
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
        keep: impl FnOnce() -> Arc<str>,
    ) -> Option<&'a str> {
        let value = self.entries.get(key);
        if let Some(slot) = self.slot {
            env.reads.record_key(slot, key, value.is_some(), keep);
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

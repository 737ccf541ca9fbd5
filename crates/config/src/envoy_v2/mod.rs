//! Version 2 of Envoy's API beside version 3: which messages correspond, and a translation without state
//! (docs/behaviour/xds-v2.md).

mod adapt;
mod lists;
mod modernize;
#[cfg(test)]
mod tests;
mod translate;

use std::{collections::HashMap, sync::LazyLock};

pub(crate) use translate::{TranslateError, to_v2, to_v3};

/// Messages of v2 and what they became, a line for each (`descriptors/README.md`).
const MESSAGES: &str = include_str!("../../descriptors/envoy_v2.tsv");

static SUCCESSORS: LazyLock<HashMap<&str, &str>> =
    LazyLock::new(|| MESSAGES.lines().filter_map(|line| line.split_once('\t')).collect());
static PREDECESSORS: LazyLock<HashMap<&str, &str>> =
    LazyLock::new(|| SUCCESSORS.iter().map(|(old, new)| (*new, *old)).collect());

/// The message of v3 that a message of v2 became.
pub(crate) fn successor(message: &str) -> Option<&'static str> {
    SUCCESSORS.get(message).copied()
}

/// The message of v2 that became this one of v3.
pub(crate) fn predecessor(message: &str) -> Option<&'static str> {
    PREDECESSORS.get(message).copied()
}

/// Whether a type URL, or the name of a message, is of v2.
pub(crate) fn is_v2(type_url: &str) -> bool {
    successor(type_url.rsplit('/').next().unwrap_or_default()).is_some()
}

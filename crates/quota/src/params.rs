//! Quotas as configurations of adapters have them.

use std::collections::BTreeMap;

use mixer_adapter_core::prost_types;

/// A quota as the configuration of an adapter has it.
#[derive(Clone, Debug)]
pub struct QuotaParams<'p, E = ()> {
    /// The name of the instance, or the first part of it.
    pub name: &'p str,
    /// The maximum amount in use.
    pub max_amount: i64,
    /// How long an amount is in use; until it is released if zero or absent.
    pub valid_duration: Option<prost_types::Duration>,
    /// Limits for some dimensions; the first match applies.
    pub overrides: Vec<OverrideParams<'p>>,
    /// What only this adapter has.
    pub extra: E,
}

/// A limit that replaces the limit of its quota.
#[derive(Clone, Debug)]
pub struct OverrideParams<'p> {
    /// The values that the dimensions of the instance must have.
    pub dimensions: &'p BTreeMap<String, String>,
    /// As in the quota.
    pub max_amount: i64,
    /// As in the quota.
    pub valid_duration: Option<prost_types::Duration>,
}

//! Version 2 of Envoy's API beside version 3, a translation without state (docs/behaviour/xds-v2.md).

mod adapt;
mod lists;
mod modernize;
#[cfg(test)]
mod tests;
pub(crate) mod translate;

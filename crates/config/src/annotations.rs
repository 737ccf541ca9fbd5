//! Annotations of resources.

/// The selector of the nodes that can see a resource.
pub const SELECTOR: &str = "mixer-adapter/node";
/// The time to live of a resource.
pub const TTL: &str = "mixer-adapter/ttl";
/// Other names of a resource, a list in JSON or YAML.
pub const ALIASES: &str = "mixer-adapter/aliases";
/// The form of the denials of a rule, in YAML.
pub const DENIAL: &str = "mixer-adapter/denial";

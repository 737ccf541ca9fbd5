//! Which checks the cache answers (docs/decisions/0015-check-cache.md#which-checks-are-cached).

use std::fmt;

/// The checks that caches answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum CachedChecks {
    /// Checks that cost more than a lookup.
    #[default]
    Costly,
    /// All checks.
    All,
}

/// Whether the checks of a namespace are cached.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct NamespaceCaching {
    /// The namespace; `*` for namespaces without rules.
    pub namespace: String,
    /// Whether the cache answers its checks.
    pub is_cached: bool,
    /// The reason.
    pub reason: String,
}

/// Why the checks of a namespace are cached, or not.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CacheReason<'s> {
    /// The options cache all checks.
    All,
    /// Attribute generators run before the rules.
    Generators,
    /// A handler does not answer from memory.
    Handler(&'s str),
    /// Expired answers of a rule may be used while a backend is down.
    Stale(&'s str),
    /// All answers come from memory; whether they are cached depends on the number of instances and conditions.
    Memory { instances: usize, conditions: usize },
}

/// Maximum number of instances whose evaluation costs no more than a lookup. Usually a request has few of them.
const MAX_INSTANCES: usize = 8;

/// Maximum number of conditions whose evaluation costs no more than a lookup.
const MAX_CONDITIONS: usize = 100;

impl CacheReason<'_> {
    pub(crate) fn is_cached(self) -> bool {
        match self {
            Self::Memory { instances, conditions } => {
                instances > MAX_INSTANCES || conditions > MAX_CONDITIONS
            }
            Self::All | Self::Generators | Self::Handler(_) | Self::Stale(_) => true,
        }
    }
}

impl fmt::Display for CacheReason<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all checks are cached"),
            Self::Generators => f.write_str("attributes are generated"),
            Self::Handler(name) => write!(f, "{name} does not answer from memory"),
            Self::Stale(rule) => write!(f, "{rule} permits expired answers"),
            Self::Memory { instances, conditions } => write!(
                f,
                "all handlers answer from memory, with {instances} instances (cached if over {MAX_INSTANCES}) \
                 and {conditions} conditions (cached if over {MAX_CONDITIONS})"
            ),
        }
    }
}

//! Errors of lists and their entries.

use std::str::Utf8Error;

use mixer_adapter_core::AdapterError;

use super::limits::{MAX_EXPRESSIONS, MAX_LENGTH, MAX_PATTERNS};

/// A list, or an entry of one, that cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum ListError {
    #[error("the list is not UTF-8: {0}")]
    Encoding(#[from] Utf8Error),
    #[error("the list must be YAML like `whitelist: [10.1.0.0/16]`: {0}")]
    Yaml(#[from] serde_saphyr::Error),
    #[error("{0:?} is neither an IP address nor a range in CIDR notation, such as 10.1.0.0/16")]
    Address(String),
    #[error("is empty and would match every value; write .* for that")]
    EmptyPattern,
    #[error(transparent)]
    Pattern(#[from] PatternError),
    #[error("pattern {pattern:?}: {source}")]
    ListedPattern { pattern: String, source: PatternError },
    #[error("the patterns cannot be compiled: {0}")]
    Compilation(Box<regex_automata::meta::BuildError>),
    #[error("the patterns cannot be compiled: {0}")]
    Texts(#[from] aho_corasick::BuildError),
    #[error("there are more than {MAX_PATTERNS} patterns")]
    TooManyPatterns,
    #[error("the patterns have more than {MAX_LENGTH} bytes together")]
    PatternsTooLong,
    #[error(
        "more than {MAX_EXPRESSIONS} patterns are regular expressions; plain texts, also with ^, $ and \\ before special characters, do not count"
    )]
    TooManyExpressions,
    #[error("the regular expressions take more than {} KiB when they are compiled; repeat less in them", .0 >> 10)]
    ExpressionsTooLarge(usize),
}

impl ListError {
    /// Returns whether the entries are refused together, not a single entry.
    pub(super) fn is_limit(&self) -> bool {
        matches!(
            self,
            Self::TooManyPatterns
                | Self::PatternsTooLong
                | Self::TooManyExpressions
                | Self::ExpressionsTooLarge(_)
        )
    }
}

impl From<ListError> for AdapterError {
    fn from(error: ListError) -> Self {
        Self::invalid(error.to_string())
    }
}

/// A pattern that is not valid, or that Go would read differently.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct PatternError(pub(super) String);

/// A URL that no list can be fetched from.
#[derive(Debug, thiserror::Error)]
pub(super) enum UrlError {
    #[error("is not a valid URL: {0}")]
    Invalid(#[from] http::uri::InvalidUri),
    #[error("this program was built without the feature `https`")]
    HttpsDisabled,
    #[error("must begin with http:// or https://")]
    Scheme,
    #[error("must not contain a user name or a password")]
    UserInfo,
}

/// A remote list that has never been fetched, or not for longer than its TTL.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum UnavailableError {
    #[error("there is no list: {reason}")]
    NeverFetched { reason: String },
    #[error("the list is older than its ttl: {reason}")]
    TooOld { reason: String },
}

impl From<UnavailableError> for AdapterError {
    fn from(error: UnavailableError) -> Self {
        Self::unavailable(error.to_string())
    }
}

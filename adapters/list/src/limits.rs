/// Limits on the patterns of one list, which bound the memory of the compiled ones and the time of a lookup.
pub(super) struct PatternLimits {
    /// Maximum number of patterns.
    pub(super) patterns: usize,
    /// Maximum length of all patterns in bytes.
    pub(super) length: usize,
    /// Maximum number of regular expressions: patterns other than plain texts, whose special characters have a `\`, with or
    /// without `^` and `$`.
    pub(super) expressions: usize,
    /// Maximum size of the compiled regular expressions in bytes.
    pub(super) compiled: usize,
}

/// The limits on the patterns of one list.
pub(super) const LIMITS: PatternLimits =
    PatternLimits { patterns: 100_000, length: 1 << 20, expressions: 2_000, compiled: 8 << 20 };

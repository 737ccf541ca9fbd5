/// Limits on the patterns of one list, which bound the memory of the compiled ones and the time of a lookup.
pub(super) struct PatternLimits {
    /// Maximum number of patterns.
    pub(super) patterns: usize,
    /// Maximum length of all patterns in bytes.
    pub(super) length: usize,
    /// Maximum number of regular expressions: patterns other than plain texts, whose special characters have a `\`, with or
    /// without `^` and `$`.
    pub(super) expressions: usize,
    /// Maximum size of the compiled regular expressions in bytes, of the longest list.
    pub(super) compiled: usize,
}

/// The size in bytes that the compiled regular expressions of any list may have. It is compiled in some 10 ms: lists of many clients are
/// compiled one after the other, on a few threads.
const COMPILED_OF_ANY: usize = 1 << 20;

/// What each byte of the patterns adds to it.
const COMPILED_PER_BYTE: usize = 64;

impl PatternLimits {
    /// Returns the maximum size of the compiled regular expressions in bytes, of patterns of this length together: it is linear in what
    /// the client sent.
    pub(super) fn compiled_of(&self, length: usize) -> usize {
        (COMPILED_OF_ANY + length.saturating_mul(COMPILED_PER_BYTE)).min(self.compiled)
    }
}

/// The limits on the patterns of one list.
pub(super) const LIMITS: PatternLimits =
    PatternLimits { patterns: 100_000, length: 1 << 20, expressions: 2_000, compiled: 8 << 20 };

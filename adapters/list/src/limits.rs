//! Limits on the patterns of one list, which bound the memory of the compiled ones and the time of a lookup.

/// Maximum number of patterns.
pub(super) const MAX_PATTERNS: usize = 100_000;

/// Maximum length of all patterns in bytes.
pub(super) const MAX_LENGTH: usize = 1 << 20;

/// Maximum number of regular expressions: patterns other than plain texts, whose special characters have a `\`, with or
/// without `^` and `$`.
pub(super) const MAX_EXPRESSIONS: usize = 2_000;

/// Maximum size of the compiled regular expressions in bytes, of the longest list.
const MAX_COMPILED: usize = 8 << 20;

/// The size in bytes that the compiled regular expressions of any list may have. It is compiled in some 10 ms: lists of many clients are
/// compiled one after the other, on a few threads.
const COMPILED_OF_ANY: usize = 1 << 20;

/// What each byte of the patterns adds to it.
const COMPILED_PER_BYTE: usize = 64;

/// Returns the maximum size of the compiled regular expressions in bytes, of patterns of this length together: it is linear in what
/// the client sent.
pub(super) fn max_compiled(length: usize) -> usize {
    (COMPILED_OF_ANY + length.saturating_mul(COMPILED_PER_BYTE)).min(MAX_COMPILED)
}

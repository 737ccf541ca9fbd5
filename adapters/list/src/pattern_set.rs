//! A set of patterns, compiled in time and memory linear in their length.
//!
//! Most patterns of long lists are plain texts, with or without anchors. They are found without regular expressions:
//! a set of these takes longer to compile and to match the larger it is.

use std::collections::HashSet;

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use regex_automata::{
    MatchKind,
    meta::{Config, Regex},
    nfa::thompson::WhichCaptures,
};

use super::{
    error::ListError,
    go_syntax,
    limits::{MAX_EXPRESSIONS, MAX_LENGTH, MAX_PATTERNS, max_compiled},
};

/// The least memory that is counted for regular expressions, in bytes: a search caches about as much.
const LEAST_BYTES: usize = 512 << 10;

/// A set of patterns; any may match.
#[derive(Debug)]
pub(super) struct PatternSet {
    /// `^text$`
    whole: HashSet<Box<str>>,
    /// `^text`
    prefixes: Prefixes,
    /// `text$`, each reversed.
    suffixes: Prefixes,
    /// `text`
    parts: Option<AhoCorasick>,
    expressions: Option<Regex>,
    /// An estimate of the memory of compiled expressions in bytes.
    pub(super) compiled_bytes: usize,
}

impl PatternSet {
    /// Compiles patterns in Go's syntax.
    pub(super) fn compile<'p>(patterns: impl Iterator<Item = &'p str>) -> Result<Self, ListError> {
        let mut counted = CountedPatterns::default();
        let mut whole = HashSet::new();
        let (mut prefixes, mut suffixes, mut parts) = (Vec::new(), Vec::new(), Vec::new());
        let mut expressions = Vec::new();
        for pattern in patterns {
            match counted.add(pattern)? {
                Some(Plain { text, start: true, end: true }) => {
                    whole.insert(text.into_boxed_str());
                }
                Some(Plain { text, start: true, end: false }) => prefixes.push(text.into_bytes()),
                Some(Plain { text, start: false, end: true }) => {
                    suffixes.push(text.into_bytes().into_iter().rev().collect());
                }
                Some(Plain { text, start: false, end: false }) => parts.push(text.into_bytes()),
                None => expressions.push(
                    go_syntax::translate(pattern)
                        .map_err(|source| ListError::ListedPattern { pattern: pattern.to_owned(), source })?,
                ),
            }
        }
        let parts = if parts.is_empty() {
            None
        } else {
            // A text that begins with another one is found with it, and makes the search slow to prepare. The kind for few texts
            // takes a thousand times their length.
            let mut builder = AhoCorasick::builder();
            builder.prefilter(false).kind(Some(AhoCorasickKind::ContiguousNFA));
            Some(builder.build(Prefixes::new(parts).0)?)
        };
        let (expressions, size) = compile_expressions(&expressions)?;
        let compiled_bytes = size + parts.as_ref().map_or(0, AhoCorasick::memory_usage);
        Ok(Self {
            whole,
            prefixes: Prefixes::new(prefixes),
            suffixes: Prefixes::new(suffixes),
            parts,
            expressions,
            compiled_bytes,
        })
    }

    /// Returns whether any pattern matches a text.
    pub(super) fn is_match(&self, text: &str) -> bool {
        self.whole.contains(text)
            || self.prefixes.contain_one_of(text.bytes())
            || self.suffixes.contain_one_of(text.bytes().rev())
            || self.parts.as_ref().is_some_and(|parts| parts.is_match(text))
            || self.expressions.as_ref().is_some_and(|set| set.is_match(text))
    }
}

/// Compiles regular expressions, until they are too large. Also returns an estimate of their memory in bytes: twice their size, for
/// the caches of searches.
fn compile_expressions(expressions: &[String]) -> Result<(Option<Regex>, usize), ListError> {
    if expressions.is_empty() {
        return Ok((None, 0));
    }
    let limit = max_compiled(expressions.iter().map(String::len).sum());
    // As the crate regex compiles a set.
    let config = Config::new()
        .match_kind(MatchKind::All)
        .which_captures(WhichCaptures::None)
        .nfa_size_limit(Some(limit))
        .hybrid_cache_capacity(2 << 20);
    let built = Regex::builder().configure(config).build_many(expressions);
    let set = built.map_err(|error| match error.size_limit() {
        Some(_) => ListError::ExpressionsTooLarge(limit),
        None => ListError::Compilation(Box::new(error)),
    })?;
    let bytes = (2 * set.memory_usage()).max(LEAST_BYTES);
    Ok((Some(set), bytes))
}

/// Counts patterns against the limits.
#[derive(Debug, Default)]
pub(super) struct CountedPatterns {
    patterns: usize,
    length: usize,
    expressions: usize,
}

impl CountedPatterns {
    /// Counts a pattern, and returns its text if it is plain.
    ///
    /// # Errors
    /// The limits are exceeded.
    pub(super) fn add(&mut self, pattern: &str) -> Result<Option<Plain>, ListError> {
        let plain = Plain::parse(pattern);
        self.patterns += 1;
        self.length += pattern.len();
        self.expressions += usize::from(plain.is_none());
        if self.patterns > MAX_PATTERNS {
            return Err(ListError::TooManyPatterns);
        }
        if self.length > MAX_LENGTH {
            return Err(ListError::PatternsTooLong);
        }
        if self.expressions > MAX_EXPRESSIONS {
            return Err(ListError::TooManyExpressions);
        }
        Ok(plain)
    }
}

/// A pattern that matches a text literally.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Plain {
    text: String,
    /// Whether the text must be at the start.
    start: bool,
    /// Whether the text must be at the end.
    end: bool,
}

impl Plain {
    /// Parses a pattern; `None` for any other.
    fn parse(pattern: &str) -> Option<Self> {
        let (pattern, start) = match pattern.strip_prefix('^') {
            Some(rest) => (rest, true),
            None => (pattern, false),
        };
        let mut text = String::with_capacity(pattern.len());
        let mut chars = pattern.chars();
        let mut end = false;
        while let Some(c) = chars.next() {
            match c {
                '\\' => text.push(chars.next().filter(|escaped| regex_syntax::is_meta_character(*escaped))?),
                '$' if chars.as_str().is_empty() => end = true,
                '^' | '$' | '.' | '+' | '*' | '?' | '(' | ')' | '|' | '[' | ']' | '{' | '}' => return None,
                c => text.push(c),
            }
        }
        // An empty text matches everywhere, which the anchors say more exactly.
        (!text.is_empty()).then_some(Self { text, start, end })
    }
}

/// Texts that may be prefixes, sorted. None is a prefix of another, so that only the greatest text up to a subject can be its
/// prefix.
#[derive(Debug)]
struct Prefixes(Vec<Box<[u8]>>);

impl Prefixes {
    fn new(mut texts: Vec<Vec<u8>>) -> Self {
        texts.sort_unstable();
        let mut prefixes: Vec<Box<[u8]>> = Vec::with_capacity(texts.len());
        for text in texts {
            if !prefixes.last().is_some_and(|prefix| text.starts_with(prefix)) {
                prefixes.push(text.into());
            }
        }
        Self(prefixes)
    }

    fn contain_one_of(&self, text: impl Iterator<Item = u8> + Clone) -> bool {
        let after = self.0.partition_point(|prefix| prefix.iter().copied().le(text.clone()));
        let candidate = after.checked_sub(1).map(|index| &self.0[index]);
        candidate.is_some_and(|prefix| prefix.iter().copied().eq(text.take(prefix.len())))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn compile(patterns: &[String]) -> Result<PatternSet, ListError> {
        PatternSet::compile(patterns.iter().map(String::as_str))
    }

    /// All texts of up to `length` of the letters `a`, `b` and `.`.
    fn texts(length: usize) -> Vec<String> {
        let mut texts = vec![String::new()];
        for _ in 0..length {
            let longer: Vec<String> =
                texts.iter().flat_map(|text| ["a", "b", "."].map(|letter| text.clone() + letter)).collect();
            texts.extend(longer);
        }
        texts.sort();
        texts.dedup();
        texts
    }

    #[test]
    fn plain_texts_are_matched_as_by_regular_expressions() {
        for pattern in texts(2).iter().filter(|text| !text.is_empty()) {
            for (start, end) in [("", ""), ("^", ""), ("", "$"), ("^", "$")] {
                let pattern = format!("{start}{}{end}", regex::escape(pattern));
                let set = compile(std::slice::from_ref(&pattern)).unwrap();
                assert!(set.expressions.is_none(), "{pattern} is plain");
                let expected = regex::Regex::new(&pattern).unwrap();
                for text in texts(4) {
                    assert_eq!(set.is_match(&text), expected.is_match(&text), "{pattern} {text}");
                }
            }
        }
    }

    #[test]
    fn any_pattern_of_a_set_may_match() {
        let patterns = [r"^/api", "^/api/v1", r"\.png$", "secret", "^whole$", r"^/u\d+$"].map(str::to_owned);
        let set = compile(&patterns).unwrap();
        for (text, expected) in [
            ("/api", true),
            ("/ap", false),
            ("/apple", false),
            ("/apix", true),
            ("x.png", true),
            ("x.pngs", false),
            ("a secret b", true),
            ("whole", true),
            ("wholes", false),
            ("/u12", true),
            ("/u", false),
        ] {
            assert_eq!(set.is_match(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_not_plain_stays_a_regular_expression() {
        for pattern in [
            r"\d", r"\bx", "a.c", "a|b", "", "^", "$", "^$", "a^", "$a", "a{2}", "(?i)a", r"\<a", r"a\",
            "[a]",
        ] {
            assert_eq!(Plain::parse(pattern), None, "{pattern}");
        }
    }

    #[test]
    fn lists_beyond_the_limits_are_refused_by_the_name_of_the_limit() {
        let numbered =
            |pattern: &str, count: usize| (0..count).map(|n| format!("{pattern}{n}")).collect::<Vec<_>>();
        let refusal = |patterns: &[String]| compile(patterns).unwrap_err().to_string();
        assert!(compile(&numbered("p", MAX_PATTERNS)).is_ok());
        assert_eq!(refusal(&numbered("p", MAX_PATTERNS + 1)), "there are more than 100000 patterns");
        let long = vec!["p".repeat(MAX_LENGTH / 2 + 1); 2];
        assert_eq!(refusal(&long), "the patterns have more than 1048576 bytes together");
        assert!(
            refusal(&numbered("p.*", MAX_EXPRESSIONS + 1)).starts_with("more than 2000 patterns are regular")
        );
    }

    #[test]
    fn expressions_too_large_together_are_refused() {
        let compile = |patterns: [&str; 2]| PatternSet::compile(patterns.into_iter());
        let refusal = |patterns| compile(patterns).unwrap_err().to_string();
        assert!(refusal([r"\pL{50}", "a.c"]).contains("more than 102"));
        let long = "x".repeat(100_000) + ".";
        assert!(compile([r"\pL{50}", &long]).is_ok(), "as long as it is large");
        assert!(refusal([r"\pL{1000}", &(long.clone() + &long)]).contains("more than 8192 KiB"));
    }

    #[test]
    fn the_memory_of_compiled_patterns_is_known() {
        let parts = (100..199).map(|n| n.to_string().repeat(33)).collect::<Vec<_>>();
        let many = (0..500).map(|n| format!("^/u{n}/\\d+$")).collect();
        for patterns in [vec![r"(?:\pL{10}|zN)".to_owned()], vec![r"\pL{20}".to_owned()], parts, many] {
            let mut set = None;
            let allocated = allocation_counter::measure(|| {
                let compiled = compile(&patterns).unwrap();
                assert!(!compiled.is_match("something/else"));
                set = Some(compiled);
            });
            let (known, allocated) = (set.unwrap().compiled_bytes, allocated.bytes_current as usize);
            assert!(known * 2 + 16_384 >= allocated, "{}: {known} of {allocated} bytes", patterns[0]);
            assert!(known <= 2_000_000.max(allocated * 20), "{}: {known} for {allocated}", patterns[0]);
        }
    }

    /// A set of regular expressions for as many texts takes quadratic time and gigabytes.
    #[test]
    fn the_memory_of_a_long_list_is_linear_in_its_length() {
        let allocated = |count: usize| {
            let forms = ["^/path/{}", "^/path/{}$", ".host{}$", "part{}"];
            let patterns: Vec<String> =
                (0..count).map(|n| forms[n % 4].replace("{}", &n.to_string()).replace('.', r"\.")).collect();
            let mut set = None;
            let counted = allocation_counter::measure(|| set = Some(compile(&patterns).unwrap()));
            assert!(set.unwrap().is_match("/path/0"));
            counted.bytes_max
        };
        let (once, twice) = (allocated(10_000), allocated(20_000));
        assert!(twice <= once * 22 / 10, "{once} bytes for 10,000 patterns, {twice} for 20,000");
    }
}

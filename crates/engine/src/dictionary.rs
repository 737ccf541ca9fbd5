//! The global dictionary: words that client and server of the Mixer API need not send
//! (docs/behaviour/mixer-api.md#the-global-dictionary).

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock},
};

/// Each word by its index, as releases 1.3 to 1.7 have them; earlier ones know a part from the beginning.
pub static WORDS: LazyLock<Vec<Arc<str>>> =
    LazyLock::new(|| include_str!("global_dictionary.txt").lines().map(Arc::from).collect());

static INDICES: LazyLock<HashMap<&'static str, usize>> = LazyLock::new(|| {
    let words = include_str!("global_dictionary.txt").lines().enumerate();
    words.map(|(index, word)| (word, index)).collect()
});

/// The index of a word in the global dictionary.
pub fn index(word: &str) -> Option<usize> {
    INDICES.get(word).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dictionary_is_that_of_release_1_3() {
        assert_eq!(WORDS.len(), 222);
        assert_eq!(index("source.ip"), Some(0));
        assert_eq!(index("'200'").is_some(), index("200").is_some());
    }
}

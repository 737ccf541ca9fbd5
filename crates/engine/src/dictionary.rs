//! The global dictionary: strings that messages of the Mixer API refer to by index
//! (docs/behaviour/mixer-api.md#the-global-dictionary).

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock},
};

use foldhash::fast::RandomState;

/// The words by index, as in releases 1.3 to 1.7; earlier releases have a prefix of the list.
pub static WORDS: LazyLock<Vec<Arc<str>>> =
    LazyLock::new(|| include_str!("global_dictionary.txt").lines().map(Arc::from).collect());

static INDICES: LazyLock<HashMap<&'static str, usize, RandomState>> = LazyLock::new(|| {
    let words = include_str!("global_dictionary.txt").lines().enumerate();
    words.map(|(index, word)| (word, index)).collect()
});

/// Returns the index of a word.
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

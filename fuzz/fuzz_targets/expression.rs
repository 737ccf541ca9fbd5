#![no_main]

use libfuzzer_sys::fuzz_target;
use mixer_adapter_engine::expression::{fuzzing, Language};

fuzz_target!(|text: &str| {
    for language in [Language::Cexl, Language::Cel, Language::Compat] {
        fuzzing::run(language, text);
    }
});

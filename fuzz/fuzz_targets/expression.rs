#![no_main]

use libfuzzer_sys::fuzz_target;
use mixer_adapter_engine::expression::Language;

#[path = "../../tests/it/expression_fuzzing.rs"]
mod fuzzing;

fuzz_target!(|text: &str| {
    for language in [Language::Cexl, Language::Cel, Language::Compat] {
        fuzzing::run(language, text);
    }
});

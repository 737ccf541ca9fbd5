#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/config/tests/it/config_text/read.rs"]
mod read;

fuzz_target!(|text: &str| read::read(text));

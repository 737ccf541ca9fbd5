#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../tests/config_text/read.rs"]
mod read;

fuzz_target!(|text: &str| read::read(text));

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../tests/mixer_api/engine.rs"]
mod engine;
#[path = "../../tests/mixer_api/serve.rs"]
mod serve;

fuzz_target!(|bytes: &[u8]| serve::serve(bytes));

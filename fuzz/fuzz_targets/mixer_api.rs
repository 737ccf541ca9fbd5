#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../tests/it/mixer_api/engine.rs"]
mod engine;
#[path = "../../tests/it/mixer_api/serve.rs"]
mod serve;

fuzz_target!(|bytes: &[u8]| serve::serve(bytes));

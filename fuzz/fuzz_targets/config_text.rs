#![no_main]

use libfuzzer_sys::fuzz_target;
use mixer_adapter::config::{ConfigSet, lint, parse};

fuzz_target!(|text: &str| {
    let (set, _) = ConfigSet::of(parse(text, "fuzzed.yaml", "ns").resources);
    lint(&set, |instance| instance.name().len() > 1);
});

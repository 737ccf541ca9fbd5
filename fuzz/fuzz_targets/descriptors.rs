#![no_main]

use libfuzzer_sys::fuzz_target;
use mixer_adapter_core::framework::dynamic::{DescriptorSet, DynamicTemplate};

// The descriptor in a template or an adapter resource: base64 in a file, bytes from a server.
fuzz_target!(|bytes: &[u8]| {
    let text = std::str::from_utf8(bytes).ok().and_then(|text| DescriptorSet::from_base64(text).ok());
    for set in [text, DescriptorSet::decode(bytes.to_vec()).ok()].into_iter().flatten() {
        let _ = set.params();
        if let Ok(template) = DynamicTemplate::new(&set) {
            assert!(template.path().as_str().starts_with('/'));
        }
    }
});

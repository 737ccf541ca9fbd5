#![no_main]

use libfuzzer_sys::fuzz_target;
use mixer_adapter_core::adapter::Faults;
use mixer_adapter_list::{
    ListSettings, Params,
    params::ListEntryType::{CaseInsensitiveStrings, IpAddresses, Regex, Strings},
};

// The entries of a list of each type. Opening one that is valid does not block: it names no provider.
fuzz_target!(|text: &str| {
    for entry_type in [Strings, CaseInsensitiveStrings, IpAddresses, Regex] {
        let overrides = text.lines().map(str::to_owned).collect();
        let params = Params { overrides, entry_type: entry_type.into(), ..Params::default() };
        let _ = Faults::parse::<ListSettings>(params);
    }
});

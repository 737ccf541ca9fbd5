//! Probable mistakes of a valid configuration.

use mixer_adapter_core::{adapter::Faults, value::ValueType};
use mixer_adapter_templates::ListEntry;

use super::{Params, addresses, entries::EntryType};

/// Warns of entries of texts that look like patterns or networks, and addresses that are looked up as texts.
pub(super) fn add(params: &Params, faults: &mut Faults<'_>) {
    if !matches!(params.entry_type(), EntryType::Strings | EntryType::CaseInsensitiveStrings) {
        return;
    }
    for (index, entry) in params.overrides.iter().enumerate() {
        if let Some(advice) = advice(entry) {
            let reason = format!("{entry:?} is compared as a text, with all its characters; {advice}");
            faults.warn(format!("overrides[{index}]"), reason);
        }
    }
    let types = faults.types().of::<ListEntry>();
    for (instance, _) in types.filter(|(_, inferred)| inferred.value() == ValueType::IpAddress) {
        let reason = format!(
            "the value of {instance} is an IP address, which is compared as a text in its shortest form; write entryType: \
             IP_ADDRESSES"
        );
        faults.warn("entry_type", reason);
    }
}

/// Returns what to write for an entry that is not meant as a text.
fn advice(entry: &str) -> Option<String> {
    let trimmed = entry.trim();
    if trimmed != entry {
        return Some(format!("write {trimmed:?} without the blanks"));
    }
    if entry.contains('/') && addresses::network(entry).is_ok() {
        return Some("write entryType: IP_ADDRESSES".to_owned());
    }
    if !entry.contains('*') && !entry.starts_with('^') {
        return None;
    }
    let pattern = match entry.strip_suffix('*').filter(|start| !start.contains(['*', '^'])) {
        Some(start) => format!("^{start}"),
        None => entry.to_owned(),
    };
    Some(format!("write entryType: REGEX, and such a pattern as {pattern:?}"))
}

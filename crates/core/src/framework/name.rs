//! Names of adapters.

/// Returns whether a name can be an adapter's: `^[a-z]([-a-z0-9]*[a-z0-9])?$`, a label of DNS and of Kubernetes.
pub const fn is_valid_name(name: &str) -> bool {
    let bytes = name.as_bytes();
    if bytes.is_empty()
        || bytes.len() > 63
        || !bytes[0].is_ascii_lowercase()
        || bytes[bytes.len() - 1] == b'-'
    {
        return false;
    }
    let mut index = 0;
    while index < bytes.len() {
        if !matches!(bytes[index], b'a'..=b'z' | b'0'..=b'9' | b'-') {
            return false;
        }
        index += 1;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::is_valid_name;

    #[test]
    fn names_are_dns_labels_that_begin_with_a_letter() {
        for good in ["a", "listchecker", "my-adapter-2"] {
            assert!(is_valid_name(good), "{good}");
        }
        for bad in ["", "A", "2a", "-a", "a-", "a_b", "a.b", "ä", &"a".repeat(64)] {
            assert!(!is_valid_name(bad), "{bad}");
        }
    }
}

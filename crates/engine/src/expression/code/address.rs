use std::net::{IpAddr, Ipv6Addr};

use crate::expression::{error::EvalError, span::Span};
use mixer_adapter_core::value::ValueType;

/// Parses an address into its 16-byte form; an IPv4 address is mapped to IPv6.
pub(crate) fn parse(text: &str, span: Span) -> Result<[u8; 16], EvalError> {
    match text.parse() {
        Ok(IpAddr::V4(address)) => Ok(address.to_ipv6_mapped().octets()),
        Ok(IpAddr::V6(address)) => Ok(address.octets()),
        Err(_) => {
            let message = format!("`{text}` is neither an IPv4 nor an IPv6 address");
            Err(EvalError::conversion(ValueType::IpAddress, span, message))
        }
    }
}

/// Returns whether two addresses are equal; the 4-byte and the 16-byte form of an IPv4 address are.
pub(crate) fn equal(a: &[u8], b: &[u8]) -> bool {
    a == b || is_mapped(a, b) || is_mapped(b, a)
}

fn is_mapped(four: &[u8], sixteen: &[u8]) -> bool {
    let sixteen: Option<[u8; 16]> = sixteen.try_into().ok();
    let mapped = sixteen.and_then(|octets| Ipv6Addr::from(octets).to_ipv4_mapped());
    mapped.is_some_and(|address| address.octets() == *four)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_forms_of_an_ipv4_address_are_equal() {
        let mapped = parse("1.2.3.4", Span::default()).unwrap_or_default();
        assert!(equal(&[1, 2, 3, 4], &mapped) && equal(&mapped, &[1, 2, 3, 4]) && equal(&[], &[]));
        assert!(
            !equal(&[1, 2, 3, 4], &[1, 2, 3]) && !equal(&[1, 2, 3, 4], &[0; 16]) && !equal(&[0; 4], &[0; 16])
        );
    }
}

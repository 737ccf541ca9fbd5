use std::{
    borrow::Cow,
    net::{IpAddr, Ipv6Addr},
};

use super::{Env, Expr, Kind, text::Text};
use crate::{
    attribute::AttributeValue,
    expression::{error::EvalError, span::Span},
};
use mixer_adapter_core::value::ValueType;

/// IP_ADDRESS, as bytes: those of a request may be no address at all.
#[derive(Debug)]
pub(crate) enum Address {}

#[derive(Debug)]
pub(crate) enum AddressOp {
    Parse(Expr<Text>, Span),
}

impl Kind for Address {
    type Constant = [u8; 16];
    type Value<'a> = Cow<'a, [u8]>;
    type Operation = AddressOp;

    fn constant(constant: &[u8; 16]) -> Cow<'_, [u8]> {
        Cow::Borrowed(constant)
    }

    fn read(value: &AttributeValue, _: u32) -> Option<Cow<'_, [u8]>> {
        match value {
            AttributeValue::Bytes(bytes) => Some(Cow::Borrowed(bytes)),
            _ => None,
        }
    }

    fn run<'a>(operation: &'a AddressOp, env: &mut Env<'a, '_>) -> Result<Cow<'a, [u8]>, EvalError> {
        let AddressOp::Parse(text, span) = operation;
        let text = text.value(env)?;
        match parse(&text) {
            Some(address) => Ok(Cow::Owned(address.to_vec())),
            None => Err(EvalError::conversion(
                ValueType::IpAddress,
                *span,
                format!("`{text}` is neither IPv4 nor IPv6"),
            )),
        }
    }
}

/// The 16-byte form, even of an IPv4 address.
pub(crate) fn parse(text: &str) -> Option<[u8; 16]> {
    Some(match text.parse().ok()? {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    })
}

/// Whether two addresses are one: the 4 and the 16-byte form of an IPv4 address are.
pub(crate) fn same(a: &[u8], b: &[u8]) -> bool {
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
    fn the_two_forms_of_an_ipv4_address_are_the_same_address() {
        let mapped = parse("1.2.3.4").unwrap_or_default();
        assert!(same(&[1, 2, 3, 4], &mapped) && same(&mapped, &[1, 2, 3, 4]) && same(&[], &[]));
        assert!(
            !same(&[1, 2, 3, 4], &[1, 2, 3]) && !same(&[1, 2, 3, 4], &[0; 16]) && !same(&[0; 4], &[0; 16])
        );
    }
}

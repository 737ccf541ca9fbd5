//! Limits on the elements of a request. They are counted in the encoded message: two bytes of an empty one become a hundred
//! times as many when it is decoded.

use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

use mixer_adapter_engine::{LimitError, RequestLimit, RequestLimits};

/// Checks an encoded `CheckRequest`.
///
/// # Errors
/// It exceeds a limit.
pub(super) fn admit_check(limits: &RequestLimits, request: &[u8]) -> Result<(), LimitError> {
    let (mut attributes, mut words, mut quotas) = (0, 0, 0);
    for (number, content) in Fields(request) {
        match number {
            1 => count_attributes(limits, content, &mut attributes, &mut words)?,
            4 => add(&mut quotas, RequestLimit::Quotas, limits.quotas_per_check)?,
            _ => {}
        }
    }
    Ok(())
}

/// Checks an encoded `ReportRequest`.
///
/// # Errors
/// It exceeds a limit.
pub(super) fn admit_report(limits: &RequestLimits, request: &[u8]) -> Result<(), LimitError> {
    let (mut requests, mut words) = (0, 0);
    for (number, content) in Fields(request) {
        match number {
            1 => {
                add(&mut requests, RequestLimit::Requests, limits.requests_per_report)?;
                count_attributes(limits, content, &mut 0, &mut words)?;
            }
            2 => add(&mut words, RequestLimit::Words, limits.words)?,
            _ => {}
        }
    }
    Ok(())
}

/// Counts the fields of an encoded `CompressedAttributes`: 1 is a word, 2 to 9 are attributes.
fn count_attributes(
    limits: &RequestLimits,
    message: &[u8],
    attributes: &mut usize,
    words: &mut usize,
) -> Result<(), LimitError> {
    for (number, _) in Fields(message) {
        match number {
            1 => add(words, RequestLimit::Words, limits.words)?,
            2..=9 => add(attributes, RequestLimit::Attributes, limits.attributes_per_request)?,
            _ => {}
        }
    }
    Ok(())
}

fn add(count: &mut usize, limit: RequestLimit, max: usize) -> Result<(), LimitError> {
    *count += 1;
    limit.check(*count, max)
}

/// Returns how often a field is in an encoded message, at most `max + 1`.
pub(super) fn count_fields(message: &[u8], number: u32, max: usize) -> usize {
    Fields(message).filter(|(field, _)| *field == number).take(max.saturating_add(1)).count()
}

/// Iterates over the numbers of the fields of an encoded message, with the content of length-delimited fields. Stops at an invalid
/// field, which decoding refuses.
struct Fields<'m>(&'m [u8]);

impl<'m> Iterator for Fields<'m> {
    type Item = (u32, &'m [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let (number, wire_type) = decode_key(&mut self.0).ok()?;
        if wire_type != WireType::LengthDelimited {
            skip_field(wire_type, number, &mut self.0, DecodeContext::default()).ok()?;
            return Some((number, &[]));
        }
        let length = usize::try_from(decode_varint(&mut self.0).ok()?).ok()?;
        let (content, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some((number, content))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use mixer_adapter_engine::proto::istio::mixer::v1::{
        CheckRequest, CompressedAttributes, ReportRequest, check_request::QuotaParams,
    };
    use prost::Message as _;

    fn limits() -> RequestLimits {
        RequestLimits::default()
            .requests_per_report(3)
            .attributes_per_request(4)
            .words(5)
            .quotas_per_check(2)
            .instances(usize::MAX)
            .expanded_size(usize::MAX)
    }

    /// Attributes of two kinds, and words.
    fn attributes(count: usize, words: usize) -> CompressedAttributes {
        CompressedAttributes {
            words: vec!["word".to_owned(); words],
            int64s: (0..count.min(2)).map(|name| (name as i32, 1)).collect(),
            strings: (2..count).map(|name| (name as i32, 1)).collect(),
            ..CompressedAttributes::default()
        }
    }

    fn check(attributes: CompressedAttributes, quotas: usize) -> Result<(), RequestLimit> {
        let quotas = (0..quotas).map(|name| (name.to_string(), QuotaParams::default())).collect();
        let request = CheckRequest { attributes: Some(attributes), quotas, ..CheckRequest::default() };
        admit_check(&limits(), &request.encode_to_vec()).map_err(|error| error.limit)
    }

    fn report(attributes: Vec<CompressedAttributes>, default_words: usize) -> Result<(), RequestLimit> {
        let default_words = vec!["word".to_owned(); default_words];
        let request = ReportRequest { attributes, default_words, ..ReportRequest::default() };
        admit_report(&limits(), &request.encode_to_vec()).map_err(|error| error.limit)
    }

    #[test]
    fn a_check_has_as_many_attributes_words_and_quotas_as_the_limits() {
        assert_eq!(check(attributes(4, 5), 2), Ok(()));
        assert_eq!(check(attributes(5, 5), 2), Err(RequestLimit::Attributes));
        assert_eq!(check(attributes(4, 6), 2), Err(RequestLimit::Words));
        assert_eq!(check(attributes(4, 5), 3), Err(RequestLimit::Quotas));
    }

    #[test]
    fn attributes_are_counted_for_each_request_of_a_report_and_words_for_all() {
        assert_eq!(report(vec![attributes(4, 1); 3], 2), Ok(()));
        assert_eq!(report(vec![attributes(5, 1); 3], 2), Err(RequestLimit::Attributes));
        assert_eq!(report(vec![attributes(4, 1); 3], 3), Err(RequestLimit::Words));
        assert_eq!(report(vec![attributes(4, 0); 4], 0), Err(RequestLimit::Requests));
    }

    #[test]
    fn the_attributes_of_a_check_may_come_in_parts() {
        let parts = [attributes(3, 0), attributes(3, 0)].map(|attributes| {
            let request = CheckRequest { attributes: Some(attributes), ..CheckRequest::default() };
            request.encode_to_vec()
        });
        let error = admit_check(&limits(), &parts.concat()).unwrap_err();
        assert_eq!(error.to_string(), "a request has more than 4 attributes (max-attributes-per-request)");
    }

    #[test]
    fn what_cannot_be_decoded_is_left_to_the_decoder() {
        for bytes in [&b"\x0a"[..], b"\x0a\x7f", b"\xff\xff", b"\x0b\x0c\x0a\x00", b"\x0d\x00"] {
            assert_eq!(admit_report(&limits(), bytes), Ok(()));
        }
    }
}

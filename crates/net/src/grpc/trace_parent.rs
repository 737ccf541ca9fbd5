//! The trace that a call is part of, from its W3C header `traceparent`.

use std::fmt;

/// The ids in a `traceparent` header of [W3C Trace Context](https://www.w3.org/TR/trace-context/#traceparent-header).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    trace_id: u128,
    parent_id: u64,
    is_sampled: bool,
}

impl TraceParent {
    /// Creates the value for a span; `None` if an id is 0, which is not valid.
    pub fn new(trace_id: u128, parent_id: u64, is_sampled: bool) -> Option<Self> {
        (trace_id != 0 && parent_id != 0).then_some(Self { trace_id, parent_id, is_sampled })
    }

    /// Reads the value of a header; `None` if it is malformed, in which case the header is to be ignored.
    pub fn parse(header: &[u8]) -> Option<Self> {
        // Later versions may have more fields.
        let (fields, rest) = header.split_at_checked(55)?;
        let (version, fields) = fields.split_at(2);
        let is_known = match (hex(version)?, rest) {
            (0xff, _) => false,
            (_, []) => true,
            (version, [next, ..]) => version > 0 && *next == b'-',
        };
        let [b'-', trace_id @ .., b'-', flag_1, flag_2] = fields else { return None };
        let (trace_id, parent_id) = trace_id.split_at_checked(32)?;
        let (trace_id, [b'-', parent_id @ ..]) = (hex(trace_id)?, parent_id) else { return None };
        let (parent_id, flags) = (hex(parent_id)?, hex(&[*flag_1, *flag_2])?);
        let parent_id = u64::try_from(parent_id).ok()?;
        is_known.then(|| Self::new(trace_id, parent_id, flags & 1 == 1))?
    }

    /// Returns the ids of the trace and of the caller's span as numbers.
    pub fn ids(&self) -> (u128, u64) {
        (self.trace_id, self.parent_id)
    }

    /// Returns whether the caller may have recorded its span.
    pub fn is_sampled(&self) -> bool {
        self.is_sampled
    }

    /// Returns the id of the trace, as 32 lower-case hexadecimal digits.
    pub fn trace_id(&self) -> impl fmt::Display + fmt::Debug + use<> {
        HexId(self.trace_id, 32)
    }

    /// Returns the id of the caller's span, as 16 lower-case hexadecimal digits.
    pub fn parent_id(&self) -> impl fmt::Display + fmt::Debug + use<> {
        HexId(u128::from(self.parent_id), 16)
    }
}

/// The value of the header, in version 00.
impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{}-{}-{:02x}", self.trace_id(), self.parent_id(), u8::from(self.is_sampled))
    }
}

#[derive(Debug)]
struct HexId(u128, usize);

impl fmt::Display for HexId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:0digits$x}", self.0, digits = self.1)
    }
}

/// Returns the number that up to 32 lower-case hexadecimal digits represent.
fn hex(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0, |number: u128, digit| {
        let value = char::from(*digit).to_digit(16).filter(|_| !digit.is_ascii_uppercase())?;
        Some(number << 4 | u128::from(value))
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_header_has_the_ids_of_the_trace_and_of_the_callers_span() {
        // The examples of the specification, and one of a later version.
        for header in [
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00",
            "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-what-the-future-will-be-like",
        ] {
            let ids = TraceParent::parse(header.as_bytes())
                .map(|parent| (parent.trace_id().to_string(), parent.parent_id().to_string()));
            let expected = ("0af7651916cd43dd8448eb211c80319c".to_owned(), "b7ad6b7169203331".to_owned());
            assert_eq!(ids, Some(expected), "{header}");
        }
    }

    #[test]
    fn a_value_is_written_as_a_header_of_version_00() {
        for header in [
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000001-0000000000000002-00",
        ] {
            assert_eq!(TraceParent::parse(header.as_bytes()).unwrap().to_string(), header);
        }
        assert_eq!((TraceParent::new(0, 1, true), TraceParent::new(1, 0, true)), (None, None));
    }

    #[test]
    fn malformed_headers_are_ignored() {
        for header in [
            "",
            "00",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916CD43DD8448EB211C80319C-B7AD6B7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0x",
            "00-0af7651916cd43dd8448eb211c80319-cb7ad6b7169203331-01",
            "00_0af7651916cd43dd8448eb211c80319c_b7ad6b7169203331_01",
            "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01.more",
        ] {
            assert_eq!(TraceParent::parse(header.as_bytes()), None, "{header}");
        }
    }
}

//! The headers of a call that the server reads.

use http::{HeaderMap, HeaderValue};

/// The headers of a call, found in one pass: a lookup of each by name would cost more.
#[derive(Debug, Default)]
pub(super) struct CallHeaders<'h> {
    pub(super) content_type: Option<&'h HeaderValue>,
    pub(super) encoding: Option<&'h HeaderValue>,
    pub(super) timeout: Option<&'h HeaderValue>,
    pub(super) request_id: Option<&'h HeaderValue>,
    /// The header `traceparent`, which is invalid if there are several.
    pub(super) traceparent: Option<&'h HeaderValue>,
}

impl<'h> CallHeaders<'h> {
    /// Returns the first value of each header.
    pub(super) fn read(headers: &'h HeaderMap) -> Self {
        let mut read = Self::default();
        let mut traceparents = 0;
        for (name, value) in headers {
            let header = match name.as_str() {
                "content-type" => &mut read.content_type,
                "grpc-encoding" => &mut read.encoding,
                "grpc-timeout" => &mut read.timeout,
                "x-request-id" => &mut read.request_id,
                "traceparent" => {
                    traceparents += 1;
                    &mut read.traceparent
                }
                _ => continue,
            };
            header.get_or_insert(value);
        }
        if traceparents > 1 {
            read.traceparent = None;
        }
        read
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_value_of_each_header_counts_and_traceparent_must_be_the_only_one() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("content-type", "application/grpc"),
            ("x-request-id", "1"),
            ("x-request-id", "2"),
            ("traceparent", "a"),
            ("grpc-timeout", "1S"),
            ("other", "3"),
        ] {
            headers.append(name, HeaderValue::from_static(value));
        }
        let read = CallHeaders::read(&headers);
        let text = |value: Option<&HeaderValue>| value.map(|value| value.as_bytes().to_vec());
        assert_eq!(text(read.content_type), Some(b"application/grpc".to_vec()));
        assert_eq!(text(read.request_id), Some(b"1".to_vec()));
        assert_eq!(text(read.traceparent), Some(b"a".to_vec()));
        assert_eq!((text(read.timeout), text(read.encoding)), (Some(b"1S".to_vec()), None));
        headers.append("traceparent", HeaderValue::from_static("b"));
        assert_eq!(CallHeaders::read(&headers).traceparent, None);
    }
}

use bytes::Bytes;
use http_body::Body;
use http_body_util::BodyExt as _;
use tonic::Status;

use super::{
    admission::Admitted,
    framing::{FrameError, UnaryMessage},
};
use crate::Limit;

/// Reads the one message in the body of a unary request.
///
/// A message of more than `max` bytes is refused by its prefix, before it is read: RESOURCE_EXHAUSTED, and the connection stays.
/// Memory is taken for bytes that have arrived, not for announced ones.
pub(super) async fn read_message<B>(mut body: B, max: usize, call: &Admitted) -> Result<Bytes, Status>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    let mut message = UnaryMessage::new(max);
    while !body.is_end_stream()
        && let Some(frame) = body.frame().await
    {
        let frame =
            frame.map_err(|error| Status::cancelled(format!("the request was broken off: {error}")))?;
        // Anything but data is trailers, which have no meaning in a request.
        if let Ok(data) = frame.into_data() {
            let before = message.memory();
            message.push(data).map_err(|error| refusal(error, call))?;
            call.add_bytes(message.memory().saturating_sub(before))?;
        }
    }
    message.finish().map_err(|error| refusal(error, call))
}

fn refusal(error: FrameError, call: &Admitted) -> Status {
    let text = error.to_string();
    match error {
        FrameError::TooLong { .. } => {
            call.hit(Limit::MessageSize);
            Status::resource_exhausted(text)
        }
        FrameError::Compressed => Status::unimplemented(text),
        _ => Status::invalid_argument(text),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::{connections::ConnectionState, grpc::admission::Pools};
    use http_body_util::StreamBody;
    use std::sync::Arc;
    use tonic::Code;

    fn call(memory: usize) -> Admitted {
        Admitted::new(Arc::new(Pools::new(1, 1, memory)), ConnectionState::detached())
    }

    async fn read(pieces: &[&[u8]]) -> Result<Bytes, Code> {
        let frames = pieces
            .iter()
            .map(|piece| {
                Ok::<_, std::convert::Infallible>(http_body::Frame::data(Bytes::copy_from_slice(piece)))
            })
            .collect::<Vec<_>>();
        let body = StreamBody::new(futures_util::stream::iter(frames));
        read_message(body, 8, &call(1 << 20)).await.map_err(|status| status.code())
    }

    #[tokio::test]
    async fn a_message_arrives_in_one_piece_or_in_many() {
        assert_eq!(read(&[b"\0\0\0\0\x03abc"]).await.unwrap(), "abc");
        assert_eq!(read(&[b"\0\0\0\0\0"]).await.unwrap(), "");
        assert_eq!(read(&[b"", b"\0\0", b"\0\0\x03a", b"b", b"c"]).await.unwrap(), "abc");
    }

    #[tokio::test]
    async fn broken_framing_is_invalid() {
        for pieces in [
            &[&b""[..]][..],
            &[b"\0\0"],
            &[b"\0\0\0\0\x03ab"],
            &[b"\0\0\0\0\x03abcd"],
            &[b"\0\0\0\0\x03abc", b"d"],
            &[b"\x07\0\0\0\x01a"],
        ] {
            assert_eq!(read(pieces).await, Err(Code::InvalidArgument), "{pieces:?}");
        }
    }

    #[tokio::test]
    async fn compressed_messages_are_unimplemented() {
        assert_eq!(read(&[b"\x01\0\0\0\x01a"]).await, Err(Code::Unimplemented));
    }

    #[tokio::test]
    async fn a_message_over_the_limit_is_refused_by_its_prefix() {
        assert_eq!(read(&[b"\0\0\0\0\x09"]).await, Err(Code::ResourceExhausted));
    }
}

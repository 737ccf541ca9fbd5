use bytes::{Buf as _, Bytes, BytesMut};
use http_body::Body;
use http_body_util::BodyExt as _;
use tonic::Status;

use super::admission::Admitted;
use crate::Limit;

/// The length of the prefix of a gRPC message: one byte of flags, four of length.
pub(super) const PREFIX: usize = 5;

/// Reads the one message in the body of a unary request.
///
/// A message of more than `max` bytes is refused by its prefix, before it is read: RESOURCE_EXHAUSTED, and the connection stays.
/// Memory is taken for the bytes that have arrived, not for those that the prefix announces.
pub(super) async fn read_message<B>(mut body: B, max: usize, call: &Admitted) -> Result<Bytes, Status>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    let mut first = next_data(&mut body).await?.unwrap_or_default();
    call.add_bytes(first.len())?;
    if first.len() >= PREFIX {
        let length = message_length(&first, max, call)?;
        if first.len() == PREFIX + length {
            // The common case: the message came in one piece and is not copied.
            expect_end(&mut body).await?;
            first.advance(PREFIX);
            return Ok(first);
        }
    }
    let mut message = BytesMut::from(&first[..]);
    while message.len() < PREFIX {
        match next_data(&mut body).await? {
            Some(data) => append(&mut message, &data, call)?,
            None if message.is_empty() => return Err(Status::invalid_argument("the request has no message")),
            None => {
                return Err(Status::invalid_argument("the request ends within the prefix of its message"));
            }
        }
    }
    let length = message_length(&message, max, call)?;
    while message.len() < PREFIX + length {
        match next_data(&mut body).await? {
            Some(data) => append(&mut message, &data, call)?,
            None => {
                return Err(Status::invalid_argument(format!(
                    "the message ends after {} of {length} bytes",
                    message.len() - PREFIX
                )));
            }
        }
    }
    if message.len() > PREFIX + length {
        return Err(one_message());
    }
    expect_end(&mut body).await?;
    message.advance(PREFIX);
    Ok(message.freeze())
}

/// Appends bytes that have arrived; the buffer grows with them.
fn append(message: &mut BytesMut, data: &[u8], call: &Admitted) -> Result<(), Status> {
    let before = message.capacity();
    message.extend_from_slice(data);
    call.add_bytes(message.capacity().saturating_sub(before))
}

async fn next_data<B>(body: &mut B) -> Result<Option<Bytes>, Status>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    while let Some(frame) = body.frame().await {
        let frame =
            frame.map_err(|error| Status::cancelled(format!("the request was broken off: {error}")))?;
        // Anything but data is trailers, which have no meaning in a request.
        if let Ok(data) = frame.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

async fn expect_end<B>(body: &mut B) -> Result<(), Status>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    while !body.is_end_stream() {
        match next_data(body).await? {
            None => break,
            Some(data) if data.is_empty() => {}
            Some(_) => return Err(one_message()),
        }
    }
    Ok(())
}

fn one_message() -> Status {
    Status::invalid_argument("the request has more than one message")
}

fn message_length(prefix: &[u8], max: usize, call: &Admitted) -> Result<usize, Status> {
    match prefix[0] {
        0 => {}
        1 => {
            return Err(Status::unimplemented(
                "compressed messages are not supported; send them uncompressed",
            ));
        }
        flags => {
            return Err(Status::invalid_argument(format!(
                "{flags:#04x} is not a valid flag byte of a gRPC message"
            )));
        }
    }
    let length = u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]);
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    if length > max {
        call.hit(Limit::MessageSize);
        return Err(Status::resource_exhausted(format!(
            "the message has {length} bytes; the limit is {max}"
        )));
    }
    Ok(length)
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

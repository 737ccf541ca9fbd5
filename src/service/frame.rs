use bytes::{Buf as _, Bytes, BytesMut};
use http_body::Body;
use http_body_util::BodyExt as _;
use tonic::Status;

use mixer_adapter_core::framework::frame::FRAME_PREFIX;

/// The one message in the body of a unary request, at most so many bytes.
///
/// A longer one is refused from its prefix, before its bytes are read: RESOURCE_EXHAUSTED, and the connection lives.
pub(super) async fn read_message<B>(mut body: B, at_most: usize) -> Result<Bytes, Status>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    let mut first = next_data(&mut body).await?.unwrap_or_default();
    if first.len() >= FRAME_PREFIX {
        let length = message_length(&first, at_most)?;
        if first.len() == FRAME_PREFIX + length {
            // By far the most frequent: the message came in one piece and need not be copied.
            expect_end(&mut body).await?;
            first.advance(FRAME_PREFIX);
            return Ok(first);
        }
    }
    let mut message = BytesMut::from(&first[..]);
    while message.len() < FRAME_PREFIX {
        match next_data(&mut body).await? {
            Some(data) => message.extend_from_slice(&data),
            None if message.is_empty() => return Err(Status::invalid_argument("the request has no message")),
            None => {
                return Err(Status::invalid_argument("the request ends within the prefix of its message"));
            }
        }
    }
    let length = message_length(&message, at_most)?;
    message.reserve((FRAME_PREFIX + length).saturating_sub(message.len()));
    while message.len() < FRAME_PREFIX + length {
        match next_data(&mut body).await? {
            Some(data) => message.extend_from_slice(&data),
            None => {
                return Err(Status::invalid_argument(format!(
                    "the message ends after {} of {length} bytes",
                    message.len() - FRAME_PREFIX
                )));
            }
        }
    }
    if message.len() > FRAME_PREFIX + length {
        return Err(one_message());
    }
    expect_end(&mut body).await?;
    message.advance(FRAME_PREFIX);
    Ok(message.freeze())
}

async fn next_data<B>(body: &mut B) -> Result<Option<Bytes>, Status>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Status::cancelled(format!("the request broke off: {error}")))?;
        // Anything but data is trailers, which say nothing in a request.
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

fn message_length(prefix: &[u8], at_most: usize) -> Result<usize, Status> {
    match prefix[0] {
        0 => {}
        1 => return Err(Status::unimplemented("compressed messages are not served; send them as they are")),
        flags => {
            return Err(Status::invalid_argument(format!("{flags:#04x} are no flags of a gRPC message")));
        }
    }
    let length = u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]);
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    if length > at_most {
        return Err(Status::resource_exhausted(format!(
            "the message is {length} bytes long; at most {at_most} are taken"
        )));
    }
    Ok(length)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use http_body_util::StreamBody;
    use tonic::Code;

    async fn read(pieces: &[&[u8]]) -> Result<Bytes, Code> {
        let frames = pieces
            .iter()
            .map(|piece| {
                Ok::<_, std::convert::Infallible>(http_body::Frame::data(Bytes::copy_from_slice(piece)))
            })
            .collect::<Vec<_>>();
        let body = StreamBody::new(futures_util::stream::iter(frames));
        read_message(body, 8).await.map_err(|status| status.code())
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
    async fn compression_is_refused_by_name() {
        assert_eq!(read(&[b"\x01\0\0\0\x01a"]).await, Err(Code::Unimplemented));
    }

    #[tokio::test]
    async fn a_long_message_is_refused_from_its_prefix() {
        assert_eq!(read(&[b"\0\0\0\0\x09"]).await, Err(Code::ResourceExhausted));
    }
}

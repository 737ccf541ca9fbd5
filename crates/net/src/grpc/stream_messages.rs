use std::{
    error::Error,
    io::Read as _,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use flate2::read::MultiGzDecoder;
use http::HeaderMap;
use http_body::{Body, Frame};
use tokio::time::Sleep;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::Status;

use super::{admission::Admitted, framing::PREFIX, weight::expansion};
use crate::Limit;

/// The buffers that a stream has before its first message, in bytes.
const BUFFERS: usize = 16 << 10;

/// How the messages of a request are treated.
#[derive(Clone, Copy, Debug)]
pub(super) struct MessageRules {
    /// The longest message in bytes. Longer ones are passed on at their beginning: the decoder refuses them.
    pub(super) max_size: usize,
    /// How long a message may take to arrive after its first byte.
    pub(super) timeout: Duration,
    /// Whether the service decodes messages as a whole: what they expand to counts, and compressed ones are decompressed here.
    pub(super) decoded_whole: bool,
}

/// The body of a request or a response whose messages are decoded elsewhere.
///
/// Messages are passed on when they are complete: tonic's decoders take memory for the announced length at once.
///
/// Memory is charged for the buffers of the stream, the largest message so far (decoders keep that buffer) and bytes in flight: the
/// message that arrives, and messages that the service decodes until it reads on. It is released at the end of the stream.
#[derive(Debug)]
pub struct StreamMessages<B> {
    body: B,
    call: Arc<Admitted>,
    rules: MessageRules,
    /// Whether messages may be compressed.
    gzip: bool,
    /// Completes when the response has ended.
    ended: Pin<Box<WaitForCancellationFutureOwned>>,
    message: PartialMessage,
    /// Completes when the message that has begun took too long.
    late: Option<Pin<Box<Sleep>>>,
    /// Bytes of the incomplete message.
    held: BytesMut,
    /// The length of the longest message so far.
    longest: usize,
    /// The bytes of messages that arrive or are decoded.
    in_flight: usize,
}

impl<B> StreamMessages<B> {
    /// Returns a body until `ended`.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED.
    pub(super) fn new(
        headers: &HeaderMap,
        body: B,
        call: Arc<Admitted>,
        rules: MessageRules,
        ended: CancellationToken,
    ) -> Result<Self, Status> {
        call.add_bytes(BUFFERS)?;
        let encoding = headers.get("grpc-encoding");
        let gzip = rules.decoded_whole && encoding.is_some_and(|encoding| encoding == "gzip");
        Ok(Self {
            body,
            call,
            rules,
            gzip,
            ended: Box::pin(ended.cancelled_owned()),
            message: PartialMessage::default(),
            late: None,
            held: BytesMut::new(),
            longest: 0,
            in_flight: 0,
        })
    }

    /// Takes memory for bytes that have arrived, and returns the complete messages.
    fn received(&mut self, mut data: Bytes) -> Result<Bytes, Status> {
        let Added { longest, complete } = self.message.add(data.clone(), self.rules.max_size);
        self.set_longest(longest)?;
        let arrived = self.held.len() + data.len();
        self.set_in_flight(arrived)?;
        if complete == 0 {
            self.held.extend_from_slice(&data);
            return Ok(Bytes::new());
        }
        self.call.set_called();
        self.late = None;
        let mut messages = data.split_to(complete);
        if !self.held.is_empty() {
            self.held.extend_from_slice(&messages);
            messages = std::mem::take(&mut self.held).freeze();
        }
        self.held.extend_from_slice(&data);
        if self.rules.decoded_whole {
            messages = self.decompressed(messages)?;
            let expanded = Frames::of(&messages, self.rules.max_size).map(|(_, message)| expansion(message));
            let expanded = messages.len() + expanded.sum::<usize>();
            self.set_in_flight(self.held.len() + expanded)?;
        }
        Ok(messages)
    }

    /// Decompresses complete messages that are compressed: a few bytes may expand to very many.
    fn decompressed(&mut self, messages: Bytes) -> Result<Bytes, Status> {
        let max = self.rules.max_size;
        if !self.gzip || Frames::of(&messages, max).all(|(compressed, _)| !compressed) {
            return Ok(messages);
        }
        let mut plain = BytesMut::new();
        let mut rest = Frames::of(&messages, max);
        for (compressed, message) in rest.by_ref() {
            let start = plain.len();
            plain.put_bytes(0, PREFIX);
            if compressed {
                self.decompress(message, &mut plain)?
            } else {
                plain.extend_from_slice(message)
            }
            let length = plain.len() - start - PREFIX;
            self.set_longest(PREFIX + length)?;
            let length = u32::try_from(length).map_err(|_| too_long(max))?;
            plain[start + 1..start + PREFIX].copy_from_slice(&length.to_be_bytes());
        }
        plain.extend_from_slice(rest.0);
        Ok(plain.freeze())
    }

    fn decompress(&mut self, message: &[u8], plain: &mut BytesMut) -> Result<(), Status> {
        let max = self.rules.max_size;
        let mut decoder = MultiGzDecoder::new(message);
        let mut chunk = [0; 4096];
        let mut length = 0;
        loop {
            let read = decoder
                .read(&mut chunk)
                .map_err(|error| Status::internal(format!("a message is not valid gzip: {error}")))?;
            if read == 0 {
                return Ok(());
            }
            length += read;
            if length > max {
                return Err(too_long(max));
            }
            self.set_in_flight(self.in_flight + read)?;
            plain.extend_from_slice(&chunk[..read]);
        }
    }

    fn set_longest(&mut self, length: usize) -> Result<(), Status> {
        if length > self.longest {
            self.call.add_bytes(length - self.longest)?;
            self.longest = length;
        }
        Ok(())
    }

    fn set_in_flight(&mut self, bytes: usize) -> Result<(), Status> {
        match bytes.checked_sub(self.in_flight) {
            Some(added) => self.call.add_bytes(added)?,
            None => self.call.remove_bytes(self.in_flight - bytes),
        }
        self.in_flight = bytes;
        Ok(())
    }

    /// Fails when the message that has begun does not arrive in time.
    fn poll_late(&mut self, context: &mut Context<'_>) -> Poll<Status> {
        if self.held.is_empty() {
            return Poll::Pending;
        }
        let limit = self.rules.timeout;
        let late = self.late.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        late.as_mut().poll(context).map(|()| {
            self.call.hit(Limit::BodyTimeout);
            Status::deadline_exceeded(format!("a message did not arrive within {limit:?}"))
        })
    }
}

fn too_long(max: usize) -> Status {
    Status::out_of_range(format!("a message has more than {max} bytes"))
}

impl<B> Body for StreamMessages<B>
where
    B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.ended.as_mut().poll(context).is_ready() {
            return Poll::Ready(None);
        }
        // Messages that were passed on have been decoded.
        let held = self.held.len();
        self.set_in_flight(held)?;
        loop {
            let frame = match Pin::new(&mut self.body).poll_frame(context) {
                Poll::Ready(Some(frame)) => frame.map_err(Into::into)?,
                Poll::Ready(None) if std::mem::take(&mut self.held).is_empty() => return Poll::Ready(None),
                Poll::Ready(None) => {
                    let status = Status::internal("the stream ended within a message");
                    return Poll::Ready(Some(Err(status.into())));
                }
                Poll::Pending => return self.poll_late(context).map(|status| Some(Err(status.into()))),
            };
            match frame.into_data().map(|data| self.received(data)) {
                Ok(Ok(messages)) if messages.is_empty() => {}
                Ok(Ok(messages)) => return Poll::Ready(Some(Ok(Frame::data(messages)))),
                Ok(Err(status)) => return Poll::Ready(Some(Err(status.into()))),
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream() && self.held.is_empty()
    }
}

/// The complete messages at the beginning of bytes: whether each is compressed, and its content.
struct Frames<'m>(&'m [u8], usize);

impl<'m> Frames<'m> {
    fn of(bytes: &'m [u8], max: usize) -> Self {
        Self(bytes, max)
    }
}

impl<'m> Iterator for Frames<'m> {
    type Item = (bool, &'m [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (&[flags, length @ ..], rest) = self.0.split_first_chunk::<PREFIX>()?;
        let length = usize::try_from(u32::from_be_bytes(length)).ok().filter(|length| *length <= self.1)?;
        let (message, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((flags == 1, message))
    }
}

type BoxError = Box<dyn Error + Send + Sync>;

/// The message of a stream that has not arrived completely.
#[derive(Debug, Default)]
struct PartialMessage {
    prefix: [u8; PREFIX],
    /// Bytes of it that have arrived, with the prefix.
    arrived: usize,
}

/// What bytes of a stream add to its messages.
#[derive(Debug, PartialEq)]
struct Added {
    /// How much of the longest message among them has arrived.
    longest: usize,
    /// The bytes until the end of the last message that is complete, or too long to wait for.
    complete: usize,
}

impl PartialMessage {
    /// Adds bytes of the stream, whose messages should have at most `max` bytes.
    fn add(&mut self, mut data: Bytes, max: usize) -> Added {
        let (all, mut complete) = (data.len(), 0);
        let mut longest = self.arrived;
        while !data.is_empty() {
            let length = match self.arrived.checked_sub(PREFIX) {
                None => {
                    self.prefix[self.arrived] = data.get_u8();
                    self.arrived += 1;
                    longest = longest.max(self.arrived);
                    if self.arrived < PREFIX {
                        continue;
                    }
                    self.length()
                }
                Some(arrived) => {
                    let length = self.length();
                    let part = data.len().min(length - arrived);
                    data.advance(part);
                    self.arrived += part;
                    longest = longest.max(self.arrived);
                    length
                }
            };
            if self.arrived == PREFIX.saturating_add(length) {
                self.arrived = 0;
            }
            if self.arrived == 0 || length > max {
                complete = all - data.len();
            }
        }
        Added { longest, complete }
    }

    fn length(&self) -> usize {
        let [_, length @ ..] = self.prefix;
        usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::{convert::Infallible, io::Write as _};

    use flate2::{Compression, write::GzEncoder};
    use http_body_util::{BodyExt as _, Full, StreamBody};
    use tonic::Code;

    use super::*;
    use crate::{
        connections::ConnectionState,
        grpc::admission::{FREE_BYTES, Pools},
    };

    const MAX: usize = 1 << 20;
    const RULES: MessageRules =
        MessageRules { max_size: MAX, timeout: Duration::from_secs(10), decoded_whole: true };

    fn message(length: u8) -> Vec<u8> {
        framed(0, &vec![7; usize::from(length)])
    }

    fn framed(flags: u8, message: &[u8]) -> Vec<u8> {
        let length = u32::try_from(message.len()).unwrap().to_be_bytes();
        [&[flags][..], &length, message].concat()
    }

    fn gzip(content: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    }

    fn request<B>(body: B, pools: &Arc<Pools>, rules: MessageRules) -> StreamMessages<B> {
        let call = Arc::new(Admitted::new(pools.clone(), ConnectionState::detached()));
        let headers = HeaderMap::from_iter([("grpc-encoding".parse().unwrap(), "gzip".parse().unwrap())]);
        StreamMessages::new(&headers, body, call, rules, CancellationToken::new()).unwrap()
    }

    fn with_memory(bytes: usize) -> Arc<Pools> {
        Arc::new(Pools::new(9, 9, bytes))
    }

    async fn code_of<B>(request: &mut StreamMessages<B>) -> Option<Code>
    where
        B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin,
    {
        let error = request.frame().await?.err()?;
        Some(error.downcast_ref::<Status>().unwrap().code())
    }

    #[tokio::test]
    async fn what_a_message_expands_to_counts_until_the_service_reads_on() {
        // Each of these fields may be a message of hundreds of bytes.
        let sent = framed(0, &b"\x12\x00".repeat(1000));
        let mut refused = request(Full::from(sent.clone()), &with_memory(200_000), RULES);
        assert_eq!(code_of(&mut refused).await, Some(Code::ResourceExhausted));
        let pools = with_memory(1_000_000);
        let mut served = request(Full::from(sent.clone()), &pools, RULES);
        let passed = served.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(passed, sent);
        assert!(pools.memory_in_use() > 200_000);
        assert!(served.frame().await.is_none());
        // The buffers, and that of the decoder.
        assert_eq!(pools.memory_in_use(), BUFFERS + sent.len() - FREE_BYTES);
        drop(served);
        assert_eq!(pools.memory_in_use(), 0);
    }

    #[tokio::test]
    async fn compressed_messages_count_as_what_they_stand_for() {
        let content = vec![7; MAX];
        let bomb = framed(1, &gzip(&content));
        assert!(bomb.len() < 5000);
        let mut refused = request(Full::from(bomb.clone()), &with_memory(MAX), RULES);
        assert_eq!(code_of(&mut refused).await, Some(Code::ResourceExhausted));
        let both = [bomb.clone(), framed(0, b"plain")].concat();
        let mut served = request(Full::from(both), &with_memory(4 * MAX), RULES);
        let passed = served.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(passed, [framed(0, &content), framed(0, b"plain")].concat());
        let mut too_long =
            request(Full::from(framed(1, &gzip(&vec![7; MAX + 1]))), &with_memory(4 * MAX), RULES);
        assert_eq!(code_of(&mut too_long).await, Some(Code::OutOfRange));
        let mut invalid = request(Full::from(framed(1, b"plain")), &with_memory(MAX), RULES);
        assert_eq!(code_of(&mut invalid).await, Some(Code::Internal));
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_that_has_begun_must_arrive_in_time_but_the_next_may_take_any_time() {
        let (sender, receiver) = tokio::sync::mpsc::channel::<Bytes>(9);
        let frames = futures_util::stream::unfold(receiver, |mut receiver| async {
            let data = receiver.recv().await?;
            Some((Ok::<_, Infallible>(Frame::data(data)), receiver))
        });
        let mut request = request(Box::pin(StreamBody::new(frames)), &with_memory(MAX), RULES);
        sender.send(message(3).into()).await.unwrap();
        assert!(request.frame().await.unwrap().is_ok());
        tokio::time::timeout(RULES.timeout * 9, request.frame()).await.unwrap_err();
        sender.send(Bytes::from_static(&[0, 0])).await.unwrap();
        assert_eq!(code_of(&mut request).await, Some(Code::DeadlineExceeded));
    }

    #[test]
    fn the_longest_message_is_found_however_the_stream_is_cut() {
        let stream = [message(3), message(0), message(9), message(1)].concat();
        for size in 1..=stream.len() {
            let mut partial = PartialMessage::default();
            let pieces = stream.chunks(size).map(Bytes::copy_from_slice);
            let longest = pieces.map(|piece| partial.add(piece, MAX).longest).max();
            assert_eq!((longest, partial.arrived), (Some(PREFIX + 9), 0), "{size}");
        }
    }

    #[test]
    fn messages_are_complete_at_their_ends_and_those_too_long_at_once() {
        let mut partial = PartialMessage::default();
        let mut complete = |data: &[u8]| partial.add(Bytes::copy_from_slice(data), MAX).complete;
        let first = message(3);
        assert_eq!(complete(&first[..4]), 0);
        assert_eq!(complete(&first[4..7]), 0);
        // The end of the first message, a whole one, and a part of another.
        assert_eq!(complete(&[&first[7..], &message(9), &message(2)[..6]].concat()), 1 + PREFIX + 9);
        assert_eq!(complete(&[7]), 1);
        assert_eq!(complete(&[0, 255, 255, 255, 255, 1, 2]), 7);
        assert_eq!(complete(&[3]), 1);
    }

    #[test]
    fn of_a_message_that_is_announced_only_what_has_arrived_counts() {
        let mut partial = PartialMessage::default();
        assert_eq!(partial.add(Bytes::from_static(&[0, 255, 255, 255, 255, 1, 2]), MAX).longest, PREFIX + 2);
        assert_eq!(partial.add(Bytes::from_static(&[3]), MAX).longest, PREFIX + 3);
    }
}

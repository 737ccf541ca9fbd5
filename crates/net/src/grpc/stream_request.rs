use std::{
    error::Error,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::{Buf as _, Bytes, BytesMut};
use http_body::{Body, Frame};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::{admission::Admitted, frame::PREFIX};

/// The buffers that a stream has before its first message, in bytes.
const BUFFERS: usize = 16 << 10;

/// The maximum length of a message that waits here for its end: that of tonic's decoders, which refuse longer ones at their
/// beginning.
const MAX_MESSAGE: usize = 4 << 20;

/// The request of a stream, whose messages are decoded elsewhere.
///
/// Messages are passed on when they are complete: tonic's decoders take memory for the announced length at once.
///
/// Memory is taken for the buffers of the stream and twice for its longest message so far, as far as that has arrived: a decoder
/// copies it, and keeps its buffer for the next message. It is released at the end of the stream, which a service that reads in a task of its own learns here.
#[derive(Debug)]
pub struct StreamRequest<B> {
    body: B,
    call: Arc<Admitted>,
    /// Completes when the response has ended.
    ended: Pin<Box<WaitForCancellationFutureOwned>>,
    message: PartialMessage,
    /// What has arrived of the message.
    held: BytesMut,
    /// The length of the longest message so far.
    taken: usize,
}

impl<B> StreamRequest<B> {
    /// # Errors
    /// RESOURCE_EXHAUSTED.
    pub(super) fn new(body: B, call: Arc<Admitted>, ended: CancellationToken) -> Result<Self, tonic::Status> {
        call.add_bytes(BUFFERS)?;
        let ended = Box::pin(ended.cancelled_owned());
        Ok(Self { body, call, ended, message: PartialMessage::default(), held: BytesMut::new(), taken: 0 })
    }

    /// Takes memory for bytes that have arrived, and returns those of complete messages.
    fn received(&mut self, mut data: Bytes) -> Result<Bytes, tonic::Status> {
        let Added { longest, complete } = self.message.add(data.clone());
        if longest > self.taken {
            self.call.add_bytes(2 * (longest - self.taken))?;
            self.taken = longest;
        }
        if complete > 0 {
            self.call.set_called();
        }
        let mut messages = data.split_to(complete);
        if !self.held.is_empty() && complete > 0 {
            self.held.extend_from_slice(&messages);
            messages = std::mem::take(&mut self.held).freeze();
        }
        self.held.extend_from_slice(&data);
        Ok(messages)
    }
}

impl<B> Body for StreamRequest<B>
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
        loop {
            let frame = match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(frame) => frame.map_err(Into::into)?,
                None if std::mem::take(&mut self.held).is_empty() => return Poll::Ready(None),
                None => {
                    let status = tonic::Status::internal("the stream ended within a message");
                    return Poll::Ready(Some(Err(status.into())));
                }
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
    /// Adds bytes of the stream.
    fn add(&mut self, mut data: Bytes) -> Added {
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
            if self.arrived == 0 || length > MAX_MESSAGE {
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
mod tests {
    use super::*;

    fn message(length: u8) -> Vec<u8> {
        [&[0, 0, 0, 0, length][..], &vec![7; usize::from(length)]].concat()
    }

    #[test]
    fn the_longest_message_is_found_however_the_stream_is_cut() {
        let stream = [message(3), message(0), message(9), message(1)].concat();
        for size in 1..=stream.len() {
            let mut partial = PartialMessage::default();
            let pieces = stream.chunks(size).map(Bytes::copy_from_slice);
            let longest = pieces.map(|piece| partial.add(piece).longest).max();
            assert_eq!((longest, partial.arrived), (Some(PREFIX + 9), 0), "{size}");
        }
    }

    #[test]
    fn messages_are_complete_at_their_ends_and_those_too_long_at_once() {
        let mut partial = PartialMessage::default();
        let mut complete = |data: &[u8]| partial.add(Bytes::copy_from_slice(data)).complete;
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
        assert_eq!(partial.add(Bytes::from_static(&[0, 255, 255, 255, 255, 1, 2])).longest, PREFIX + 2);
        assert_eq!(partial.add(Bytes::from_static(&[3])).longest, PREFIX + 3);
    }
}

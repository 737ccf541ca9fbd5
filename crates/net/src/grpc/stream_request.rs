use std::{
    error::Error,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::{Buf as _, Bytes};
use http_body::{Body, Frame, SizeHint};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::{admission::Admitted, frame::PREFIX};

/// The buffers that a stream has before its first message, in bytes.
const BUFFERS: usize = 16 << 10;

/// The request of a stream, whose messages are decoded elsewhere.
///
/// Memory is taken for the buffers of the stream and for its longest message so far, as far as that has arrived: a decoder keeps its
/// buffer for the next message. It is released at the end of the stream, which a service that reads in a task of its own learns here.
#[derive(Debug)]
pub struct StreamRequest<B> {
    body: B,
    call: Arc<Admitted>,
    /// Completes when the response has ended.
    ended: Pin<Box<WaitForCancellationFutureOwned>>,
    message: PartialMessage,
    /// The length of the longest message so far.
    taken: usize,
}

impl<B> StreamRequest<B> {
    /// # Errors
    /// RESOURCE_EXHAUSTED.
    pub(super) fn new(body: B, call: Arc<Admitted>, ended: CancellationToken) -> Result<Self, tonic::Status> {
        call.add_bytes(BUFFERS)?;
        let ended = Box::pin(ended.cancelled_owned());
        Ok(Self { body, call, ended, message: PartialMessage::default(), taken: 0 })
    }

    /// Takes memory for bytes that have arrived.
    fn received(&mut self, data: Bytes) -> Result<(), tonic::Status> {
        let longest = self.message.add(data);
        if longest > self.taken {
            self.call.add_bytes(longest - self.taken)?;
            self.taken = longest;
        }
        Ok(())
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
        let Some(frame) = ready!(Pin::new(&mut self.body).poll_frame(context)) else {
            return Poll::Ready(None);
        };
        let frame = frame.map_err(Into::into).and_then(|frame| {
            if let Some(data) = frame.data_ref() {
                self.received(data.clone())?;
            }
            Ok(frame)
        });
        Poll::Ready(Some(frame))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
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

impl PartialMessage {
    /// Adds bytes of the stream; returns how much of the longest message among them has arrived.
    fn add(&mut self, mut data: Bytes) -> usize {
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
        }
        longest
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
            let longest = pieces.map(|piece| partial.add(piece)).max();
            assert_eq!((longest, partial.arrived), (Some(PREFIX + 9), 0), "{size}");
        }
    }

    #[test]
    fn of_a_message_that_is_announced_only_what_has_arrived_counts() {
        let mut partial = PartialMessage::default();
        assert_eq!(partial.add(Bytes::from_static(&[0, 255, 255, 255, 255, 1, 2])), PREFIX + 2);
        assert_eq!(partial.add(Bytes::from_static(&[3])), PREFIX + 3);
    }
}

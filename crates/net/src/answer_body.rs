use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use crate::connections::ConnectionState;

/// The body of an answer whose parts count as unwritten until they are.
#[derive(Debug)]
pub struct AnswerBody<B> {
    body: B,
    state: Arc<ConnectionState>,
}

impl<B> AnswerBody<B> {
    pub(crate) fn new(body: B, state: Arc<ConnectionState>) -> Self {
        Self { body, state }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for AnswerBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        Poll::Ready(frame.map(|frame| {
            frame.map(|frame| frame.map_data(|answer| until_written(self.state.clone(), answer, ())))
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Counts a part of an answer as unwritten until it is. `held` is dropped then.
pub(crate) fn until_written<H: Send + 'static>(state: Arc<ConnectionState>, answer: Bytes, held: H) -> Bytes {
    let period = state.add_unwritten();
    Bytes::from_owner(Unwritten { answer, state, period, _held: held })
}

/// A part of an answer that is not written yet.
struct Unwritten<H> {
    answer: Bytes,
    state: Arc<ConnectionState>,
    period: usize,
    _held: H,
}

impl<H> AsRef<[u8]> for Unwritten<H> {
    fn as_ref(&self) -> &[u8] {
        &self.answer
    }
}

impl<H> Drop for Unwritten<H> {
    fn drop(&mut self) {
        self.state.set_written(self.period);
    }
}

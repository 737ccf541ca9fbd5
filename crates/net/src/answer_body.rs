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
        let count = |answer| {
            let period = self.state.add_unwritten();
            Bytes::from_owner(Unwritten { answer, state: self.state.clone(), period })
        };
        Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(count))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A part of an answer that is not written yet.
struct Unwritten {
    answer: Bytes,
    state: Arc<ConnectionState>,
    period: usize,
}

impl AsRef<[u8]> for Unwritten {
    fn as_ref(&self) -> &[u8] {
        &self.answer
    }
}

impl Drop for Unwritten {
    fn drop(&mut self) {
        self.state.set_written(self.period);
    }
}

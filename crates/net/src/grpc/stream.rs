use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::oneshot;
use tokio_util::sync::DropGuard;

use super::admission::WaitingPlace;
use crate::{Limit, connections::Registered};

/// The body of an answer that is not a unary method's. It ends with RESOURCE_EXHAUSTED if its call has to give way to others.
#[derive(Debug)]
pub struct StreamBody<B> {
    body: B,
    evicted: oneshot::Receiver<Limit>,
    _place: WaitingPlace,
    _registered: Registered,
    /// Ends the request; `None` when the response has ended.
    open: Option<DropGuard>,
}

impl<B> StreamBody<B> {
    pub(super) fn new(
        body: B,
        place: WaitingPlace,
        (registered, evicted): (Registered, oneshot::Receiver<Limit>),
        open: DropGuard,
    ) -> Self {
        Self { body, evicted, _place: place, _registered: registered, open: Some(open) }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for StreamBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        if self.open.is_none() {
            return Poll::Ready(None);
        }
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            return Poll::Ready(frame);
        }
        match Pin::new(&mut self.evicted).poll(context) {
            Poll::Ready(Ok(limit)) => {
                self.open = None;
                let trailers = limit.exhausted().into_http::<()>().into_parts().0.headers;
                Poll::Ready(Some(Ok(Frame::trailers(trailers))))
            }
            _ => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.open.is_none() || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

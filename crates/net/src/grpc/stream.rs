use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::admission::{Admitted, WaitingPlace};
use crate::{
    Limit,
    connections::{ConnectionState, Evictable, Registered, Stage},
};

/// The open request of a stream, until its response has ended or it is evicted.
///
/// Eviction takes effect at once: the body of a response is not polled if the peer does not read.
#[derive(Debug)]
pub(super) struct OpenStream {
    open: CancellationToken,
    call: Arc<Admitted>,
    connection: Arc<ConnectionState>,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    Open {
        _place: WaitingPlace,
    },
    /// Its status is not written, since this period.
    Evicted(usize),
}

impl OpenStream {
    pub(super) fn new(
        place: WaitingPlace,
        call: Arc<Admitted>,
        connection: Arc<ConnectionState>,
    ) -> Arc<Self> {
        let state = Mutex::new(State::Open { _place: place });
        Arc::new(Self { open: CancellationToken::new(), call, connection, state })
    }

    /// Returns what ends the request.
    pub(super) fn token(&self) -> CancellationToken {
        self.open.clone()
    }

    /// Registers the stream, so that it can be evicted.
    pub(super) fn register(self: &Arc<Self>) -> (Registered, oneshot::Receiver<Limit>) {
        self.connection.register(Stage::Waiting, self.clone())
    }
}

impl Evictable for OpenStream {
    fn on_evicted(&self) {
        self.call.on_evicted();
        *self.state.lock() = State::Evicted(self.connection.add_unwritten());
        self.open.cancel();
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.open.cancel();
        if let State::Evicted(period) = *self.state.lock() {
            self.connection.set_written(period);
        }
    }
}

/// The body of an answer that is not a unary method's. It ends with RESOURCE_EXHAUSTED if its call is evicted.
#[derive(Debug)]
pub struct StreamBody<B> {
    body: B,
    evicted: oneshot::Receiver<Limit>,
    /// Keeps the stream open; `None` when the response has ended.
    open: Option<(Arc<OpenStream>, Registered)>,
}

impl<B> StreamBody<B> {
    pub(super) fn new(
        body: B,
        open: (Arc<OpenStream>, Registered),
        evicted: oneshot::Receiver<Limit>,
    ) -> Self {
        Self { body, evicted, open: Some(open) }
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
        if let Poll::Ready(Ok(limit)) = Pin::new(&mut self.evicted).poll(context) {
            self.open = None;
            let trailers = limit.exhausted().into_http::<()>().into_parts().0.headers;
            return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
        }
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.open.is_none() || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, header::CONTENT_TYPE};
use http_body::{Body, Frame, SizeHint};

/// The body of a unary answer: one gRPC frame and the trailers of OK, or nothing where the head has the status.
#[derive(Debug, Default)]
pub struct UnaryBody {
    frame: Option<Bytes>,
    trailers: bool,
}

const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");

/// A response of OK with one framed message, and an entry of metadata.
pub(super) fn ok(frame: Bytes, metadata: Option<(HeaderName, HeaderValue)>) -> Response<UnaryBody> {
    let mut response = Response::new(UnaryBody { frame: Some(frame), trailers: true });
    response.headers_mut().insert(CONTENT_TYPE, GRPC);
    response.headers_mut().extend(metadata);
    response
}

impl Body for UnaryBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(frame) = self.frame.take() {
            return Poll::Ready(Some(Ok(Frame::data(frame))));
        }
        if std::mem::take(&mut self.trailers) {
            let mut trailers = HeaderMap::with_capacity(1);
            trailers.insert(HeaderName::from_static("grpc-status"), HeaderValue::from_static("0"));
            return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
        }
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        self.frame.is_none() && !self.trailers
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.frame.as_ref().map_or(0, |frame| frame.len() as u64))
    }
}

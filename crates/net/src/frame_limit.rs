use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::{Bucket, Limit, Rate, connections::ConnectionState};

/// What an HTTP/2 connection begins with.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The length of the header of a frame.
const HEADER: usize = 9;

/// The type of SETTINGS frames (RFC 9113, section 6.5).
const SETTINGS: u8 = 4;

/// How often a client may send SETTINGS. One frame can change the windows of all streams of the connection, for which h2 visits each
/// of them; clients send it at the beginning, and some when they have measured their bandwidth. h2 itself limits floods of
/// CONTINUATION, of small DATA and of RST_STREAM, and frames of other types cost about as much as their bytes.
const RATE: Rate = Rate { burst: 100, every: Duration::from_millis(100) };

/// A stream that notes when the HTTP/2 preface has arrived, and fails when the peer sends SETTINGS frames too often.
pub(crate) struct FrameLimitStream<S> {
    stream: S,
    input: Input,
    connection: Arc<ConnectionState>,
}

/// Where in the input of a connection its next byte is.
#[derive(Debug)]
enum Input {
    /// In the preface, of which this number of bytes has arrived.
    Preface(usize),
    /// In the frames of HTTP/2.
    Frames { position: FramePosition, settings: Bucket },
    /// In something else, such as HTTP/1.
    Other,
}

impl<S> FrameLimitStream<S> {
    pub(crate) fn new(stream: S, connection: Arc<ConnectionState>) -> Self {
        Self { stream, input: Input::Preface(0), connection }
    }

    /// Notes bytes that have arrived. Returns whether there were too many SETTINGS.
    fn is_flood(&mut self, mut data: &[u8]) -> bool {
        if let Input::Preface(arrived) = &mut self.input {
            let missing = &PREFACE[*arrived..];
            let (begin, rest) = data.split_at(missing.len().min(data.len()));
            *arrived += begin.len();
            data = rest;
            if !missing.starts_with(begin) {
                self.input = Input::Other;
            } else if *arrived == PREFACE.len() {
                self.input =
                    Input::Frames { position: FramePosition::default(), settings: Bucket::new(RATE) };
            } else {
                return false;
            }
            self.connection.set_greeted();
        }
        let Input::Frames { position, settings } = &mut self.input else { return false };
        (0..position.count(data, SETTINGS)).any(|_| {
            let now = Instant::now();
            settings.take(now) > now
        })
    }
}

/// Where in a sequence of frames its next byte is.
#[derive(Debug, Default)]
struct FramePosition {
    /// The part of the header that has arrived.
    header: [u8; HEADER],
    arrived: usize,
    /// The bytes of the payload that have not arrived.
    payload: usize,
}

impl FramePosition {
    /// Passes over the next bytes, and returns how many frames of a type begin in them.
    fn count(&mut self, mut data: &[u8], frame_type: u8) -> usize {
        let mut count = 0;
        loop {
            let payload = self.payload.min(data.len());
            self.payload -= payload;
            data = &data[payload..];
            if data.is_empty() {
                return count;
            }
            let part = (HEADER - self.arrived).min(data.len());
            self.header[self.arrived..self.arrived + part].copy_from_slice(&data[..part]);
            self.arrived += part;
            data = &data[part..];
            if self.arrived == HEADER {
                let [high, middle, low, kind, ..] = self.header;
                self.payload = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
                self.arrived = 0;
                count += usize::from(kind == frame_type);
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for FrameLimitStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        if self.is_flood(&buffer.filled()[before..]) {
            self.connection.hit(Limit::Settings);
            // What is not passed on costs nothing.
            buffer.set_filled(before);
            return Poll::Ready(Err(io::Error::other("the peer sends SETTINGS frames too often")));
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for FrameLimitStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, data)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;

    fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&length[1..], &[kind, 0, 0, 0, 0, 0], payload].concat()
    }

    /// Whether all of the bytes are passed on, in pieces of any size.
    async fn is_passed_on(sent: &[u8]) -> bool {
        let mut passed_on = Vec::new();
        for piece in [1, 7, 9, 4096] {
            let connection = ConnectionState::detached();
            let mut stream = FrameLimitStream::new(sent, connection.clone());
            let (mut length, mut buffer) = (0, vec![0; piece]);
            while let Ok(read @ 1..) = stream.read(&mut buffer).await {
                length += read;
            }
            assert!(connection.is_greeted());
            assert_eq!(connection.hits(Limit::Settings), u64::from(length < sent.len()));
            passed_on.push(length == sent.len());
        }
        assert!(passed_on.iter().all(|all| *all == passed_on[0]), "{passed_on:?}");
        passed_on[0]
    }

    #[tokio::test]
    async fn settings_are_passed_on_up_to_a_rate() {
        let settings = frame(SETTINGS, b"\0\x04\0\0\0\0");
        let burst = settings.repeat(usize::try_from(RATE.burst).unwrap());
        assert!(is_passed_on(&[&PREFACE[..], &burst].concat()).await);
        assert!(!is_passed_on(&[&PREFACE[..], &burst.repeat(10)].concat()).await);
        let between = [settings, frame(0, b"data")].concat().repeat(1_000);
        assert!(!is_passed_on(&[&PREFACE[..], &between].concat()).await);
    }

    #[tokio::test]
    async fn payloads_and_other_protocols_have_no_frames() {
        let settings = frame(SETTINGS, b"").repeat(1_000);
        let longest = [&b"\xff\xff\xff\0\0\0\0\0\0"[..], &settings].concat();
        for frames in [frame(0, &settings), longest, frame(6, &[0; 8]).repeat(1_000)] {
            assert!(is_passed_on(&[&PREFACE[..], &frames].concat()).await);
        }
        for other in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r ", b"\0"] {
            assert!(is_passed_on(&[other, &settings].concat()).await);
        }
    }
}

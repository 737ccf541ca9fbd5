use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::{Bucket, Limit, Rate, connections::ConnectionState, socket::Unread, turn::TurnStream};

/// What an HTTP/2 connection begins with.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The length of the header of a frame.
const HEADER: usize = 9;

/// Types of frames (RFC 9113, section 6).
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const CONTINUATION: u8 = 9;

/// How often a client may send SETTINGS. One frame can change the windows of all streams of the connection, for which h2 visits each
/// of them; clients send it at the beginning, and some when they have measured their bandwidth. h2 itself limits floods of
/// CONTINUATION, of small DATA and of RST_STREAM.
const RATE: Rate = Rate { burst: 100, every: Duration::from_millis(100) };

/// How often a client may send control frames (WINDOW_UPDATE, PING, RST_STREAM, PRIORITY and unknown ones) in addition to
/// the number that the traffic of its calls permits. h2 answers or logs each of them.
const CONTROL_RATE: Rate = Rate { burst: 1_000, every: Duration::from_millis(10) };

/// The number of control frames that each frame of DATA or HEADERS permits, sent or received. For a frame of
/// DATA, clients send a WINDOW_UPDATE for the stream and for the connection, some a PING to measure the bandwidth, and a RST_STREAM.
const CONTROL_PER_FRAME: u32 = 8;

/// The maximum number of control frames that earlier traffic permits.
const MAX_PERMITTED: u32 = 10_000;

/// A stream that notes when the HTTP/2 preface has arrived, and fails when the peer sends SETTINGS or control frames too often.
pub(crate) struct FrameLimitStream<S> {
    stream: TurnStream<S>,
    input: Input,
    output: FramePosition,
    control: ControlFrames,
    connection: Arc<ConnectionState>,
    /// See [`ConnectionLimits::long_answers`](crate::ConnectionLimits::long_answers).
    long_answers: bool,
}

/// Where in the input of a connection its next byte is.
#[derive(Debug)]
enum Input {
    /// In the preface, after this number of bytes.
    Preface(usize),
    /// In the frames of HTTP/2.
    Frames { position: FramePosition, settings: Bucket },
    /// In something else, such as HTTP/1.
    Other,
}

/// The control frames that a client may send.
struct ControlFrames {
    /// The number that the traffic of calls permits.
    permitted: u32,
    rate: Bucket,
}

impl ControlFrames {
    /// Counts a frame of the server. Its control frames permit none.
    fn count_sent(&mut self, frame_type: u8) {
        if matches!(frame_type, DATA | HEADERS) {
            self.permitted = (self.permitted + CONTROL_PER_FRAME).min(MAX_PERMITTED);
        }
    }

    /// Counts a frame of the client. Returns whether it is permitted.
    fn permits(&mut self, frame_type: u8) -> bool {
        match frame_type {
            DATA | HEADERS | CONTINUATION => {
                self.count_sent(frame_type);
                true
            }
            _ if self.permitted > 0 => {
                self.permitted -= 1;
                true
            }
            _ => permits(&mut self.rate),
        }
    }
}

/// Takes an event from a bucket. Returns whether it is permitted now.
fn permits(rate: &mut Bucket) -> bool {
    let now = Instant::now();
    rate.take(now) <= now
}

impl<S> FrameLimitStream<S> {
    pub(crate) fn new(stream: TurnStream<S>, connection: Arc<ConnectionState>, long_answers: bool) -> Self {
        Self {
            stream,
            input: Input::Preface(0),
            output: FramePosition::default(),
            control: ControlFrames { permitted: 0, rate: Bucket::new(CONTROL_RATE) },
            connection,
            long_answers,
        }
    }

    /// Notes bytes that were sent.
    fn count_sent(&mut self, data: &[u8]) {
        if let Input::Frames { .. } = self.input {
            self.output.all(data, |frame_type| {
                self.control.count_sent(frame_type);
                true
            });
        }
    }

    /// Notes bytes that have arrived. Returns the limit that they exceed.
    fn exceeded(&mut self, mut data: &[u8]) -> Option<Limit> {
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
                return None;
            }
            self.connection.set_greeted();
        }
        let Input::Frames { position, settings } = &mut self.input else { return None };
        let mut exceeded = None;
        position.all(data, |frame_type| {
            let (limit, is_permitted) = match frame_type {
                SETTINGS => (Limit::Settings, permits(settings)),
                _ => (Limit::ControlFrames, self.control.permits(frame_type)),
            };
            exceeded = (!is_permitted).then_some(limit);
            is_permitted
        });
        exceeded
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
    /// Passes over the next bytes, and calls `frame` with the type of each frame that begins in them, until it returns false.
    fn all(&mut self, mut data: &[u8], mut frame: impl FnMut(u8) -> bool) {
        loop {
            let payload = self.payload.min(data.len());
            self.payload -= payload;
            data = &data[payload..];
            if data.is_empty() {
                return;
            }
            let part = (HEADER - self.arrived).min(data.len());
            self.header[self.arrived..self.arrived + part].copy_from_slice(&data[..part]);
            self.arrived += part;
            data = &data[part..];
            if self.arrived == HEADER {
                let [high, middle, low, kind, ..] = self.header;
                self.payload = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
                self.arrived = 0;
                if !frame(kind) {
                    return;
                }
            }
        }
    }
}

impl<S: AsyncRead + Unread + Unpin> AsyncRead for FrameLimitStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        if let Some(limit) = self.exceeded(&buffer.filled()[before..]) {
            self.connection.hit(limit);
            // Bytes that are not passed on cost nothing.
            buffer.set_filled(before);
            let reason = format!("the peer sends more frames than {} permits", limit.name());
            return Poll::Ready(Err(io::Error::other(reason)));
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
        let sent = ready!(Pin::new(&mut self.stream.inner).poll_write(context, data))?;
        self.count_sent(&data[..sent]);
        Poll::Ready(Ok(sent))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream.inner).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        // h2 writes frames of 256 bytes or more by themselves to a stream with vectored writes, and to others those of 1 KiB or more.
        self.long_answers && self.stream.inner.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let sent = ready!(Pin::new(&mut self.stream.inner).poll_write_vectored(context, data))?;
        let mut rest = sent;
        for part in data {
            let length = rest.min(part.len());
            self.count_sent(&part[..length]);
            rest -= length;
        }
        Poll::Ready(Ok(sent))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;
    use crate::turn::Turn;

    fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&length[1..], &[kind, 0, 0, 0, 0, 0], payload].concat()
    }

    /// Whether all of the bytes are passed on, in pieces of any size.
    async fn is_passed_on(sent: &[u8]) -> bool {
        let mut passed_on = Vec::new();
        for piece in [1, 7, 9, 4096] {
            let connection = ConnectionState::detached();
            let turn = Turn::default();
            let peer = turn.stream(tokio::io::join(sent, tokio::io::sink()));
            let mut stream = FrameLimitStream::new(peer, connection.clone(), false);
            let (mut length, mut buffer) = (0, vec![0; piece]);
            let reading = async {
                while let Ok(read @ 1..) = stream.read(&mut buffer).await {
                    length += read;
                }
            };
            turn.serve(reading, None).await;
            assert!(connection.is_greeted());
            let hits = connection.hits(Limit::Settings) + connection.hits(Limit::ControlFrames);
            assert_eq!(hits, u64::from(length < sent.len()));
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
    async fn control_frames_are_passed_on_in_proportion_to_calls() {
        let [ping, window_update, unknown] = [frame(6, &[0; 8]), frame(8, &[0; 4]), frame(200, b"")];
        for control in [ping, window_update, unknown] {
            assert!(!is_passed_on(&[&PREFACE[..], &control.repeat(10_000)].concat()).await);
            let per_frame = usize::try_from(CONTROL_PER_FRAME).unwrap();
            for call in [frame(DATA, b"data"), frame(HEADERS, b"headers")] {
                let busy = [call.clone(), control.repeat(per_frame)].concat().repeat(2_000);
                assert!(is_passed_on(&[&PREFACE[..], &busy].concat()).await);
                let flood = [call, control.repeat(per_frame * 2)].concat().repeat(2_000);
                assert!(!is_passed_on(&[&PREFACE[..], &flood].concat()).await);
            }
        }
    }

    #[tokio::test]
    async fn answers_permit_control_frames() {
        let pings = frame(6, &[0; 8]).repeat(5_000);
        for answers in [0, 1_000] {
            let sent = [&PREFACE[..], &pings].concat();
            let turn = Turn::default();
            let peer = turn.stream(tokio::io::join(&sent[..], tokio::io::sink()));
            let mut stream = FrameLimitStream::new(peer, ConnectionState::detached(), false);
            let answering = async {
                stream.read_exact(&mut [0; PREFACE.len()]).await.unwrap();
                stream.write_all(&frame(DATA, b"data").repeat(answers)).await.unwrap();
                assert_eq!(stream.read_to_end(&mut Vec::new()).await.is_ok(), answers > 0);
            };
            turn.serve(answering, None).await;
        }
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

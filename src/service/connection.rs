use std::{
    pin::pin,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use hyper::{server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::{net::TcpStream, time::Instant};
use tokio_util::sync::CancellationToken;

use super::grpc::Grpc;

/// How connections are kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConnectionLimits {
    pub(super) streams: u32,
    pub(super) max_age: Option<Duration>,
    pub(super) max_age_grace: Duration,
    pub(super) keepalive: Option<Duration>,
    pub(super) keepalive_timeout: Duration,
}

/// Serves one connection to its end: the peer's, its age's, or the server's, which let calls in flight finish.
pub(super) async fn serve(
    stream: TcpStream,
    id: u64,
    grpc: Arc<Grpc>,
    limits: ConnectionLimits,
    stop: CancellationToken,
) {
    let mut http = http2::Builder::new(TokioExecutor::new());
    http.timer(TokioTimer::new())
        .max_concurrent_streams(limits.streams)
        .auto_date_header(false)
        .keep_alive_interval(limits.keepalive)
        .keep_alive_timeout(limits.keepalive_timeout);
    let service = service_fn(move |request| {
        let grpc = grpc.clone();
        async move { grpc.serve(request, id).await }
    });
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
    let aged = async {
        match limits.max_age {
            Some(age) => tokio::time::sleep(jittered(age, id)).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = connection.as_mut() => return,
        () = aged => {}
        () = stop.cancelled() => {}
    }
    connection.as_mut().graceful_shutdown();
    let end = Instant::now() + limits.max_age_grace;
    // Time over: whoever still waits is cut off.
    let _ = tokio::time::timeout_at(end, connection).await;
}

/// Up to a tenth earlier, so that connections made together do not end together.
fn jittered(age: Duration, id: u64) -> Duration {
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| u64::from(now.subsec_nanos()));
    let tenth = age.as_nanos() as u64 / 10;
    let early =
        if tenth == 0 { 0 } else { nanos.wrapping_add(id).wrapping_mul(0x9e37_79b9_7f4a_7c15) % tenth };
    age.saturating_sub(Duration::from_nanos(early))
}

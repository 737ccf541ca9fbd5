//! A Check over gRPC: the engine with one handler in the process, against a server that answers a constant.

use std::{net::SocketAddr, sync::Arc};

use bytes::{BufMut as _, Bytes, BytesMut};
use mixer_adapter::{
    prost::Message as _,
    service::{Server, ServerOptions, Workers},
};
use tokio_util::sync::CancellationToken;

use super::{
    bare,
    measure::{Subject, compare as compare_subjects, heading},
    rules::{self, Others},
};

const CHECK: &str = "/istio.mixer.v1.Mixer/Check";

pub(super) fn compare() {
    heading();
    let (ours, bare) = (Subject::start("ours", serve), Subject::start("bare", bare::serve));
    compare_subjects("Check, one listentry in the process", CHECK, frame(), &ours, &bare);
}

fn frame() -> Bytes {
    let message = rules::request().encode_to_vec();
    let mut frame = BytesMut::with_capacity(message.len() + 5);
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).expect("a small message"));
    frame.put_slice(&message);
    frame.freeze()
}

async fn serve(address: tokio::sync::oneshot::Sender<SocketAddr>) {
    let runtime = tokio::runtime::Handle::current();
    let mixer = rules::mixer(&rules::configuration(1, Others::OtherNamespace), &runtime).await;
    let host = rules::host(&runtime);
    let server = Server::new(host, ServerOptions::default()).mixer(Arc::new(mixer));
    let bound = server.bind(SocketAddr::from(([127, 0, 0, 1], 0)), None).await.expect("a free port");
    address
        .send(bound.grpc_address().ok().and_then(|bound| bound.tcp()).expect("bound"))
        .expect("somebody waits for it");
    bound.run(&Workers::here(), CancellationToken::new()).await.expect("the server runs");
}

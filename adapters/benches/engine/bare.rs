//! A tonic server that decodes a CheckRequest and answers a constant.

use std::net::SocketAddr;

use mixer_adapter::tonic::{Request, Response, Status};
use mixer_adapter_engine::proto::istio::mixer::v1::{
    CheckRequest, CheckResponse, ReportRequest, ReportResponse,
    check_response::PreconditionResult,
    mixer_server::{Mixer, MixerServer},
};

struct Constant;

#[tonic::async_trait]
impl Mixer for Constant {
    async fn check(&self, _: Request<CheckRequest>) -> Result<Response<CheckResponse>, Status> {
        Ok(Response::new(CheckResponse {
            precondition: Some(PreconditionResult {
                status: Some(mixer_adapter::proto::Status::default()),
                valid_use_count: 10_000,
                ..PreconditionResult::default()
            }),
            ..CheckResponse::default()
        }))
    }

    async fn report(&self, _: Request<ReportRequest>) -> Result<Response<ReportResponse>, Status> {
        Ok(Response::new(ReportResponse {}))
    }
}

pub(super) async fn serve(address: tokio::sync::oneshot::Sender<SocketAddr>) {
    let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
    let incoming =
        tonic::transport::server::TcpIncoming::bind(any_port).expect("a free port").with_nodelay(Some(true));
    address.send(incoming.local_addr().expect("bound")).expect("somebody waits for it");
    tonic::transport::Server::builder()
        .add_service(MixerServer::new(Constant))
        .serve_with_incoming(incoming)
        .await
        .expect("the server runs");
}

//! A tonic server that decodes the messages of Envoy and answers constants.

use std::net::SocketAddr;

use mixer_adapter::tonic::{Request, Response, Status, Streaming};
use mixer_adapter_core::proto::Status as RpcStatus;
use mixer_adapter_envoy::proto::envoy::service::{
    accesslog::v3::{
        StreamAccessLogsMessage, StreamAccessLogsResponse,
        access_log_service_server::{AccessLogService, AccessLogServiceServer},
    },
    auth::v3::{
        CheckRequest, CheckResponse, OkHttpResponse,
        authorization_server::{Authorization, AuthorizationServer},
        check_response::HttpResponse,
    },
    ratelimit::v3::{
        RateLimitRequest, RateLimitResponse,
        rate_limit_response::Code,
        rate_limit_service_server::{RateLimitService, RateLimitServiceServer},
    },
};

#[derive(Clone)]
struct Constant;

#[tonic::async_trait]
impl Authorization for Constant {
    async fn check(&self, _: Request<CheckRequest>) -> Result<Response<CheckResponse>, Status> {
        Ok(Response::new(CheckResponse {
            status: Some(RpcStatus::default()),
            http_response: Some(HttpResponse::OkResponse(OkHttpResponse::default())),
            dynamic_metadata: None,
        }))
    }
}

#[tonic::async_trait]
impl RateLimitService for Constant {
    async fn should_rate_limit(
        &self,
        _: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        Ok(Response::new(RateLimitResponse { overall_code: Code::Ok as i32, ..RateLimitResponse::default() }))
    }
}

#[tonic::async_trait]
impl AccessLogService for Constant {
    async fn stream_access_logs(
        &self,
        request: Request<Streaming<StreamAccessLogsMessage>>,
    ) -> Result<Response<StreamAccessLogsResponse>, Status> {
        let mut messages = request.into_inner();
        while messages.message().await?.is_some() {}
        Ok(Response::new(StreamAccessLogsResponse {}))
    }
}

pub(super) async fn serve(address: tokio::sync::oneshot::Sender<SocketAddr>) {
    let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
    let incoming =
        tonic::transport::server::TcpIncoming::bind(any_port).expect("a free port").with_nodelay(Some(true));
    address.send(incoming.local_addr().expect("bound")).expect("somebody waits for it");
    tonic::transport::Server::builder()
        .add_service(AuthorizationServer::new(Constant))
        .add_service(RateLimitServiceServer::new(Constant))
        .add_service(AccessLogServiceServer::new(Constant))
        .serve_with_incoming(incoming)
        .await
        .expect("the server runs");
}

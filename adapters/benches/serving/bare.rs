//! What a server costs that does nothing but tonic's work: it decodes the same requests with the same types and answers
//! the same constants.

use std::{
    convert::Infallible,
    net::SocketAddr,
    task::{Context, Poll},
};

use mixer_adapter::{
    proto::{CheckResult, QuotaResult, ReportResult},
    template::{listentry::HandleListEntryRequest, metric::HandleMetricRequest, quota::HandleQuotaRequest},
    tonic::{
        Request, Response, Status,
        body::Body,
        codegen::{BoxFuture, Service},
        server::{Grpc, NamedService, UnaryService},
    },
};
use mixer_adapter_core::framework::QuotaContext;
use tonic_prost::ProstCodec;

/// A service with one method, as tonic's generator makes it.
#[derive(Clone, Default)]
struct Bare<M>(std::marker::PhantomData<fn() -> M>);

trait Method: Send + Sync + 'static {
    const SERVICE: &'static str;
    const PATH: &'static str;
    type Request: mixer_adapter::prost::Message + Default + 'static;
    type Response: mixer_adapter::prost::Message + Default + 'static;
    fn answer(request: Self::Request) -> Self::Response;
}

#[derive(Clone)]
struct List;
impl Method for List {
    const SERVICE: &'static str = "listentry.HandleListEntryService";
    const PATH: &'static str = "/listentry.HandleListEntryService/HandleListEntry";
    type Request = HandleListEntryRequest;
    type Response = CheckResult;
    fn answer(_: HandleListEntryRequest) -> CheckResult {
        mixer_adapter::Check::allow().into()
    }
}

#[derive(Clone)]
struct Metric;
impl Method for Metric {
    const SERVICE: &'static str = "metric.HandleMetricService";
    const PATH: &'static str = "/metric.HandleMetricService/HandleMetric";
    type Request = HandleMetricRequest;
    type Response = ReportResult;
    fn answer(_: HandleMetricRequest) -> ReportResult {
        ReportResult {}
    }
}

#[derive(Clone)]
struct Quota;
impl Method for Quota {
    const SERVICE: &'static str = "quota.HandleQuotaService";
    const PATH: &'static str = "/quota.HandleQuotaService/HandleQuota";
    type Request = HandleQuotaRequest;
    type Response = QuotaResult;
    fn answer(request: HandleQuotaRequest) -> QuotaResult {
        let name = request.instance.map(|instance| instance.name).unwrap_or_default();
        match QuotaContext::new(&name, request.quota_request, request.dedup_id) {
            Ok((request, context)) => {
                context.respond(mixer_adapter::Grant::amount(request.amount)).unwrap_or_default()
            }
            Err(_) => QuotaResult::default(),
        }
    }
}

impl<M: Method> NamedService for Bare<M> {
    const NAME: &'static str = M::SERVICE;
}

impl<M: Method> Service<http::Request<Body>> for Bare<M> {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Self::Error>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        struct Handle<M>(std::marker::PhantomData<fn() -> M>);
        impl<M: Method> UnaryService<M::Request> for Handle<M> {
            type Response = M::Response;
            type Future = BoxFuture<Response<M::Response>, Status>;
            fn call(&mut self, request: Request<M::Request>) -> Self::Future {
                Box::pin(async move { Ok(Response::new(M::answer(request.into_inner()))) })
            }
        }
        Box::pin(async move {
            let known = request.uri().path() == M::PATH;
            let mut grpc = Grpc::new(ProstCodec::<M::Response, M::Request>::default());
            if known {
                Ok(grpc.unary(Handle::<M>(std::marker::PhantomData), request).await)
            } else {
                Ok(Status::unimplemented("").into_http())
            }
        })
    }
}

pub(super) async fn serve(address: tokio::sync::oneshot::Sender<SocketAddr>) {
    let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
    let incoming =
        tonic::transport::server::TcpIncoming::bind(any_port).expect("a free port").with_nodelay(Some(true));
    address.send(incoming.local_addr().expect("bound")).expect("somebody waits for it");
    tonic::transport::Server::builder()
        .add_service(Bare::<List>(std::marker::PhantomData))
        .add_service(Bare::<Metric>(std::marker::PhantomData))
        .add_service(Bare::<Quota>(std::marker::PhantomData))
        .serve_with_incoming(incoming)
        .await
        .expect("the server runs");
}

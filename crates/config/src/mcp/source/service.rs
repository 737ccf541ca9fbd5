use std::{
    convert::Infallible,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures_util::{
    FutureExt as _,
    future::{BoxFuture, ready},
};
use tonic::{Status, body::Body, server::NamedService};
use tower_service::Service;

use super::{ConfigServer, Machine, Method};
use crate::mcp::{Rate, ServiceOptions, listen::Admission};

const METHOD: &str = "/istio.mcp.v1alpha1.ResourceSource/EstablishResourceStream";

/// The service that sinks dial: `ResourceSource`.
#[derive(Clone, Debug)]
pub struct ResourceSourceService {
    streams: Method<fn(&ConfigServer) -> Machine>,
}

impl ResourceSourceService {
    /// What sources should use: many sinks, small requests.
    pub fn default_options() -> ServiceOptions {
        ServiceOptions {
            max_streams: 10_000,
            new_streams: Rate { burst: 100, every: Duration::from_millis(10) },
            max_message_size: 1 << 20,
        }
    }

    /// The service, for [`listen`](crate::mcp::listen()) or a server with others.
    pub fn serve(source: ConfigServer, options: &ServiceOptions) -> Self {
        let admission = Arc::new(Admission::new(options));
        Self { streams: Method::new(&source, &admission, options, source.requests(), ConfigServer::machine) }
    }
}

impl NamedService for ResourceSourceService {
    const NAME: &'static str = "istio.mcp.v1alpha1.ResourceSource";
}

impl<B> Service<http::Request<B>> for ResourceSourceService
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        match request.uri().path() {
            METHOD => self.streams.call(request),
            _ => ready(Ok(Status::unimplemented("no such method").into_http())).boxed(),
        }
    }
}

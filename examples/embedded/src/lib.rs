//! An adapter, and a program of axum that mounts it.

use std::sync::Arc;

use axum::{
    Router,
    http::{
        HeaderValue, StatusCode,
        header::{CONTENT_TYPE, SERVER},
    },
    response::IntoResponse,
    routing::get,
};
use mixer_adapter::{
    Adapter, AdapterError, Call, Check, Code, Context, Handle,
    adapter::AccessLimits,
    metrics::{Counter, Series},
    service::{ServerOptions, adapter_services},
    template::{ListEntry, listentry::InstanceMsg},
};
use mixer_adapter_host::{
    AccessPolicy, Host,
    handler::{Adapters, Closing, StartError, TableLimits},
};
use tokio::runtime::Handle as Runtime;
use tower_http::set_header::SetResponseHeaderLayer;

mixer_adapter::include_proto!("embedded"); // Params, from config.proto

/// Denies some paths, and counts its answers.
pub struct Closed {
    params: Params,
    answers: Series<Counter, 1>,
}

impl Adapter for Closed {
    const NAME: &str = "closed";
    const DESCRIPTION: &str = "Denies some paths.";
    type Config = Params;
    type Templates = (ListEntry,);

    async fn open(params: Params, context: Context) -> Result<Self, AdapterError> {
        let answers = context.metrics().counter("answers", "Answers by verdict", ["verdict"]);
        Ok(Self { params, answers })
    }
}

impl Handle<ListEntry> for Closed {
    async fn handle(&self, call: Call<InstanceMsg>) -> Result<Check, AdapterError> {
        let path = call.value.as_ref().map(ToString::to_string).unwrap_or_default();
        if self.params.closed.contains(&path) {
            self.answers.with(["denied"]).inc();
            return Ok(Check::deny(Code::PermissionDenied, "closed"));
        }
        self.answers.with(["allowed"]).inc();
        Ok(Check::allow())
    }
}

/// The handlers and sessions of the program's adapters.
pub fn host() -> Result<Arc<Host>, StartError> {
    let runtime = Runtime::current();
    let adapters = Adapters::builder(runtime.clone()).add::<Closed>().build()?;
    let host = Host::new(adapters, TableLimits::default(), Closing::on(runtime));

    let limits = AccessLimits::default().file_root(Some("/etc/embedded".into()));
    let host = Arc::new(host.with_access(AccessPolicy::limited(limits)));
    Ok(host)
}

/// The metrics of the open handlers, for Prometheus.
fn metrics(host: Arc<Host>) -> Result<impl IntoResponse, StatusCode> {
    let text = host.adapters().handler_metrics().map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(CONTENT_TYPE, content_type)], text + "# EOF\n"))
}

/// The routes of the program, with the services of its adapters and a layer around both.
pub fn app(host: Arc<Host>) -> Router {
    let handlers = host.clone();
    Router::new()
        .route("/hello", get(async || "hello"))
        .route("/metrics", get(async || metrics(handlers)))
        .fallback_service(adapter_services(host, &ServerOptions::default()))
        .layer(SetResponseHeaderLayer::overriding(SERVER, HeaderValue::from_static("embedded")))
}

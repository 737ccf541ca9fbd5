//! Handlers as the engine calls them: in the process, or elsewhere.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use bytes::Bytes;
use tokio::time::Instant;
use tonic::Status;

use super::remote::{RemoteAdapter, Session};
use mixer_adapter_core::framework::{dynamic::DynamicTemplate, frame::FRAME_PREFIX};
use mixer_adapter_host::{
    Host,
    handler::{BoxFuture, CallContext, CallError, Caller, Handler, Resolver},
};

/// What answers a handler's calls.
pub trait Target: Send + Sync {
    /// Sends a request of a template and returns the answer's bytes.
    fn call<'a>(
        &'a self,
        template: &'a DynamicTemplate,
        request: Bytes,
        deadline: Option<Instant>,
    ) -> BoxFuture<'a, Result<Bytes, Status>>;

    /// The configuration that goes into each request: an encoded `google.protobuf.Any`.
    fn adapter_config(&self) -> Option<Bytes>;

    /// Whether calls of a template are made at all. Where they are not, a trace shows what would be called, and
    /// everything goes on as if the handler were not there.
    fn is_called(&self, _: &DynamicTemplate) -> bool {
        true
    }
}

/// A handler resource at work. Equal handlers of successive snapshots are one.
pub struct RuntimeHandler {
    /// The full name, `h1.handler.istio-system`.
    pub name: Arc<str>,
    /// The name before the messages of its denials.
    pub(crate) denial_name: Arc<str>,
    /// What it stands for: adapter, configuration and connection, and for sessions the instances' types. A handler with
    /// an equal signature is taken over by the next snapshot.
    pub(crate) signature: mixer_adapter_core::framework::digest::Digest,
    target: Box<dyn Target>,
    calls: AtomicU64,
}

impl RuntimeHandler {
    /// A handler of that name.
    pub fn new(
        name: Arc<str>,
        signature: mixer_adapter_core::framework::digest::Digest,
        target: Box<dyn Target>,
    ) -> Self {
        Self { denial_name: name.clone(), name, signature, target, calls: AtomicU64::new(0) }
    }

    /// Puts another name than the full one before the messages of its denials.
    #[must_use]
    pub(crate) fn with_denial_name(self, denial_name: Arc<str>) -> Self {
        Self { denial_name, ..self }
    }

    /// Whether calls of a template are made at all.
    pub(crate) fn is_called(&self, template: &DynamicTemplate) -> bool {
        self.target.is_called(template)
    }

    /// Calls the adapter with one or more encoded instances.
    pub async fn call(
        &self,
        template: &DynamicTemplate,
        instances: &[Vec<u8>],
        quota: Option<QuotaParams<'_>>,
        deadline: Option<Instant>,
    ) -> Result<Bytes, Status> {
        self.target.call(template, self.request(template, instances, quota), deadline).await
    }

    fn request(
        &self,
        template: &DynamicTemplate,
        instances: &[Vec<u8>],
        quota: Option<QuotaParams<'_>>,
    ) -> Bytes {
        use prost::encoding::{WireType, bool, encode_key, encode_varint, int64};
        let config = self.target.adapter_config();
        let field = |number: u32, content: &[u8], request: &mut Vec<u8>| {
            encode_key(number, WireType::LengthDelimited, request);
            encode_varint(content.len() as u64, request);
            request.extend_from_slice(content);
        };
        let length: usize = instances.iter().map(|instance| instance.len() + 8).sum();
        let mut request = Vec::with_capacity(length + config.as_ref().map_or(0, Bytes::len) + 64);
        for instance in instances {
            field(template.fields().instance, instance, &mut request);
        }
        if let (Some(number), Some(config)) = (template.fields().adapter_config, config) {
            field(number, &config, &mut request);
        }
        if let Some(number) = template.fields().dedup_id {
            let mut buffer = itoa(self.calls.fetch_add(1, Relaxed));
            if let Some(quota) = &quota {
                buffer = format!("{}{}", quota.dedup_id, quota.name);
            }
            field(number, buffer.as_bytes(), &mut request);
        }
        if let (Some(number), Some(quota)) = (template.fields().quota_request, quota) {
            // QuotaRequest { quotas = 1: map of instance name to { amount = 1, best_effort = 2 } }
            let (mut params, mut entry, mut whole) = (Vec::new(), Vec::new(), Vec::new());
            int64::encode(1, &quota.amount, &mut params);
            bool::encode(2, &quota.best_effort, &mut params);
            field(1, quota.instance.as_bytes(), &mut entry);
            field(2, &params, &mut entry);
            field(1, &entry, &mut whole);
            field(number, &whole, &mut request);
        }
        request.into()
    }
}

/// A counter's text, never empty. The process' own start is part of it, so that ids of two engines differ.
fn itoa(count: u64) -> String {
    static START: std::sync::LazyLock<u64> = std::sync::LazyLock::new(|| {
        std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |since| since.as_nanos() as u64)
    });
    START.wrapping_add(count).to_string()
}

impl fmt::Debug for RuntimeHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RuntimeHandler({})", self.name)
    }
}

/// What a quota call asks for.
#[derive(Clone, Copy, Debug)]
pub struct QuotaParams<'a> {
    /// The quota's name in the request to the engine.
    pub name: &'a str,
    /// The full name of the instance.
    pub instance: &'a str,
    /// The same for all attempts of one request.
    pub dedup_id: &'a str,
    /// The amount requested.
    pub amount: i64,
    /// Whether less than the amount may be granted.
    pub best_effort: bool,
}

/// An adapter in this process, with its configuration: `compiledAdapter`.
pub struct InProcess {
    host: Arc<Host>,
    handler: Arc<Handler>,
}

impl InProcess {
    /// Calls that handler of the host.
    pub fn new(host: Arc<Host>, handler: Arc<Handler>) -> Self {
        Self { host, handler }
    }
}

impl Target for InProcess {
    fn call<'a>(
        &'a self,
        template: &'a DynamicTemplate,
        request: Bytes,
        deadline: Option<Instant>,
    ) -> BoxFuture<'a, Result<Bytes, Status>> {
        match self.host.adapters().method(template.method()) {
            Some(served) => {
                let answer = served.call(request, self, Caller { connection: 0, deadline });
                Box::pin(async move { Ok(answer.await?.split_off(FRAME_PREFIX)) })
            }
            None => Box::pin(std::future::ready(Err(Status::unimplemented(format!(
                "adapter `{}` does not serve {}",
                self.handler.adapter().name,
                template.method()
            ))))),
        }
    }

    fn adapter_config(&self) -> Option<Bytes> {
        None
    }
}

/// An adapter elsewhere that is sent its configuration with each call.
pub struct Elsewhere {
    adapter: RemoteAdapter,
    adapter_config: Option<Bytes>,
}

impl Elsewhere {
    /// Calls that adapter with that configuration, an encoded `google.protobuf.Any`.
    pub fn new(adapter: RemoteAdapter, adapter_config: Option<Bytes>) -> Self {
        Self { adapter, adapter_config }
    }
}

impl Target for Elsewhere {
    fn call<'a>(
        &'a self,
        template: &'a DynamicTemplate,
        request: Bytes,
        deadline: Option<Instant>,
    ) -> BoxFuture<'a, Result<Bytes, Status>> {
        Box::pin(self.adapter.call(template.path(), request, deadline))
    }

    fn adapter_config(&self) -> Option<Bytes> {
        self.adapter_config.clone()
    }
}

/// An adapter elsewhere that has its configuration by a session: the session's id goes into each call.
impl Target for Session {
    fn call<'a>(
        &'a self,
        template: &'a DynamicTemplate,
        request: Bytes,
        deadline: Option<Instant>,
    ) -> BoxFuture<'a, Result<Bytes, Status>> {
        match template.fields().adapter_config {
            Some(number) => Box::pin(Session::call(self, template.path(), number, request, deadline)),
            None => Box::pin(std::future::ready(Err(Status::internal(format!(
                "{} has no adapter_config to carry a session",
                template.method()
            ))))),
        }
    }

    fn adapter_config(&self) -> Option<Bytes> {
        None
    }
}

/// A call within the process brings its handler along.
impl Resolver for InProcess {
    fn open(&self, _: &CallContext<'_>) -> Option<Arc<Handler>> {
        Some(self.handler.clone())
    }

    fn resolve<'a>(&'a self, _: CallContext<'a>) -> BoxFuture<'a, Result<Arc<Handler>, CallError>> {
        Box::pin(std::future::ready(Ok(self.handler.clone())))
    }
}

//! Adapters that answer as a case says and remember what they were asked, without sockets.

use std::{
    collections::BTreeMap,
    pin::Pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use mixer_adapter::{
    prost::Message as _,
    tonic::{Code, Status},
};
use mixer_adapter_config::ValidationError;
use mixer_adapter_core::framework::dynamic::DynamicTemplate;
use mixer_adapter_engine::dispatch::Caller;
use mixer_adapter_engine::{
    HandlerBackend,
    build::{BackendSpec, BoxBackend, Connect, HandlerSpec},
};
use prost_reflect::DynamicMessage;
use serde::Deserialize;

use super::config::POOL;

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Backend {
    methods: BTreeMap<String, Answers>,
}

#[derive(Clone, Debug, Deserialize)]
struct Answers {
    default: Option<Answer>,
    #[serde(default)]
    by_instance: BTreeMap<String, Answer>,
}

#[derive(Clone, Debug, Deserialize)]
struct Answer {
    response: Option<serde_json::Value>,
    error: Option<Error>,
    #[serde(default)]
    delay_ms: u64,
}

#[derive(Clone, Debug, Deserialize)]
struct Error {
    code: serde_json::Value,
    #[serde(default)]
    message: String,
}

/// One call of an adapter.
pub(crate) struct Captured {
    pub(crate) backend: String,
    pub(crate) path: String,
    pub(crate) request: DynamicMessage,
}

/// All adapters of a case.
#[derive(Clone)]
pub(crate) struct Backends {
    pub(crate) by_name: Arc<BTreeMap<String, Backend>>,
    pub(crate) captured: Arc<Mutex<Vec<Captured>>>,
}

impl Connect for Backends {
    fn connect<'a>(
        &'a self,
        spec: &'a HandlerSpec,
    ) -> BoxFuture<'a, Result<BoxBackend, Vec<ValidationError>>> {
        let BackendSpec::Remote { connection, adapter_config, session_based } = &spec.backend else {
            panic!("the cases have no adapters in the process");
        };
        let name = connection.address.split(':').next().unwrap_or_default().to_owned();
        let timeout = connection.timeout.and_then(|timeout| Duration::try_from(timeout).ok());
        let target = Scripted {
            name,
            backends: self.clone(),
            // Session based adapters are sent no configuration with a call.
            adapter_config: adapter_config
                .as_ref()
                .filter(|_| !session_based)
                .map(|any| any.encode_to_vec().into()),
            timeout,
        };
        Box::pin(std::future::ready(Ok(Box::new(target) as BoxBackend)))
    }
}

struct Scripted {
    name: String,
    backends: Backends,
    adapter_config: Option<Bytes>,
    timeout: Option<Duration>,
}

impl HandlerBackend for Scripted {
    fn call<'a>(
        &'a self,
        template: &'a DynamicTemplate,
        request: Bytes,
        _: &'a Caller,
    ) -> BoxFuture<'a, Result<Bytes, Status>> {
        Box::pin(async move {
            let answer = self.answer(template.method(), request);
            match self.timeout {
                None => answer.await,
                Some(timeout) => tokio::time::timeout(timeout, answer)
                    .await
                    .unwrap_or_else(|_| Err(Status::deadline_exceeded("too late"))),
            }
        })
    }

    fn adapter_config(&self) -> Option<Bytes> {
        self.adapter_config.clone()
    }
}

impl Scripted {
    async fn answer(&self, path: &str, request: Bytes) -> Result<Bytes, Status> {
        let Some(backend) = self.backends.by_name.get(&self.name) else {
            return Err(Status::unavailable("nobody listens"));
        };
        let (service, method) = path.trim_start_matches('/').split_once('/').unwrap();
        let service = POOL.get_service_by_name(service).unwrap();
        let descriptor = service.methods().find(|known| known.name() == method).unwrap();
        let request = DynamicMessage::decode(descriptor.input(), request).unwrap();
        let names = instance_names(&request);
        let answer = backend.methods.get(method).and_then(|answers| {
            names.iter().find_map(|name| answers.by_instance.get(name)).or(answers.default.as_ref()).cloned()
        });
        let captured = Captured { backend: self.name.clone(), path: path.to_owned(), request };
        self.backends.captured.lock().unwrap().push(captured);
        let answer = answer.ok_or_else(|| Status::unimplemented("the case has no such method"))?;
        tokio::time::sleep(Duration::from_millis(answer.delay_ms)).await;
        if let Some(Error { code, message }) = answer.error {
            return Err(Status::new(grpc_code(&code), message));
        }
        let response = answer.response.unwrap_or_else(|| serde_json::json!({}));
        Ok(DynamicMessage::deserialize(descriptor.output(), response).unwrap().encode_to_vec().into())
    }
}

fn instance_names(request: &DynamicMessage) -> Vec<String> {
    let name = |instance: &prost_reflect::Value| {
        instance.as_message().unwrap().get_field_by_name("name").unwrap().as_str().unwrap().to_owned()
    };
    match (request.get_field_by_name("instance"), request.get_field_by_name("instances")) {
        (Some(instance), _) => vec![name(&instance)],
        (None, Some(instances)) => instances.as_list().unwrap().iter().map(name).collect(),
        (None, None) => Vec::new(),
    }
}

/// A code by its number or its name.
fn grpc_code(code: &serde_json::Value) -> Code {
    let named = |known: &Code| {
        Some(&*mixer_adapter_core::framework::status::status_name(*known as i32)) == code.as_str()
    };
    match code.as_i64() {
        Some(number) => Code::from_i32(i32::try_from(number).unwrap()),
        None => (0..17).map(Code::from_i32).find(named).unwrap(),
    }
}

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use prost::Message as _;
use prost_reflect::{DynamicMessage, Kind, MessageDescriptor, ReflectMessage as _, Value};
use serde_json::Value as Json;
use tonic::Status;

use mixer_adapter_core::{
    adapter::Config,
    framework::{dynamic::DynamicTemplate, status::status_name},
    proto::Any,
    template::Template,
};
use mixer_adapter_engine::trace_json;

/// One call of an adapter that the engine made for a request.
#[derive(Clone)]
pub struct Call {
    /// The handler's full name, `paths.handler.istio-system`.
    pub handler: String,
    /// The template's name.
    pub template: String,
    /// The request as it was sent, but for the id of a session.
    pub request: Bytes,
    /// The answer's message, or the error in its place.
    pub answer: Result<Bytes, Status>,
    config: Option<Any>,
    schema: DynamicTemplate,
}

tokio::task_local! {
    /// The calls of the request that the task is about.
    static CALLS: Arc<Mutex<Vec<Call>>>;
}

/// The outcome of `work`, and the calls that were made meanwhile, in the order in which they ended.
pub(super) async fn recorded<T>(work: impl Future<Output = T>) -> (T, Vec<Call>) {
    let calls = Arc::<Mutex<Vec<Call>>>::default();
    let outcome = CALLS.scope(calls.clone(), work).await;
    let calls = std::mem::take(&mut *calls.lock().unwrap_or_else(PoisonError::into_inner));
    (outcome, calls)
}

impl Call {
    /// Notes a call for the request that the task is about; a call outside of any is nobody's.
    pub(super) fn record(
        handler: &str,
        config: &Option<Any>,
        template: &DynamicTemplate,
        request: Bytes,
        answer: Result<Bytes, Status>,
    ) {
        let call = Self {
            handler: handler.to_owned(),
            template: template.name().to_owned(),
            request,
            answer,
            config: config.clone(),
            schema: template.clone(),
        };
        let _ = CALLS.try_with(|calls| calls.lock().unwrap_or_else(PoisonError::into_inner).push(call));
    }

    /// What the adapter's handler is given: the instance, all instances of a report, or the instance and the arguments of a
    /// quota.
    ///
    /// # Panics
    /// If it is a call of another template.
    #[track_caller]
    pub fn input<T: Template>(&self) -> T::Input {
        assert!(self.schema.method() == T::METHOD, "this is no call of {}: {self}", T::NAME);
        let request = T::Request::decode(self.request.clone()).map_err(|error| error.to_string());
        let input = request.and_then(|request| T::split(request).map_err(|error| error.to_string()));
        input
            .map(|(input, _)| input)
            .unwrap_or_else(|error| panic!("no handler can be given this, {error}: {self}"))
    }

    /// The configuration of the handler.
    ///
    /// # Panics
    /// If it is of another adapter.
    #[track_caller]
    pub fn config<C: Config>(&self) -> C {
        let config = self.config.as_ref().filter(|config| config.message_name() == C::NAME);
        let config = config.and_then(|config| C::decode(config.value.clone()).ok());
        config.unwrap_or_else(|| panic!("the handler has no {}: {:?}", C::NAME, self.config))
    }

    /// What names the call: the same for a call that is sent again.
    pub fn dedup_id(&self) -> String {
        self.json()["dedup_id"].as_str().unwrap_or_default().to_owned()
    }

    /// The request, field by field, but for `adapter_config`: that is [`config`](Self::config).
    pub fn json(&self) -> Json {
        show(self.schema.request_message(), &self.request)
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} with {} -> ", self.template, self.handler, self.json())?;
        match &self.answer {
            Err(status) => write!(f, "{}: {}", status_name(status.code() as i32), status.message()),
            Ok(answer) => write!(f, "{}", show(self.schema.response_message(), answer)),
        }
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A message for people. What is in an Any is left out: its message may not be known.
fn show(descriptor: &MessageDescriptor, message: &[u8]) -> Json {
    let Ok(mut message) = DynamicMessage::decode(descriptor.clone(), message) else {
        return Json::String(format!("{} bytes that are no {}", message.len(), descriptor.full_name()));
    };
    without_any(&mut message);
    trace_json(descriptor, &message.encode_to_vec())
}

fn without_any(message: &mut DynamicMessage) {
    let is_any = |kind: Kind| kind.as_message().is_some_and(|kind| kind.full_name() == "google.protobuf.Any");
    for field in message.descriptor().fields() {
        if is_any(field.kind()) {
            message.clear_field(&field);
        } else if !field.is_list()
            && !field.is_map()
            && message.has_field(&field)
            && let Value::Message(inner) = message.get_field_mut(&field)
        {
            without_any(inner);
        }
    }
}

use std::{fmt, sync::Arc};

use bytes::Bytes;
use parking_lot::Mutex;
use prost::Message as _;
use prost_reflect::{DynamicMessage, MessageDescriptor, ReflectMessage as _, Value};
use serde_json::Value as Json;
use tonic::Status;

use mixer_adapter_core::{
    adapter::Config,
    framework::{CallInfo, dynamic::DynamicTemplate, status::status_name},
    proto::Any,
    template::Template,
};
use mixer_adapter_engine::trace_json;

/// A call of an adapter by the engine.
#[derive(Clone)]
pub struct RecordedCall {
    /// The handler's full name, `paths.handler.istio-system`.
    pub handler: String,
    /// The template's name.
    pub template: String,
    /// The request as it was sent, except for the id of a session.
    pub request: Bytes,
    /// The message of the answer, or the error.
    pub answer: Result<Bytes, Status>,
    config: Option<Any>,
    schema: DynamicTemplate,
}

tokio::task_local! {
    /// The calls for the request that the task sends.
    static CALLS: Arc<Mutex<Vec<RecordedCall>>>;
}

/// Runs `work` and returns its outcome with its calls, in the order in which they ended.
pub(super) async fn recorded<T>(work: impl Future<Output = T>) -> (T, Vec<RecordedCall>) {
    let calls = Arc::<Mutex<Vec<RecordedCall>>>::default();
    let outcome = CALLS.scope(calls.clone(), work).await;
    let calls = std::mem::take(&mut *calls.lock());
    (outcome, calls)
}

impl RecordedCall {
    /// Records a call for the request that the task sends. Other calls are not recorded.
    pub(super) fn record(
        handler: &str,
        config: Option<&Any>,
        template: &DynamicTemplate,
        request: Bytes,
        answer: Result<Bytes, Status>,
    ) {
        let call = Self {
            handler: handler.to_owned(),
            template: template.name().to_owned(),
            request,
            answer,
            config: config.cloned(),
            schema: template.clone(),
        };
        let _ = CALLS.try_with(|calls| calls.lock().push(call));
    }

    /// Decodes the input of the adapter's handler: the call of the instance, of all instances of a report, or of the instance and the
    /// quota request.
    ///
    /// # Panics
    /// If the call is of another template.
    #[track_caller]
    pub fn input<T: Template>(&self) -> T::Input {
        assert!(self.schema.method() == T::METHOD, "not a call of {}: {self}", T::NAME);
        let request = T::Request::decode(self.request.clone()).map_err(|error| error.to_string());
        let input = request
            .and_then(|request| T::split(request, CallInfo::default()).map_err(|error| error.to_string()));
        input.map_or_else(|error| panic!("not a valid input, {error}: {self}"), |(input, _)| input)
    }

    /// Decodes the configuration of the handler.
    ///
    /// # Panics
    /// If the configuration is of another adapter.
    #[track_caller]
    pub fn config<C: Config>(&self) -> C {
        let config = self.config.as_ref().filter(|config| config.message_name() == C::NAME);
        let config = config.and_then(|config| C::decode(config.value.clone()).ok());
        config
            .unwrap_or_else(|| panic!("the handler's configuration is not a {}: {:?}", C::NAME, self.config))
    }

    /// The deduplication id, which is equal for a repeated call.
    pub fn dedup_id(&self) -> String {
        self.json()["dedup_id"].as_str().unwrap_or_default().to_owned()
    }

    /// The fields of the request, without `adapter_config` (see [`config`](Self::config)).
    pub fn json(&self) -> Json {
        show(self.schema.request_message(), &self.request)
    }
}

impl fmt::Display for RecordedCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} with {} -> ", self.template, self.handler, self.json())?;
        match &self.answer {
            Err(status) => write!(f, "{}: {}", status_name(status.code() as i32), status.message()),
            Ok(answer) => write!(f, "{}", show(self.schema.response_message(), answer)),
        }
    }
}

impl fmt::Debug for RecordedCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A message as JSON, without fields of type Any, whose messages may be unknown.
fn show(descriptor: &MessageDescriptor, message: &[u8]) -> Json {
    let Ok(mut message) = DynamicMessage::decode(descriptor.clone(), message) else {
        return Json::String(format!(
            "{} bytes that are not a valid {}",
            message.len(),
            descriptor.full_name()
        ));
    };
    without_any(&mut message);
    trace_json(descriptor, &message.encode_to_vec())
}

fn without_any(message: &mut DynamicMessage) {
    for field in message.descriptor().fields() {
        let kind = field.kind();
        if kind.as_message().is_some_and(|kind| kind.full_name() == "google.protobuf.Any") {
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

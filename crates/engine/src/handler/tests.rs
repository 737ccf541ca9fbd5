#![allow(clippy::unwrap_used)]

use std::sync::{Mutex, MutexGuard};

use prost::Message as _;

use super::*;
use mixer_adapter_core::{
    Adapter, AdapterError, Call, Check, Code as Denied, Context, Grant, Handle, QuotaRequest as Amount,
    adapter::Config, framework::dynamic::DescriptorSet, template::Template, value::Value,
};
use mixer_adapter_host::{
    Origin,
    handler::{Adapters, Closing, Purpose, TableLimits},
};
use mixer_adapter_templates::{ListEntry, Metric, Quota, listentry, metric, quota};

#[derive(Clone, PartialEq, prost::Message)]
struct Params {}

impl Config for Params {
    const NAME: &'static str = "test.Params";
    /// The file `p.proto` of package `test`, with the message `Params`.
    const DESCRIPTOR: &'static [u8] =
        b"\x0a\x21\x0a\x07p.proto\x12\x04test\x22\x08\x0a\x06Params\x62\x06proto3";
    const GENERATED: () = ();
}

/// The calls that an adapter received.
#[derive(Default)]
struct Calls(Mutex<Vec<String>>);

impl Calls {
    fn lock(&self) -> MutexGuard<'_, Vec<String>> {
        self.0.lock().unwrap()
    }
}

/// Remembers its calls, and answers as their values say.
struct Recorder(Arc<Calls>);

impl Adapter<Calls> for Recorder {
    const NAME: &str = "recorder";
    const DESCRIPTION: &str = "Remembers its calls.";
    type Config = Params;
    type Templates = (ListEntry, Metric, Quota);

    async fn open(_: Params, context: Context<Calls>) -> Result<Self, AdapterError> {
        Ok(Self(context.state().clone()))
    }
}

impl Handle<ListEntry> for Recorder {
    async fn handle(&self, call: Call<listentry::InstanceMsg>) -> Result<Check, AdapterError> {
        self.0.lock().push(format!("{call:?}"));
        match call.value.as_ref().and_then(Value::as_str) {
            Some("slow") => std::future::pending().await,
            Some("down") => Err(AdapterError::unavailable("down")),
            Some("panic") => panic!("at the value"),
            Some(text) => Ok(Check::deny(Denied::PermissionDenied, text).uses(7)),
            None => Ok(Check::allow()),
        }
    }
}

impl Handle<Metric> for Recorder {
    async fn handle(&self, call: Call<Vec<metric::InstanceMsg>>) -> Result<(), AdapterError> {
        self.0.lock().push(format!("{call:?}"));
        Ok(())
    }
}

impl Handle<Quota> for Recorder {
    async fn handle(&self, call: Call<quota::InstanceMsg, Amount>) -> Result<Grant, AdapterError> {
        self.0.lock().push(format!("{call:?}"));
        Ok(Grant::amount(call.quota().amount / 2))
    }
}

/// A backend whose calls are encoded.
struct Encoding(LocalBackend);

impl HandlerBackend for Encoding {
    fn call<'a>(&'a self, template: &'a DynamicTemplate, request: Bytes, caller: &'a Caller) -> Called<'a> {
        self.0.call(template, request, caller)
    }

    fn logs_failures(&self) -> bool {
        true
    }
}

/// An adapter that is called with values, and encoded.
struct Subject {
    calls: Arc<Calls>,
    host: Host,
    handlers: [RuntimeHandler; 2],
}

impl Subject {
    async fn open() -> Self {
        let (calls, runtime) = (Arc::<Calls>::default(), tokio::runtime::Handle::current());
        let adapters = Adapters::builder(runtime.clone()).add_with::<Recorder, _>(calls.clone()).build();
        let host = Host::new(adapters.unwrap(), TableLimits::default(), Closing::on(runtime));
        let adapter = host.adapters().find("recorder").unwrap().clone();
        let opened = host.handlers().open(&adapter, Bytes::new(), Origin::Operator, Purpose::default());
        let (name, handler) = (Arc::<str>::from("h.handler.ns"), opened.await.unwrap());
        let local = || LocalBackend::new(name.clone(), &host, handler.clone());
        let targets: [Box<dyn HandlerBackend>; 2] = [Box::new(local()), Box::new(Encoding(local()))];
        let handlers = targets.map(|target| RuntimeHandler::new(name.clone(), Digest::of([]), target));
        Self { calls, host, handlers }
    }

    /// Calls the adapter both ways, which must not differ. Returns the received call, and the answer.
    async fn call<T: Template>(
        &self,
        instances: &[T::Instance],
        quota: Option<QuotaParams<'_>>,
    ) -> (String, Result<T::Response, Status>) {
        let template = DynamicTemplate::new(&DescriptorSet::decode(T::DESCRIPTOR).unwrap()).unwrap();
        let deadline = Some(tokio::time::Instant::now() + Duration::from_millis(50));
        let caller = Caller { deadline, peer: Some("ingress".into()), ..Caller::default() };
        let mut outcomes = Vec::new();
        for handler in &self.handlers {
            let encoded = instances.iter().map(|instance| BuiltInstance::Encoded(instance.encode_to_vec()));
            let mut encoded: Vec<_> = encoded.collect();
            let (answer, _) = handler.call(&template, &mut encoded, &["i.instance.ns"], quota, &caller).await;
            let answer = answer.map(Response::into_encoded);
            let text = format!("{:?}", answer.as_ref().map_err(|status| (status.code(), status.message())));
            outcomes.push((std::mem::take(&mut *self.calls.lock()), text, answer));
        }
        let [(call, text, answer), (encoded_call, encoded_text, _)] = &outcomes[..] else {
            panic!("two calls are made");
        };
        assert_eq!((call, text), (encoded_call, encoded_text));
        let metrics = self.host.adapters().method(T::METHOD).unwrap().metrics();
        for (_, calls) in metrics {
            assert!(calls.codes().all(|(_, count)| count % 2 == 0), "one of two calls is counted: {text}");
        }
        (call.concat(), answer.clone().map(|answer| T::Response::decode(answer).unwrap()))
    }
}

fn entry(value: Option<&str>) -> listentry::InstanceMsg {
    listentry::InstanceMsg { name: "i.instance.ns".to_owned(), value: value.map(Value::from) }
}

#[tokio::test(start_paused = true)]
async fn adapters_in_the_process_receive_and_answer_what_they_do_through_the_wire_format() {
    let subject = Subject::open().await;
    let (call, denied) = subject.call::<ListEntry>(&[entry(Some("x"))], None).await;
    assert!(call.contains("h.handler.ns") && call.contains("ingress"), "{call}");
    let denied = denied.unwrap();
    assert_eq!((denied.status.unwrap().message, denied.valid_use_count), ("x".to_owned(), 7));
    assert_eq!(subject.call::<ListEntry>(&[entry(None)], None).await.1.unwrap().status.unwrap().code, 0);
    for (value, code) in
        [("down", Code::Unavailable), ("panic", Code::Internal), ("slow", Code::DeadlineExceeded)]
    {
        let failed = subject.call::<ListEntry>(&[entry(Some(value))], None).await.1.unwrap_err();
        assert_eq!(failed.code(), code, "{value}");
    }

    let dimensions = || [("user".to_owned(), Value::from("u"))].into();
    let metrics = ["a", "b"].map(|name| metric::InstanceMsg {
        name: name.to_owned(),
        value: Some(Value::from(2.5)),
        dimensions: dimensions(),
        ..metric::InstanceMsg::default()
    });
    assert!(subject.call::<Metric>(&metrics, None).await.1.is_ok());

    let instance = quota::InstanceMsg { name: "q.instance.ns".to_owned(), dimensions: dimensions() };
    for (amount, best_effort) in [(0, false), (4, true), (4, false)] {
        let request = QuotaRequest { name: "q", dedup_id: "id", amount, best_effort };
        let params = QuotaParams { request, mode: AllocationMode::default(), instance: "q.instance.ns" };
        let answer = subject.call::<Quota>(std::slice::from_ref(&instance), Some(params)).await.1;
        let granted = answer.map(|result| result.quotas["q.instance.ns"].granted_amount);
        match granted {
            Ok(granted) => assert_eq!(granted, amount / 2),
            Err(partial) => {
                assert!(!best_effort && partial.message().contains("granted 2 of 4"), "{partial}")
            }
        }
    }
}

//! An adapter with defects, for the compliance suite.

use std::{
    fs::File,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicI64, AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use mixer_adapter::{
    Adapter, AdapterError, Call, Check, Code, Context, DirectHttpResponse, Grant, Handle, QuotaRequest,
    adapter::{Faults, Settings},
    anyhow,
    template::{ListEntry, Quota, listentry, quota},
    value::Value,
};

use tokio::sync::Semaphore;

use crate::params::careless::Params;

/// Has the flaw named in its configuration.
#[derive(Debug)]
pub struct Careless {
    flaw: String,
    denied: String,
    calls: AtomicU64,
    permits: Semaphore,
    users: AtomicI64,
}

/// What handlers leave behind.
static MEMORY: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());
static FILES: Mutex<Vec<File>> = Mutex::new(Vec::new());

#[expect(clippy::disallowed_methods, reason = "an adapter that blocks")]
fn block(time: Duration) {
    std::thread::sleep(time);
}

/// A size up to 9, and one that `open` refuses.
#[derive(Debug)]
pub struct CarelessSettings(Params);

impl Settings for CarelessSettings {
    type Params = Params;

    fn parse(params: Params, faults: &mut Faults<'_>) -> Option<Self> {
        if params.size >= 10 && params.size != 20 {
            faults.push("size", "must be below 10");
        }
        Some(Self(params))
    }
}

impl Adapter for Careless {
    const NAME: &str = "careless";
    const DESCRIPTION: &str = "Has the flaw named in its configuration.";
    type Config = CarelessSettings;
    type Templates = (ListEntry, Quota);

    async fn open(
        CarelessSettings(params): CarelessSettings,
        context: Context,
    ) -> Result<Self, AdapterError> {
        if params.size == 20 {
            return Err(AdapterError::invalid("too large"));
        }
        match params.flaw.as_str() {
            "leaks tasks" => drop(tokio::spawn(std::future::pending::<()>())),
            "leaks threads" => {
                drop(std::thread::spawn(|| std::thread::park_timeout(Duration::from_secs(300))))
            }
            "leaks memory" => MEMORY.lock().unwrap_or_else(PoisonError::into_inner).push(vec![1; 128 << 10]),
            "leaks files" => {
                let file = File::open("/dev/null").map_err(anyhow::Error::from)?;
                FILES.lock().unwrap_or_else(PoisonError::into_inner).push(file);
            }
            "blocks in the background" => context.spawn(async {
                loop {
                    block(Duration::from_millis(600));
                    tokio::task::yield_now().await;
                }
            }),
            _ => {}
        }
        Ok(Self {
            flaw: params.flaw,
            denied: params.denied,
            calls: AtomicU64::new(0),
            permits: Semaphore::new(8),
            users: AtomicI64::new(0),
        })
    }

    async fn close(self) {
        match self.flaw.as_str() {
            "never closes" => std::future::pending().await,
            "panics closing" => panic!("panic in close, as configured"),
            "blocks closing" => block(Duration::from_millis(100)),
            _ => {}
        }
    }
}

impl Handle<ListEntry> for Careless {
    async fn handle(&self, entry: Call<listentry::InstanceMsg>) -> Result<Check, AdapterError> {
        let denies = entry.value.as_ref().is_some_and(|value| value.to_string() == self.denied);
        let call = self.calls.fetch_add(1, SeqCst);
        match (self.flaw.as_str(), entry.into_inner().value) {
            ("unwraps", None) => panic!("no value"),
            ("slices", Some(Value::IpAddress(ip))) => {
                assert_eq!(ip.value.len(), 4, "no IPv4 address");
            }
            ("fails", None) => Err(anyhow::anyhow!("no value"))?,
            ("hangs", _) if denies => std::future::pending().await,
            ("rejects", _) => Err(AdapterError::invalid("no header"))?,
            ("answers only its example", value)
                if value.as_ref().is_none_or(|value| value.to_string() != "the example") =>
            {
                Err(AdapterError::invalid("not the example"))?;
            }
            ("denies by an error", _) if denies => {
                Err(AdapterError::new(Code::PermissionDenied, "not on the list"))?;
            }
            ("blocks", _) => block(Duration::from_millis(100)),
            ("blocks forever", Some(Value::IpAddress(_))) => block(Duration::from_secs(60)),
            ("alternates", _) if call % 2 == 1 => return Ok(Check::deny(Code::NotFound, "odd")),
            ("denies the tenth call", _) if call % 10 == 9 => {
                return Ok(Check::deny(Code::NotFound, "tenth"));
            }
            ("counts in its message", _) => return Ok(Check::deny(Code::NotFound, format!("call {call}"))),
            ("counts in its response", _) => {
                let response = DirectHttpResponse { body: call.to_string(), ..DirectHttpResponse::default() };
                return Ok(Check::deny(Code::NotFound, "not here").with_direct_response(&response));
            }
            ("alternates without a promise", _) if call % 2 == 1 => {
                return Ok(Check::deny(Code::NotFound, "odd").no_cache());
            }
            ("alternates without a promise", _) => return Ok(Check::allow().no_cache()),
            ("has no opinion", _) => return Ok(Check::no_opinion()),
            ("loses permits", _) => {
                self.permits.acquire().await.map_err(anyhow::Error::from)?.forget();
                tokio::time::sleep(Duration::from_millis(1)).await;
                self.permits.add_permits(1);
            }
            ("loses permits later", _) => {
                tokio::time::sleep(Duration::from_millis(1)).await;
                if self.users.fetch_add(1, SeqCst) >= 8 {
                    self.users.fetch_sub(1, SeqCst);
                    return Ok(Check::deny(Code::ResourceExhausted, "busy").no_cache());
                }
                tokio::task::yield_now().await;
                self.users.fetch_sub(1, SeqCst);
            }
            _ => {}
        }
        Ok(if denies { Check::deny(Code::PermissionDenied, "not on the list") } else { Check::allow() })
    }
}

impl Handle<Quota> for Careless {
    async fn handle(&self, call: Call<quota::InstanceMsg, QuotaRequest>) -> Result<Grant, AdapterError> {
        let request = call.quota();
        if self.flaw == "refuses quota by an error" && request.amount > 10 {
            return Err(AdapterError::new(Code::ResourceExhausted, "too much"));
        }
        let granted =
            if self.flaw == "grants what it has" { request.amount.min(1) } else { request.amount.max(0) };
        Ok(Grant::amount(granted))
    }
}

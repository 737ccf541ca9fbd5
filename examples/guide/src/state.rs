use mixer_adapter::retention::{Retain, Retained};
use mixer_adapter::template::{CheckNothing, checknothing};
use mixer_adapter::{Adapter, AdapterError, Call, Check, Context, Handle};
use std::{collections::HashMap, sync::Arc, time::SystemTime};
use tokio::sync::Semaphore;

use super::Params;

struct Services {
    clock: fn() -> SystemTime,
}

struct Lookup {
    services: Arc<Services>,
}

impl Adapter<Services> for Lookup {
    const NAME: &str = "lookup";
    const DESCRIPTION: &str = "Allows at some times.";
    type Config = Params;
    type Templates = (CheckNothing,);

    async fn open(_: Params, context: Context<Services>) -> Result<Self, AdapterError> {
        Ok(Self { services: context.state().clone() })
    }
}

impl Handle<CheckNothing> for Lookup {
    async fn handle(&self, _: Call<checknothing::InstanceMsg>) -> Result<Check, AdapterError> {
        let _now = (self.services.clock)();
        Ok(Check::allow())
    }
}

mod program {
    use super::*;

    mixer_adapter::main!(Lookup; state = Services { clock: SystemTime::now }; sample = include_str!("../sample.yaml"));
}

fn shared(context: &Context) -> Arc<Semaphore> {
    let limit = context.shared(|| Semaphore::new(10));
    limit
}

#[derive(Default)]
struct Counters(HashMap<String, u64>);

impl Retain for Counters {
    fn bytes(&self) -> usize {
        self.0.len() * 64 // 0: nothing to lose
    }
}

fn counters(context: &Context) -> Retained<Counters> {
    context.retained(Counters::default)
}

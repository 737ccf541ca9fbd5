//! An adapter that blocks its thread.

use mixer_adapter::{
    Adapter, AdapterError, Call, Check, Context, Handle,
    template::{ListEntry, listentry},
};

use crate::{
    ledger::{Entry, ledger},
    params::blocker::Params,
    probe::block_in_place,
};

/// Blocks its thread until the gate of its ledger is open; for the value `hang` it waits forever without blocking, and for
/// `block in place` it blocks as tokio offers it.
#[derive(Debug)]
pub struct Blocker {
    entry: Entry,
    block_close: bool,
}

impl Adapter for Blocker {
    const NAME: &str = "blocker";
    const DESCRIPTION: &str = "Blocks its thread.";
    const BLOCKING: bool = true;
    type Config = Params;
    type Templates = (ListEntry,);

    async fn open(params: Params, _: Context) -> Result<Self, AdapterError> {
        Ok(Self { entry: ledger(&params.ledger).opening(), block_close: params.block_close })
    }

    async fn close(self) {
        if self.block_close {
            self.entry.ledger.block_at_gate();
        }
        self.entry.close();
    }
}

impl Handle<ListEntry> for Blocker {
    async fn handle(&self, instance: Call<listentry::InstanceMsg>) -> Result<Check, AdapterError> {
        let call = self.entry.call();
        if instance.value.as_ref().is_some_and(|value| value.to_string() == "hang") {
            std::future::pending::<()>().await;
        }
        self.entry.ledger.block_at_gate();
        call.finish();
        if instance.value.as_ref().is_some_and(|value| value.to_string() == "block in place") {
            return Ok(block_in_place());
        }
        Ok(Check::allow())
    }
}

//! An adapter without a required configuration.

use mixer_adapter::{
    Adapter, AdapterError, Call, Check, Context, Handle,
    template::{CheckNothing, checknothing},
};

use crate::{
    ledger::{Entry, ledger},
    params::bystander::Params,
};

/// Allows everything. It accepts an empty configuration, and no other adapter here serves `checknothing`.
#[derive(Debug)]
pub struct Bystander(Entry);

impl Adapter for Bystander {
    const NAME: &str = "bystander";
    const DESCRIPTION: &str = "Allows everything.";
    type Config = Params;
    type Templates = (CheckNothing,);

    async fn open(params: Params, _: Context) -> Result<Self, AdapterError> {
        Ok(Self(ledger(&params.ledger).opening()))
    }

    async fn close(self) {
        self.0.close();
    }
}

impl Handle<CheckNothing> for Bystander {
    async fn handle(&self, _: Call<checknothing::InstanceMsg>) -> Result<Check, AdapterError> {
        self.0.call().finish();
        Ok(Check::allow())
    }
}

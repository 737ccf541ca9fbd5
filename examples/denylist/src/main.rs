//! Denies the values on a list. `cargo run -p denylist -- serve`
use mixer_adapter::template::{ListEntry, listentry};
use mixer_adapter::{Adapter, AdapterError, Call, Check, Code, Context, Handle};
use std::collections::HashSet;
mixer_adapter::include_proto!("denylist"); // Params, from config.proto

struct DenyList(HashSet<String>);
impl Adapter for DenyList {
    const NAME: &str = "denylist";
    const DESCRIPTION: &str = "Denies the values on a list.";
    type Config = Params;
    type Templates = (ListEntry,);
    async fn open(params: Params, _: Context) -> Result<Self, AdapterError> {
        Ok(Self(params.entries.into_iter().collect()))
    }
}
impl Handle<ListEntry> for DenyList {
    async fn handle(&self, entry: Call<listentry::InstanceMsg>) -> Result<Check, AdapterError> {
        let listed = entry.value.as_ref().is_some_and(|value| self.0.contains(&value.to_string()));
        Ok(if listed { Check::deny(Code::PermissionDenied, "on the deny list") } else { Check::allow() })
    }
}

mixer_adapter::main!(DenyList);
mixer_adapter::testing::compliance!(DenyList, config("entries: [bob]"));

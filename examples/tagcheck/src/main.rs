//! Denies subjects that lack a required tag. `cargo run -p tagcheck -- serve`

use std::collections::BTreeMap;

use mixer_adapter::{Adapter, AdapterError, Call, Check, Code, Context, Handle};

mod config {
    mixer_adapter::include_proto!("example.tagcheck.config");
}
mod tagcheck {
    mixer_adapter::include_proto!("example.tagcheck");
}

use config::Params;
use tagcheck::{InstanceMsg, OutputMsg, TagCheck};

struct Required(BTreeMap<String, String>);

impl Adapter for Required {
    const NAME: &str = "tagcheck";
    const DESCRIPTION: &str = "Denies subjects that lack a required tag.";
    type Config = Params;
    type Templates = (TagCheck,);

    async fn open(params: Params, _: Context) -> Result<Self, AdapterError> {
        Ok(Self(params.required))
    }
}

impl Handle<TagCheck> for Required {
    async fn handle(&self, instance: Call<InstanceMsg>) -> Result<(Check, OutputMsg), AdapterError> {
        let mut missing = self.0.clone();
        missing
            .retain(|name, value| !instance.tags.get(name).is_some_and(|is| value.is_empty() || is == value));
        let cost = self.0.len() as i64;
        if missing.is_empty() {
            let output = OutputMsg { verdict: "complete".to_owned(), cost, tags: missing };
            return Ok((Check::allow(), output));
        }
        let verdict = format!("missing {}", missing.keys().cloned().collect::<Vec<_>>().join(", "));
        let denial = Check::deny(Code::PermissionDenied, format!("{}: {verdict}", instance.subject));
        Ok((denial, OutputMsg { verdict, cost, tags: missing }))
    }
}

mixer_adapter::main!(Required);
mixer_adapter::testing::compliance!(Required, config("required: {team: red}"));

#[cfg(test)]
mod tests {
    use super::*;

    async fn checked(required: &[(&str, &str)], tags: &[(&str, &str)]) -> (Check, OutputMsg) {
        let map =
            |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        let handler = Required::open(Params { required: map(required) }, Context::detached(()))
            .await
            .expect("a valid configuration");
        let instance = InstanceMsg { subject: "bob".to_owned(), tags: map(tags), ..InstanceMsg::default() };
        handler.handle(instance.into()).await.expect("an answer")
    }

    #[tokio::test]
    async fn a_subject_with_all_tags_is_allowed() {
        let (check, output) =
            checked(&[("team", "red"), ("zone", "")], &[("team", "red"), ("zone", "1")]).await;
        assert!(check.is_allowed());
        assert_eq!((output.verdict.as_str(), output.cost, output.tags.len()), ("complete", 2, 0));
    }

    #[tokio::test]
    async fn a_denial_and_its_output_name_the_missing_tags() {
        let (check, output) = checked(&[("team", "red"), ("zone", "")], &[("team", "blue")]).await;
        assert_eq!(check.status().code, Code::PermissionDenied as i32);
        assert_eq!(check.status().message, "bob: missing team, zone");
        assert_eq!(output.verdict, "missing team, zone");
        assert_eq!(output.tags["team"], "red");
    }
}

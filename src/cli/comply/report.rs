//! The report about the rules of the contract, in several formats.

use serde_json::{Value as Json, json};

use crate::{
    cli::{counted, millis, style, template},
    printable::printable,
    testing::compliance::run::{Tested, Verdict},
};

pub(super) struct Report<'a> {
    pub(super) address: &'a str,
    pub(super) tested: &'a [Tested],
}

impl Report<'_> {
    pub(super) fn is_kept(&self) -> bool {
        !self.tested.iter().any(|tested| matches!(tested.verdict, Verdict::Broken(_)))
    }

    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for Tested { rule, verdict, .. } in self.tested {
            match verdict {
                Verdict::Kept => text.push_str(&format!("ok      {}\n", rule.name)),
                Verdict::Skipped(reason) => text.push_str(&format!("skipped {}: {reason}\n", rule.name)),
                Verdict::Broken(reason) => {
                    let line = format!("FAILED  {}\n", rule.name);
                    text.push_str(&style::paint_first(&line, &[("FAILED", style::BAD)], style::on_stdout()));
                    text.push_str(&format!("  {reason}\n  repair: {}\n", rule.repair));
                }
            }
        }
        let [kept, broken, skipped] = self.counts();
        let rules = counted(self.tested.len(), "rule");
        text + &format!("{rules}: {kept} kept, {broken} broken, {skipped} not tested\n")
    }

    pub(super) fn json(&self) -> anyhow::Result<String> {
        Ok(serde_json::to_string_pretty(&self.values())? + "\n")
    }

    pub(super) fn junit(&self) -> anyhow::Result<String> {
        Ok(template::render(&[("junit", include_str!("junit.xml"))], "junit", &self.values())?)
    }

    fn counts(&self) -> [usize; 3] {
        let count =
            |is: fn(&Verdict) -> bool| self.tested.iter().filter(|tested| is(&tested.verdict)).count();
        [
            count(|verdict| matches!(verdict, Verdict::Kept)),
            count(|verdict| matches!(verdict, Verdict::Broken(_))),
            count(|verdict| matches!(verdict, Verdict::Skipped(_))),
        ]
    }

    fn values(&self) -> Json {
        let rules = self.tested.iter().map(|Tested { rule, verdict, took }| {
            let (outcome, reason, repair) = match verdict {
                Verdict::Kept => ("kept", None, None),
                Verdict::Broken(reason) => ("broken", Some(reason), Some(rule.repair)),
                Verdict::Skipped(reason) => ("skipped", Some(reason), None),
            };
            let reason = reason.map(|reason| printable(reason, &['\n'], false));
            json!({"rule": rule.name, "outcome": outcome, "reason": reason, "repair": repair, "took_ms": millis(*took)})
        });
        let [kept, broken, skipped] = self.counts();
        json!({
            "address": self.address,
            "kept": kept,
            "broken": broken,
            "skipped": skipped,
            "rules": rules.collect::<Vec<_>>(),
        })
    }
}

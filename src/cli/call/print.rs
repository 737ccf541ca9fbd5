//! Output of answers, as text and as JSON.

use std::{fmt::Write as _, time::Duration};

use serde_json::json;

use super::{
    answer::{self, Answer},
    request::PreparedCall,
};
use crate::{
    answer::quotas_text,
    cli::{self, counted, millis, output_args::DataFormat},
};

pub(super) fn answer(
    prepared: &PreparedCall,
    answer: &Answer,
    took: Duration,
    data: Option<DataFormat>,
) -> anyhow::Result<()> {
    if let Some(data) = data {
        let template = prepared.template.name();
        return data
            .print(&json!({ "template": template, "answer": answer.to_json(), "took_ms": millis(took) }));
    }
    let mut text = match answer {
        Answer::Check(verdict) => verdict.to_string(),
        Answer::Quota(result) => {
            let requests = prepared.quota_request.iter().flat_map(|request| &request.quotas);
            let amounts = requests.map(|(name, params)| (name.as_str(), params.amount));
            quotas_text(amounts, &result.quotas)
        }
        Answer::Report => {
            format!("reported, {} in one call\n", counted(prepared.instances.len(), "instance"))
        }
        Answer::Output(output) => output_text(Some(output)),
        Answer::CheckWithOutput(verdict, output) => format!("{verdict}{}", output_text(output.as_ref())),
    };
    let _ = writeln!(text, "took {} ms", millis(took));
    Ok(cli::print_verdict(&text)?)
}

fn output_text(output: Option<&prost_reflect::DynamicMessage>) -> String {
    let fields = output.map(answer::output_json).unwrap_or_default();
    let mut text = if fields.is_empty() { "no output\n".to_owned() } else { "output\n".to_owned() };
    for (name, value) in fields {
        let _ = writeln!(text, "  {name}: {value}");
    }
    text
}

use std::fmt;

use super::{
    Verdict,
    json::{detail_json, duration_text},
};
use mixer_adapter_core::framework::status::status_name;
use mixer_adapter_engine::proto::istio::mixer::v1::{
    HeaderOperation, RouteDirective, header_operation::Operation,
};

/// Several lines, each with a line feed at its end.
impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.status.code, self.status.message.as_str()) {
            (0, "") => writeln!(f, "allowed")?,
            (0, message) => writeln!(f, "allowed: {message}")?,
            (code, "") => writeln!(f, "denied: {}", status_name(code))?,
            (code, message) => writeln!(f, "denied: {}: {message}", status_name(code))?,
        }
        for detail in &self.status.details {
            writeln!(f, "detail: {}", detail_json(detail))?;
        }
        self.fmt_validity(f)?;
        let references = self.references.as_deref().unwrap_or_default();
        if !references.is_empty() {
            writeln!(f, "referenced attributes")?;
        }
        for reference in references {
            let key = reference.key.as_ref().map(|key| format!("[{key}]")).unwrap_or_default();
            writeln!(f, "  {}{key} {}", reference.name, reference.condition.to_lowercase())?;
        }
        self.directive.as_ref().map_or(Ok(()), |directive| fmt_directive(directive, f))
    }
}

impl fmt::Debug for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.to_string().trim_end())
    }
}

impl Verdict {
    /// As a real Mixer and its proxies read the two numbers (docs/behaviour/adapter-calls.md#validity-of-a-check).
    fn fmt_validity(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let duration = duration_text(self.valid_duration);
        let of_adapter = self.references.is_none();
        match (self.valid_duration().is_zero(), self.valid_use_count) {
            (true, 0) if of_adapter && self.is_allowed() => {
                writeln!(f, "validity not set: 0s and 0 uses, which Mixer replaces with 1m0s and 10000 uses")
            }
            (true, uses) => writeln!(f, "not cacheable: valid for {duration} and {uses} uses"),
            (false, 0) => writeln!(f, "not cacheable: valid for {duration} and 0 uses"),
            (false, ..0) => writeln!(f, "valid for {duration}, any number of uses"),
            (false, uses) => writeln!(f, "valid for {duration} or {uses} uses"),
        }
    }
}

fn fmt_directive(directive: &RouteDirective, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(f, "route directive")?;
    if directive.direct_response_code != 0 {
        let (code, body) = (directive.direct_response_code, &directive.direct_response_body);
        writeln!(f, "  answer with {code} {body:?}")?;
    }
    let lists = [
        ("request", &directive.request_header_operations),
        ("response", &directive.response_header_operations),
    ];
    for (message, operation) in lists.iter().flat_map(|(of, list)| list.iter().map(move |one| (of, one))) {
        let HeaderOperation { name, value, .. } = operation;
        match operation.operation() {
            Operation::Replace => writeln!(f, "  {message} header {name} set to {value:?}")?,
            Operation::Append => writeln!(f, "  {message} header {name} appended with {value:?}")?,
            Operation::Remove => writeln!(f, "  {message} header {name} removed")?,
        }
    }
    Ok(())
}

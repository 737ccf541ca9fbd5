//! The answer to a check as people and scripts read it.

use serde_json::{Map, Value as Json, json};

use super::references::referenced;
use mixer_adapter_core::{proto::Status, status::status_name, value::Duration};
use mixer_adapter_engine::proto::istio::mixer::v1::{
    CheckResponse, HeaderOperation, ReferencedAttributes, RouteDirective,
    check_response::{PreconditionResult, QuotaResult},
    header_operation::Operation,
};

/// Codes and header operations by name, durations as Go writes them, referenced attributes by their words.
pub fn check_json(response: &CheckResponse) -> Json {
    let mut json = match &response.precondition {
        Some(precondition) => precondition_json(precondition),
        None => json!({}),
    };
    if !response.quotas.is_empty() {
        let quotas = response.quotas.iter().map(|(name, quota)| (name.clone(), quota_json(quota)));
        json["quotas"] = quotas.collect::<Map<_, _>>().into();
    }
    json
}

fn precondition_json(precondition: &PreconditionResult) -> Json {
    let mut json = json!({
        "status": status_json(&precondition.status.clone().unwrap_or_default()),
        "valid_duration": duration(precondition.valid_duration),
        "valid_use_count": precondition.valid_use_count,
        "referenced_attributes": references_json(precondition.referenced_attributes.as_ref()),
    });
    if let Some(directive) = &precondition.route_directive {
        json["route_directive"] = directive_json(directive);
    }
    json
}

fn quota_json(quota: &QuotaResult) -> Json {
    let mut json = json!({
        "granted_amount": quota.granted_amount,
        "valid_duration": duration(quota.valid_duration),
        "referenced_attributes": references_json(quota.referenced_attributes.as_ref()),
    });
    if let Some(status) = &quota.status {
        json["status"] = status_json(status);
    }
    json
}

/// A status without its details, which are for programs.
pub fn status_json(status: &Status) -> Json {
    json!({ "code": status_name(status.code), "message": status.message })
}

fn references_json(references: Option<&ReferencedAttributes>) -> Json {
    let references = references.map(referenced).unwrap_or_default().into_iter();
    let references = references.map(|(name, key, condition)| {
        let mut json = json!({ "name": name, "condition": condition });
        if let Some(key) = key {
            json["key"] = key.into();
        }
        json
    });
    references.collect()
}

fn directive_json(directive: &RouteDirective) -> Json {
    let operations = |operations: &[HeaderOperation]| -> Json {
        let operations = operations.iter().map(|operation| {
            let mut json =
                json!({ "operation": operation.operation().as_str_name(), "name": operation.name });
            if operation.operation() != Operation::Remove {
                json["value"] = operation.value.as_str().into();
            }
            json
        });
        operations.collect()
    };
    let mut json = json!({});
    if directive.direct_response_code != 0 {
        json["direct_response_code"] = directive.direct_response_code.into();
        json["direct_response_body"] = directive.direct_response_body.as_str().into();
    }
    for (name, list) in [
        ("request_header_operations", &directive.request_header_operations),
        ("response_header_operations", &directive.response_header_operations),
    ] {
        if !list.is_empty() {
            json[name] = operations(list);
        }
    }
    json
}

fn duration(duration: Option<prost_types::Duration>) -> String {
    Duration { value: duration }.to_string()
}

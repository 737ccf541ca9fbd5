//! Configuration written as JSON, read by descriptor.
#![allow(clippy::unwrap_used)]

use mixer_adapter::prost::{Message as _, bytes::Bytes};
use mixer_adapter_config::proto::{DESCRIPTORS, istio::policy::v1beta1};
use mixer_adapter_core::framework::json::read_params;
use prost_reflect::DescriptorPool;
use serde_json::{Value as Json, json};

fn read(message: &str, json: Json) -> Result<Bytes, String> {
    let pool = DescriptorPool::decode(DESCRIPTORS).unwrap();
    let message = pool.get_message_by_name(&format!("istio.policy.v1beta1.{message}")).unwrap();
    read_params(&message, json).map_err(|error| error.to_string())
}

#[test]
fn fields_may_be_in_snake_and_camel_case_and_durations_as_go_writes_them() {
    for name in ["sampling_duration", "samplingDuration"] {
        for length in ["90s", "1m30s", "90000ms"] {
            let bytes = read("RateLimitSampling", json!({name: length})).unwrap();
            let read = v1beta1::RateLimitSampling::decode(bytes).unwrap();
            assert_eq!(read.sampling_duration.map(|length| length.seconds), Some(90), "{name}: {length}");
        }
    }
}

#[test]
fn a_refusal_names_the_field_and_what_would_be_right() {
    let cases = [
        (json!({"actoins": []}), "actoins: no such field; did you mean actions?"),
        (json!({"match": true}), "match: expected text in quotes, not true"),
        (json!({"actions": {}}), "actions: expected a list: the field is repeated"),
        (json!({"actions": [{"instances": [7]}]}), "actions[0].instances[0]: expected text in quotes, not 7"),
        (
            json!({"request_header_operations": [{"operation": "REMOVED"}]}),
            "request_header_operations[0].operation: \"REMOVED\" is no Operation; did you mean REMOVE?",
        ),
        (
            json!({"requestHeaderOperations": [{"operation": "x"}]}),
            "request_header_operations[0].operation: \"x\" is not a value of Operation; expected one of: REPLACE, REMOVE, APPEND",
        ),
        (
            json!({"sampling": {"random": {"use_independent_randomness": "yes"}}}),
            "sampling.random.use_independent_randomness: expected true or false, not \"yes\"",
        ),
        (
            json!({"sampling": {"rate_limit": {"sampling_rate": 1.5}}}),
            "sampling.rate_limit.sampling_rate: expected a whole number, not 1.5",
        ),
        (
            json!({"request_header_operations": [], "requestHeaderOperations": []}),
            "request_header_operations: given twice, as request_header_operations and requestHeaderOperations",
        ),
    ];
    for (json, reason) in cases {
        assert_eq!(read("Rule", json.clone()), Err(reason.to_owned()), "{json}");
    }
}

//! Configuration written as JSON, read by descriptor.

use mixer_adapter::prost::{Message as _, bytes::Bytes};
use mixer_adapter_config::proto::{DESCRIPTORS, istio::policy::v1beta1};
use mixer_adapter_core::framework::json::{read_json_leniently, read_json_of_peer, read_params};
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

/// Mixer reads numbers as DOUBLEs, and those that are not exact not at all.
#[test]
fn whole_numbers_of_64_bits_are_exact() {
    let bytes = read("RateLimitSampling", json!({"max_unsampled_entries": i64::MAX})).unwrap();
    let read = v1beta1::RateLimitSampling::decode(bytes).unwrap();
    assert_eq!(read.max_unsampled_entries, i64::MAX);
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
            "request_header_operations[0].operation: \"REMOVED\" is not a value of Operation; did you mean REMOVE?",
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

fn read_leniently(json: Json) -> Json {
    let pool = DescriptorPool::decode(DESCRIPTORS).unwrap();
    let message = pool.get_message_by_name("istio.policy.v1beta1.Rule").unwrap();
    serde_json::to_value(read_json_leniently(&message, json)).unwrap()
}

#[test]
fn fields_before_a_fault_and_beside_an_unknown_one_are_read() {
    let operation = json!({"name": "x", "values": ["a"]});
    let cases = [
        (json!({"match": "m", "nosuch": 1}), json!({"match": "m"})),
        // The number of match is lower than that of actions.
        (json!({"match": 5, "actions": [{"handler": "h"}]}), json!({})),
        (json!({"match": "m", "actions": 5}), json!({"match": "m"})),
        (
            json!({"actions": [{"handler": "h", "instances": ["i", 5, "j"], "name": "n"}, {"handler": "g"}]}),
            json!({"actions": [{"handler": "h", "instances": ["i"]}]}),
        ),
        (
            json!({"actions": [{"handler": "h", "nosuch": 1}], "requestHeaderOperations": [operation]}),
            json!({"actions": [{"handler": "h"}]}),
        ),
        (
            json!({"match": null, "requestHeaderOperations": [operation]}),
            json!({"requestHeaderOperations": [operation]}),
        ),
        (json!([5]), json!({})),
    ];
    for (written, kept) in cases {
        assert_eq!(read_leniently(written.clone()), kept, "{written}");
    }
}

#[test]
fn what_has_no_fault_is_read_as_a_whole() {
    let rule = json!({
        "match": "m",
        "actions": [{"handler": "h", "instances": ["i", "j"]}, {"handler": "g"}],
        "sampling": {"rateLimit": {"maxUnsampledEntries": "5", "samplingDuration": "90s"}},
    });
    assert_eq!(read_leniently(rule.clone()), rule);
}

#[test]
fn a_peers_unknown_fields_are_ignored_and_its_faults_are_not() {
    let pool = DescriptorPool::decode(DESCRIPTORS).unwrap();
    let message = pool.get_message_by_name("istio.policy.v1beta1.Rule").unwrap();
    let read = |json| read_json_of_peer(&message, json).map_err(|error| error.to_string());
    let newer = json!({"newer": 1, "match": "m", "actions": [{"handler": "h", "newer": {}}]});
    let expected = json!({"match": "m", "actions": [{"handler": "h"}]});
    assert_eq!(serde_json::to_value(read(newer).unwrap()).unwrap(), expected);
    assert_eq!(read(json!({"newer": 1, "match": 5})).unwrap_err(), "match: expected text in quotes, not 5");
}

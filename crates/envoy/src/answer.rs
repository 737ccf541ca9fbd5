//! Answers to Envoy: its messages, with parts that are encoded already.

use bytes::Bytes;

use crate::proto::envoy::{
    config::core::v3::HeaderValue,
    service::ratelimit::v3::rate_limit_response::{Code, DescriptorStatus},
};

/// The encoding of `envoy.service.auth.v3.CheckResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct AuthorizationAnswer {
    /// An encoded `google.rpc.Status`: OK if the request is allowed.
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub status: Option<Bytes>,
    /// Changes of the request, or the response to the client.
    #[prost(oneof = "EncodedResponse", tags = "2, 3, 5")]
    pub http_response: Option<EncodedResponse>,
    /// An encoded `google.protobuf.Struct`.
    #[prost(bytes = "vec", tag = "4")]
    pub dynamic_metadata: Vec<u8>,
}

/// The response of an [`AuthorizationAnswer`], encoded.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum EncodedResponse {
    /// The `DeniedHttpResponse` of a denial.
    #[prost(bytes = "bytes", tag = "2")]
    Denied(Bytes),
    /// The `OkHttpResponse` of an allowed request.
    #[prost(bytes = "bytes", tag = "3")]
    Allowed(Bytes),
    /// The `DeniedHttpResponse` of a request that could not be checked.
    #[prost(bytes = "bytes", tag = "5")]
    Failed(Bytes),
}

/// The encoding of `envoy.service.ratelimit.v3.RateLimitResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RateLimitAnswer {
    /// The decision.
    #[prost(enumeration = "Code", tag = "1")]
    pub overall_code: i32,
    /// The states of the descriptors, in their order.
    #[prost(message, repeated, tag = "2")]
    pub statuses: Vec<DescriptorStatus>,
    /// Headers of the response.
    #[prost(message, repeated, tag = "3")]
    pub response_headers_to_add: Vec<HeaderValue>,
    /// Headers of the request.
    #[prost(message, repeated, tag = "4")]
    pub request_headers_to_add: Vec<HeaderValue>,
    /// The body of the response to a refused request.
    #[prost(bytes = "vec", tag = "5")]
    pub raw_body: Vec<u8>,
    /// An encoded `google.protobuf.Struct`.
    #[prost(bytes = "vec", tag = "6")]
    pub dynamic_metadata: Vec<u8>,
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use prost::Message as _;
    use prost_types::{Struct, Value, value::Kind};

    use super::*;
    use crate::proto::envoy::service::{
        auth::v3::{CheckResponse, DeniedHttpResponse, OkHttpResponse, check_response::HttpResponse},
        ratelimit::v3::RateLimitResponse,
    };
    use mixer_adapter_core::proto::Status;

    fn metadata() -> Struct {
        let value = Value { kind: Some(Kind::StringValue("v".to_owned())) };
        Struct { fields: [("k".to_owned(), value)].into() }
    }

    #[test]
    fn answers_have_the_fields_of_envoys_messages() {
        let allowed = OkHttpResponse { headers_to_remove: vec!["a".to_owned()], ..OkHttpResponse::default() };
        let denied = DeniedHttpResponse { body: "no".to_owned(), ..DeniedHttpResponse::default() };
        let status = Status { code: 7, ..Status::default() };
        let encoded_denial = Bytes::from(denied.encode_to_vec());
        for (encoded, http_response) in [
            (EncodedResponse::Allowed(allowed.encode_to_vec().into()), HttpResponse::OkResponse(allowed)),
            (EncodedResponse::Denied(encoded_denial.clone()), HttpResponse::DeniedResponse(denied.clone())),
            (EncodedResponse::Failed(encoded_denial), HttpResponse::ErrorResponse(denied)),
        ] {
            let answer = AuthorizationAnswer {
                status: Some(status.encode_to_vec().into()),
                http_response: Some(encoded),
                dynamic_metadata: metadata().encode_to_vec(),
            };
            let expected = CheckResponse {
                status: Some(status.clone()),
                http_response: Some(http_response),
                dynamic_metadata: Some(metadata()),
            };
            assert_eq!(CheckResponse::decode(&*answer.encode_to_vec()).unwrap(), expected);
        }
        let header = |name: &str| HeaderValue { key: name.to_owned(), ..HeaderValue::default() };
        let answer = RateLimitAnswer {
            overall_code: Code::OverLimit.into(),
            statuses: vec![DescriptorStatus { limit_remaining: 3, ..DescriptorStatus::default() }],
            response_headers_to_add: vec![header("a")],
            request_headers_to_add: vec![header("b")],
            raw_body: b"no".to_vec(),
            dynamic_metadata: metadata().encode_to_vec(),
        };
        let response = RateLimitResponse::decode(&*answer.encode_to_vec()).unwrap();
        let RateLimitAnswer {
            overall_code,
            statuses,
            response_headers_to_add,
            request_headers_to_add,
            raw_body,
            ..
        } = answer;
        let expected = RateLimitResponse {
            overall_code,
            statuses,
            response_headers_to_add,
            request_headers_to_add,
            raw_body,
            dynamic_metadata: Some(metadata()),
        };
        assert_eq!(response, expected);
    }
}

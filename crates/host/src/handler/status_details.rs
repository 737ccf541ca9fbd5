//! Details of gRPC errors: by convention, `grpc-status-details-bin` is the whole status as a `google.rpc.Status`.

use mixer_adapter_core::proto::{Any, Status};
use prost::Message as _;

/// Makes a gRPC error of a status.
pub fn grpc_error(mut status: Status) -> tonic::Status {
    let code = tonic::Code::from(status.code);
    if status.details.is_empty() {
        return tonic::Status::new(code, status.message);
    }
    // Both headers have the message, beside the details.
    status.message.truncate(status.message.floor_char_boundary(MAX_MESSAGE));
    let details = status.encode_to_vec().into();
    tonic::Status::with_details(code, status.message, details)
}

/// Returns the details of a gRPC error; none if they cannot be decoded.
pub fn details_of(error: &tonic::Status) -> Vec<Any> {
    Status::decode(error.details()).map(|status| status.details).unwrap_or_default()
}

/// Maximum size in bytes of the message of an error with details: peers limit the size of all headers to 8 KiB or more.
const MAX_MESSAGE: usize = 1 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn details_travel_in_a_grpc_error_and_unreadable_ones_are_none() {
        let detail = Any { type_url: "t/a.B".to_owned(), value: vec![1].into() };
        let error = grpc_error(Status { code: 7, message: "no".to_owned(), details: vec![detail.clone()] });
        let error_details = details_of(&error);
        assert_eq!((error.code(), error.message()), (tonic::Code::PermissionDenied, "no"));
        assert_eq!(details_of(&error), [detail]);
        assert!(grpc_error(Status { code: 7, ..Status::default() }).details().is_empty());
        let long = Status { code: 7, message: "ä".repeat(4_000), details: error_details };
        assert_eq!(grpc_error(long).message().len(), MAX_MESSAGE);
        let unreadable = tonic::Status::with_details(tonic::Code::Internal, "", vec![0xff].into());
        assert!(details_of(&unreadable).is_empty());
    }
}

use tonic::Status;

/// Maximum length of the message of an error, in bytes. It is sent in a header, and peers limit all headers to 8 KiB or more.
const MAX_MESSAGE: usize = 2_000;

/// Cuts the message of an error to 2,000 bytes, because errors quote requests, which can have megabytes.
pub fn limit_message(error: Status) -> Status {
    const MARK: &str = "...";
    let message = error.message();
    if message.len() <= MAX_MESSAGE {
        return error;
    }
    let end = message.floor_char_boundary(MAX_MESSAGE - MARK.len());
    let message = format!("{}{MARK}", &message[..end]);
    let details = error.details().to_vec().into();
    Status::with_details_and_metadata(error.code(), message, details, error.metadata().clone())
}

#[cfg(test)]
mod tests {
    use tonic::metadata::MetadataValue;

    use super::*;

    #[test]
    fn a_message_is_cut_between_characters_and_everything_else_stays() {
        let mut error = Status::with_details(tonic::Code::NotFound, "ä".repeat(1_001), vec![1, 2].into());
        error.metadata_mut().insert("key", MetadataValue::from_static("value"));
        let limited = limit_message(error);
        assert_eq!(limited.message(), format!("{}...", "ä".repeat(998)));
        assert_eq!((limited.code(), limited.details()), (tonic::Code::NotFound, &[1, 2][..]));
        assert_eq!(limited.metadata().get("key"), Some(&MetadataValue::from_static("value")));
        assert_eq!(limit_message(Status::not_found("ä".repeat(1_000))).message().len(), 2_000);
    }
}

//! Answers of the service.

use mixer_adapter_core::{Check, DirectHttpResponse, proto::Status};

/// The maximum length of the body of a denial in bytes.
const MAX_BODY: usize = 64 << 10;

/// Denies the request with a code, which must not be OK, and the response to the client.
pub(super) fn deny(code: i32, message: String, response: Option<&DirectHttpResponse>) -> Check {
    let denial = Check::from_status(Status { code, message, details: Vec::new() });
    match response {
        Some(response) => denial.with_direct_response(response),
        None => denial,
    }
}

/// Makes the response to the client.
pub(super) fn client_response(
    status: i32,
    headers: impl IntoIterator<Item = (String, String)>,
    body: &str,
) -> DirectHttpResponse {
    let mut response = DirectHttpResponse {
        code: status,
        body: body[..body.floor_char_boundary(MAX_BODY)].to_owned(),
        ..DirectHttpResponse::default()
    };
    for (name, value) in headers {
        let name = name.to_ascii_lowercase();
        // Cookies are separated by commas, and dates of the attribute `expires` are valid without theirs (RFC 6265, section 5.1.1).
        let (value, separator) =
            if name == "set-cookie" { (value.replace(", ", " "), ",") } else { (value, ", ") };
        response
            .headers
            .entry(name)
            .and_modify(|all| {
                all.push_str(separator);
                all.push_str(&value);
            })
            .or_insert(value);
    }
    response
}

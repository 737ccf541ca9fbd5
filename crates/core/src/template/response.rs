use prost::{DecodeError, Message as _, bytes::Bytes};

use crate::{
    framework::frame::{FRAME_PREFIX, frame, frame_encoded},
    proto::{CheckResult, QuotaResult},
};

/// The response of a template: a value of an adapter in this process, or encoded.
#[derive(Clone, Debug)]
pub enum Response {
    /// The result of a check, with the encoded `OutputMsg` if its template has one.
    Check(CheckResult, Option<Bytes>),
    /// The result of a quota call.
    Quota(QuotaResult),
    /// An encoded response.
    Encoded(Bytes),
}

/// The response of a check with output, for any template.
#[derive(Clone, PartialEq, prost::Message)]
struct CheckWithOutput {
    #[prost(message, optional, tag = "1")]
    result: Option<CheckResult>,
    #[prost(bytes = "bytes", optional, tag = "2")]
    output: Option<Bytes>,
}

impl Response {
    /// Encodes the response as a gRPC frame.
    pub fn framed(self) -> Bytes {
        match self {
            Self::Check(result, None) => frame(&result),
            Self::Check(result, output) => frame(&CheckWithOutput { result: Some(result), output }),
            Self::Quota(result) => frame(&result),
            Self::Encoded(encoded) => frame_encoded(&encoded),
        }
    }

    /// Returns the encoded response.
    pub fn into_encoded(self) -> Bytes {
        match self {
            Self::Encoded(encoded) => encoded,
            value => value.framed().split_off(FRAME_PREFIX),
        }
    }

    /// Returns the result of a check, with the encoded output if its template has one.
    pub fn into_check(self, has_output: bool) -> Result<(CheckResult, Option<Bytes>), DecodeError> {
        match self {
            Self::Check(result, output) => Ok((result, output)),
            response if has_output => {
                let CheckWithOutput { result, output } = CheckWithOutput::decode(response.into_encoded())?;
                Ok((result.unwrap_or_default(), output))
            }
            response => Ok((CheckResult::decode(response.into_encoded())?, None)),
        }
    }

    /// Returns the result of a quota call.
    pub fn into_quota(self) -> Result<QuotaResult, DecodeError> {
        match self {
            Self::Quota(result) => Ok(result),
            response => QuotaResult::decode(response.into_encoded()),
        }
    }
}

/// An empty message: the response of a report. It also replaces a taken response.
impl Default for Response {
    fn default() -> Self {
        Self::Encoded(Bytes::new())
    }
}

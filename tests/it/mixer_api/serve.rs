//! One body for fuzzers and property tests.

use mixer_adapter::{
    prost::Message as _,
    service::mixer::{check, report},
    tonic::Code,
};
use mixer_adapter_engine::proto::istio::mixer::v1::{CheckRequest, ReportRequest};
use mixer_adapter_host::handler::Caller;

use super::engine;

/// Sends any bytes as a check and as a report. An answer refers only to words that it or the client has.
pub(crate) fn serve(bytes: &[u8]) {
    // The engine is made outside of the runtime that answers.
    let mixer = &*engine::MIXER;
    engine::RUNTIME.block_on(async {
        if let Ok(request) = CheckRequest::decode(bytes) {
            let known = i32::try_from(request.global_word_count).unwrap_or(i32::MAX);
            match check(mixer, request, Caller::default()).await {
                Ok(response) => {
                    let referenced = response.precondition.unwrap().referenced_attributes.unwrap();
                    for reference in referenced.attribute_matches {
                        let own = -(i32::try_from(referenced.words.len()).unwrap());
                        assert!((own..known.max(0)).contains(&reference.name), "{reference:?}");
                    }
                }
                Err(status) => assert_eq!(status.code(), Code::Internal),
            }
        }
        if let Ok(request) = ReportRequest::decode(bytes)
            && let Err(status) = report(mixer, request, Caller::default()).await
        {
            assert!(matches!(status.code(), Code::Internal | Code::Unknown));
        }
    });
}

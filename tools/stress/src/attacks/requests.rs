//! Small requests that are expensive to decode.

use mixer_adapter_engine::proto::istio::mixer::v1::{
    CheckRequest, CheckResponse, CompressedAttributes, ReportRequest, ReportResponse,
    report_request::RepeatedAttributesSemantics,
};
use prost::Message;
use tokio::task::JoinSet;

use super::Expectation;
use crate::{
    client::{Client, framed},
    server::Addresses,
};

/// As many as there are usually threads, and more.
const AT_ONCE: usize = 4;

const CHECK: &str = "/istio.mixer.v1.Mixer/Check";
const REPORT: &str = "/istio.mixer.v1.Mixer/Report";

/// 200,000 empty messages beside 200,000 default words.
pub(super) async fn report_of_empty_messages(
    addresses: Addresses,
    sent: &mut u64,
) -> anyhow::Result<Expectation> {
    const COUNT: usize = 200_000;
    let request = ReportRequest {
        attributes: vec![CompressedAttributes::default(); COUNT],
        default_words: vec!["w".to_owned(); COUNT],
        ..ReportRequest::default()
    };
    repeat::<ReportResponse>(addresses, REPORT, &request, sent).await
}

/// Two messages, of which the second changes 100,000 attributes of the first.
pub(super) async fn report_with_a_wide_delta(
    addresses: Addresses,
    sent: &mut u64,
) -> anyhow::Result<Expectation> {
    let message = undeclared(100_000);
    let request = ReportRequest {
        attributes: vec![message.clone(), message],
        repeated_attributes_semantics: RepeatedAttributesSemantics::DeltaEncoding.into(),
        ..ReportRequest::default()
    };
    repeat::<ReportResponse>(addresses, REPORT, &request, sent).await
}

/// 80,000 attributes that no manifest declares.
pub(super) async fn check_of_undeclared_attributes(
    addresses: Addresses,
    sent: &mut u64,
) -> anyhow::Result<Expectation> {
    let request = CheckRequest { attributes: Some(undeclared(80_000)), ..CheckRequest::default() };
    repeat::<CheckResponse>(addresses, CHECK, &request, sent).await
}

fn undeclared(count: i32) -> CompressedAttributes {
    CompressedAttributes {
        words: (0..count).map(|index| format!("x.{index}")).collect(),
        bools: (0..count).map(|index| (-1 - index, true)).collect(),
        ..CompressedAttributes::default()
    }
}

/// Sends a request on several connections, again and again until the time is over.
async fn repeat<A: Message + Default + 'static>(
    addresses: Addresses,
    path: &'static str,
    request: &impl Message,
    sent: &mut u64,
) -> anyhow::Result<Expectation> {
    let frame = framed(&request.encode_to_vec());
    let mut calls = JoinSet::new();
    loop {
        while calls.len() < AT_ONCE {
            let client = Client::connect(addresses.grpc).await?;
            *sent += frame.len() as u64;
            let frame = frame.clone();
            calls.spawn(async move { client.send::<A>(path, frame).await });
        }
        if let Some(outcome) = calls.join_next().await {
            // A refusal is an answer; a broken connection is not.
            let _refused_or_served = outcome??;
        }
    }
}

//! A handler alone.

use mixer_adapter::{
    Call, Code, QuotaRequest,
    template::{CheckNothing, ListEntry, Metric, Quota, checknothing, listentry, metric, quota},
    testing::FakeMixer,
};
use test_adapters::{Bystander, Probe, ledger, probe::Params};

fn entry(value: &str) -> listentry::InstanceMsg {
    listentry::InstanceMsg { value: Some(value.into()), ..Default::default() }
}

#[tokio::test]
async fn a_handler_is_called_without_rules() {
    let probe = FakeMixer::with::<Probe>().params("{ledger: alone, grant: 3}");
    probe.check::<ListEntry>(entry("allow")).await.expect_allowed();
    let denied = probe.check::<ListEntry>(entry("deny")).await;
    denied.expect_denied(Code::PermissionDenied, "denied on request");
    assert_eq!(denied.input::<ListEntry>().name, "listentry.instance.istio-system");
    // Here the code is the adapter's own.
    probe.check::<ListEntry>(entry("fail")).await.expect_error(Code::Unavailable, "failed on request");
    probe.report::<Metric>([metric::InstanceMsg::default()]).await.expect_ok();
    probe.quota::<Quota>(quota::InstanceMsg::default(), 3).await.expect_granted(3);
    let args = QuotaRequest::new(4).with_best_effort().with_dedup_id("x");
    let granted = probe.quota::<Quota>(quota::InstanceMsg::default(), args.clone()).await;
    assert_eq!(*granted.expect_granted(3).input::<Quota>().quota(), args);
    probe.close().await;
    assert_eq!((ledger("alone").opened(), ledger("alone").closed()), (1, 1));
}

#[tokio::test]
async fn a_call_may_have_a_client_a_deadline_and_headers() {
    let probe = FakeMixer::with::<Probe>().params("{ledger: with-client}");
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(60);
    let call = Call::new(entry("peer")).with_deadline(deadline);
    let call = call.with_peer("ingress").with_request_id("r-1").with_metadata("x-tenant", "acme");
    probe.check::<ListEntry>(call).await.expect_denied(Code::PermissionDenied, "ingress");
}

#[tokio::test]
async fn a_template_that_the_adapter_does_not_serve_is_an_error() {
    let probe = FakeMixer::with::<Bystander>().and::<Probe>().params("ledger: unserved");
    let nothing = probe.check::<CheckNothing>(checknothing::InstanceMsg::default()).await;
    nothing.expect_error(Code::InvalidArgument, "adapter `probe` does not serve template `checknothing`");
}

#[tokio::test]
async fn a_bad_configuration_is_the_answer_to_each_call() {
    let probe = FakeMixer::with::<Probe>().params("{ledger: bad, sequence: 1}");
    probe
        .check::<ListEntry>(entry("allow"))
        .await
        .expect_error(Code::InvalidArgument, "sequence: no such field");
    let probe = FakeMixer::with::<Probe>().params("{ledger: bad, fault: crooked}");
    probe
        .check::<ListEntry>(entry("allow"))
        .await
        .expect_error(Code::InvalidArgument, "fault: it is crooked");
    assert_eq!(ledger("bad").opened(), 0);
}

#[tokio::test]
async fn a_session_is_open_before_the_first_call_and_closed_when_it_is_dropped() {
    let params = Params { ledger: "session-alone".to_owned(), ..Params::default() };
    let probe = FakeMixer::with::<Probe>()
        .params(mixer_adapter::testing::Params::message(&params))
        .session()
        .await
        .unwrap();
    let ledger = ledger("session-alone");
    assert_eq!(ledger.opened(), 1);
    probe.check::<ListEntry>(entry("deny")).await.expect_denied(Code::PermissionDenied, "");
    probe.close().await;
    assert_eq!((ledger.opened(), ledger.closed()), (1, 1));
}

#[tokio::test]
async fn a_session_is_refused_with_the_adapter_s_reason() {
    let probe = FakeMixer::with::<Probe>().params("{ledger: refused, fault: crooked}");
    assert_eq!(probe.validate().await.unwrap_err().code(), Code::InvalidArgument);
    let error = probe.session().await.unwrap_err();
    assert_eq!(error.to_string(), "adapter `probe` refuses its configuration: fault: it is crooked");
}

//! TestListAuthChecker (docs/behaviour/mcp.md#istios-test-cases), with two differences: an empty or missing list allows nobody,
//! and only the peer's own certificate counts, not those of its authorities.

use std::time::Duration;

use tokio_rustls::rustls::pki_types::{CertificateDer, pem::PemObject as _};
use tonic::Code;

use crate::tls::{Access, AccessList, AccessSettings, Identity};
use test_pki::{Authority, Files};

const GALLEY: &str = "spiffe://cluster.local/ns/istio-system/sa/galley";

fn der(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
}

fn identity(names: &[&str]) -> Identity {
    Identity::of(&der(&Authority::new().issue(names).certificate)).unwrap()
}

fn refusal(list: &AccessList, peer: Option<&Identity>) -> String {
    let status = list.check(peer).unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated);
    status.message().to_owned()
}

const NO_INFO: &str = "Authentication failure: denying by default: no auth info found";
const NOT_ALLOWED: &str = "Authentication failure: no allowed identity found in peer's authentication info";

#[test]
fn nil_info_and_an_empty_chain_are_denied_by_default() {
    assert!(Identity::of_chain(&[]).unwrap().is_none());
    for list in [AccessList::allow([GALLEY]), AccessList::default(), AccessList::deny([GALLEY])] {
        assert_eq!(refusal(&list, None), NO_INFO, "{list}");
    }
}

#[test]
fn an_unreadable_certificate_is_an_error() {
    assert!(Identity::of_chain(&[CertificateDer::from(vec![1, 2, 3])]).is_err());
}

#[test]
fn an_empty_list_allows_nobody() {
    assert_eq!(refusal(&AccessList::default(), Some(&identity(&[GALLEY]))), NOT_ALLOWED);
}

#[test]
fn a_match_of_any_uri_dns_name_or_address_is_allowed_and_a_mismatch_refused() {
    let list = AccessList::allow([GALLEY, "galley.istio-system.svc", "10.0.0.7"]);
    for (names, taken) in [
        (&[GALLEY][..], true),
        (&["other.example", "galley.istio-system.svc"], true),
        (&["10.0.0.7"], true),
        (&["spiffe://cluster.local/ns/istio-system/sa/galley2"], false),
        (&["*.istio-system.svc", "10.0.0.8"], false),
        (&[], false),
    ] {
        assert_eq!(list.check(Some(&identity(names))).is_ok(), taken, "{names:?}");
    }
    assert_eq!(refusal(&list, Some(&identity(&["x.example"]))), NOT_ALLOWED);
}

#[test]
fn the_names_of_an_authority_do_not_count() {
    let authority = Authority::new();
    let chain = [der(&authority.issue(&["leaf.example"]).certificate), authority.der()];
    let peer = Identity::of_chain(&chain).unwrap().unwrap();
    assert_eq!(peer.names(), ["leaf.example"]);
}

#[test]
fn a_deny_list_refuses_its_names_and_allows_every_other_peer() {
    let list = AccessList::deny([GALLEY]);
    list.check(Some(&identity(&["x.example"]))).unwrap();
    let reason = refusal(&list, Some(&identity(&["x.example", GALLEY])));
    assert_eq!(reason, "Authentication failure: an identity in the peer's authentication info is denied");
}

#[test]
fn a_list_is_displayed_with_its_names() {
    assert_eq!(AccessList::allow(["b", "a"]).to_string(), "only {\"a\", \"b\"}");
    assert_eq!(AccessList::deny(["a"]).to_string(), "all but {\"a\"}");
}

async fn until(access: &Access, peer: &Identity, allowed: bool) {
    for _ in 0..100 {
        if access.check(Some(peer)).is_ok() == allowed {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the list does not follow its file");
}

#[tokio::test]
async fn the_list_follows_its_file_names_come_and_go_and_a_broken_file_changes_nothing() {
    let files = Files::new();
    let settings =
        AccessSettings { allow: vec!["always.example".to_owned()], file: Some(files.path("list")) };
    let access = Access::new(settings);
    let (galley, always) = (identity(&[GALLEY]), identity(&["always.example"]));
    until(&access, &galley, false).await;
    files.write("list", &format!("allowed: [\"{GALLEY}\"]"));
    until(&access, &galley, true).await;
    files.write("list", "allowed: 5");
    tokio::time::sleep(Duration::from_millis(600)).await;
    until(&access, &galley, true).await;
    files.write("list", &format!("isblacklist: true\nallowed: [\"{GALLEY}\"]"));
    until(&access, &galley, false).await;
    files.write("list", &format!("allowed: [\"{GALLEY}\"]"));
    until(&access, &galley, true).await;
    std::fs::remove_file(files.path("list")).unwrap();
    until(&access, &galley, false).await;
    until(&access, &always, true).await;
}

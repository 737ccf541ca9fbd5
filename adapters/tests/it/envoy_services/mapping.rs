//! Flags of `serve` that determine attributes: the namespace, the client and the principal of a request.

use tokio::{net::TcpStream, runtime::Runtime};

use super::{
    mesh::Mesh,
    support::{envoy::is_there, http::echo},
};

/// The rules of two namespaces, each of which denies a path.
const NAMESPACES: &str = r#"
kind: handler
metadata: {name: shop, namespace: shop}
spec: {compiledAdapter: listchecker, params: {overrides: [/prices], blacklist: true}}
---
kind: instance
metadata: {name: path, namespace: shop}
spec: {compiledTemplate: listentry, params: {value: request.url_path}}
---
kind: rule
metadata: {name: shop, namespace: shop}
spec: {actions: [{handler: shop, instances: [path]}]}
---
kind: handler
metadata: {name: rest, namespace: rest}
spec: {compiledAdapter: listchecker, params: {overrides: [/keys], blacklist: true}}
---
kind: instance
metadata: {name: path, namespace: rest}
spec: {compiledTemplate: listentry, params: {value: request.url_path}}
---
kind: rule
metadata: {name: rest, namespace: rest}
spec: {actions: [{handler: rest, instances: [path]}]}
"#;

#[test]
fn the_namespace_of_a_host_determines_which_rules_apply() {
    if !is_there() {
        return;
    }
    let namespaces = "shop.example.com=shop,*.shop.example.com=shop,*=rest";
    let mesh = Mesh::start(NAMESPACES, &["--envoy-namespace", namespaces], &[]);
    for (host, prices, keys) in [
        ("shop.example.com", 403, 200),
        ("SHOP.example.com:8080", 403, 200),
        ("www.shop.example.com", 403, 200),
        ("example.com", 200, 403),
    ] {
        let host = format!("host: {host}");
        let statuses = ["/prices", "/keys"].map(|path| mesh.get(path, &[&host]).status);
        assert_eq!(statuses, [prices, keys], "{host}");
    }
    // A namespace of the route comes first.
    let mesh = Mesh::start(NAMESPACES, &["--envoy-namespace", namespaces], &["--namespace", "rest"]);
    let statuses = ["/prices", "/keys"].map(|path| mesh.get(path, &["host: shop.example.com"]).status);
    assert_eq!(statuses, [200, 403]);
}

/// Denies values of an attribute.
const DENIED: &str = r#"
kind: handler
metadata: {name: denied, namespace: istio-system}
spec: {compiledAdapter: listchecker, params: {overrides: ["$VALUE"], blacklist: true$TYPE}}
---
kind: instance
metadata: {name: value, namespace: istio-system}
spec: {compiledTemplate: listentry, params: {value: '$ATTRIBUTE'}}
---
kind: rule
metadata: {name: denied, namespace: istio-system}
spec: {actions: [{handler: denied, instances: [value]}]}
"#;

#[test]
fn the_client_is_the_address_before_those_of_trusted_proxies() {
    if !is_there() {
        return;
    }
    let config = DENIED.replace("$VALUE", "192.0.2.7/32").replace("$TYPE", ", entryType: IP_ADDRESSES");
    let config = config.replace("$ATTRIBUTE", "origin.ip");
    // Envoy adds the address of its client, 127.0.0.1, at the end of x-forwarded-for.
    for (hops, denied) in
        [("0", &[][..]), ("1", &["192.0.2.7", "192.0.2.1, 192.0.2.7"]), ("2", &["192.0.2.7, 192.0.2.1"])]
    {
        let mesh = Mesh::start(&config, &["--envoy-trusted-hops", hops], &[]);
        for forwarded in ["192.0.2.7", "192.0.2.1, 192.0.2.7", "192.0.2.7, 192.0.2.1"] {
            let status = if denied.contains(&forwarded) { 403 } else { 200 };
            let header = format!("x-forwarded-for: {forwarded}");
            assert_eq!(mesh.get("/", &[&header]).status, status, "{hops} {forwarded}");
        }
    }
}

#[test]
fn a_forwarded_certificate_is_the_principal_only_if_it_is_trusted_and_envoy_passes_it_on() {
    if !is_there() {
        return;
    }
    let config = DENIED.replace("$VALUE", "cluster.local/ns/web/sa/bad").replace("$TYPE", "");
    let config = config.replace("$ATTRIBUTE", r#"source.principal | "nobody""#);
    let forwarded = "x-forwarded-client-cert: Hash=1;URI=spiffe://cluster.local/ns/web/sa/bad";
    let forwarding = |bootstrap: String| {
        let manager = "          use_remote_address: true\n";
        assert!(bootstrap.contains(manager), "{bootstrap}");
        bootstrap.replace(
            manager,
            &format!("{manager}          forward_client_cert_details: ALWAYS_FORWARD_ONLY\n"),
        )
    };
    let printed = |bootstrap: String| bootstrap;
    for (flags, change, status) in [
        (&["--envoy-trust-xfcc"][..], &forwarding as &dyn Fn(String) -> String, 403),
        (&[], &forwarding, 200),
        // The printed listener removes the header of its clients.
        (&["--envoy-trust-xfcc"], &printed, 200),
    ] {
        let mesh = Mesh::start_before(&config, flags, &[], &echo(), change);
        assert_eq!(mesh.get("/", &[forwarded]).status, status, "{flags:?}");
        assert_eq!(mesh.get("/", &[]).status, 200, "{flags:?}");
    }
}

#[test]
fn no_spelling_of_a_host_passes_a_rule_that_denies_the_host() {
    if !is_there() {
        return;
    }
    let config = DENIED.replace("$VALUE", "closed.example").replace("$TYPE", "");
    let config = config.replace("$ATTRIBUTE", "destination.service.host");
    let mesh = Mesh::start(&config, &[], &[]);
    for host in [
        "closed.example",
        "CLOSED.example",
        "closed.example.",
        "closed.example:80",
        "closed.example:",
        "closed.example.:80",
    ] {
        assert_eq!(mesh.get("/", &[&format!("host: {host}")]).status, 403, "{host}");
    }
    // Envoy refuses some of them itself.
    for host in [
        "closed.example:x",
        "closed.example:80:80",
        "closed.example:+80",
        "a@closed.example",
        "closed.example,b",
        "closed.example/",
    ] {
        let status = mesh.get("/", &[&format!("host: {host}")]).status;
        assert!([400, 503].contains(&status), "{host}: {status}");
    }
    for host in ["open.example", "open.example:8080", "[::1]", "[::1]:80", "10.0.0.1:80"] {
        assert_eq!(mesh.get("/", &[&format!("host: {host}")]).status, 200, "{host}");
    }
}

#[test]
fn white_space_around_a_value_of_http_2_passes_no_rule() {
    if !is_there() {
        return;
    }
    let config = DENIED.replace("$VALUE", "guest").replace("$TYPE", "");
    let config = config.replace("$ATTRIBUTE", r#"request.headers["x-user"] | "nobody""#);
    let mesh = Mesh::start(&config, &["--cached-checks", "all"], &[]);
    let front = mesh.front();
    let runtime = Runtime::new().unwrap();
    for (value, is_denied) in [
        ("guest", true),
        (" guest", true),
        ("guest\t", true),
        ("\t guest  ", true),
        ("guests", false),
        (" other", false),
    ] {
        // The second answer is cached.
        for _ in 0..2 {
            let status = runtime.block_on(http_2_status(&front, value));
            assert_eq!(status == 403, is_denied, "{value:?}: {status}");
        }
    }
}

/// Returns the status of a request over HTTP/2 with a value of `x-user`.
async fn http_2_status(address: &str, value: &str) -> u16 {
    let stream = TcpStream::connect(address).await.unwrap();
    let (mut requests, connection) = h2::client::handshake(stream).await.unwrap();
    let driver = tokio::spawn(connection);
    let request = http::Request::get("http://shop.example.com/").header("x-user", value).body(()).unwrap();
    let status = requests.send_request(request, true).unwrap().0.await.unwrap().status();
    driver.abort();
    status.as_u16()
}

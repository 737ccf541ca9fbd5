use std::net::IpAddr;

/// Returns whether a host of a URL or a `Host` header, without a port, is this machine: `localhost`, or a loopback address.
pub fn is_this_machine(host: &str) -> bool {
    let address = host.trim_matches(['[', ']']).parse();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address: IpAddr| address.is_loopback())
}

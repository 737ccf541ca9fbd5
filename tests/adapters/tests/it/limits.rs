//! The limits of ports beside the gRPC port.

use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
};

use crate::{program::Server, support};

#[tokio::test]
async fn limits_of_the_port_for_sources_count_with_those_of_the_server() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let server = Server::start(&["--mcp-listen", &port]);
    let mut source = TcpStream::connect(&port).unwrap();
    // Until the connection is cut off.
    source.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
    while source.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0].repeat(20)).is_ok() {}
    let _reset = source.read_to_end(&mut Vec::new());
    let (_, metrics) = support::http::get(server.admin, "/metrics").await;
    assert!(metrics.contains("mixer_adapter_limits_hit_total{limit=\"http2-settings\"} 1"), "{metrics}");
}

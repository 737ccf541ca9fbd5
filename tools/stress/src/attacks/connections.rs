//! Connections and calls that are held without work.

use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use mixer_adapter_core::template::Template as _;
use mixer_adapter_templates::ListEntry;
use tokio::{io::AsyncWriteExt as _, net::TcpStream};

use super::Expectation;
use crate::{client::Client, server::Addresses};

/// Holds something until this program ends, so that the server must stop in spite of it.
pub(super) async fn hold<T: Send + 'static>(held: T) -> anyhow::Result<Expectation> {
    tokio::spawn(async move {
        std::future::pending::<()>().await;
        drop(held);
    });
    std::future::pending().await
}

/// 17 connections of 1,024 calls of which only the headers are sent.
pub(super) async fn header_only_calls(addresses: Addresses, sent: &mut u64) -> anyhow::Result<Expectation> {
    let mut held = Vec::new();
    for _ in 0..17 {
        let client = Client::connect(addresses.grpc).await?;
        for _ in 0..1_024 {
            *sent += 100;
            match client.start(ListEntry::METHOD, Bytes::new(), false).await {
                Ok(call) => held.push(call),
                // The server may have ended the connection.
                Err(_) => break,
            }
        }
    }
    hold(held).await
}

/// 3,000 calls that announce 4 MB and send nothing of it.
pub(super) async fn announced_bytes(addresses: Addresses, sent: &mut u64) -> anyhow::Result<Expectation> {
    let mut held = Vec::new();
    for _ in 0..30 {
        let client = Client::connect(addresses.grpc).await?;
        for _ in 0..100 {
            *sent += 105;
            match client.start(ListEntry::METHOD, Bytes::from_static(b"\0\0\x3f\xff\xff"), false).await {
                Ok(call) => held.push(call),
                Err(_) => break,
            }
        }
    }
    hold(held).await
}

/// 12,000 connections on which nothing is sent.
pub(super) async fn silent_connections(addresses: Addresses, _: &mut u64) -> anyhow::Result<Expectation> {
    let mut held = Vec::new();
    for _ in 0..12_000 {
        match tokio::time::timeout(Duration::from_secs(1), TcpStream::connect(addresses.grpc)).await {
            Ok(connected) => {
                held.push(connected.context("raise the limit of open files: `ulimit -n 20000`")?)
            }
            Err(_) => continue,
        }
    }
    hold(held).await
}

/// Half of the head of a request to the admin port; the server must stop in spite of it.
pub(super) async fn half_sent_admin_request(
    addresses: Addresses,
    sent: &mut u64,
) -> anyhow::Result<Expectation> {
    let head = b"GET /metrics HTTP/1.1\r\nHost: loc";
    let mut held = Vec::new();
    for _ in 0..100 {
        let mut stream = TcpStream::connect(addresses.admin).await?;
        stream.write_all(head).await?;
        *sent += head.len() as u64;
        held.push(stream);
    }
    hold(held).await
}

/// Answers that no window lets the server send.
pub(super) async fn unread_answers(addresses: Addresses, sent: &mut u64) -> anyhow::Result<Expectation> {
    let mut held = Vec::new();
    for _ in 0..50 {
        let client = Client::with_window(addresses.grpc, 0).await?;
        for _ in 0..1_000 {
            *sent += 105;
            match client.start("/istio.mixer.v1.Mixer/Check", Bytes::from_static(b"\0\0\0\0\0"), true).await {
                Ok(call) => held.push(call),
                Err(_) => break,
            }
        }
    }
    hold(held).await
}

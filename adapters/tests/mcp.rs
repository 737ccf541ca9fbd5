//! The program configured by MCP.
#![allow(clippy::unwrap_used)]

mod support;

use std::{
    fs,
    net::SocketAddr,
    sync::mpsc,
    time::{Duration, Instant},
};

use mixer_adapter::{
    config::{
        Types,
        mcp::{
            feed, listen,
            source::{Catalogue, ResourceSourceService, Source, SourceOptions},
        },
        source::FileSource,
    },
    tonic::service::Routes,
};
use support::Server;
use tokio_util::sync::{CancellationToken, DropGuard};

/// Serves that directory in a runtime of its own, until the second is dropped.
fn serve(directory: &std::path::Path) -> (SocketAddr, DropGuard) {
    let files = FileSource::new(directory, "istio-system");
    let stop = CancellationToken::new();
    let (told, address) = mpsc::channel();
    let stopped = stop.clone();
    std::thread::spawn(move || {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
            let source = Source::new(Catalogue::default(), SourceOptions::default());
            tokio::spawn(feed(source.clone(), Box::new(files), Types::default()));
            while source.catalogue().collections().count() < 6 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            told.send(listener.local_addr().unwrap()).unwrap();
            let service = ResourceSourceService::serve(source, &ResourceSourceService::default_options());
            listen(listener, Routes::new(service), stopped).await;
        });
    });
    (address.recv().unwrap(), stop.drop_guard())
}

fn until(server: &Server, path: &str, text: &str) {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let answer = server.get(path);
        if answer.contains(text) {
            return;
        }
        assert!(Instant::now() < end, "{path} never has {text}: {answer}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn the_server_takes_its_configuration_from_a_source_and_follows_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config.yaml");
    let sample = include_str!("../../examples/config/sample.yaml");
    fs::write(&path, sample).unwrap();
    let (address, _source) = serve(directory.path());
    let server = Server::start(&["--config", &format!("mcp://{address}")]);
    until(&server, "/readyz", "200 OK");
    until(&server, "/config", "\"rejected\":0");

    let more = "\n---\napiVersion: config.istio.io/v1alpha2\nkind: rule\nmetadata: {name: one-more, namespace: istio-system}\nspec: {match: \"false\", actions: [{handler: closed-paths, instances: [path]}]}\n";
    fs::write(&path, format!("{sample}{more}")).unwrap();
    until(&server, "/config", "\"applied\":2");
    until(&server, "/config", "\"rejected\":0");
}

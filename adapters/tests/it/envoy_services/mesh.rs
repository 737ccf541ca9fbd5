use tempfile::TempDir;

use super::support::{
    Server,
    envoy::Envoy,
    http::{HttpResponse, echo, request},
    run,
};

/// Denies paths on a list.
pub(crate) const PATHS: &str = r#"
kind: handler
metadata: {name: paths, namespace: istio-system}
spec: {compiledAdapter: listchecker, params: {overrides: [/admin], blacklist: true}}
---
kind: instance
metadata: {name: path, namespace: istio-system}
spec: {compiledTemplate: listentry, params: {value: request.url_path}}
---
kind: rule
metadata: {name: paths, namespace: istio-system}
spec: {actions: [{handler: paths, instances: [path]}]}
---
"#;

/// An Envoy in front of an upstream, with our server behind its filters.
pub(crate) struct Mesh {
    pub(crate) server: Server,
    pub(crate) envoy: Envoy,
    directory: TempDir,
}

impl Mesh {
    /// Starts a server with a configuration and further flags, and an Envoy with the bootstrap for them.
    pub(crate) fn start(config: &str, serve: &[&str], envoy_config: &[&str]) -> Self {
        Self::start_before(config, serve, envoy_config, &echo(), |bootstrap| bootstrap)
    }

    /// The same before a given upstream, with a changed bootstrap.
    pub(crate) fn start_before(
        config: &str,
        serve: &[&str],
        envoy_config: &[&str],
        upstream: &str,
        change: impl FnOnce(String) -> String,
    ) -> Self {
        let folder = configured(config);
        let directory = folder.path().to_str().unwrap().to_owned();
        let server = Server::start(&[&["--config", &directory], serve].concat());
        server.until("/readyz", "\r\n\r\nready");
        let flags = [&["--config", &directory, "--upstream", upstream], envoy_config].concat();
        let envoy = Envoy::start(&change(bootstrap(&server.grpc, &flags)));
        Self { server, envoy, directory: folder }
    }

    /// Replaces the server's configuration.
    pub(crate) fn configure(&self, config: &str) {
        // Moved there, so that it is never half written.
        let new = self.directory.path().join(".new");
        std::fs::write(&new, config).unwrap();
        std::fs::rename(new, self.directory.path().join("config.yaml")).unwrap();
    }

    /// The address of Envoy's listener.
    pub(crate) fn front(&self) -> String {
        self.envoy.listener("front")
    }

    pub(crate) fn get(&self, path: &str, headers: &[&str]) -> HttpResponse {
        request(&self.front(), "GET", path, headers)
    }

    /// The value of a series on the server's metrics page.
    pub(crate) fn metric(&self, series: &str) -> String {
        metric(&self.server, series)
    }
}

/// A directory with a configuration.
pub(crate) fn configured(config: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("config.yaml"), config).unwrap();
    folder
}

/// The value of a series on the metrics page of a server.
pub(crate) fn metric(server: &Server, series: &str) -> String {
    let page = server.get("/metrics");
    let line = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{series} is not in {page}")).to_owned()
}

/// The bootstrap for servers, which are separated by commas.
pub(crate) fn bootstrap(servers: &str, flags: &[&str]) -> String {
    envoy_config(&[&["--envoy-listen", "127.0.0.1:0", "--address", servers], flags].concat())
}

/// The output of `envoy-config`.
pub(crate) fn envoy_config(flags: &[&str]) -> String {
    let ran = run(&[&["envoy-config"], flags].concat());
    assert_eq!(ran.code, 0, "{ran:?}");
    ran.stdout
}

/// An address at which nobody listens: that of a port which was free a moment ago.
pub(crate) fn nobody() -> String {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

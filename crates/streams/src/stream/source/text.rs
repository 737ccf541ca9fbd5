//! Resources that a program creates itself.

use super::driver::ConfigServer;
use crate::{stream::convert, types::Types};
use mixer_adapter_config::{Change, Topic, ValidationError, parse};

impl ConfigServer {
    /// Serves the resources of a text, in place of all others of their collections.
    ///
    /// The text is YAML or JSON. Its documents are messages with an `@type`, responses of discovery services, or
    /// resources of Istio and Kubernetes. Unchanged resources keep their versions.
    ///
    /// # Errors
    /// The faults of the text; nothing of it is served then. Deprecated fields, and fields of later releases of Istio,
    /// are served and logged.
    pub fn serve_text(&self, text: &str) -> Result<(), Vec<ValidationError>> {
        let parsed = parse(text, "text", "default");
        let mut faults = parsed.faults;
        let types = Types::default();
        let changes = Change::full_sets(parsed.resources);
        let encoded = changes.iter().map(|change| {
            let (change, wrong) = convert::encode(&types, change);
            faults.extend(wrong);
            change
        });
        let encoded: Vec<_> = encoded.collect();
        let of_other_versions =
            |fault: &ValidationError| matches!(fault.topic, Topic::DeprecatedField | Topic::UnknownField);
        let (served, faults): (Vec<_>, Vec<_>) = faults.into_iter().partition(of_other_versions);
        if !faults.is_empty() {
            return Err(faults);
        }
        served.iter().for_each(|fault| tracing::warn!(%fault, "field of another version"));
        self.apply_all(&encoded);
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::{Catalogue, ConfigServerOptions};
    use super::*;

    const ROUTES: &str = "envoy.config.route.v3.RouteConfiguration";

    fn server() -> ConfigServer {
        ConfigServer::new(Catalogue::default().open(), ConfigServerOptions::default())
    }

    fn names(server: &ConfigServer) -> Vec<String> {
        let catalogue = server.catalogue();
        let snapshot = catalogue.snapshot(ROUTES);
        snapshot
            .map(|snapshot| snapshot.resources().map(|resource| resource.name.clone()).collect())
            .unwrap_or_default()
    }

    #[test]
    fn messages_in_json_and_yaml_are_served_in_place_of_others() {
        let server = server();
        let json = serde_json::json!({ "@type": format!("type.googleapis.com/{ROUTES}"), "name": "one" });
        server.serve_text(&json.to_string()).unwrap();
        assert_eq!(names(&server), ["one"]);
        let yaml = format!(
            "'@type': type.googleapis.com/{ROUTES}\nname: two\n---\n'@type': type.googleapis.com/{ROUTES}\nname: three\n"
        );
        server.serve_text(&yaml).unwrap();
        let mut names = names(&server);
        names.sort();
        assert_eq!(names, ["three", "two"]);
    }

    #[test]
    fn deprecated_fields_are_served() {
        let server = server();
        let listener = "envoy.config.listener.v3.Listener";
        let chains = "filter_chains: [{use_proxy_proto: true}]";
        server
            .serve_text(&format!("'@type': type.googleapis.com/{listener}\nname: one\n{chains}\n"))
            .unwrap();
        assert_eq!(server.catalogue().snapshot(listener).unwrap().resources().len(), 1);
    }

    #[test]
    fn a_text_with_a_fault_changes_nothing() {
        let server = server();
        server.serve_text(&format!("'@type': type.googleapis.com/{ROUTES}\nname: one\n")).unwrap();
        let wrong = format!("'@type': type.googleapis.com/{ROUTES}\nname: two\nvirtual_hots: []\n");
        let faults = server.serve_text(&wrong).unwrap_err();
        assert!(faults[0].to_string().contains("virtual_hots"), "{faults:?}");
        assert_eq!(names(&server), ["one"]);
    }
}

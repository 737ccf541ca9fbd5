//! Configuration by MCP as the engine takes it, and files as MCP serves them.

use std::{fs, time::Duration};

use mixer_adapter_config::{
    Acceptance, CollectionFilter, Content, Kind, MergedSource, Offer, ResourceName, ValidationError,
    source::FileSource,
};
use mixer_adapter_streams::{
    SourceSettings, StreamSource, Types, Wanted,
    stream::{
        Peer,
        source::{self, feed},
    },
};
use serde_json::json;
use tokio::{
    sync::mpsc,
    time::{sleep, timeout},
};

use super::{
    messages::*,
    sockets::{serve, set, source, source_routes},
};

async fn next(offers: &mut mpsc::Receiver<Offer>) -> Offer {
    timeout(Duration::from_secs(10), offers.recv()).await.unwrap().unwrap()
}

fn follow(address: std::net::SocketAddr, collections: &[&str]) -> mpsc::Receiver<Offer> {
    let wanted = collections.iter().map(|name| Wanted { collection: (*name).to_owned(), required: true });
    let settings =
        SourceSettings::new("ns").collections(wanted.collect()).longest_wait(Duration::from_millis(50));
    let source = StreamSource::mcp(Peer::new(address.to_string()), &settings);
    let (filter, required) = (CollectionFilter::default(), settings.required());
    let source = MergedSource { source: Box::new(source), filter, required, skip_bad_resources: false };
    let (target, offers) = mpsc::channel(1);
    tokio::spawn(Acceptance::new(target).run(vec![source]));
    offers
}

fn plain(name: &ResourceName) -> String {
    name.to_string().trim_end_matches('.').to_owned()
}

/// Collection, names added, names removed, of each change.
fn shape(offer: &Offer) -> Vec<(String, Vec<String>, Vec<String>)> {
    let shape = offer.content().changes.iter().map(|change| {
        let removed = match &change.content {
            Content::Full(_) => Vec::new(),
            Content::Partial { removed, .. } => removed.clone(),
        };
        let added = change.content.resources().map(|resource| plain(&resource.name)).collect();
        let removed = removed.iter().map(plain).collect();
        (change.collection.to_string(), added, removed)
    });
    shape.collect()
}

fn of(collection: &str, added: &[&str], removed: &[&str]) -> (String, Vec<String>, Vec<String>) {
    let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    (collection.to_owned(), list(added), list(removed))
}

/// A rule that can be read, as `name@version`.
fn set_rules(source: &source::ConfigServer, rules: &[&str]) {
    use mixer_adapter_config::proto::istio::policy::v1beta1::Rule;
    use mixer_adapter_core::proto::Any;
    use mixer_adapter_streams::stream::{RawChange, RawResource};
    use prost::Message as _;
    let resources = rules.iter().map(|text| {
        let (name, version) = text.split_once('@').unwrap();
        let rule = Rule { r#match: format!("version == {version:?}"), ..Rule::default() };
        let type_url = "type.googleapis.com/istio.policy.v1beta1.Rule".to_owned();
        let body = Any { type_url, value: rule.encode_to_vec().into() };
        let resource = RawResource {
            name: name.to_owned(),
            version: version.to_owned(),
            body,
            ..RawResource::default()
        };
        std::sync::Arc::new(resource)
    });
    source.apply(&RawChange {
        collection: RULES.into(),
        version: String::new(),
        full: true,
        resources: resources.collect(),
        removed: Vec::new(),
    });
}

async fn until_status(source: &source::ConfigServer, mut predicate: impl FnMut(&source::PeerStatus) -> bool) {
    timeout(Duration::from_secs(10), async {
        while !source.sinks().first().is_some_and(&mut predicate) {
            sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn the_first_update_waits_for_every_required_collection_and_later_ones_bring_changes() {
    let source = source();
    set_rules(&source, &["ns/a@1", "rootless@1"]);
    let listening = serve(source_routes(&source)).await;
    let mut updates = follow(listening.address, &[RULES, HANDLERS]);
    sleep(Duration::from_millis(400)).await;
    assert!(updates.try_recv().is_err(), "handlers are not there");
    set(&source, HANDLERS, &[]);
    let update = next(&mut updates).await;
    assert_eq!(update.content().source.as_ref(), format!("mcp://{}", listening.address));
    assert_eq!(shape(&update), [of(HANDLERS, &[], &[]), of(RULES, &["rootless.rule", "a.rule.ns"], &[])]);
    let rule = update.content().changes[1].content.resources().next().unwrap();
    assert_eq!(rule.spec, json!({ "match": "version == \"1\"" }));
    update.accept();
    until_status(&source, |sink| sink.collections.len() == 2).await;

    set_rules(&source, &["ns/a@2"]);
    let update = next(&mut updates).await;
    assert_eq!(shape(&update), [of(RULES, &["a.rule.ns"], &["rootless.rule"])]);
}

#[tokio::test]
async fn of_a_first_configuration_that_is_refused_only_the_faulty_collection_is_refused_and_nothing_is_taken()
{
    let source = source();
    set_rules(&source, &["ns/a@1"]);
    set(&source, HANDLERS, &[]);
    let listening = serve(source_routes(&source)).await;
    let mut updates = follow(listening.address, &[RULES, HANDLERS]);
    let fault = || {
        let rule = ResourceName::new("a", Kind::Rule, "ns");
        vec![
            ValidationError::error("no such attribute").of(rule).in_field("spec.match"),
            ValidationError::warning("odd"),
        ]
    };
    let both = next(&mut updates).await;
    assert_eq!(both.content().changes.len(), 2);
    both.refuse(fault());
    until_status(&source, |sink| {
        let refused = sink.collections.get(RULES).and_then(|watch| watch.refused.clone());
        let accepted = sink.collections.get(HANDLERS).is_some_and(|watch| watch.accepted.is_some());
        accepted
            && refused.is_some_and(|(_, why)| why == format!("{RULES}: ns/a: spec.match: no such attribute"))
    })
    .await;
    assert!(updates.try_recv().is_err(), "the handlers wait for the rules");
}

#[tokio::test]
async fn a_body_that_cannot_be_read_is_refused_by_name() {
    let source = source();
    set(&source, RULES, &["ns/a@1"]);
    let listening = serve(source_routes(&source)).await;
    let mut updates = follow(listening.address, &[RULES]);
    until_status(&source, |sink| {
        let refused = sink.collections.get(RULES).and_then(|watch| watch.refused.clone());
        refused.is_some_and(|(_, why)| {
            why.starts_with(&format!("{RULES}: ns/a: its body is not a valid istio.policy.v1beta1.Rule: "))
        })
    })
    .await;
    assert!(updates.try_recv().is_err());
}

#[tokio::test]
async fn a_body_of_an_unknown_type_is_refused_by_name() {
    let source = source();
    let mut unknown = resource("ns/a@1");
    unknown.body.as_mut().unwrap().type_url = "type.googleapis.com/no.such.Type".to_owned();
    let (name, body) = ("ns/a".to_owned(), unknown.body.unwrap());
    let unknown = mixer_adapter_streams::stream::RawResource { name, body, ..Default::default() };
    source.apply(&mixer_adapter_streams::stream::RawChange {
        collection: RULES.into(),
        version: String::new(),
        full: true,
        resources: vec![unknown.into()],
        removed: Vec::new(),
    });
    let listening = serve(source_routes(&source)).await;
    let mut updates = follow(listening.address, &[RULES]);
    until_status(&source, |sink| {
        let refused = sink.collections.get(RULES).and_then(|watch| watch.refused.clone());
        refused.is_some_and(|(_, why)| {
            why == format!("{RULES}: ns/a: its body is of the unknown type no.such.Type")
        })
    })
    .await;
    assert!(updates.try_recv().is_err());
}

#[tokio::test]
async fn files_reach_the_engine_through_a_source_and_a_sink_as_they_were_written() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
    write(
        "a.yaml",
        "apiVersion: config.istio.io/v1alpha2\nkind: rule\nmetadata: {name: r, namespace: ns, labels: {a: b}}\n\
         spec:\n  match: request.path == \"/\"\n  actions:\n  - handler: h\n    instances: [i]\n---\n\
         apiVersion: config.istio.io/v1alpha2\nkind: handler\nmetadata: {name: h, namespace: ns}\n\
         spec:\n  compiledAdapter: denier\n  params: {status: {code: 7}}\n",
    );
    write("broken.yaml", "kind: rule\nmetadata: {name: [}\n");
    write(
        "unfit.yaml",
        "apiVersion: config.istio.io/v1alpha2\nkind: rule\nmetadata: {name: not..a.label, namespace: ns}\n",
    );
    let source = source();
    tokio::spawn(feed(source.clone(), FileSource::new(directory.path(), "default"), Types::default()));
    let listening = serve(source_routes(&source)).await;
    let collections: Vec<String> =
        SourceSettings::new("ns").required().iter().map(ToString::to_string).collect();
    timeout(Duration::from_secs(10), async {
        while source.catalogue().collections().filter(|(_, snapshot)| snapshot.is_some()).count() < 6 {
            sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .unwrap();
    let mut updates = follow(listening.address, &collections.iter().map(String::as_str).collect::<Vec<_>>());
    let update = next(&mut updates).await;
    let resources: Vec<_> = update
        .content()
        .changes
        .iter()
        .flat_map(|change| match &change.content {
            Content::Full(resources) => resources.iter().cloned().collect::<Vec<_>>(),
            Content::Partial { .. } => panic!("the first is full"),
        })
        .collect();
    let names: Vec<_> = resources.iter().map(|resource| resource.name.to_string()).collect();
    assert_eq!(names, ["h.handler.ns", "r.rule.ns"]);
    assert_eq!(
        resources[0].spec,
        json!({ "compiledAdapter": "denier", "params": { "status": { "code": 7 } } })
    );
    let rule =
        json!({ "match": "request.path == \"/\"", "actions": [{ "handler": "h", "instances": ["i"] }] });
    assert_eq!(resources[1].spec, rule);
    assert_eq!(resources[1].labels["a"], "b");
}

#[tokio::test]
async fn a_slip_in_a_file_removes_nothing_until_the_file_is_readable_again() {
    const RULE: &str = "apiVersion: config.istio.io/v1alpha2\nkind: rule\nmetadata: {name: r, namespace: ns}\nspec:\n  match: request.path == \"/\"\n";
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("deny.yaml");
    fs::write(&path, RULE).unwrap();
    fs::write(directory.path().join("other.yaml"), RULE.replace("name: r", "name: other")).unwrap();
    let source = source();
    tokio::spawn(feed(source.clone(), FileSource::new(directory.path(), "default"), Types::default()));
    let served = || {
        let catalogue = source.catalogue();
        let rules = catalogue.collections().find(|(name, _)| &***name == RULES).and_then(|(_, rules)| rules);
        rules.map_or(Vec::new(), |rules| rules.resources().map(|rule| rule.name.clone()).collect())
    };
    let until = async |faults: usize, rules: &[&str]| {
        let is_so = async {
            let errors = || source.faults().iter().filter(|fault| fault.is_error()).count();
            while errors() != faults || served() != rules {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(Duration::from_secs(30), is_so).await.unwrap_or_else(|_| {
            panic!("{faults} faults and {rules:?}, but {:?} and {:?}", source.faults(), served())
        });
    };
    until(0, &["ns/other", "ns/r"]).await;
    let slips = [("kind: rule", "kind: [rule"), ("kind: rule", "kind: rulee"), ("  match", "  matchh")];
    for (right, wrong) in slips {
        fs::write(&path, RULE.replace(right, wrong)).unwrap();
        until(1, &["ns/other", "ns/r"]).await;
        fs::write(&path, RULE).unwrap();
        until(0, &["ns/other", "ns/r"]).await;
    }
    // A resource that is taken out of the file with a fault stays until the file has none.
    fs::write(&path, "kind: [rule").unwrap();
    until(1, &["ns/other", "ns/r"]).await;
    fs::remove_file(directory.path().join("other.yaml")).unwrap();
    until(1, &["ns/r"]).await;
    // What comes while it has a fault goes with it.
    for added in ["t", "u"] {
        let faulty = RULE.replace("kind: rule", "kind: rulee");
        fs::write(&path, format!("{faulty}---\n{}", RULE.replace("name: r", &format!("name: {added}"))))
            .unwrap();
        until(1, &["ns/r", &format!("ns/{added}")]).await;
    }
    fs::write(&path, RULE.replace("name: r", "name: s")).unwrap();
    until(0, &["ns/s"]).await;
    fs::write(&path, "kind: [rule").unwrap();
    until(1, &["ns/s"]).await;
    fs::remove_file(&path).unwrap();
    until(0, &[]).await;
}

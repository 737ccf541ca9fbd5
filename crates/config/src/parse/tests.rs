use serde_json::json;

use super::*;

fn faults(text: &str) -> Vec<String> {
    parse(text, "x.yaml", "default").faults.iter().map(ToString::to_string).collect()
}

fn names(text: &str) -> Vec<String> {
    parse(text, "x.yaml", "default").resources.iter().map(|resource| resource.name.to_string()).collect()
}

#[test]
fn a_resource_is_its_name_its_metadata_and_its_spec() {
    let text = "apiVersion: config.istio.io/v1alpha2\nkind: rule\nmetadata:\n  name: r1\n  namespace: ns\n  \
                labels: {a: b}\n  annotations: {policy.istio.io/lang: CEL}\nspec:\n  match: a == b\nstatus: {}\n";
    let parsed = parse(text, "x.yaml", "default");
    assert_eq!(parsed.faults, []);
    let [rule] = &parsed.resources[..] else { panic!("{parsed:?}") };
    assert_eq!(rule.name, ResourceName::new("r1", Kind::Rule, "ns"));
    assert_eq!(rule.collection.as_str(), "istio/policy/v1beta1/rules");
    assert_eq!(rule.labels, BTreeMap::from([("a".to_owned(), "b".to_owned())]));
    assert_eq!(rule.annotations["policy.istio.io/lang"], "CEL");
    assert_eq!(rule.spec, json!({"match": "a == b"}));
    assert_eq!(rule.error("match", "wrong").to_string(), "x.yaml:9: r1.rule.ns: spec.match: wrong");
}

#[test]
fn a_broken_document_costs_only_itself() {
    let text = "kind: rule\nmetadata: {name: a}\n---\nkind: rule\nmetadata: {name: [}\n---\nkind: rule\nmetadata: {name: c}\n";
    assert_eq!(names(text), ["a.rule.default", "c.rule.default"]);
    let faults = faults(text);
    assert!(matches!(&faults[..], [one] if one.starts_with("x.yaml:5: cannot be read: ")), "{faults:?}");
}

#[test]
fn a_key_that_is_given_twice_may_be_that_of_another_document() {
    for (text, fault) in [
        (
            "kind: rule\nmetadata: {name: a}\nkind: rule\nmetadata: {name: b}\n",
            "x.yaml:3: cannot be read: the key kind is given twice; is a `---` missing between two documents?",
        ),
        (
            "kind: rule\nmetadata: {name: a}\nspec:\n  table: a\n  table: b\n",
            "x.yaml:5: cannot be read: the key table is given twice",
        ),
        (
            "kind: rule\nmetadata: {name: a}\nspec:\n  kind: a\n  kind: b\n",
            "x.yaml:5: cannot be read: the key kind is given twice",
        ),
    ] {
        assert_eq!(faults(text), [fault]);
    }
}

#[test]
fn what_makes_no_resource_is_refused_with_the_reason() {
    let cases = [
        ("- a\n- b\n", "x.yaml:1: expected a resource: an object with kind and metadata"),
        ("just text", "x.yaml:1: expected a resource: an object with kind and metadata"),
        ("metadata: {name: a}", "x.yaml:1: kind: no kind is given"),
        ("kind: rule\n", "x.yaml:1: metadata.name: no name is given"),
        ("Kind: rule\nmetadata: {name: a}", "x.yaml:1: kind: no kind is given; write kind in place of Kind"),
        (
            "kind: rule\nmetdata: {name: a}",
            "x.yaml:1: metadata.name: no name is given; write metadata in place of metdata",
        ),
        (
            "kind: rule\nmetadata: {nam: a}",
            "x.yaml:2: metadata.name: no name is given; write name in place of nam",
        ),
        ("kind: rule\nmetadata:\n  name: 7\n", "x.yaml:3: metadata.name: expected text, not 7; quote it"),
        (
            "kind: rule\nmetadata:\n  name: a/b\n",
            "x.yaml:3: metadata.name: \"a/b\" is not a valid name; use letters, digits, hyphens, underscores and dots",
        ),
        (
            "kind: rule\nmetadata:\n  name: a\n  namespace: b.c\n",
            "x.yaml:4: metadata.namespace: \"b.c\" is not a valid namespace; use letters, digits, hyphens and underscores",
        ),
        (
            "kind: rule\nmetadata: {name: a}\nspec: [1]\n",
            "x.yaml:3: a.rule.default: spec: expected an object",
        ),
    ];
    for (text, reason) in cases {
        assert_eq!(faults(text), [reason], "{text}");
        assert_eq!(names(text), [""; 0], "{text}");
    }
}

#[test]
fn a_name_that_yaml_1_1_reads_as_a_boolean_is_taken_as_written_and_warned_about() {
    let text = "kind: rule\nmetadata:\n  name: n\n  namespace: on\n";
    assert_eq!(names(text), ["n.rule.on"]);
    assert_eq!(
        faults(text),
        [
            "x.yaml:3: warning: n.rule.on: metadata.name: a real Mixer reads n as false and loses the resource; quote it",
            "x.yaml:4: warning: n.rule.on: metadata.namespace: a real Mixer reads on as true and loses the resource; quote it",
        ]
    );
    assert_eq!(faults("kind: rule\nmetadata: {name: 'n'}\n"), [""; 0]);
}

#[test]
fn other_yaml_1_1_booleans_are_warned_about() {
    let text = "kind: adapter\nmetadata: {name: a}\nspec:\n  session_based: yes\n  y: 1\n";
    assert_eq!(
        faults(text),
        [
            "x.yaml:4: warning: a.adapter.default: spec.session_based: yes is read as true; write true, or quote it if the text is meant",
            "x.yaml:5: warning: a.adapter.default: spec.y: a real Mixer reads the name y as true; quote it",
        ]
    );
}

#[test]
fn fields_beside_the_spec_and_unknown_kinds_are_warned_about() {
    assert_eq!(
        faults("kind: rule\nmetadata: {name: a}\nspec: {}\nactions: []\n"),
        ["x.yaml:4: warning: a.rule.default: actions: is not read; does it belong under spec?"]
    );
    assert_eq!(
        faults("apiVersion: config.istio.io/v1alpha2\nkind: Widget\nmetadata: {name: a}\n"),
        ["x.yaml:2: warning: a.Widget.default: kind: nothing here reads this kind"]
    );
}

#[test]
fn a_misspelled_kind_is_an_error_unless_it_is_of_another_group() {
    for (kind, meant) in
        [("Rule", "rule"), ("handlers", "handler"), ("instnace", "instance"), ("Denier", "denier")]
    {
        let fault = format!("a.{kind}.default: kind: unknown kind {kind}; did you mean {meant}?");
        let text = format!("kind: {kind}\nmetadata: {{name: a}}\n");
        assert_eq!(faults(&text), [format!("x.yaml:1: {fault}")]);
        let mixers = format!("apiVersion: config.istio.io/v1alpha2\n{text}");
        assert_eq!(faults(&mixers), [format!("x.yaml:2: {fault}")]);
        assert_eq!(faults(&format!("apiVersion: rules.example.com/v1\n{text}")), [""; 0]);
    }
}

#[test]
fn an_api_version_close_to_mixers_is_an_error_and_that_of_another_group_is_not() {
    let faults_of = |api_version: &str| {
        faults(&format!("kind: rule\napiVersion: {api_version}\nmetadata: {{name: a}}\n"))
    };
    for wrong in [
        "config.istio.oi/v1alpha2",
        "confg.istio.io/v1alpha2",
        "config.isto.io/v1alpha2",
        "config.istio/v1alpha2",
        "Config.istio.io/v1alpha2",
        "config.istio.io/v1alpha3",
        "config.istio.io/v1",
        "config.istio.io",
        "v1alpha2/config.istio.io",
        "v1alpha2",
    ] {
        let reason = format!("unknown API version {wrong}; did you mean config.istio.io/v1alpha2?");
        assert_eq!(faults_of(wrong), [format!("x.yaml:2: apiVersion: {reason}")]);
    }
    for other in [
        "policy.istio.io/v1",
        "networking.istio.io/v1alpha3",
        "kustomize.config.k8s.io/v1beta1",
        "config.k8s.io/v1alpha2",
        "config.linkerd.io/v1alpha2",
        "config.gatekeeper.sh/v1alpha1",
        "v1",
    ] {
        assert_eq!(faults_of(other), [""; 0], "{other}");
    }
    assert_eq!(faults("kind: rule\nmetadata: {name: a}\n"), [""; 0]);
}

#[test]
fn mixers_resources_in_another_group_are_errors_by_their_kind_and_fields() {
    let faults_of = |api_version: &str, kind: &str, spec: &str| {
        faults(&format!("kind: {kind}\napiVersion: {api_version}\nmetadata: {{name: a}}\nspec: {spec}\n"))
    };
    let rule = "{match: 'true', actions: [{handler: deny, instances: [nothing]}]}";
    for (api_version, kind, spec) in [
        ("policy.istio.io/v1beta1", "rule", rule),
        ("policy.istio.io/v1beta1", "Rule", rule),
        ("istio.config.io/v1alpha2", "rule", rule),
        ("istio.config.io/v1alpha2", "Rule", rule),
        ("mixer.example.com/v1", "rule", "{actions: [{handler: deny}]}"),
        ("policy.istio.io/v1beta1", "handler", "{compiledAdapter: denier}"),
        ("istio.config.io/v1alpha2", "handler", "{adapter: denier, params: {}}"),
        ("istio.config.io/v1alpha2", "handler", "{adapter: denier, connection: {address: 'a:1'}}"),
        ("policy.istio.io/v1beta1", "instance", "{compiledTemplate: checknothing}"),
        ("policy.istio.io/v1beta1", "instance", "{compiled_template: checknothing}"),
        ("policy.istio.io/v1beta1", "instance", "{template: checknothing, params: {}}"),
    ] {
        let reason =
            format!("{kind} with these fields is a kind of Mixer, which would ignore it in {api_version}");
        let fault = format!("x.yaml:2: apiVersion: {reason}; write config.istio.io/v1alpha2");
        assert_eq!(faults_of(api_version, kind, spec), [fault], "{api_version} {kind} {spec}");
    }
    for (api_version, kind, spec) in [
        ("oathkeeper.ory.sh/v1alpha1", "Rule", "{match: {url: x}, authenticators: [{handler: noop}]}"),
        ("example.com/v1", "Rule", rule),
        ("rules.example.com/v1", "rule", "{match: 'true', actions: [allow]}"),
        ("example.com/v1", "handler", "{adapter: denier}"),
        ("example.com/v1", "instance", "{template: checknothing}"),
        ("kyverno.io/v1", "ClusterPolicy", "{rules: [{name: a, match: {any: []}}]}"),
        ("networking.istio.io/v1", "VirtualService", "{hosts: [a]}"),
        ("rbac.istio.io/v1alpha1", "ServiceRole", "{rules: [{services: [a]}]}"),
        ("config.k8s.io/v1alpha1", "rule", "{}"),
    ] {
        assert_eq!(faults_of(api_version, kind, spec), [""; 0], "{api_version} {kind} {spec}");
    }
}

#[test]
fn what_is_not_for_mixer_is_carried_and_not_criticised() {
    let text = "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nextra: yes\n";
    assert_eq!((names(text), faults(text)), (vec!["a.Service.default".to_owned()], vec![]));
    let nameless = faults("apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n");
    assert_eq!(nameless, ["x.yaml:1: warning: metadata.name: no name is given"]);
}

#[test]
fn cluster_scoped_resources_stand_at_the_root() {
    let text = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n---\n\
                apiVersion: rbac.istio.io/v1alpha1\nkind: ClusterRbacConfig\nmetadata: {name: default, namespace: a}\n---\n\
                apiVersion: v1\nkind: Service\nmetadata: {name: a, namespace: ''}\n";
    let resources = parse(text, "x.yaml", "istio-system").resources;
    let names: Vec<_> = resources.iter().map(|read| (read.name.namespace(), read.name.name())).collect();
    assert_eq!(names, [("", "shop"), ("", "default"), ("", "a")]);
}

#[test]
fn names_of_any_depth_are_read_from_the_namespace() {
    for written in ["org/team/subteam", "/org/team/subteam"] {
        let text = format!("kind: rule\nmetadata: {{name: a, namespace: {written}}}\n");
        let resources = parse(&text, "x.yaml", "").resources;
        assert_eq!(resources[0].name.namespace(), "org/team/subteam");
    }
    for wrong in ["/", "a//b", "a/", "a/b.c"] {
        assert_eq!(names(&format!("kind: rule\nmetadata: {{name: a, namespace: {wrong}}}\n")), [""; 0]);
    }
}

#[test]
fn the_time_of_creation_is_read() {
    let created = |time: &str| {
        let text = format!("kind: rule\nmetadata: {{name: a, creationTimestamp: {time}}}\n");
        (parse(&text, "x.yaml", "a").resources[0].created.map(|time| time.seconds), faults(&text).len())
    };
    // date -u -d 2019-03-19T10:00:00Z +%s
    assert_eq!(created("'2019-03-19T10:00:00Z'"), (Some(1_552_989_600), 0));
    assert_eq!(created("null"), (None, 0));
    assert_eq!(created("soon"), (None, 1));
}

#[test]
fn the_items_of_a_list_are_resources_with_lines_of_their_own() {
    let text = "kind: List\napiVersion: v1\nitems:\n- kind: rule\n  metadata:\n    name: a\n- kind: rule\n  metadata:\n    name: off\n";
    assert_eq!(names(text), ["a.rule.default", "off.rule.default"]);
    let found = faults(text);
    assert!(
        matches!(&found[..], [one] if one.starts_with("x.yaml:9: warning: off.rule.default: metadata.name: "))
    );
    assert_eq!(names("{\"kind\": \"RuleList\", \"items\": []}"), [""; 0]);
}

#[test]
fn what_would_grow_without_bounds_is_refused() {
    let bomb: String = (b'b'..=b'k')
        .map(|name| {
            let (name, previous) = (char::from(name), char::from(name - 1));
            format!("{name}: &{name} [{}]\n", vec![format!("*{previous}"); 10].join(","))
        })
        .collect();
    let texts = [
        format!("a: &a [x,x,x,x,x,x,x,x,x,x]\n{bomb}"),
        "[".repeat(100_000),
        "{a: ".repeat(100_000),
        "- ".repeat(100_000),
    ];
    for text in texts {
        let parsed = parse(&text, "x.yaml", "");
        assert_eq!((parsed.resources.len(), parsed.faults.len()), (0, 1), "{text:.20}");
    }
    let deepest =
        format!("kind: x\nmetadata: {{name: a}}\nspec: {{a: {}{}}}", "[".repeat(60), "]".repeat(60));
    assert_eq!(parse(&deepest, "x.yaml", "a").resources.len(), 1);
}

/// Replaces a text, and returns the resources and the faults of all its documents.
fn replace(read: &mut ParsedText, text: &str) -> Parsed {
    read.replace(text.to_owned(), "x.yaml", "ns", &mut Edits::default()).unwrap();
    Parsed { resources: read.resources().cloned().collect(), faults: read.faults().cloned().collect() }
}

#[test]
fn the_next_version_of_a_text_shares_the_documents_that_are_the_same_at_the_same_lines() {
    let rule =
        |name: &str, field: &str| format!("---\nkind: rule\nmetadata: {{name: {name}}}\nspec: {field}\n");
    let first = [rule("a", "{match: x}"), "---\nkind: [\n".to_owned(), rule("b", "{match: x}")].concat();
    let changed = first.replacen("{match: x}", "{match: z}", 1);
    let moved = format!("# moves the rest\n{first}");
    for (text, shared) in [(&first, 2), (&changed, 1), (&moved, 0)] {
        let mut read = ParsedText::default();
        let resources = replace(&mut read, &first).resources;
        let after = replace(&mut read, text);
        assert_eq!(after, parse(text, "x.yaml", "ns"), "{text}");
        assert_eq!((after.resources.len(), after.faults.len()), (2, 1), "{text}");
        let pairs = resources.iter().zip(&after.resources);
        assert_eq!(pairs.filter(|(before, after)| Arc::ptr_eq(before, after)).count(), shared, "{text}");
    }
}

/// Documents, parts of documents, and lines that separate documents, or look like that.
const PIECES: [&str; 14] = [
    "---\nkind: rule\nmetadata: {name: a}\n",
    "---\nkind: rule\nmetadata: {name: b}\nspec: {match: \"true\"}\n",
    "--- # a comment\nkind: rule\nmetadata: {name: c, labels: {n: x}}\n",
    "---\nkind: rule\nmetadata: {name: d}\nspec: {match: |-\n  x\n  --- y\n",
    "kind: rule\nmetadata: {name: e}\n",
    "spec: {match: x}\n",
    "---\n",
    "---x\n",
    "--- ",
    "# a comment\n",
    "\n",
    "\r\n",
    "x",
    "\u{feff}",
];

proptest::proptest! {
    /// Each edit replaces some pieces by others; often it adds no line, so that the documents behind it are the same.
    #[test]
    fn the_next_version_of_a_text_is_read_like_a_new_one(
        first in proptest::collection::vec(0..PIECES.len(), 0..12),
        edits in proptest::collection::vec(
            (0..12_usize, 0..3_usize, proptest::collection::vec(0..PIECES.len(), 0..3)),
            0..5,
        ),
    ) {
        let mut read = ParsedText::default();
        let mut pieces = first;
        for (start, removed, added) in [(0, 0, Vec::new())].into_iter().chain(edits) {
            let start = start.min(pieces.len());
            let end = (start + removed).min(pieces.len());
            drop(pieces.splice(start..end, added));
            let text: String = pieces.iter().map(|piece| PIECES[*piece]).collect();
            proptest::prop_assert_eq!(replace(&mut read, &text), parse(&text, "x.yaml", "ns"), "{}", text);
        }
    }

    /// Most texts are longer than the parts that are compared at once.
    #[test]
    fn common_parts_of_texts_are_found(
        length in 0..3 * STEP,
        changed in 0..3 * STEP,
        added in 0..2 * STEP,
    ) {
        let one: Vec<u8> = (0..length).map(|index| (index % 251) as u8).collect();
        let changed = changed.min(length);
        let other = [&one[..changed], &vec![255; added][..], &one[changed..]].concat();
        let expected = if added == 0 { (length, length) } else { (changed, length - changed) };
        proptest::prop_assert_eq!((common_prefix(&one, &other), common_suffix(&one, &other)), expected);
    }
}

#[test]
fn documents_between_two_changes_and_behind_them_are_shared() {
    let text = |changed: &[usize]| -> String {
        let documents = (0..1000).map(|index| {
            let condition = if changed.contains(&index) { "y" } else { "x" };
            format!("---\nkind: rule\nmetadata: {{name: r{index}}}\nspec: {{match: {condition}}}\n")
        });
        documents.collect()
    };
    let mut read = ParsedText::default();
    let before = replace(&mut read, &text(&[])).resources;
    let after = replace(&mut read, &text(&[10, 900])).resources;
    let differing =
        before.iter().zip(&after).enumerate().filter(|(_, (one, other))| !Arc::ptr_eq(one, other));
    assert_eq!(differing.map(|(index, _)| index).collect::<Vec<_>>(), [10, 900]);
}

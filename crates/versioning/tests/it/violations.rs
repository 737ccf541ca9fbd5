//! Every kind of incompatible change is found, and compatible ones are not.

use crate::support::Protos;

/// The rules of protoc-gen-validate, as far as the protos below use them.
const VALIDATE: &str = r#"syntax = "proto2"; package validate;
import "google/protobuf/descriptor.proto";
extend google.protobuf.FieldOptions { optional FieldRules rules = 1071; }
message FieldRules { optional Int32Rules int32 = 3; optional StringRules string = 14; optional MessageRules message = 17; }
message Int32Rules { optional int32 gte = 5; optional int32 lte = 3; }
message StringRules { optional uint64 min_len = 2; optional string pattern = 6; }
message MessageRules { optional bool required = 2; }"#;

/// The annotation of REST paths.
const HTTP: &str = r#"syntax = "proto3"; package google.api;
import "google/protobuf/descriptor.proto";
extend google.protobuf.MethodOptions { HttpRule http = 72295728; }
message HttpRule { string post = 4; string body = 7; }"#;

const ORDERS: &str = r#"package shop.orders.v1;
import "validate/validate.proto";
import "google/api/annotations.proto";
import "mixer_adapter/versioning/v1/versioning.proto";
import "shop/items/v1/item.proto";
option java_package = "shop.orders.v1";
option go_package = "shop/orders/v1";
option (mixer_adapter.versioning.v1.file).version = "1.3.0";
message Order {
  reserved 20, 30 to 35;
  reserved "gone";
  int32 count = 1 [(validate.rules).int32 = { gte: 1, lte: 9 }];
  string name = 2 [(validate.rules).string.min_len = 1];
  repeated string tags = 3;
  map<string, int64> prices = 4;
  oneof kind { bool gift = 5; string card = 6; }
  optional int32 priority = 7;
  State state = 8;
  string old = 9 [deprecated = true];
  shop.items.v1.Item item = 10;
  string label = 11 [json_name = "Label"];
  message Line { int32 amount = 1; }
  Line line = 12;
  enum Size { SIZE_UNSPECIFIED = 0; SMALL = 1; reserved 9; }
}
enum State { STATE_UNSPECIFIED = 0; OPEN = 1; CLOSED = 2 [deprecated = true]; }
message Reply { string text = 1; }
service Orders {
  rpc Place(Order) returns (Reply) { option (google.api.http) = { post: "/v1/orders" body: "*" }; }
  rpc Follow(Order) returns (stream Reply);
}
"#;

const OLD_STYLE: &str = r#"syntax = "proto2"; package shop.legacy.v1;
message Old { optional int32 retries = 1 [default = 3]; required string name = 2; }
enum Way { BY_FOOT = 1; BY_CAR = 2; }"#;

const ITEMS: &str = "package shop.items.v1; message Item { string name = 1; }";
const ITEMS_BETA: &str = "package shop.parts.v1beta1; message Part { string name = 1; }";
const ALPHA: &str = "package shop.tests.v1alpha1; message Trial { string name = 1; int32 n = 2; }";

fn shop() -> Protos {
    Protos::new(&[
        ("validate/validate.proto", VALIDATE),
        ("google/api/annotations.proto", HTTP),
        ("shop/orders/v1/orders.proto", ORDERS),
        ("shop/legacy/v1/old.proto", OLD_STYLE),
        ("shop/items/v1/item.proto", ITEMS),
        ("shop/parts/v1beta1/part.proto", ITEMS_BETA),
        ("shop/tests/v1alpha1/trial.proto", ALPHA),
    ])
}

const FILE: &str = "shop/orders/v1/orders.proto";
const LEGACY: &str = "shop/legacy/v1/old.proto";

/// A change of a file, and the violation that it is.
type Planted<'a> = (&'a str, &'a str, &'a str, &'a str, &'a str);

#[rustfmt::skip]
const PLANTED: [Planted<'_>; 46] = [
    // What is wrong, the file, what stands there, what replaces it, the rule and the element.
    ("a field is removed", FILE, "repeated string tags = 3;", "", "removed shop.orders.v1.Order.tags"),
    ("a field is renumbered", FILE, "tags = 3", "tags = 13", "changed shop.orders.v1.Order.tags"),
    ("a field is renamed", FILE, "string tags = 3", "string labels = 3", "renamed shop.orders.v1.Order.tags"),
    ("a field's type is another", FILE, "int32 amount", "int64 amount", "changed shop.orders.v1.Order.Line.amount"),
    ("a field is not repeated any more", FILE, "repeated string tags", "string tags", "changed shop.orders.v1.Order.tags"),
    ("a field becomes repeated", FILE, "State state = 8", "repeated State state = 8", "changed shop.orders.v1.Order.state"),
    ("a field loses its presence", FILE, "optional int32 priority", "int32 priority", "changed shop.orders.v1.Order.priority"),
    ("the values of a map are others", FILE, "int64> prices", "int32> prices", "changed shop.orders.v1.Order.prices"),
    ("the keys of a map are others", FILE, "map<string, int64>", "map<int32, int64>", "changed shop.orders.v1.Order.prices"),
    ("a field leaves its oneof", FILE, "oneof kind { bool gift = 5; string card = 6; }", "bool gift = 5; oneof kind { string card = 6; }", "changed shop.orders.v1.Order.gift"),
    ("a field enters a oneof", FILE, "repeated string tags = 3;\n  map<string, int64> prices = 4;\n  oneof kind { bool gift = 5; string card = 6; }\n  optional int32 priority = 7;\n  State state = 8;", "repeated string tags = 3;\n  map<string, int64> prices = 4;\n  oneof kind { bool gift = 5; string card = 6; State state = 8; }\n  optional int32 priority = 7;", "changed shop.orders.v1.Order.state"),
    ("a oneof is renamed", FILE, "oneof kind { bool gift = 5; string card = 6; }", "oneof sort { bool gift = 5; string card = 6; }", "changed shop.orders.v1.Order.card"),
    ("a number is given to another field", FILE, "repeated string tags = 3;", "int64 weight = 3;", "reserved shop.orders.v1.Order.tags"),
    ("the JSON name is another", FILE, "json_name = \"Label\"", "json_name = \"LABEL\"", "changed shop.orders.v1.Order.label"),
    ("the JSON name is the default again", FILE, " [json_name = \"Label\"]", "", "changed shop.orders.v1.Order.label"),
    ("a field gets a JSON name", FILE, "string tags = 3", "string tags = 3 [json_name = \"Tags\"]", "changed shop.orders.v1.Order.tags"),
    ("a message is removed", FILE, "message Line { int32 amount = 1; }\n  Line line = 12;", "", "removed shop.orders.v1.Order.Line"),
    ("an enum is removed", FILE, "enum Size { SIZE_UNSPECIFIED = 0; SMALL = 1; reserved 9; }", "", "removed shop.orders.v1.Order.Size"),
    ("a value is removed", FILE, "SMALL = 1; ", "", "removed shop.orders.v1.Order.Size.SMALL"),
    ("a value is renumbered", FILE, "SMALL = 1", "SMALL = 2", "changed shop.orders.v1.Order.Size.SMALL"),
    ("a value is renamed", FILE, "SMALL = 1", "TINY = 1", "renamed shop.orders.v1.Order.Size.SMALL"),
    ("the zero value is another", FILE, "SIZE_UNSPECIFIED = 0", "BIG = 0", "changed shop.orders.v1.Order.Size"),
    ("the default of an enum is another", LEGACY, "BY_FOOT = 1; BY_CAR = 2;", "BY_CAR = 2; BY_FOOT = 1;", "changed shop.legacy.v1.Way"),
    ("a default is another", LEGACY, "default = 3", "default = 5", "changed shop.legacy.v1.Old.retries"),
    ("a default is gone", LEGACY, " [default = 3]", "", "changed shop.legacy.v1.Old.retries"),
    ("a field is not required any more", LEGACY, "required string", "optional string", "changed shop.legacy.v1.Old.name"),
    ("a new field is required", LEGACY, "required string name = 2;", "required string name = 2; required int32 more = 3;", "validation shop.legacy.v1.Old.more"),
    ("the syntax is another", LEGACY, "syntax = \"proto2\"; package shop.legacy.v1;\nmessage Old { optional int32 retries = 1 [default = 3]; required string name = 2; }\nenum Way { BY_FOOT = 1;", "syntax = \"proto3\"; package shop.legacy.v1;\nmessage Old { optional int32 retries = 1; string name = 2; }\nenum Way { NO_WAY = 0; BY_FOOT = 1;", "changed shop/legacy/v1/old.proto"),
    ("a reserved number is free", FILE, "reserved 20, 30 to 35;", "reserved 30 to 35;", "reserved shop.orders.v1.Order"),
    ("a reserved range is smaller", FILE, "30 to 35", "30 to 34", "reserved shop.orders.v1.Order"),
    ("a reserved name is free", FILE, "  reserved \"gone\";\n", "", "reserved shop.orders.v1.Order"),
    ("a reserved number of an enum is free", FILE, "reserved 9;", "", "reserved shop.orders.v1.Order.Size"),
    ("a service is removed", FILE, "service Orders", "service Order2", "removed shop.orders.v1.Orders"),
    ("a method is removed", FILE, "rpc Follow(Order) returns (stream Reply);", "", "removed shop.orders.v1.Orders.Follow"),
    ("a method does not stream any more", FILE, "(stream Reply)", "(Reply)", "changed shop.orders.v1.Orders.Follow"),
    ("a method takes another message", FILE, "rpc Follow(Order)", "rpc Follow(Reply)", "changed shop.orders.v1.Orders.Follow"),
    ("a REST path is another", FILE, "/v1/orders", "/v1/order", "changed shop.orders.v1.Orders.Place"),
    ("a limit is narrower", FILE, "lte: 9", "lte: 8", "validation shop.orders.v1.Order.count"),
    ("a field gets a rule of validation", FILE, "string text = 1", "string text = 1 [(validate.rules).string.pattern = \"^a\"]", "validation shop.orders.v1.Reply.text"),
    ("a new field must be there", FILE, "string text = 1;", "string text = 1; shop.items.v1.Item item = 2 [(validate.rules).message.required = true];", "validation shop.orders.v1.Reply.item"),
    ("a mark of deprecation is gone", FILE, " = 9 [deprecated = true]", " = 9", "mark shop.orders.v1.Order.old"),
    ("a name in generated code is another", FILE, "go_package = \"shop/orders/v1\"", "go_package = \"shop/orders\"", "changed shop/orders/v1/orders.proto"),
    ("a published field becomes a draft", FILE, "repeated string tags = 3;", "// [#not-implemented-hide:]\n  repeated string tags = 3;", "changed shop.orders.v1.Order.tags"),
    ("the version of a changed file is not raised", FILE, "string text = 1;", "string text = 1; string more = 2;", "version shop/orders/v1/orders.proto"),
    ("a stable package uses a beta one", FILE, "shop.items.v1.Item item = 10;", "shop.items.v1.Item item = 10; shop.parts.v1beta1.Part part = 14;", "less-stable shop.orders.v1.Order.part"),
    ("a stable package uses an alpha one", FILE, "shop.items.v1.Item item = 10;", "shop.items.v1.Item item = 10; shop.tests.v1alpha1.Trial trial = 14;", "less-stable shop.orders.v1.Order.trial"),
];

#[test]
fn each_planted_violation_is_found() {
    let published = published();
    for (what, file, from, to, expected) in PLANTED {
        let protos = shop();
        protos.edit(file, from, to);
        for (needed, import) in [
            ("shop.parts", "shop/parts/v1beta1/part.proto"),
            ("shop.tests", "shop/tests/v1alpha1/trial.proto"),
        ] {
            if to.contains(needed) {
                protos.edit(
                    file,
                    "import \"shop/items",
                    &format!("import \"{import}\"; import \"shop/items"),
                );
            }
        }
        let found = protos.check(&published, None);
        assert!(found.contains(&expected.to_owned()), "{what}: {found:?}");
    }
}

#[test]
fn a_planted_violation_is_all_that_is_found_of_it() {
    let published = published();
    for (what, file, from, to, expected) in PLANTED {
        // A change of two things, or one that imports another file.
        if [
            "the zero value",
            "a oneof is",
            "the syntax",
            "a service",
            "a stable",
            "a new field is",
            "a message is removed",
        ]
        .iter()
        .any(|two| what.contains(two))
        {
            continue;
        }
        let protos = shop();
        protos.edit(file, from, to);
        let mut found = protos.check(&published, None);
        // Any change has to be recorded, and raises the version.
        let of_any =
            |violation: &str| violation.starts_with("not-recorded ") || violation.starts_with("version ");
        found.retain(|violation| violation == expected || !of_any(violation));
        assert_eq!(found, [expected], "{what}");
    }
}

fn published() -> mixer_adapter_versioning::Baseline {
    let protos = shop();
    let mut published = mixer_adapter_versioning::Baseline::default();
    // The rules themselves are of others.
    published.add_exception("package-name validate".parse().unwrap());
    protos.publish(&mut published, None);
    assert_eq!(protos.check(&published, None), [""; 0]);
    published
}

#[test]
fn files_and_packages_stay_where_they_are() {
    let published = published();
    let moved = shop();
    std::fs::rename(moved.path().join(LEGACY), moved.path().join("shop/legacy/v1/new.proto")).unwrap();
    let found = moved.check(&published, None);
    for expected in
        ["removed shop/legacy/v1/old.proto", "changed shop.legacy.v1.Old", "changed shop.legacy.v1.Way"]
    {
        assert!(found.contains(&expected.to_owned()), "{found:?}");
    }

    let renamed = shop();
    renamed.edit(LEGACY, "shop.legacy.v1", "shop.legacies.v1");
    let found = renamed.check(&published, None);
    for expected in
        ["changed shop/legacy/v1/old.proto", "removed shop.legacy.v1.Old", "removed shop.legacy.v1.Way"]
    {
        assert!(found.contains(&expected.to_owned()), "{found:?}");
    }
}

#[test]
fn packages_are_well_formed() {
    for package in [
        "shop",
        "shop.orders",
        "shop.V1",
        "shop.v0",
        "shop.v1gamma1",
        "Shop.orders.v1",
        "shop.v1.orders.v1",
        "shop.v1.orders",
        "v1",
    ] {
        let protos = Protos::new(&[("a.proto", &format!("package {package}; message M {{}}"))]);
        let found = protos.check(&mixer_adapter_versioning::Baseline::default(), None);
        assert!(found.contains(&format!("package-name {package}")), "{package}: {found:?}");
    }
    for package in [
        "shop.v1",
        "shop.orders.v2alpha",
        "shop.orders.v2alpha1",
        "envoy.config.ext_authz.v3",
        "shop.v1beta2",
    ] {
        let protos = Protos::new(&[("a.proto", &format!("package {package}; message M {{}}"))]);
        assert_eq!(protos.check(&protos.published(None), None), [""; 0], "{package}");
    }
}

/// What is stable may not be changed, and what is experimental may: in any of its spellings.
#[test]
fn v2_is_stable_and_v2alpha_v2alpha1_and_v1alpha1_are_experimental() {
    for (version, is_stable) in
        [("v2", true), ("v2beta1", true), ("v2alpha", false), ("v2alpha1", false), ("v1alpha1", false)]
    {
        let message = |field: &str| format!("package shop.{version}; message M {{ {field} }}");
        let protos = Protos::new(&[("a.proto", &message("int32 n = 1;"))]);
        let published = protos.published(None);
        protos.write("a.proto", &message("string n = 1;"));
        let changed = format!("changed shop.{version}.M.n");
        assert_eq!(protos.check(&published, None).contains(&changed), is_stable, "{version}");
    }
}

#[test]
fn the_default_of_an_enum_is_unspecified_or_a_value_that_never_changes() {
    let published = published();
    for (file, from, to, of) in [
        (FILE, "SIZE_UNSPECIFIED = 0", "BIG = 0", "shop.orders.v1.Order.Size"),
        (
            FILE,
            "SIZE_UNSPECIFIED = 0; SMALL = 1;",
            "SMALL = 0; SIZE_UNSPECIFIED = 1;",
            "shop.orders.v1.Order.Size",
        ),
        // An enum of proto2 begins with any value, which is its default.
        (LEGACY, "BY_FOOT = 1; BY_CAR = 2;", "BY_CAR = 2; BY_FOOT = 1;", "shop.legacy.v1.Way"),
    ] {
        let protos = shop();
        protos.edit(file, from, to);
        let found = protos.check(&published, None);
        assert!(found.contains(&format!("changed {of}")), "{to}: {found:?}");
    }
    let protos = shop();
    protos.edit(FILE, "SMALL = 1;", "SMALL = 1; BIG = 2;");
    protos.edit(FILE, "\"1.3.0\"", "\"1.4.0\"");
    assert_eq!(protos.check(&published, None), [format!("not-recorded {FILE}")], "others may come");
}

/// A message that was valid stays valid, and means the same.
#[test]
fn defaults_and_validation_rules_are_part_of_the_contract() {
    let published = published();
    for (file, from, to, expected) in [
        (LEGACY, "default = 3", "default = 5", "changed shop.legacy.v1.Old.retries"),
        (FILE, "lte: 9", "lte: 8", "validation shop.orders.v1.Order.count"),
        (FILE, "min_len = 1", "min_len = 2", "validation shop.orders.v1.Order.name"),
        (FILE, "gte: 1, lte: 9", "gte: 2, lte: 9", "validation shop.orders.v1.Order.count"),
    ] {
        let protos = shop();
        protos.edit(file, from, to);
        let found = protos.check(&published, None);
        assert!(found.contains(&expected.to_owned()), "{to}: {found:?}");
    }
    let wider = shop();
    wider.edit(FILE, "gte: 1, lte: 9", "gte: 0, lte: 99");
    wider.edit(FILE, "\"1.3.0\"", "\"1.4.0\"");
    assert_eq!(wider.check(&published, None), [format!("not-recorded {FILE}")]);
}

#[test]
fn the_configuration_of_an_adapter_and_a_template_need_no_version() {
    let protos = Protos::new(&[
        ("config.proto", "package adapter.shop.config; message Params {}"),
        (
            "template.proto",
            "package tagCheck; import \"mixer/adapter/model/v1beta1/extensions.proto\"; \
             option (istio.mixer.adapter.model.v1beta1.template_variety) = TEMPLATE_VARIETY_CHECK; message Template {}",
        ),
    ]);
    assert_eq!(protos.check(&protos.published(None), None), [""; 0]);
}

#[test]
fn a_stable_package_does_not_refer_to_an_unstable_one() {
    let of = |package: &str, uses: &str| {
        Protos::new(&[
            ("a.proto", &format!("package shop.a.{uses}; message A {{}}")),
            (
                "b.proto",
                &format!(
                    "package shop.b.{package}; import \"a.proto\"; message B {{ shop.a.{uses}.A a = 1; }}"
                ),
            ),
        ])
    };
    for (package, uses, is_allowed) in [
        ("v2", "v2alpha", false),
        ("v2", "v1beta1", false),
        ("v1beta1", "v1alpha1", false),
        ("v2", "v1", true),
        ("v2alpha", "v1beta1", true),
        ("v2alpha", "v2alpha", true),
    ] {
        let protos = of(package, uses);
        let found = protos.check(&mixer_adapter_versioning::Baseline::of(&protos.set()), None);
        let violation = format!("less-stable shop.b.{package}.B.a");
        assert_eq!(found.contains(&violation), !is_allowed, "{package} uses {uses}: {found:?}");
    }
}

#[test]
fn the_latest_stable_version_uses_the_latest_of_others() {
    let protos = Protos::new(&[
        ("foo/v1.proto", "package foo.v1; message Foo {}"),
        ("foo/v2.proto", "package foo.v2; message Foo {}"),
        ("bar/v1.proto", "package bar.v1; import \"foo/v1.proto\"; message Bar { foo.v1.Foo foo = 1; }"),
        (
            "bar/v2.proto",
            "package bar.v2; import \"foo/v1.proto\"; message Bar { repeated foo.v1.Foo foo = 1; }",
        ),
    ]);
    let found = protos.check(&mixer_adapter_versioning::Baseline::of(&protos.set()), None);
    assert_eq!(found, ["not-latest bar.v2.Bar.foo"], "an older version may stay with what it uses");
}

#[test]
fn there_is_one_definition_of_an_api_in_a_tree_of_dependencies() {
    let protos = Protos::new(&[
        ("foo/v1.proto", "package foo.v1; message Foo {}"),
        ("foo/v18.proto", "package foo.v18; message Foo {}"),
        ("bar/v2.proto", "package bar.v2; import \"foo/v1.proto\"; message Bar { foo.v1.Foo foo = 1; }"),
        ("baz/v2.proto", "package baz.v2; import \"foo/v18.proto\"; message Baz { foo.v18.Foo foo = 1; }"),
        (
            "top/v1.proto",
            "package top.v1; import \"bar/v2.proto\"; import \"baz/v2.proto\"; message Top { bar.v2.Bar bar = 1; map<string, baz.v2.Baz> baz = 2; }",
        ),
    ]);
    let found = protos.check(&mixer_adapter_versioning::Baseline::of(&protos.set()), None);
    assert_eq!(
        found,
        ["not-latest bar.v2.Bar.foo", "one-definition top.v1"],
        "bar and baz have one version of foo each, and top has two by way of them"
    );

    let itself = Protos::new(&[
        ("foo/v2.proto", "package foo.v2; message Foo {}"),
        ("foo/v3.proto", "package foo.v3; import \"foo/v2.proto\"; message Foo { foo.v2.Foo foo = 1; }"),
    ]);
    let found = itself.check(&mixer_adapter_versioning::Baseline::of(&itself.set()), None);
    assert!(found.contains(&"one-definition foo.v3".to_owned()), "v3 does not refer to v2: {found:?}");
}

#[test]
fn compatible_changes_only_have_to_be_recorded() {
    let mut published = published();
    for (file, from, to) in [
        (
            FILE,
            "string text = 1;",
            "string text = 1; string more = 2 [(validate.rules).string.pattern = \"^a\"];",
        ),
        (FILE, "OPEN = 1;", "OPEN = 1; PAID = 3;"),
        (FILE, "message Reply", "message Receipt { string text = 1; } message Reply"),
        (FILE, "lte: 9", "lte: 99"),
        (FILE, "[(validate.rules).string.min_len = 1]", ""),
        (FILE, "reserved 20, 30 to 35;", "reserved 20 to 35;"),
        (FILE, "rpc Follow", "rpc Cancel(Order) returns (Reply); rpc Follow"),
        (FILE, "repeated string tags = 3;", "repeated string tags = 3 [deprecated = true];"),
    ] {
        let protos = shop();
        protos.edit(file, from, to);
        protos.edit(file, "\"1.3.0\"", "\"1.4.0\"");
        assert_eq!(protos.check(&published, None), [format!("not-recorded {file}")], "{to}");
        let before = published.clone();
        protos.publish(&mut published, None);
        assert_eq!(protos.check(&published, None), [""; 0], "{to}");
        published = before;
    }
}

#[test]
fn alpha_packages_drafts_and_comments_change_freely() {
    let published = published();
    let protos = shop();
    protos.edit("shop/tests/v1alpha1/trial.proto", "string name = 1; int32 n = 2;", "int64 name = 2;");
    protos.edit(FILE, "message Reply", "// The answer.\nmessage Reply");
    assert_eq!(protos.check(&published, None), ["not-recorded shop/tests/v1alpha1/trial.proto"]);

    for draft in [
        "// [#not-implemented-hide:]\nmessage Plan",
        "// [#proto-status: draft]\nmessage Plan",
        "import \"mixer_adapter/versioning/v1/versioning.proto\"; message Plan { option (mixer_adapter.versioning.v1.message).draft = true; reserved 9; } message Other",
    ] {
        let with =
            |field: &str| Protos::new(&[("a.proto", &format!("package shop.v1; {draft} {{ {field} }}"))]);
        let published = with("int32 n = 1;").published(None);
        let mut found = with("string n = 1; int32 m = 2;").check(&published, None);
        found.retain(|violation| !violation.starts_with("not-recorded"));
        if draft.contains("Other") {
            assert_eq!(found, ["changed shop.v1.Other.n"], "only the message with the option is a draft");
        } else {
            assert_eq!(found, [""; 0], "{draft}");
        }
    }
}

#[test]
fn an_alpha_package_can_be_held_like_a_stable_one() {
    let protos = Protos::new(&[("a.proto", "package shop.v1alpha1; message M { int32 n = 1; }")]);
    let mut published = mixer_adapter_versioning::Baseline::default();
    published.hold("shop.v1alpha1");
    protos.publish(&mut published, None);
    protos.edit("a.proto", "int32 n", "int64 n");
    let found = protos.check(&published, None);
    assert!(found.contains(&"changed shop.v1alpha1.M.n".to_owned()), "{found:?}");
}

#[test]
fn an_exception_that_was_decided_is_not_reported() {
    let mut published = published();
    published.add_exception("removed shop.orders.v1.Order.tags".parse().unwrap());
    published = published.to_string().parse().unwrap();
    let protos = shop();
    protos.edit(FILE, "repeated string tags = 3;", "");
    protos.edit(FILE, "\"1.3.0\"", "\"1.4.0\"");
    assert_eq!(protos.check(&published, None), [format!("not-recorded {FILE}")]);
    assert!("removed".parse::<mixer_adapter_versioning::Exception>().is_err());
    assert!("remove a.b".parse::<mixer_adapter_versioning::Exception>().is_err());
}

#[test]
fn a_violation_has_its_place_and_reason() {
    let published = published();
    let protos = shop();
    protos.edit(FILE, "repeated string tags = 3;", "repeated bytes tags = 3;");
    let violations = mixer_adapter_versioning::check(&protos.set(), &published, None);
    let changed = violations
        .iter()
        .find(|violation| violation.rule == mixer_adapter_versioning::Rule::Changed)
        .unwrap();
    assert_eq!(
        changed.to_string(),
        "shop/orders/v1/orders.proto:14: error: shop.orders.v1.Order.tags: the type was `repeated string` and is `repeated bytes`; \
         keep it, and add a field for the other (changed)"
    );
}

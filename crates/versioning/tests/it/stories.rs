//! The stories of a versioning policy, each as what somebody does and what the tool answers. `shop.blah` is stable as v3, and v4alpha is
//! the next version where there is one.

use crate::support::Protos;
use mixer_adapter_versioning::{Baseline, Translator, bump};
use prost_reflect::DynamicMessage;

const V3: &str = "shop/blah/v3/foo.proto";
const V4: &str = "shop/blah/v4alpha/foo.proto";

fn foo(version: &str, number: &str, fields: &str) -> String {
    format!(
        "package shop.blah.{version};\nimport \"mixer_adapter/versioning/v1/versioning.proto\";\n\
         option (mixer_adapter.versioning.v1.file).version = \"{number}\";\n\
         message Foo {{\n  string name = 1;\n{fields}}}\n"
    )
}

#[test]
fn as_a_developer_i_want_to_add_a_new_field() {
    let protos = Protos::new(&[(V3, &foo("v3", "3.1.0", "")), (V4, &foo("v4alpha", "4.0.0", ""))]);
    let mut baseline = protos.published(None);

    // The field alone is not enough: the minor version says that it is there, and v4alpha has it, too.
    protos.write(V3, &foo("v3", "3.1.0", "  string bar = 2;\n"));
    let found = protos.check(&baseline, None);
    assert_eq!(
        found,
        [
            "next-version shop.blah.v3.Foo.bar".to_owned(),
            format!("not-recorded {V3}"),
            format!("version {V3}")
        ]
    );
    protos.write(V3, &foo("v3", "3.1.1", "  string bar = 2;\n"));
    assert!(protos.check(&baseline, None).contains(&format!("version {V3}")), "a patch is not enough");
    protos.write(V3, &foo("v3", "3.2.0", "  string bar = 2;\n"));
    protos.write(V4, &foo("v4alpha", "4.0.0", "  string bar = 2;\n"));
    let found = protos.check(&baseline, None);
    assert_eq!(found, [format!("not-recorded {V3}"), format!("not-recorded {V4}"), format!("version {V4}")]);
    protos.write(V4, &foo("v4alpha", "4.1.0", "  string bar = 2;\n"));
    protos.publish(&mut baseline, None);
    assert_eq!(protos.check(&baseline, None), [""; 0]);
    assert!(baseline.to_string().contains(&format!("file {V3} = shop.blah.v3 proto3 3.2.0 ")));
}

#[test]
fn as_a_developer_i_want_to_deprecate_a_field() {
    let field = |mark: &str| format!("  string bar = 2{mark};\n");
    let protos =
        Protos::new(&[(V3, &foo("v3", "3.1.0", &field(""))), (V4, &foo("v4alpha", "4.0.0", &field("")))]);
    let mut baseline = protos.published(Some("1.9.0"));

    // Marked in v3, and removed from v4alpha.
    protos.write(V3, &foo("v3", "3.2.0", &field(" [deprecated = true]")));
    let found = protos.check(&baseline, Some("1.10.0"));
    assert!(found.contains(&"next-version shop.blah.v3.Foo.bar".to_owned()), "{found:?}");
    protos.write(V4, &foo("v4alpha", "4.0.1", "  reserved 2; reserved \"bar\";\n"));
    protos.publish(&mut baseline, Some("1.10.0"));
    assert!(baseline.to_string().contains("deprecated shop.blah.v3.Foo.bar = 1.10.0"), "{baseline}");
    let row = "| `shop.blah.v3.Foo.bar` | 1.10.0 | 1.11.0 | 1.12.0 |";
    assert!(baseline.deprecations().contains(row), "{}", baseline.deprecations());

    // In the first release its use warns, in the second it fails; both still have it.
    protos.write(V3, &foo("v3", "3.3.0", "  reserved 2; reserved \"bar\";\n"));
    for release in ["1.10.0", "1.11.0"] {
        assert_eq!(
            protos.check(&baseline, Some(release)),
            [format!("not-recorded {V3}"), "removed shop.blah.v3.Foo.bar".to_owned()],
            "{release}"
        );
    }
    // In the third it is gone, and its number and name are never used again.
    assert_eq!(protos.check(&baseline, Some("1.12.0")), [format!("not-recorded {V3}")]);
    protos.write(V3, &foo("v3", "3.3.0", ""));
    let found = protos.check(&baseline, Some("1.12.0"));
    assert!(found.contains(&"reserved shop.blah.v3.Foo.bar".to_owned()), "{found:?}");
    protos.write(V3, &foo("v3", "3.3.0", "  reserved 2; reserved \"bar\";\n"));
    protos.publish(&mut baseline, Some("1.12.0"));
    assert!(baseline.deprecations().contains("Nothing is deprecated."));
}

#[test]
fn as_a_developer_i_want_to_refactor_an_api() {
    let v3 = "option go_package = \"example.com/shop/blah/v3;blahv3\";\n\
              // What a foo is.\nmessage Foo {\n  string name = 1;\n  // Not any more.\n  string old = 2 [deprecated = true]; // since 3.1\n\
              \n  shop.blah.v3.Kind kind = 3;\n  oneof choice { int32 a = 4 [deprecated = true]; }\n}\n\
              enum Kind { KIND_UNSPECIFIED = 0; FAX = 1 [deprecated = true]; }\n";
    let other =
        "import \"shop/blah/v3/foo.proto\";\nmessage Other { Foo foo = 1; .shop.blah.v3.Foo more = 2; }\n";
    let protos = Protos::new(&[
        (V3, &format!("package shop.blah.v3;\n{v3}")),
        ("shop/blah/v3/other.proto", &format!("package shop.blah.v3;\n{other}")),
        (
            "shop/user/v1/user.proto",
            "package shop.user.v1; import \"shop/blah/v3/foo.proto\"; message User { shop.blah.v3.Foo foo = 1; }",
        ),
    ]);
    let mut baseline = protos.published(None);

    // The tool begins v4alpha as a copy without what is deprecated.
    let next = bump(protos.path(), "shop.blah.v3").unwrap();
    assert_eq!(next.package, "shop.blah.v4alpha");
    let omitted: Vec<_> = next.omitted.iter().map(String::as_str).collect();
    assert_eq!(omitted, ["shop.blah.v3.Foo.a", "shop.blah.v3.Foo.old", "shop.blah.v3.Kind.FAX"]);
    next.write().unwrap();
    let text = std::fs::read_to_string(protos.path().join(V4)).unwrap();
    assert_eq!(
        text,
        "syntax = \"proto3\"; package shop.blah.v4alpha;\noption go_package = \"example.com/shop/blah/v4alpha;blahv4alpha\";\n\
         // What a foo is.\nmessage Foo { reserved 2; reserved \"old\"; reserved 4; reserved \"a\";\n  string name = 1;\n\
         \n  shop.blah.v4alpha.Kind kind = 3;\n}\n\
         enum Kind { reserved 1; reserved \"FAX\"; KIND_UNSPECIFIED = 0;  }\n"
    );
    let text = std::fs::read_to_string(protos.path().join("shop/blah/v4alpha/other.proto")).unwrap();
    assert!(text.contains("import \"shop/blah/v4alpha/foo.proto\";"), "{text}");
    assert!(text.contains(".shop.blah.v4alpha.Foo more"), "{text}");
    assert!(next.write().is_err(), "nothing is overwritten");
    protos.publish(&mut baseline, None);

    // Any change is made there, and a translator between the two follows from it.
    protos.edit(V4, "string name = 1", "string title = 1");
    assert_eq!(protos.check(&baseline, None), [format!("not-recorded {V4}")]);
    let translator = Translator::between(&protos.set(), "shop.blah.v3", "shop.blah.v4alpha").unwrap();
    let mut old = DynamicMessage::new(protos.set().pool().get_message_by_name("shop.blah.v3.Foo").unwrap());
    old.set_field_by_name("name", prost_reflect::Value::String("x".to_owned()));
    let new = translator.translate(&old).unwrap();
    assert_eq!(new.message.get_field_by_name("title").unwrap().as_str(), Some("x"));

    // With the next release of APIs v4alpha becomes v4, and users of the latest stable version follow.
    let stable = bump(protos.path(), "shop.blah.v4alpha").unwrap();
    assert_eq!(stable.package, "shop.blah.v4");
    stable.write().unwrap();
    let found = protos.check(&baseline, None);
    assert!(found.contains(&"not-latest shop.user.v1.User.foo".to_owned()), "{found:?}");
    protos.write(
        "shop/user/v2/user.proto",
        "package shop.user.v2; import \"shop/blah/v4/foo.proto\"; message User { shop.blah.v4.Foo foo = 1; }",
    );
    protos.publish(&mut baseline, None);
    assert_eq!(protos.check(&baseline, None), [""; 0]);
}

#[test]
fn as_an_operator_i_want_to_upgrade_to_a_new_version_of_an_api() {
    // Both versions are served, and each end reads what the other writes, so that not all have to change at once. What the older version
    // cannot express is named: nothing is lost silently.
    let protos = Protos::new(&[
        ("shop/blah/v3/foo.proto", "package shop.blah.v3; message Foo { string name = 1; }"),
        ("shop/blah/v4/foo.proto", "package shop.blah.v4; message Foo { string title = 1; int32 more = 2; }"),
    ]);
    assert_eq!(protos.check(&Baseline::of(&protos.set()), None), [""; 0]);
    let set = protos.set();
    let translator = Translator::between(&set, "shop.blah.v3", "shop.blah.v4").unwrap();
    let mut new = DynamicMessage::new(set.pool().get_message_by_name("shop.blah.v4.Foo").unwrap());
    new.set_field_by_name("title", prost_reflect::Value::String("x".to_owned()));
    new.set_field_by_name("more", prost_reflect::Value::I32(1));
    let old = translator.translate(&new).unwrap();
    assert_eq!(old.message.get_field_by_name("name").unwrap().as_str(), Some("x"));
    let losses: Vec<_> = old.losses.iter().map(|loss| &*loss.path).collect();
    assert_eq!(losses, ["more"]);
}

//! The command `proto`.

use std::{fs, path::Path};

use crate::support::run;
use serde_json::json;

const V1: &str =
    "syntax = \"proto3\";\npackage shop.v1;\nmessage Order {\n  string name = 1;\n  int32 amount = 2;\n}\n";

fn shop() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), V1);
    folder
}

fn write(folder: &Path, text: &str) {
    fs::create_dir_all(folder.join("protos/shop/v1")).unwrap();
    fs::write(folder.join("protos/shop/v1/order.proto"), text).unwrap();
}

#[test]
fn a_baseline_is_recorded_checked_and_raised() {
    let folder = shop();
    let (protos, baseline) = (folder.path().join("protos"), folder.path().join("baseline.txt"));
    let (protos, baseline) = (protos.to_str().unwrap(), baseline.to_str().unwrap());
    let check = ["proto", "check", protos, "--baseline", baseline];
    let missing = run(&check);
    assert_eq!(missing.code, 1);
    assert!(missing.stderr.contains("`proto baseline` writes it"), "{}", missing.stderr);

    let record = ["proto", "baseline", protos, "--baseline", baseline];
    assert_eq!(run(&record).code, 0);
    assert!(fs::read_to_string(baseline).unwrap().contains("field shop.v1.Order.amount = 2: int32\n"));
    let checked = run(&check);
    assert_eq!((checked.code, &*checked.stdout), (0, "no violations\n"));

    write(folder.path(), &V1.replace("int32 amount", "int64 amount"));
    let changed = "shop/v1/order.proto:5: error: shop.v1.Order.amount: the type was `int32` and is `int64`; keep it, and add a field for \
                   the other (changed)";
    for command in [&check, &record] {
        let found = run(command);
        assert_eq!(found.code, 1);
        assert!(found.stdout.contains(changed), "{}", found.stdout);
    }
    let found = run(&[&check[..], &["--json"]].concat()).json();
    let rules: Vec<_> = found["violations"].as_array().unwrap().iter().map(|found| &found["rule"]).collect();
    assert!(rules.contains(&&json!("changed")), "{found}");

    let allowed = run(&[&record[..], &["--allow", "changed shop.v1.Order.amount"]].concat());
    assert_eq!(allowed.code, 0, "{}", allowed.stdout);
    assert!(fs::read_to_string(baseline).unwrap().contains("allow changed shop.v1.Order.amount\n"));
    assert_eq!(run(&check).code, 0);
    assert_eq!(run(&[&record[..], &["--allow", "sometimes x"]].concat()).code, 2);
}

#[test]
fn deprecations_are_listed_with_their_releases() {
    let folder = shop();
    write(folder.path(), &V1.replace("amount = 2", "amount = 2 [deprecated = true]"));
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (protos, baseline, list) = (path("protos"), path("baseline.txt"), path("DEPRECATED.md"));
    let record = ["proto", "baseline", &protos, "--baseline", &baseline, "--deprecated", &list];
    assert_eq!(run(&[&record[..], &["--release", "1.4.0"]].concat()).code, 0);
    let list = fs::read_to_string(list).unwrap();
    assert!(list.contains("| `shop.v1.Order.amount` | 1.4.0 | 1.5.0 | 1.6.0 |"), "{list}");
}

#[test]
fn two_releases_of_descriptors_are_compared() {
    let folder = shop();
    let set = |name: &str| {
        let mut compiler = protox::Compiler::new([folder.path().join("protos")]).unwrap();
        compiler.include_imports(true).open_file("shop/v1/order.proto").unwrap();
        let path = folder.path().join(name);
        fs::write(&path, compiler.encode_file_descriptor_set()).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let before = set("before.binpb");
    write(folder.path(), &V1.replace("  string name = 1;\n", "  string more = 3;\n"));
    let found = run(&["proto", "check", &set("now.binpb"), "--against", &before]);
    assert_eq!(found.code, 1);
    assert_eq!(
        found.stdout,
        "shop/v1/order.proto: error: shop.v1.Order.name: is gone; keep it, and mark it as deprecated where it is not to be used any \
         more (removed)\n1 violation\n"
    );
    let not_protos = folder.path().join("not.binpb");
    fs::write(&not_protos, "x").unwrap();
    let error = run(&["proto", "check", not_protos.to_str().unwrap()]);
    assert_eq!(error.code, 1);
    assert!(error.stderr.contains("not a set of descriptors"), "{}", error.stderr);
}

#[test]
fn a_package_is_copied_to_its_next_version_and_messages_are_translated() {
    let folder = shop();
    let protos = folder.path().join("protos");
    let path = protos.to_str().unwrap();
    let copied = run(&["proto", "bump", path, "shop.v1"]);
    let next = protos.join("shop/v2alpha/order.proto");
    assert_eq!((copied.code, copied.stdout.trim()), (0, next.to_str().unwrap()));
    assert_eq!(run(&["proto", "bump", path, "shop.v1"]).code, 1, "it exists");

    let text = fs::read_to_string(&next)
        .unwrap()
        .replace("string name", "string title")
        .replace("  int32 amount = 2;\n", "");
    fs::write(&next, text).unwrap();
    let packages = ["proto", "translate", path, "--from", "shop.v1", "--to", "shop.v2alpha"];
    let table = run(&packages);
    assert_eq!(
        (table.code, &*table.stdout),
        (
            0,
            "shop.v1.Order.amount  -  (cannot be translated: no counterpart)\n\
             shop.v1.Order.name    shop.v2alpha.Order.title  (renamed)\n"
        )
    );
    let translated =
        run(&[&packages[..], &["--message", "shop.v1.Order", "--data", r#"{"name": "x"}"#]].concat());
    assert_eq!((translated.code, translated.json()), (0, json!({ "title": "x" })));
    let back =
        run(&[&packages[..], &["--message", "shop.v2alpha.Order", "--data", r#"{"title": "x"}"#]].concat());
    assert_eq!((back.code, back.json()), (0, json!({ "name": "x" })));
    let lossy = run(&[&packages[..], &["--message", "shop.v1.Order", "--data", r#"{"amount": 1}"#]].concat());
    assert_eq!((lossy.code, lossy.json()), (1, json!({})));
    assert!(lossy.stderr.contains("lost: amount: no such field\n"), "{}", lossy.stderr);
}

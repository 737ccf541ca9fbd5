//! Faults of templates and configurations: positions and texts.

use mixer_adapter_build::{ConfigProto, Error, ProtoError, SchemaError, Template, Variety};

/// Line 1 to 5 of most templates here.
fn template(variety: &str, rest: &str) -> String {
    format!(
        "syntax = \"proto3\";\n\
         package example.tagCheck;\n\
         import \"mixer/adapter/model/v1beta1/extensions.proto\"; import \"policy/v1beta1/type.proto\";\n\
         option (istio.mixer.adapter.model.v1beta1.template_variety) = TEMPLATE_VARIETY_{variety};\n\
         \n{rest}"
    )
}

/// A template whose `Template` has one field, in line 6, column 20.
fn field(variety: &str, field: &str) -> String {
    template(variety, &format!("message Template {{ {field} }}"))
}

fn open(text: &str) -> Result<Template, Error> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("template.proto");
    std::fs::write(&path, text).unwrap();
    std::fs::write(folder.path().join("second.proto"), template("CHECK", "")).unwrap();
    Template::open(path)
}

fn errors(text: &str) -> Vec<ProtoError> {
    match open(text).map(|_| ()) {
        Err(Error::Invalid(errors)) => errors,
        other => panic!("not refused: {other:?}"),
    }
}

/// Expects these faults and no others, each at its line and column.
#[track_caller]
fn refused(text: &str, expected: impl IntoIterator<Item = (usize, usize, SchemaError)>) {
    let found: Vec<_> = errors(text).into_iter().map(|r| (r.line, r.column, r.reason)).collect();
    assert_eq!(found, expected.into_iter().collect::<Vec<_>>());
}

/// Expects the one field of that template to be refused, and nothing else.
#[track_caller]
fn field_refused(variety: &str, text: &str, reason: SchemaError) {
    refused(&field(variety, text), [(6, 20, reason)]);
}

#[test]
fn refusals_name_file_line_and_column_and_come_together() {
    let error = open(&template("CHECK", "message Template {\n  bytes raw = 1;\n  string Name = 2;\n}"))
        .err()
        .unwrap();
    let text = error.to_string();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(
        lines[0].contains("/template.proto:7:3: a template cannot have `bytes` here: use string,"),
        "{text}"
    );
    assert!(lines[1].contains("/template.proto:8:3: a field cannot have the name `Name`,"), "{text}");
}

#[test]
fn a_file_that_is_not_protobuf_is_refused_with_its_position() {
    let error =
        open("syntax = \"proto3\";\nmessage Template { strin value = 1; }").err().unwrap().to_string();
    assert!(error.contains("/template.proto:2:20: "), "{error}");
    let twice = template("CHECK", "message Template {}").replace(
        "\n\n",
        "\n\
        option (istio.mixer.adapter.model.v1beta1.template_variety) = TEMPLATE_VARIETY_QUOTA;\n",
    );
    let error = open(&twice).err().unwrap().to_string();
    assert!(error.contains("/template.proto:5:") && error.contains("template_variety"), "{error}");
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = Template::open("tests/data/absent.proto").err().unwrap().to_string();
    assert!(error.starts_with("tests/data/absent.proto: cannot be read: "), "{error}");
}

#[test]
fn only_proto3_is_accepted() {
    let proto2 =
        template("CHECK", "message Template { optional string value = 1; }").replace("proto3", "proto2");
    refused(&proto2, [(1, 1, SchemaError::NotProto3)]);
}

#[test]
fn a_package_is_needed() {
    let text = template("CHECK", "message Template {}").replace("package example.tagCheck;", "");
    refused(&text, [(1, 1, SchemaError::NoPackage)]);
}

#[test]
fn the_last_part_of_the_package_holds_letters_only() {
    let text = template("CHECK", "message Template {}").replace("tagCheck", "v1beta1");
    refused(&text, [(2, 1, SchemaError::PackageName { segment: "v1beta1".to_owned() })]);
    let named =
        text.replace("\n\n", "\noption (istio.mixer.adapter.model.v1beta1.template_name) = \"tag\";\n");
    refused(&named, [(2, 1, SchemaError::PackageName { segment: "v1beta1".to_owned() })]);
}

#[test]
fn template_name_holds_letters_only() {
    let text = template("CHECK", "message Template {}")
        .replace("\n\n", "\noption (istio.mixer.adapter.model.v1beta1.template_name) = \"tag_check\";\n");
    refused(&text, [(5, 1, SchemaError::TemplateName { name: "tag_check".to_owned() })]);
}

#[test]
fn exactly_one_file_has_a_variety() {
    let none = "syntax = \"proto3\"; package tag; message Template {}";
    refused(none, [(1, 1, SchemaError::NoVariety)]);
    let second = template("CHECK", "message Template {}").replace("\n\n", "\nimport \"second.proto\";\n");
    refused(&second, [(5, 1, SchemaError::SecondVariety { import: "second.proto".to_owned() })]);
}

#[test]
fn the_messages_of_the_variety_are_needed() {
    refused(&template("CHECK", "message Part {}"), [(1, 1, SchemaError::NoTemplate)]);
    for (name, variety) in [
        ("ATTRIBUTE_GENERATOR", Variety::AttributeGenerator),
        ("CHECK_WITH_OUTPUT", Variety::CheckWithOutput),
    ] {
        refused(&template(name, "message Template {}"), [(1, 1, SchemaError::NoOutputTemplate { variety })]);
    }
}

#[test]
fn an_output_without_use_is_refused() {
    let text = "message Template {}\nmessage OutputTemplate {}";
    for (name, variety) in [("CHECK", Variety::Check), ("REPORT", Variety::Report), ("QUOTA", Variety::Quota)]
    {
        refused(&template(name, text), [(7, 1, SchemaError::UselessOutputTemplate { variety })]);
    }
}

#[test]
fn what_would_be_dropped_is_refused() {
    let text = template(
        "CHECK",
        "message Template {}\n\
         enum Level { LOW = 0; }\n\
         service Tags { rpc Tag(Template) returns (Template); }\n\
         message Part { message Inner {} enum Kind { ANY = 0; } }",
    );
    let not_a_message = |kind, name: &str| SchemaError::NotAMessage { kind, name: name.to_owned() };
    let nested = |name: &str| SchemaError::Nested { name: name.to_owned() };
    refused(
        &text,
        [
            (7, 1, not_a_message("enum", "Level")),
            (8, 1, not_a_message("service", "Tags")),
            (9, 16, nested("Inner")),
            (9, 33, nested("Kind")),
        ],
    );
    let text = template(
        "CHECK",
        "import \"google/protobuf/descriptor.proto\"; message Template {}\n\
        extend google.protobuf.FieldOptions { string tag = 50000; }",
    );
    refused(&text, [(7, 39, not_a_message("extension", "tag"))]);
}

#[test]
fn generated_names_are_not_taken_twice() {
    let collision = |name: &str| SchemaError::Collision { name: name.to_owned() };
    let text =
        "message Template {}\nmessage Instance {}\nmessage Output {}\nmessage Part {}\nmessage part {}";
    refused(&template("CHECK", text), [(7, 1, collision("InstanceMsg")), (10, 1, collision("partMsg"))]);
    let with_output = format!("{text}\nmessage OutputTemplate {{}}");
    refused(
        &template("CHECK_WITH_OUTPUT", &with_output),
        [(7, 1, collision("InstanceMsg")), (8, 1, collision("OutputMsg")), (10, 1, collision("partMsg"))],
    );
    let text = template("CHECK", "message Template {}").replace("tagCheck", "type");
    refused(&text, [(2, 1, SchemaError::TemplateCollision { name: "Type".to_owned() })]);
}

#[test]
fn no_field_is_called_name() {
    for name in ["name", "Name", "NAME"] {
        let reason = || SchemaError::Name { name: name.to_owned() };
        field_refused("CHECK", &format!("string {name} = 1;"), reason());
        let part = format!("message Template {{}}\nmessage Part {{\n  string {name} = 1; }}");
        refused(&template("CHECK", &part), [(8, 3, reason())]);
        let output = format!("message Template {{}}\nmessage OutputTemplate {{\n  string {name} = 1; }}");
        refused(&template("CHECK_WITH_OUTPUT", &output), [(8, 3, reason())]);
    }
}

#[test]
fn generated_numbers_are_reserved() {
    for number in [72_295_727, 72_295_728] {
        field_refused("CHECK", &format!("string value = {number};"), SchemaError::Number { number });
    }
}

#[test]
fn fields_have_the_types_mixer_can_fill() {
    let types = [
        "float",
        "int32",
        "uint32",
        "uint64",
        "sint32",
        "sint64",
        "fixed32",
        "fixed64",
        "sfixed32",
        "sfixed64",
        "bytes",
        "istio.policy.v1beta1.StringMap",
    ];
    for found in types {
        let reason = || SchemaError::FieldType { found: found.to_owned() };
        field_refused("CHECK", &format!("{found} value = 1;"), reason());
        field_refused("CHECK", &format!("map<string, {found}> value = 1;"), reason());
    }
    let reason = |found: &str| SchemaError::FieldType { found: found.to_owned() };
    let level = field("CHECK", "Level value = 1;") + "\nenum Level { LOW = 0; }";
    let dropped = SchemaError::NotAMessage { kind: "enum", name: "Level".to_owned() };
    refused(&level, [(6, 20, reason("example.tagCheck.Level")), (7, 1, dropped)]);
    field_refused("CHECK", "Template value = 1;", reason("example.tagCheck.Template"));
    let foreign = field("CHECK", "google.protobuf.Duration value = 1;")
        .replace("\n\n", "\nimport \"google/protobuf/duration.proto\";\n");
    assert_eq!(errors(&foreign)[0].reason, reason("google.protobuf.Duration"));
}

#[test]
fn only_messages_of_the_file_are_repeated() {
    for found in ["string", "int64", "istio.policy.v1beta1.Value", "istio.policy.v1beta1.IPAddress"] {
        field_refused(
            "CHECK",
            &format!("repeated {found} value = 1;"),
            SchemaError::Repeated { found: found.to_owned() },
        );
    }
    assert!(
        open(&template("CHECK", "message Template { repeated Part parts = 1; } message Part {}")).is_ok()
    );
}

#[test]
fn map_keys_are_strings() {
    for found in ["int64", "bool", "sint32"] {
        let reason = SchemaError::MapKey { found: found.to_owned() };
        field_refused("CHECK", &format!("map<{found}, string> value = 1;"), reason);
    }
}

#[test]
fn fields_are_neither_optional_nor_in_a_oneof() {
    field_refused("CHECK", "optional string value = 1;", SchemaError::Optional);
    let text = "message Template { oneof which {\n  string one = 1;\n  string two = 2; } }";
    let reason = || SchemaError::Oneof { oneof: "which".to_owned() };
    refused(&template("CHECK", text), [(7, 3, reason()), (8, 3, reason())]);
}

#[test]
fn attribute_generators_have_no_values() {
    let value = "istio.policy.v1beta1.Value";
    for text in [format!("{value} value = 1;"), format!("map<string, {value}> value = 1;")] {
        let text =
            format!("message Template {{}}\nmessage OutputTemplate {{}}\nmessage Part {{\n  {text} }}");
        refused(&template("ATTRIBUTE_GENERATOR", &text), [(9, 3, SchemaError::ValueInGenerator)]);
        assert!(open(&template("CHECK_WITH_OUTPUT", &text)).is_ok());
    }
}

#[test]
fn outputs_become_attributes_one_a_field() {
    for found in [
        "istio.policy.v1beta1.Value",
        "istio.policy.v1beta1.StringMap",
        "repeated string",
        "map<string, int64>",
        "map<int64, string>",
        "map<string, istio.policy.v1beta1.IPAddress>",
        "example.tagCheck.Part",
        "repeated example.tagCheck.Part",
        "uint32",
    ] {
        for variety in ["ATTRIBUTE_GENERATOR", "CHECK_WITH_OUTPUT"] {
            let text = format!(
                "message Template {{}}\nmessage OutputTemplate {{\n  {found} out = 1; }}\nmessage Part {{}}"
            );
            refused(&template(variety, &text), [(8, 3, SchemaError::OutputType { found: found.to_owned() })]);
        }
    }
}

fn open_config(text: &str) -> Result<ConfigProto, Error> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.proto");
    std::fs::write(&path, text).unwrap();
    let other = "syntax = \"proto3\"; package other; message Other {}";
    std::fs::write(folder.path().join("other.proto"), other).unwrap();
    ConfigProto::open(path)
}

#[track_caller]
fn config_refused(text: &str, line: usize, expected: SchemaError) {
    match open_config(text).map(|_| ()) {
        Err(Error::Invalid(errors)) => {
            let found: Vec<_> = errors.into_iter().map(|error| (error.line, error.reason)).collect();
            assert_eq!(found, [(line, expected)]);
        }
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn configurations_are_a_message_params_in_a_package_of_proto3() {
    config_refused(
        "syntax = \"proto3\";\npackage adapter.demo;\nmessage Settings {}",
        1,
        SchemaError::NoParams,
    );
    config_refused("syntax = \"proto3\";\nmessage Params {}", 1, SchemaError::NoPackage);
    config_refused(
        "// old\nsyntax = \"proto2\";\npackage adapter.demo;\nmessage Params {}",
        2,
        SchemaError::NotProto3,
    );
    config_refused(
        "syntax = \"proto3\";\npackage adapter.demo;\nimport \"other.proto\";\nmessage Params {}",
        3,
        SchemaError::ForeignImport { import: "other.proto".to_owned(), package: "other".to_owned() },
    );
}

//! Common operators evaluate without allocating, because they are on the hot path of every rule.

use std::sync::Arc;

use mixer_adapter::value::ValueType;
use mixer_adapter_engine::{
    attribute::{AttributeValue, Bag, Reads, StringMap, Vocabulary},
    expression::Expression,
};

fn bag() -> Bag {
    let mut vocabulary = Vocabulary::new();
    for (name, value_type) in [
        ("ai", ValueType::Int64),
        ("ar", ValueType::StringMap),
        ("request.path", ValueType::String),
        ("source.namespace", ValueType::String),
        ("source.ip", ValueType::IpAddress),
        ("absent", ValueType::String),
    ] {
        vocabulary.declare(name, value_type).unwrap();
    }
    let mut bag = Bag::new(Arc::new(vocabulary));
    bag.insert("ai", 2);
    bag.insert("ar", AttributeValue::from([("foo", "bar")].into_iter().collect::<StringMap>()));
    bag.insert("request.path", "/admin/x");
    bag.insert("source.namespace", "default");
    bag.insert("source.ip", bytes::Bytes::from_static(&[10, 0, 0, 1]));
    bag
}

#[test]
fn comparisons_fallbacks_map_entries_and_patterns_do_not_allocate() {
    let control = allocation_counter::measure(|| drop(std::hint::black_box(String::from("x"))));
    assert_eq!(control.count_total, 1, "allocations are counted");
    let bag = bag();
    for text in [
        r#"ai == 20 || ar["foo"] == "bar""#,
        r#"match(request.path, "/admin/*") && source.namespace != "istio-system""#,
        r#"(absent | source.namespace) == "default""#,
        r#"(ar["none"] | "x") != "bar" && ai + 3 >= 5"#,
        r#"request.path.startsWith("/admin") && request.path.endsWith("x")"#,
        r#"source.ip == ip("10.0.0.1") || conditional(ai > 1, true, false)"#,
        r#""^/a.*x$".matches(request.path)"#,
    ] {
        let expression = Expression::compile(text, bag.vocabulary()).unwrap();
        let mut reads = Reads::default();
        // The first evaluation allocates the buffers of `reads` and the scratch space of the pattern.
        assert!(expression.eval_bool(&bag, &mut reads).unwrap(), "{text}");
        reads.clear();
        let counted = allocation_counter::measure(|| {
            assert!(expression.eval_bool(&bag, &mut reads).unwrap());
        });
        assert_eq!(counted.count_total, 0, "{text}");
    }
}

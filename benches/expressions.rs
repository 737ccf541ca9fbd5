//! What an evaluation costs. The first three are the benchmarks of Istio's expression table; the goal is 50 ns each.
#![allow(clippy::unwrap_used, missing_docs)]

use std::{hint::black_box, sync::Arc};

use criterion::{Criterion, criterion_group, criterion_main};
use mixer_adapter::value::ValueType;
use mixer_adapter_engine::{
    attribute::{AttributeValue, Bag, Reads, StringMap, Vocabulary},
    expression::Expression,
};

const TABLE: &str = r#"ai == 20 || ar["foo"] == "bar""#;
const RULE: &str = r#"match(request.path, "/admin/*") && source.namespace != "istio-system""#;

fn bag(vocabulary: &Arc<Vocabulary>, values: &[(&'static str, AttributeValue)]) -> Bag {
    let mut bag = Bag::new(Arc::clone(vocabulary));
    for (name, value) in values {
        bag.insert(*name, value.clone());
    }
    bag
}

fn expressions(criterion: &mut Criterion) {
    let mut vocabulary = Vocabulary::new();
    // As many as a real mesh declares, so that slots are not all in one cache line.
    for index in 0..90 {
        vocabulary.declare(format!("filler.{index}"), ValueType::String).unwrap();
    }
    for (name, value_type) in [
        ("ai", ValueType::Int64),
        ("ar", ValueType::StringMap),
        ("request.path", ValueType::String),
        ("source.namespace", ValueType::String),
    ] {
        vocabulary.declare(name, value_type).unwrap();
    }
    let vocabulary = Arc::new(vocabulary);
    let map = |value: &str| AttributeValue::from([("foo", value)].into_iter().collect::<StringMap>());
    let cases = [
        ("ok_1st", TABLE, bag(&vocabulary, &[("ai", 20.into()), ("ar", map("bar"))])),
        ("ok_2nd", TABLE, bag(&vocabulary, &[("ai", 2.into()), ("ar", map("bar"))])),
        ("not_found", TABLE, bag(&vocabulary, &[("ai", 2.into()), ("ar", map("baz"))])),
        (
            "rule",
            RULE,
            bag(&vocabulary, &[("request.path", "/admin/x".into()), ("source.namespace", "default".into())]),
        ),
    ];
    for (name, text, bag) in &cases {
        let expression = Expression::compile(text, &vocabulary).unwrap();
        let mut reads = Reads::default();
        criterion.bench_function(&format!("expression/{name}"), |bencher| {
            bencher.iter(|| {
                reads.clear();
                expression.eval_bool(black_box(bag), &mut reads)
            });
        });
    }
    criterion.bench_function("expression/compile", |bencher| {
        bencher.iter(|| Expression::compile(black_box(TABLE), &vocabulary));
    });
}

criterion_group!(benches, expressions);
criterion_main!(benches);

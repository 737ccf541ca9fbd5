#![allow(clippy::unwrap_used)]

use mixer_adapter_core::{
    adapter::{Access, ConfigErrors, InferredType, InferredTypes},
    prost::Message as _,
    prost_types,
    value::ValueType,
};
use mixer_adapter_templates::metric;

use super::{
    metric_info::{
        BucketsDefinition, Kind as ConfigKind,
        buckets_definition::{self, Explicit, Linear},
    },
    *,
};

fn info(instance: &str, kind: ConfigKind, labels: &[&str]) -> MetricInfo {
    MetricInfo {
        instance_name: instance.to_owned(),
        kind: kind.into(),
        label_names: labels.iter().map(ToString::to_string).collect(),
        ..MetricInfo::default()
    }
}

fn read(metrics: Vec<MetricInfo>) -> Result<PrometheusSettings, ConfigErrors> {
    Faults::parse(Params { metrics, metrics_expiration_policy: None })
}

fn refused(metrics: Vec<MetricInfo>) -> Vec<(String, String)> {
    let violations = read(metrics).unwrap_err().into_violations();
    violations.into_iter().map(|violation| (violation.field, violation.reason)).collect()
}

// TestBuild of prometheus_test.go, in one.
#[test]
fn metrics_are_defined_as_in_the_original() {
    let explicit = buckets_definition::Definition::ExplicitBuckets(Explicit { bounds: vec![0.5434] });
    let linear = Linear { num_finite_buckets: 5, offset: 45.0, width: 12.0 };
    let settings = read(vec![
        MetricInfo {
            namespace: "not-istio".to_owned(),
            description: "funky all the time".to_owned(),
            ..info("/funky::gauge", ConfigKind::Gauge, &[])
        },
        MetricInfo { name: "newInstance".to_owned(), ..info("", ConfigKind::Gauge, &[]) },
        MetricInfo {
            buckets: Some(BucketsDefinition { definition: Some(explicit) }),
            ..info("happy_histogram", ConfigKind::Distribution, &[])
        },
        info("the.counter", ConfigKind::Counter, &[]),
        info("/funky::gauge.nodesc", ConfigKind::Gauge, &[]),
        MetricInfo {
            buckets: Some(BucketsDefinition {
                definition: Some(buckets_definition::Definition::LinearBuckets(linear)),
            }),
            ..info("happy_histogram_the_elder", ConfigKind::Distribution, &[])
        },
        info("special_counter", ConfigKind::Counter, &["string", "bool", "e.mail-address"]),
    ])
    .unwrap();
    let defined: Vec<_> = settings
        .metrics
        .iter()
        .map(|metric| (metric.definition.name.as_str(), metric.help.as_str(), &metric.definition.kind))
        .collect();
    let elder = Kind::Distribution(vec![45.0, 57.0, 69.0, 81.0, 93.0, 105.0]);
    assert_eq!(
        defined,
        [
            ("notistio_funky::gauge", "funky all the time", &Kind::Gauge),
            ("istio_newInstance", "newInstance", &Kind::Gauge),
            ("istio_happy_histogram", "happy_histogram", &Kind::Distribution(vec![0.5434])),
            ("istio_the_counter", "the.counter", &Kind::Counter),
            ("istio_funky::gauge_nodesc", "/funky::gauge.nodesc", &Kind::Gauge),
            ("istio_happy_histogram_the_elder", "happy_histogram_the_elder", &elder),
            ("istio_special_counter", "special_counter", &Kind::Counter),
        ]
    );
    let counter = &settings.metrics[6];
    assert_eq!(counter.definition.labels, ["bool", "e_mailaddress", "string"]);
    assert_eq!(counter.dimensions, ["bool", "e.mail-address", "string"]);
}

// TestBuild_MetricDefinitionErrors, and what the original panicked at or found out late.
#[test]
fn metrics_that_cannot_be_are_refused() {
    let with_buckets = |bounds: &[f64]| {
        let explicit = buckets_definition::Definition::ExplicitBuckets(Explicit { bounds: bounds.to_vec() });
        MetricInfo {
            buckets: Some(BucketsDefinition { definition: Some(explicit) }),
            ..info("i", ConfigKind::Distribution, &[])
        }
    };
    for (metric, field) in [
        (info("unknown", ConfigKind::Unspecified, &[]), "metrics[0].kind"),
        (MetricInfo { kind: 9, ..info("unknown", ConfigKind::Gauge, &[]) }, "metrics[0].kind"),
        (info("größe", ConfigKind::Gauge, &[]), "metrics[0].instance_name"),
        (info("", ConfigKind::Gauge, &[]), "metrics[0].instance_name"),
        (MetricInfo { name: "a b&c".to_owned(), ..info("i", ConfigKind::Gauge, &[]) }, "metrics[0].name"),
        (
            MetricInfo { namespace: "1".to_owned(), ..info("i", ConfigKind::Gauge, &[]) },
            "metrics[0].instance_name",
        ),
        (
            MetricInfo {
                namespace: "mixer_adapter".to_owned(),
                name: "prometheus_dropped_total".to_owned(),
                ..info("i", ConfigKind::Gauge, &[])
            },
            "metrics[0].name",
        ),
        (info("i", ConfigKind::Gauge, &["a:b"]), "metrics[0].label_names"),
        (info("i", ConfigKind::Gauge, &["__a"]), "metrics[0].label_names"),
        (info("i", ConfigKind::Gauge, &["a.b", "a_b"]), "metrics[0].label_names"),
        (info("i", ConfigKind::Distribution, &["le"]), "metrics[0].label_names"),
        (with_buckets(&[2.0, 1.0]), "metrics[0].buckets"),
    ] {
        let refused = refused(vec![metric.clone()]);
        assert_eq!(refused.len(), 1, "{metric:?}: {refused:?}");
        assert_eq!(refused[0].0, field, "{metric:?}");
    }
    assert!(read(vec![info("i", ConfigKind::Gauge, &["le"])]).is_ok());
}

// TestBuild_MetricDefinitionConflicts.
#[test]
fn metrics_that_contradict_each_other_are_refused() {
    let counter = info("special_counter", ConfigKind::Counter, &["bool", "string", "email"]);
    let renamed = |info: MetricInfo| MetricInfo { name: "special_counter".to_owned(), ..info };
    for other in [
        info("special_counter", ConfigKind::Counter, &["email"]),
        renamed(info("other", ConfigKind::Gauge, &["bool", "string", "email"])),
        renamed(info("other", ConfigKind::Counter, &["email"])),
        renamed(MetricInfo {
            description: "other".to_owned(),
            ..MetricInfo { instance_name: "other".to_owned(), ..counter.clone() }
        }),
    ] {
        let refused = refused(vec![counter.clone(), other]);
        assert_eq!(refused.len(), 1, "{refused:?}");
        assert_eq!(refused[0].0, "metrics[1].name");
        assert!(refused[0].1.contains("differs from the metric of metrics[0]"), "{refused:?}");
    }
    let twice = MetricInfo { name: "other".to_owned(), ..counter.clone() };
    assert_eq!(
        refused(vec![counter, twice]),
        [(
            "metrics[1].instance_name".to_owned(),
            "\"special_counter\" is already used by metrics[0]".to_owned()
        )]
    );
}

// TestRegisterOrGet: the same metric twice is one metric.
#[test]
fn metrics_may_be_repeated_and_fed_by_several_instances() {
    let counter = info("special_counter", ConfigKind::Counter, &["bool"]);
    assert_eq!(read(vec![counter.clone(), counter.clone()]).unwrap().metrics.len(), 1);
    let also = MetricInfo {
        instance_name: "other".to_owned(),
        name: "special_counter".to_owned(),
        ..counter.clone()
    };
    let metrics = read(vec![counter, also]).unwrap().metrics;
    assert_eq!(metrics[0].definition, metrics[1].definition);
}

// TestValidate_withExpirationPolicy, then ours.
#[test]
fn series_expire_by_a_policy_that_makes_sense() {
    let seconds = |seconds| Some(prost_types::Duration { seconds, nanos: 0 });
    let read = |after, check| {
        let policy =
            MetricsExpirationPolicy { metrics_expiry_duration: after, expiry_check_interval_duration: check };
        Faults::parse::<PrometheusSettings>(Params {
            metrics: Vec::new(),
            metrics_expiration_policy: Some(policy),
        })
        .map(|settings| settings.expiry.map(|expiry| (expiry.after, expiry.check_interval)).unwrap())
        .map_err(|errors| {
            errors.into_violations().into_iter().map(|violation| violation.field).collect::<String>()
        })
    };
    let of = |after, check| Ok((Duration::from_secs(after), Duration::from_secs(check)));
    let (after, check) = (
        "metrics_expiration_policy.metrics_expiry_duration".to_owned(),
        "metrics_expiration_policy.expiry_check_interval_duration".to_owned(),
    );
    assert_eq!(read(seconds(600), seconds(1)), of(600, 1));
    assert_eq!(read(seconds(60), None), of(60, 30));
    assert_eq!(read(None, seconds(60)), Err(after.clone()));
    assert_eq!(read(seconds(0), None), Err(after.clone()));
    assert_eq!(read(seconds(-1), None), Err(after.clone()));
    assert_eq!(read(seconds(i64::MAX), None), Err(after));
    assert_eq!(read(seconds(1), seconds(-1)), Err(check));
    // No interval of zero, which would be without end.
    let nanosecond = Some(prost_types::Duration { seconds: 0, nanos: 1 });
    assert_eq!(read(nanosecond, None), Ok((Duration::from_nanos(1), Duration::from_millis(10))));
}

fn inferred(instance: &str, value: ValueType, dimensions: &[&str]) -> InferredType {
    let dimensions = dimensions.iter().map(|name| (name.to_string(), ValueType::String as i32)).collect();
    let value = value as i32;
    let encoded = metric::Type { value, dimensions, ..metric::Type::default() }.encode_to_vec();
    InferredType::new(instance, "metric", encoded)
}

// The original panicked at the first request of such an instance; docs/behaviour/adapters.md#defects-of-prometheus.
#[test]
fn instances_that_do_not_fit_are_refused_with_their_session() {
    let check = |types| {
        let metrics = vec![info("i", ConfigKind::Counter, &["a", "b"])];
        let (types, access) = (InferredTypes::new(types), Access::unrestricted());
        let read = Faults::new(&types, &access)
            .settings::<PrometheusSettings>(Params { metrics, metrics_expiration_policy: None });
        read.map(drop).map_err(|errors| errors.to_string())
    };
    assert_eq!(check(vec![inferred("i", ValueType::Int64, &["a", "b", "more"])]), Ok(()));
    assert_eq!(check(vec![inferred("other", ValueType::Bool, &[])]), Ok(()));
    assert_eq!(
        check(vec![inferred("i", ValueType::Bool, &["b"])]),
        Err("metrics[0].instance_name: the value of i is a BOOL, which is not a number; \
             metrics[0].label_names: i has no dimension \"a\""
            .to_owned())
    );
}

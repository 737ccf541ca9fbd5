//! Where our outcome differs from the recorded one on purpose.

use std::fs;

use super::{case::data, compare::Difference};

/// A row of docs/compatibility.md or a page below it, and the cases in which it shows.
pub(crate) struct Known {
    /// How the row begins.
    pub(crate) row: &'static str,
    /// Cases with the places that differ, `*` for any number in them.
    cases: &'static [(&'static str, &'static [&'static str])],
}

/// The answer to a check that is not made, or made in place of another.
const ANSWER: &[&str] =
    &["answers[*].status", "answers[*].message", "answers[*].duration", "answers[*].uses", "answers[*].refs"];
const VALIDITY: &[&str] = &["answers[*].duration", "answers[*].uses"];
const USES: &[&str] = &["answers[*].uses"];
const VALIDITY_AND_REFS: &[&str] = &["answers[*].duration", "answers[*].uses", "answers[*].refs"];
const GRANTED: &[&str] = &["answers[*].quotas[i].granted"];
const FILE_0: &[&str] = &["files[@NS@-hs0.log]"];
const FILE_1: &[&str] = &["files[@NS@-hs1.log]"];
const FILES: &[&str] = &["files"];

pub(crate) const KNOWN: &[Known] = &[
    Known {
        row: "`==` and `!=` of DNS names that IDNA refuses, such as those with `_`, and of URIs with an IPv6 host, are errors",
        cases: &[
            ("b dns names with _ are not comparable", ANSWER),
            ("b URI with an IPv6 host", ANSWER),
            ("check 777001/22", VALIDITY_AND_REFS),
            ("headers 777002/4", &["answers[*].refs", "answers[*].route.response"]),
            (
                "headers 777003/28",
                &["answers[*].status", "answers[*].message", "answers[*].duration", "answers[*].refs"],
            ),
            ("headers 777004/31", &["answers[*].route.response"]),
            ("stdio 777002/22", &["stdout"]),
            (
                "mixed 777002/34",
                &[
                    "answers[*].quotas[quota0].duration",
                    "answers[*].quotas[quota1].granted",
                    "answers[*].quotas[quota1].duration",
                ],
            ),
            (
                "quota 777008/1",
                &[
                    "answers[*].quotas[quota0].granted",
                    "answers[*].quotas[quota0].duration",
                    "answers[*].quotas[quota0].refs",
                    "answers[*].quotas[quota1].granted",
                    "answers[*].quotas[quota1].duration",
                ],
            ),
        ],
    },
    Known {
        row: "`<=` and `>=` of one instant written twice with the same offset are false",
        cases: &[("b timestamps with a zone", ANSWER)],
    },
    Known {
        row: "`0 != 42 + i \\| 0` is true",
        cases: &[("b a computed text right of != and left of |", ANSWER)],
    },
    Known {
        row: "the fields of a map are evaluated in random order",
        cases: &[
            ("quota 777001/12", &["answers[*].quotas[quota1].refs"]),
            ("mixed 777012/21", &["answers[*].quotas[QUOTA1].refs"]),
        ],
    },
    Known {
        row: "numbers in the params of a handler are DOUBLEs",
        cases: &[("b numbers above 2^53 in handlers", GRANTED)],
    },
    Known {
        row: "denier, listchecker | a validity of 0 s or 0 uses, or a negative one, is passed on",
        cases: &[
            ("check 777001/30", VALIDITY),
            ("check 777002/5", VALIDITY),
            ("check 777003/20", VALIDITY),
            ("check 777005/0", VALIDITY),
            ("headers 777003/15", VALIDITY),
            ("headers 777003/24", USES),
            ("headers 777005/11", USES),
            ("headers 777007/0", VALIDITY),
            ("mixed 777003/2", VALIDITY),
            ("mixed 777007/2", USES),
        ],
    },
    Known {
        row: "memquota | a dedup id counts for all quotas and amounts",
        cases: &[(
            "quota 777004/0",
            &["answers[*].quotas[quota0].granted", "answers[*].quotas[quota0].duration"],
        )],
    },
    Known {
        row: "memquota | best effort on an exhausted window grants 0 for the whole duration",
        cases: &[("quota 777002/8", &["answers[*].quotas[quota0].duration"])],
    },
    Known {
        row: "memquota | `\"\"` in an override matches any number, boolean or time",
        cases: &[("b \"\" in an override matches any number", GRANTED)],
    },
    Known {
        row: "stdio | a rotated file is made with its first line",
        cases: &[("stdio 777001/11", FILES), ("stdio 777002/2", FILES), ("stdio 777005/22", FILES)],
    },
    Known {
        row: "stdio | TIMESTAMP variables before 1678 and after 2262 are written as other times",
        cases: &[
            ("b years before 1678 in a variable", &["files[@NS@-h.log]"]),
            ("stdio 777001/15", FILE_0),
            ("stdio 777005/31", FILE_1),
            ("stdio 777005/39", FILE_0),
            ("stdio 777011/19", &["files[@NS@-hs0.log]", "files[@NS@-hs1.log]"]),
        ],
    },
    Known {
        row: "stdio | addresses in metrics are base64",
        cases: &[("b address in a metric", &["files[@NS@-h.log]"])],
    },
    Known {
        row: "prometheus | a negative increment: panic",
        cases: &[
            ("prom 777003/11", &["prom[istio_mshoppm0]"]),
            ("prom 777004/30", &["prom[istio_Mshop:pm1]"]),
            ("prom 777005/29", &["prom[istio_m_shop_pm0]", "prom[istio_mshoppm1]"]),
        ],
    },
    Known {
        row: "prometheus | an infinite increment or NaN makes a counter or a sum infinite or NaN permanently",
        cases: &[
            ("prom 777002/9", &["answers[*].code", "prom[istio_m_shop_pm1]"]),
            ("prom 777004/4", &["prom[istio_Mshop:pm1]"]),
        ],
    },
    Known {
        row: "prometheus | counters start at 0 again at 2^64",
        cases: &[("mixed 777002/0", &["prom[istio_Mshop:pm1]"])],
    },
    Known {
        row: "noop | a release is answered with a negative amount",
        cases: &[(
            "quota 777004/11",
            &["answers[*].quotas[quota0].granted", "answers[*].quotas[quota1].granted"],
        )],
    },
];

/// The places of a case that differ on purpose.
fn places(case: &str) -> impl Iterator<Item = &'static str> {
    let cases = KNOWN.iter().flat_map(|known| known.cases);
    cases.filter(move |(name, _)| *name == case).flat_map(|(_, places)| *places).copied()
}

/// Leaves out the differences that are known. One that no longer occurs is an error.
pub(crate) fn unknown(case: &str, differences: Vec<Difference>) -> Result<Vec<Difference>, String> {
    let found: Vec<String> = differences.iter().map(Difference::pattern).collect();
    if let Some(gone) = places(case).find(|place| !found.iter().any(|found| found == place)) {
        return Err(format!("{case}: {gone} no longer differs"));
    }
    let is_known = |difference: &Difference| places(case).any(|place| place == difference.pattern());
    Ok(differences.into_iter().filter(|difference| !is_known(difference)).collect())
}

#[test]
fn every_known_difference_is_a_row_of_the_list_of_differences() {
    let pages = ["compatibility", "compatibility/requests", "compatibility/adapters"];
    let path = |page| data().join("../../../docs").join(page).with_extension("md");
    let rows = pages.map(|page| fs::read_to_string(path(page)).unwrap()).concat();
    for known in KNOWN {
        assert!(rows.lines().any(|line| line.starts_with(&format!("| {}", known.row))), "{}", known.row);
    }
}

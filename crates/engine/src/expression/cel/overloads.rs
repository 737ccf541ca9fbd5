//! The signatures of functions and operators: the standard library of cel-go 0.2 and Mixer's additions.

use super::types::Type::{
    self, Bool, Bytes, DnsName, Double, Duration, Dyn, Email, Int, Ip, List, Map, Meta, Object, Open, String,
    StringMap, Timestamp, Uint, Uri,
};

struct Overload {
    name: &'static str,
    method: bool,
    operands: &'static [Type],
    returns: Type,
}

const fn function(name: &'static str, operands: &'static [Type], returns: Type) -> Overload {
    Overload { name, method: false, operands, returns }
}

/// A method; the first operand is the receiver.
const fn method(name: &'static str, operands: &'static [Type], returns: Type) -> Overload {
    Overload { name, method: true, operands, returns }
}

const OVERLOADS: &[Overload] = &[
    function("_&&_", &[Bool, Bool], Bool),
    function("_||_", &[Bool, Bool], Bool),
    function("!_", &[Bool], Bool),
    function("@not_strictly_false", &[Bool], Bool),
    function("-_", &[Int], Int),
    function("-_", &[Double], Double),
    function("_+_", &[Int, Int], Int),
    function("_+_", &[Uint, Uint], Uint),
    function("_+_", &[Double, Double], Double),
    function("_+_", &[String, String], String),
    function("_+_", &[Bytes, Bytes], Bytes),
    function("_+_", &[Timestamp, Duration], Timestamp),
    function("_+_", &[Duration, Timestamp], Timestamp),
    function("_+_", &[Duration, Duration], Duration),
    function("_-_", &[Int, Int], Int),
    function("_-_", &[Uint, Uint], Uint),
    function("_-_", &[Double, Double], Double),
    function("_-_", &[Timestamp, Timestamp], Duration),
    function("_-_", &[Timestamp, Duration], Timestamp),
    function("_-_", &[Duration, Duration], Duration),
    function("_*_", &[Int, Int], Int),
    function("_*_", &[Uint, Uint], Uint),
    function("_*_", &[Double, Double], Double),
    function("_/_", &[Int, Int], Int),
    function("_/_", &[Uint, Uint], Uint),
    function("_/_", &[Double, Double], Double),
    function("_%_", &[Int, Int], Int),
    function("_%_", &[Uint, Uint], Uint),
    function("size", &[String], Int),
    function("size", &[Bytes], Int),
    method("size", &[String], Int),
    method("size", &[Bytes], Int),
    method("contains", &[String, String], Bool),
    method("startsWith", &[String, String], Bool),
    method("endsWith", &[String, String], Bool),
    method("matches", &[String, String], Bool),
    function("int", &[Int], Int),
    function("int", &[Uint], Int),
    function("int", &[Double], Int),
    function("int", &[String], Int),
    function("int", &[Timestamp], Int),
    function("uint", &[Uint], Uint),
    function("uint", &[Int], Uint),
    function("uint", &[Double], Uint),
    function("uint", &[String], Uint),
    function("double", &[Double], Double),
    function("double", &[Int], Double),
    function("double", &[Uint], Double),
    function("double", &[String], Double),
    function("string", &[String], String),
    function("string", &[Bool], String),
    function("string", &[Int], String),
    function("string", &[Uint], String),
    function("string", &[Double], String),
    function("string", &[Bytes], String),
    function("string", &[Timestamp], String),
    function("string", &[Duration], String),
    function("bytes", &[Bytes], Bytes),
    function("bytes", &[String], Bytes),
    function("timestamp", &[String], Timestamp),
    function("timestamp", &[Int], Timestamp),
    function("timestamp", &[Timestamp], Timestamp),
    function("duration", &[String], Duration),
    function("duration", &[Duration], Duration),
    function("dyn", &[Dyn], Dyn),
    function("type", &[Dyn], Meta),
    method("getFullYear", &[Timestamp], Int),
    method("getMonth", &[Timestamp], Int),
    method("getDate", &[Timestamp], Int),
    method("getDayOfMonth", &[Timestamp], Int),
    method("getDayOfWeek", &[Timestamp], Int),
    method("getDayOfYear", &[Timestamp], Int),
    method("getHours", &[Timestamp], Int),
    method("getHours", &[Duration], Int),
    method("getMinutes", &[Timestamp], Int),
    method("getMinutes", &[Duration], Int),
    method("getSeconds", &[Timestamp], Int),
    method("getSeconds", &[Duration], Int),
    method("getMilliseconds", &[Timestamp], Int),
    method("getMilliseconds", &[Duration], Int),
    function("match", &[String, String], Bool),
    function("reverse", &[String], String),
    method("reverse", &[String], String),
    function("toLower", &[String], String),
    function("email", &[String], Email),
    function("dnsName", &[String], DnsName),
    function("uri", &[String], Uri),
    function("ip", &[String], Ip),
];

/// Types that can be compared with `<`.
const ORDERED: [Type; 8] = [Bool, Int, Uint, Double, String, Bytes, Timestamp, Duration];

/// Returns whether a function or operator of this name exists.
pub(crate) fn is_known(name: &str) -> bool {
    const GENERIC: [&str; 12] = [
        "_==_",
        "_!=_",
        "_<_",
        "_<=_",
        "_>_",
        "_>=_",
        "_?_:_",
        "_[_]",
        "@in",
        "emptyStringMap",
        "pick",
        "conditional",
    ];
    GENERIC.contains(&name) || OVERLOADS.iter().any(|overload| overload.name == name)
}

/// Returns the type of a call with operands of these types, the receiver of a method first; `None` if no overload
/// matches.
pub(crate) fn result(name: &str, is_method: bool, operands: &[Type]) -> Option<Type> {
    match (name, operands) {
        ("_==_" | "_!=_", [left, right]) => {
            let is_map = |operand: &Type| matches!(operand, StringMap | Object(_));
            // Mixer's string maps cannot be compared.
            return (left.fits(right) && !is_map(left) && !is_map(right)).then_some(Bool);
        }
        ("_<_" | "_<=_" | "_>_" | "_>=_", [left, right]) => {
            let ordered = |operand: &Type| matches!(operand, Dyn | Open) || ORDERED.contains(operand);
            return (left.fits(right) && ordered(left) && ordered(right)).then_some(Bool);
        }
        ("_?_:_", [condition, yes, no]) => {
            return (condition.fits(&Bool) && yes.fits(no)).then(|| yes.clone().join(no.clone()));
        }
        ("_[_]", [List(item), index]) => return index.fits(&Int).then(|| (**item).clone()),
        ("_[_]", [Map(key, value), index]) => return index.fits(key).then(|| (**value).clone()),
        ("_[_]", [StringMap, index]) => return index.fits(&String).then_some(String),
        ("_[_]", [Dyn | Open, _]) => return Some(Dyn),
        ("@in", [item, List(wanted) | Map(wanted, _)]) => return item.fits(wanted).then_some(Bool),
        ("@in", [item, StringMap]) => return item.fits(&String).then_some(Bool),
        ("@in", [_, Dyn | Open]) => return Some(Bool),
        ("_+_", [List(left), List(right)]) => {
            return Some(List(Box::new((**left).clone().join((**right).clone()))));
        }
        // Mixer's string maps have no size.
        ("size", [List(_) | Map(..)]) => return Some(Int),
        ("emptyStringMap", []) => return Some(StringMap),
        _ => {}
    }
    let fits = |overload: &&Overload| {
        overload.name == name
            && overload.method == is_method
            && overload.operands.len() == operands.len()
            && overload.operands.iter().zip(operands).all(|(wanted, actual)| actual.fits(wanted))
    };
    let results = OVERLOADS.iter().filter(fits).map(|overload| overload.returns.clone());
    results.reduce(Type::join)
}

//! The signatures of functions and operators: the standard library of cel-go 0.2 and Mixer's additions.

use super::types::Type::{
    self, Bool, Bytes, DnsName, Double, Duration, Dyn, Email, Int, Ip, List, Map, Meta, Object, Open, String,
    StringMap, Timestamp, Uint, Uri,
};

/// Functions with the same types.
struct Overloads {
    names: &'static [&'static str],
    is_method: bool,
    /// The types of operands that are accepted.
    operands: &'static [&'static [Type]],
    returns: Type,
}

const fn functions(
    names: &'static [&'static str],
    operands: &'static [&'static [Type]],
    returns: Type,
) -> Overloads {
    Overloads { names, is_method: false, operands, returns }
}

/// Methods; the first operand is the receiver.
const fn methods(
    names: &'static [&'static str],
    operands: &'static [&'static [Type]],
    returns: Type,
) -> Overloads {
    Overloads { names, is_method: true, operands, returns }
}

const OVERLOADS: &[Overloads] = &[
    functions(&["_&&_", "_||_"], &[&[Bool, Bool]], Bool),
    functions(&["!_", "@not_strictly_false"], &[&[Bool]], Bool),
    functions(&["-_"], &[&[Int]], Int),
    functions(&["-_"], &[&[Double]], Double),
    functions(&["_+_", "_-_", "_*_", "_/_", "_%_"], &[&[Int, Int]], Int),
    functions(&["_+_", "_-_", "_*_", "_/_", "_%_"], &[&[Uint, Uint]], Uint),
    functions(&["_+_", "_-_", "_*_", "_/_"], &[&[Double, Double]], Double),
    functions(&["_+_"], &[&[String, String]], String),
    functions(&["_+_"], &[&[Bytes, Bytes]], Bytes),
    functions(&["_+_"], &[&[Timestamp, Duration], &[Duration, Timestamp]], Timestamp),
    functions(&["_-_"], &[&[Timestamp, Duration]], Timestamp),
    functions(&["_+_", "_-_"], &[&[Duration, Duration]], Duration),
    functions(&["_-_"], &[&[Timestamp, Timestamp]], Duration),
    functions(&["size"], &[&[String], &[Bytes]], Int),
    methods(&["size"], &[&[String], &[Bytes]], Int),
    methods(&["contains", "startsWith", "endsWith", "matches"], &[&[String, String]], Bool),
    functions(&["int"], &[&[Int], &[Uint], &[Double], &[String], &[Timestamp]], Int),
    functions(&["uint"], &[&[Uint], &[Int], &[Double], &[String]], Uint),
    functions(&["double"], &[&[Double], &[Int], &[Uint], &[String]], Double),
    functions(
        &["string"],
        &[&[String], &[Bool], &[Int], &[Uint], &[Double], &[Bytes], &[Timestamp], &[Duration]],
        String,
    ),
    functions(&["bytes"], &[&[Bytes], &[String]], Bytes),
    functions(&["timestamp"], &[&[String], &[Int], &[Timestamp]], Timestamp),
    functions(&["duration"], &[&[String], &[Duration]], Duration),
    functions(&["dyn"], &[&[Dyn]], Dyn),
    functions(&["type"], &[&[Dyn]], Meta),
    methods(&["getFullYear", "getMonth", "getDate", "getDayOfMonth"], &[&[Timestamp]], Int),
    methods(&["getDayOfWeek", "getDayOfYear"], &[&[Timestamp]], Int),
    methods(&["getHours", "getMinutes", "getSeconds", "getMilliseconds"], &[&[Timestamp], &[Duration]], Int),
    functions(&["match"], &[&[String, String]], Bool),
    functions(&["reverse", "toLower"], &[&[String]], String),
    methods(&["reverse"], &[&[String]], String),
    functions(&["email"], &[&[String]], Email),
    functions(&["dnsName"], &[&[String]], DnsName),
    functions(&["uri"], &[&[String]], Uri),
    functions(&["ip"], &[&[String]], Ip),
    functions(&["json", "query", "queryAll"], &[&[String, String]], String),
    functions(&["@has_json", "@has_query", "@has_queryAll"], &[&[String, String]], Bool),
    functions(&["segment"], &[&[String, Int]], String),
    functions(&["toInt"], &[&[String]], Int),
    functions(&["@has_segment"], &[&[String, Int]], Bool),
];

/// Types that can be compared with `<`.
const ORDERED: [Type; 8] = [Bool, Int, Uint, Double, String, Bytes, Timestamp, Duration];

/// The functions and operators whose types [`result`] determines.
const GENERIC: &str = "_==_ _!=_ _<_ _<=_ _>_ _>=_ _?_:_ _[_] @in emptyStringMap pick conditional";

/// Returns whether a function or operator of this name exists.
pub(crate) fn is_known(name: &str) -> bool {
    GENERIC.split(' ').any(|known| known == name)
        || OVERLOADS.iter().any(|overloads| overloads.names.contains(&name))
}

/// Returns the type of a call with operands of these types, the receiver of a method first; `None` if no overload
/// matches.
pub(crate) fn result(name: &str, is_method: bool, operands: &[Type]) -> Option<Type> {
    match (name, operands) {
        ("_==_" | "_!=_", [left, right]) => {
            // Mixer's string maps cannot be compared.
            let has_map = operands.iter().any(|operand| matches!(operand, StringMap | Object(_)));
            return (left.fits(right) && !has_map).then_some(Bool);
        }
        ("_<_" | "_<=_" | "_>_" | "_>=_", [left, right]) => {
            let mut operands = operands.iter();
            let is_ordered = operands.all(|type_| matches!(type_, Dyn | Open) || ORDERED.contains(type_));
            return (left.fits(right) && is_ordered).then_some(Bool);
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
    let named = OVERLOADS.iter().filter(|known| known.is_method == is_method && known.names.contains(&name));
    let fitting = named.filter(|known| known.operands.iter().any(|wanted| all_fit(operands, wanted)));
    fitting.map(|known| known.returns.clone()).reduce(Type::join)
}

fn all_fit(operands: &[Type], wanted: &[Type]) -> bool {
    operands.len() == wanted.len() && operands.iter().zip(wanted).all(|(actual, wanted)| actual.fits(wanted))
}

//! The macros that Mixer adds to CEL, `conditional(c, a, b)` and `pick(a, b, ..)`, and `has(a.b)`, which only the CEL
//! parser expands itself.

use std::mem;

use cel::common::{
    ast::{CallExpr, Expr, IdedExpr, LiteralValue, SelectExpr},
    types::CelInt,
};

use super::{functions::CONCAT, resolver::WORK_COUNTER};
use crate::expression::fields;

/// Expands a macro call; its arguments are not expanded.
pub(crate) fn expand(node: &mut IdedExpr) {
    let Expr::Call(call) = &mut node.expr else { return };
    match (call.func_name.as_str(), &call.target, call.args.len()) {
        ("conditional", None, 3) => "_?_:_".clone_into(&mut call.func_name),
        ("has", None, 1) => {
            if let Expr::Select(select) = &mut call.args[0].expr {
                select.test = true;
                *node = mem::take(&mut call.args[0]);
            }
        }
        ("pick", None, 1..) => {
            let choices = flatten(mem::take(&mut call.args));
            *node = pick(node.id, choices);
            // The result may be a macro call itself.
            expand(node);
        }
        _ => {}
    }
}

/// Replaces nested `pick` calls by their arguments.
fn flatten(operands: Vec<IdedExpr>) -> Vec<IdedExpr> {
    let mut flat = Vec::with_capacity(operands.len());
    let mut rest: Vec<IdedExpr> = operands.into_iter().rev().collect();
    while let Some(operand) = rest.pop() {
        match operand.expr {
            Expr::Call(call) if call.func_name == "pick" && call.target.is_none() => {
                rest.extend(call.args.into_iter().rev());
            }
            expr => flat.push(IdedExpr { id: operand.id, expr }),
        }
    }
    flat
}

/// Selects the first operand that is present. Only selected fields, map entries
/// (docs/behaviour/expressions.md#cel-and-compat) and fields of the request can be missing.
fn pick(id: u64, choices: Vec<IdedExpr>) -> IdedExpr {
    let mut picked = None;
    for choice in choices.into_iter().rev() {
        picked = Some(match (is_present(&choice), picked) {
            (Some(present), Some(rest)) => call(id, "_?_:_", vec![present, choice, rest]),
            _ => choice,
        });
    }
    picked.unwrap_or_default()
}

/// Returns an expression that tests whether `choice` is present; `None` if it always is.
fn is_present(choice: &IdedExpr) -> Option<IdedExpr> {
    match &choice.expr {
        Expr::Select(select) if !select.test => {
            let test = SelectExpr { test: true, ..select.clone() };
            Some(IdedExpr { id: choice.id, expr: Expr::Select(test) })
        }
        Expr::Call(index) if index.func_name == "_[_]" && index.args.len() == 2 => {
            Some(call(choice.id, "@in", vec![index.args[1].clone(), index.args[0].clone()]))
        }
        Expr::Call(field) if is_field(choice) => {
            Some(call(choice.id, &format!("@has_{}", field.func_name), field.args.clone()))
        }
        Expr::Call(conversion) if conversion.func_name == fields::TO_INT => {
            conversion.args.first().filter(|operand| is_field(operand)).and_then(is_present)
        }
        _ => None,
    }
}

/// Returns whether a part is a call of a function that returns a field of the request.
fn is_field(part: &IdedExpr) -> bool {
    matches!(&part.expr, Expr::Call(call) if call.target.is_none() && fields::FUNCTIONS.contains(&call.func_name.as_str()))
}

/// Counts the nodes that a macro evaluates for a range: `nodes` for each element.
pub(super) fn count_steps(range: &mut IdedExpr, nodes: usize) {
    let id = range.id;
    let expr = mem::take(&mut range.expr);
    let counter = Expr::Ident(WORK_COUNTER.to_owned());
    let nodes = Expr::Literal(LiteralValue::Int(CelInt::from(i64::try_from(nodes).unwrap_or(i64::MAX))));
    *range = call(id, "@range", [expr, counter, nodes].map(|expr| IdedExpr { id, expr }).into());
}

/// Counts the bytes of a sum of texts.
pub(super) fn count_bytes(sum: &mut CallExpr, id: u64) {
    CONCAT.clone_into(&mut sum.func_name);
    sum.args.push(IdedExpr { id, expr: Expr::Ident(WORK_COUNTER.to_owned()) });
}

fn call(id: u64, name: &str, args: Vec<IdedExpr>) -> IdedExpr {
    IdedExpr { id, expr: Expr::Call(CallExpr { func_name: name.to_owned(), target: None, args }) }
}

//! The macros Mixer adds to CEL, `conditional(c, a, b)` and `pick(a, b, ..)`, and `has(a.b)`, which the parser of CEL
//! has rewritten already, where it was that parser.

use std::mem;

use cel::common::ast::{CallExpr, Expr, IdedExpr, SelectExpr};

/// Rewrites a node that is a call of a macro; its operands are left as they are.
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
            // What is picked can be a call of a macro itself.
            expand(node);
        }
        _ => {}
    }
}

/// A `pick` among the operands of a `pick` is more of them.
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

/// The first operand that is there. Only a field and a map entry can be missing; anything else ends the search
/// (docs/behaviour/expressions.md#cel-and-compat).
fn pick(id: u64, choices: Vec<IdedExpr>) -> IdedExpr {
    let mut picked = None;
    for choice in choices.into_iter().rev() {
        picked = Some(match (presence(&choice), picked) {
            (Some(present), Some(rest)) => call(id, "_?_:_", vec![present, choice, rest]),
            _ => choice,
        });
    }
    picked.unwrap_or_default()
}

/// An expression that says whether that one has a value.
fn presence(choice: &IdedExpr) -> Option<IdedExpr> {
    match &choice.expr {
        Expr::Select(select) if !select.test => {
            let test = SelectExpr { test: true, ..select.clone() };
            Some(IdedExpr { id: choice.id, expr: Expr::Select(test) })
        }
        Expr::Call(index) if index.func_name == "_[_]" && index.args.len() == 2 => {
            Some(call(choice.id, "@in", vec![index.args[1].clone(), index.args[0].clone()]))
        }
        _ => None,
    }
}

fn call(id: u64, name: &str, args: Vec<IdedExpr>) -> IdedExpr {
    IdedExpr { id, expr: Expr::Call(CallExpr { func_name: name.to_owned(), target: None, args }) }
}

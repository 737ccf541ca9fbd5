//! The values of the parts of an expression, for explanations.

#[cfg(feature = "cel")]
use super::{CompileError, Language, cel};
use super::{
    code::Env,
    compile, evaluate,
    syntax::{Ast, Node, parse},
};
use crate::{
    attribute::{Attributes, Reads, Vocabulary},
    trace::{Subexpression, value_text},
};

/// Maximum number of parts of one expression.
const MAX_PARTS: usize = 50;

/// Evaluates all parts of an expression in Mixer's own language, except literals and the whole: outer ones before those in them. Each
/// different part is listed once.
pub(super) fn of_cexl(text: &str, vocabulary: &Vocabulary, attributes: Attributes<'_>) -> Vec<Subexpression> {
    of_syntax(text, |source, ast| cexl_part(source, ast, vocabulary, attributes))
}

/// Evaluates the parts of an expression in COMPAT as [`of_cexl`] does, and the attributes of one in CEL, whose parser does not record
/// the positions of parts.
#[cfg(feature = "cel")]
pub(super) fn of_cel(
    program: &cel::Program,
    text: &str,
    vocabulary: &Vocabulary,
    attributes: Attributes<'_>,
) -> Vec<Subexpression> {
    match program.language() {
        Language::Compat => of_syntax(text, |source, ast| {
            cel_part(source, cel::compile_part(text, ast, vocabulary), attributes)
        }),
        Language::Cel | Language::Cexl => {
            let names = program.attributes().take(MAX_PARTS);
            names.map(|name| cel_part(name, cel::compile(name, vocabulary), attributes)).collect()
        }
    }
}

fn of_syntax(text: &str, part: impl Fn(&str, &Ast) -> Subexpression) -> Vec<Subexpression> {
    let Ok(ast) = parse(text) else { return Vec::new() };
    let mut parts: Vec<Subexpression> = Vec::new();
    let mut open: Vec<&Ast> = children(&ast);
    open.reverse();
    while let Some(ast) = open.pop() {
        if parts.len() == MAX_PARTS {
            break;
        }
        if matches!(ast.node, Node::Literal(_)) {
            continue;
        }
        let source = text.get(ast.span.start as usize..ast.span.end as usize).unwrap_or_default();
        if !parts.iter().any(|part| *part.text == *source) {
            parts.push(part(source, ast));
        }
        open.extend(children(ast).into_iter().rev());
    }
    parts
}

fn children(ast: &Ast) -> Vec<&Ast> {
    match &ast.node {
        Node::Literal(_) | Node::Attribute(_) => Vec::new(),
        Node::Chain(_, operands) => operands.iter().collect(),
        Node::Call(call) => call.receiver.as_deref().into_iter().chain(&call.arguments).collect(),
    }
}

fn cexl_part(source: &str, ast: &Ast, vocabulary: &Vocabulary, attributes: Attributes<'_>) -> Subexpression {
    let mut reads = Reads::default();
    let (value, error) = match compile::compile(ast, vocabulary) {
        Ok(typed) => match evaluate(&typed, &mut Env::new(attributes, &mut reads)) {
            Ok(value) => (Some(value_text(&value.into())), None),
            Err(error) => (None, Some(error.to_string())),
        },
        Err(errors) => (None, errors.first().map(ToString::to_string)),
    };
    Subexpression { text: source.into(), value, error }
}

#[cfg(feature = "cel")]
fn cel_part(
    source: &str,
    compiled: Result<cel::Program, CompileError>,
    attributes: Attributes<'_>,
) -> Subexpression {
    let (value, error) = match compiled {
        Ok(program) => match program.eval(attributes, &mut Reads::default()) {
            Ok(value) => (Some(value_text(&value.into())), None),
            Err(error) => (None, Some(error.to_string())),
        },
        Err(error) => (None, Some(error.to_string())),
    };
    Subexpression { text: source.into(), value, error }
}

//! The values of the parts of an expression, for explanations.

#[cfg(feature = "cel")]
use super::{CompileError, Language, cel};
use super::{
    Evaluated,
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

/// Evaluates all parts of an expression in Mixer's own language, except literals and the whole expression. Each part is listed once,
/// before the parts in it.
pub(super) fn of_cexl(text: &str, vocabulary: &Vocabulary, attributes: Attributes<'_>) -> Vec<Subexpression> {
    of_syntax(text, |source, ast| cexl_part(source, ast, vocabulary, attributes))
}

/// Evaluates the parts of an expression in COMPAT as [`of_cexl`] does. In CEL, whose parser does not record the positions of parts,
/// evaluates the attributes.
#[cfg(feature = "cel")]
pub(super) fn of_cel(
    program: &cel::Program,
    text: &str,
    vocabulary: &Vocabulary,
    attributes: Attributes<'_>,
) -> Vec<Subexpression> {
    match program.language {
        Language::Compat => of_syntax(text, |source, ast| {
            cel_part(source, cel::compile_compat(text, ast, vocabulary), attributes)
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
    let mut open: Vec<&Ast> = ast.node.children().rev().collect();
    while let Some(ast) = open.pop() {
        if parts.len() == MAX_PARTS {
            break;
        }
        if matches!(ast.node, Node::Literal(_)) {
            continue;
        }
        let source = ast.span.of(text);
        if !parts.iter().any(|part| *part.text == *source) {
            parts.push(part(source, ast));
        }
        open.extend(ast.node.children().rev());
    }
    parts
}

fn cexl_part(source: &str, ast: &Ast, vocabulary: &Vocabulary, attributes: Attributes<'_>) -> Subexpression {
    let mut reads = Reads::default();
    match compile::compile(ast, vocabulary) {
        Ok(typed) => subexpression(source, evaluate(&typed, &mut Env::new(attributes, &mut reads))),
        Err(errors) => {
            let error = errors.first().map(ToString::to_string);
            Subexpression { text: source.into(), value: None, error }
        }
    }
}

fn subexpression(source: &str, value: Result<Evaluated<'_>, impl ToString>) -> Subexpression {
    let error = value.as_ref().err().map(ToString::to_string);
    Subexpression { text: source.into(), value: value.ok().map(|value| value_text(&value.into())), error }
}

#[cfg(feature = "cel")]
fn cel_part(
    source: &str,
    compiled: Result<cel::Program, CompileError>,
    attributes: Attributes<'_>,
) -> Subexpression {
    match compiled {
        Ok(program) => subexpression(source, program.eval(attributes, &mut Reads::default())),
        Err(error) => subexpression(source, Err(error)),
    }
}

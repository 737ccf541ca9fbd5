//! The values of the parts of an expression, for explanations.

#[cfg(feature = "cel")]
use super::cel;
use super::{
    CompileError, Expression, Language, Program,
    syntax::{Ast, Node, parse},
};
use crate::{
    attribute::{Attributes, Reads, Vocabulary},
    trace::{Subexpression, value_text},
};

/// Maximum number of parts of one expression.
const MAX_PARTS: usize = 50;

impl Expression {
    /// Evaluates all parts of the expression, whose source is `text`, except literals and the whole expression. Each part is listed once,
    /// before the parts in it. In CEL, whose parser does not record the positions of parts, evaluates the attributes.
    pub(crate) fn parts(
        &self,
        text: &str,
        vocabulary: &Vocabulary,
        attributes: Attributes<'_>,
    ) -> Vec<Subexpression> {
        let language = match &self.program {
            Program::Cexl(_) => Language::Cexl,
            #[cfg(feature = "cel")]
            Program::Cel(program) if program.language == Language::Cel => {
                let names = program.attributes().take(MAX_PARTS);
                let compiled = names.map(|name| (name, cel::compile(name, vocabulary).map(Program::Cel)));
                return compiled.map(|(name, program)| part(name, program, attributes)).collect();
            }
            #[cfg(feature = "cel")]
            Program::Cel(_) => Language::Compat,
        };
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
                parts.push(part(source, Program::compile(language, text, ast, vocabulary), attributes));
            }
            open.extend(ast.node.children().rev());
        }
        parts
    }
}

fn part(source: &str, program: Result<Program, CompileError>, attributes: Attributes<'_>) -> Subexpression {
    let value = match &program {
        Ok(program) => program.eval(attributes, &mut Reads::default()).map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    let (value, error) = match value {
        Ok(value) => (Some(value_text(&value.into())), None),
        Err(error) => (None, Some(error)),
    };
    Subexpression { text: source.into(), value, error }
}

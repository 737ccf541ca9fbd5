//! The expression language of Mixer (docs/behaviour/expressions.md).
//!
//! An [`Expression`] is compiled once, against a [`Vocabulary`], and evaluated for every request. Errors in the
//! expression are found by compilation; evaluation fails only because of the request.
//!
//! ```
//! use std::sync::Arc;
//! use mixer_adapter_engine::{attribute::{Bag, Reads, Vocabulary}, expression::Expression};
//! use mixer_adapter_core::value::ValueType;
//!
//! let mut vocabulary = Vocabulary::new();
//! vocabulary.declare("request.path", ValueType::String)?;
//! let vocabulary = Arc::new(vocabulary);
//! let condition = Expression::compile(r#"match(request.path | "/", "/admin/*")"#, &vocabulary)?;
//! let mut bag = Bag::new(vocabulary);
//! bag.insert("request.path", "/admin/users");
//! assert!(condition.eval_bool(&bag, &mut Reads::default())?);
//!
//! let error = Expression::compile("request.paht == 1", bag.vocabulary()).unwrap_err();
//! assert!(error.render("request.paht == 1").contains("request.path"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod cases;
#[cfg(feature = "cel")]
mod cel;
mod code;
mod compile;
mod constants;
mod contradiction;
mod doubtful;
mod error;
mod evaluated;
mod fields;
mod formats;
mod nullability;
mod parts;
mod reference;
mod span;
mod syntax;

pub(crate) use contradiction::Requirements;
pub(crate) use doubtful::{ClientText, avoidable};
pub use error::{CompileError, CompileErrorKind, EvalError, EvalErrorKind};
pub use evaluated::Evaluated;
pub(crate) use fields::JsonMemo;
pub(crate) use nullability::Required;
pub use nullability::UnusedFallback;
pub use reference::{FunctionReference, functions};
pub use span::Span;

use self::{
    code::{Env, Expr, Operand},
    compile::Typed,
    doubtful::DoubtfulCall,
    nullability::Nullability,
    syntax::Ast,
};
use crate::attribute::{Attributes, Reads, Vocabulary};
use mixer_adapter_core::value::ValueType;

/// The language of an expression: the annotation `policy.istio.io/lang` of a rule or an instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Language {
    /// Mixer's own language.
    #[default]
    Cexl,
    /// The Common Expression Language, with attributes as objects. Missing attributes read as zero values.
    Cel,
    /// Mixer's own syntax with the semantics of CEL.
    Compat,
}

impl Language {
    /// Parses an annotation; any value but `CEL` and `COMPAT` means Mixer's own language, as in Mixer.
    pub fn from_annotation(annotation: &str) -> Self {
        match annotation {
            "CEL" => Language::Cel,
            "COMPAT" => Language::Compat,
            _ => Language::Cexl,
        }
    }
}

/// A compiled expression.
#[derive(Debug)]
pub struct Expression {
    program: Program,
    pub(crate) nullability: Nullability,
    invalid_constants: Box<[EvalError]>,
    /// The calls that are valid but probably not intended.
    pub(crate) doubtful_calls: Box<[DoubtfulCall]>,
    /// The slots of the attributes that it mentions.
    slots: Box<[u32]>,
}

#[derive(Debug)]
enum Program {
    Cexl(Typed),
    #[cfg(feature = "cel")]
    Cel(cel::Program),
}

impl Program {
    /// Compiles an expression in Mixer's own syntax, or a part of it; `text` is its source.
    fn compile(
        language: Language,
        text: &str,
        ast: &Ast,
        vocabulary: &Vocabulary,
    ) -> Result<Self, CompileError> {
        match language {
            #[cfg(feature = "cel")]
            Language::Compat => cel::compile_compat(text, ast, vocabulary).map(Self::Cel),
            _ => compile::compile(ast, vocabulary).map(Self::Cexl).map_err(|errors| first(errors, text)),
        }
    }

    fn eval<'a>(&'a self, attributes: Attributes<'a>, reads: &mut Reads) -> Result<Evaluated<'a>, EvalError> {
        match self {
            Self::Cexl(Typed { code, value_type, .. }) => {
                Ok(code.value(&mut Env::new(attributes, reads))?.into_evaluated(*value_type))
            }
            #[cfg(feature = "cel")]
            Self::Cel(program) => program.eval(attributes, reads),
        }
    }
}

impl Expression {
    /// Compiles an expression in Mixer's own language. It can be evaluated with bags of `vocabulary` and of
    /// vocabularies that extend it.
    ///
    /// # Errors
    /// The text is not an expression, uses unknown names or has type errors. The error has the location, and further errors of
    /// the expression.
    pub fn compile(text: &str, vocabulary: &Vocabulary) -> Result<Self, CompileError> {
        let ast = syntax::parse(text)?;
        let program = Program::compile(Language::Cexl, text, &ast, vocabulary)?;
        let body =
            ast.calls().any(|(call, _)| call.reads_body()).then_some([fields::BODY, fields::TRUNCATED]);
        let names = ast.attributes().chain(body.into_iter().flatten());
        let slots = names.filter_map(|name| Some(vocabulary.find(name)?.slot));
        Ok(Self {
            program,
            nullability: Nullability::of(&ast, text),
            invalid_constants: constants::invalid(&ast),
            doubtful_calls: doubtful::calls(&ast, text),
            slots: slots.collect(),
        })
    }

    /// Compiles an expression in the given language.
    ///
    /// # Errors
    /// As [`Expression::compile`]. Without the feature `cel` of this crate, every expression in CEL or COMPAT is an error.
    pub fn compile_in(language: Language, text: &str, vocabulary: &Vocabulary) -> Result<Self, CompileError> {
        match language {
            Language::Cexl => Self::compile(text, vocabulary),
            #[cfg(feature = "cel")]
            Language::Cel => Ok(cel::compile(text, vocabulary)?.into()),
            #[cfg(feature = "cel")]
            Language::Compat => {
                let ast = syntax::parse(text)?;
                let program = cel::compile_compat(text, &ast, vocabulary)?;
                Ok(Self { doubtful_calls: doubtful::calls(&ast, text), ..program.into() })
            }
            #[cfg(not(feature = "cel"))]
            Language::Cel | Language::Compat => {
                let message = "this program was built without support for CEL";
                Err(CompileError::new(CompileErrorKind::Cel, Span::new(0, text.len()), message)
                    .help("build it with the feature `cel`"))
            }
        }
    }

    /// The slots of all attributes that an evaluation may read.
    pub(crate) fn slots(&self) -> impl Iterator<Item = u32> {
        self.slots.iter().copied()
    }

    /// The errors of constants that cannot be evaluated, such as `ip("10.0.0")`. Every evaluation that needs such a constant fails.
    pub fn invalid_constants(&self) -> &[EvalError] {
        &self.invalid_constants
    }

    /// The type of its values. UNSPECIFIED for an expression in CEL with a type that attributes do not have, or that is only known
    /// at evaluation.
    pub fn value_type(&self) -> ValueType {
        match &self.program {
            Program::Cexl(typed) => typed.value_type,
            #[cfg(feature = "cel")]
            Program::Cel(program) => program.value_type,
        }
    }

    /// The value, if the expression is a literal.
    pub fn constant(&self) -> Option<Evaluated<'_>> {
        let Program::Cexl(Typed { code: Expr::Constant(constant), value_type, .. }) = &self.program else {
            return None;
        };
        match constant {
            Operand::Timestamp(_) | Operand::Address(_) | Operand::Map(_) => None,
            literal => Some(literal.borrowed().into_evaluated(*value_type)),
        }
    }

    /// Evaluates the expression for a request. Every attribute that is read is added to `reads`, even if it is missing.
    ///
    /// # Errors
    /// An attribute is missing or not of its declared type, or an argument is not in the format that a function expects.
    pub fn eval<'a>(
        &'a self,
        attributes: impl Into<Attributes<'a>>,
        reads: &mut Reads,
    ) -> Result<Evaluated<'a>, EvalError> {
        self.program.eval(attributes.into(), reads)
    }

    /// Evaluates a BOOL expression.
    ///
    /// # Errors
    /// As [`Expression::eval`]; also if the expression is not BOOL.
    pub fn eval_bool<'a>(
        &'a self,
        attributes: impl Into<Attributes<'a>>,
        reads: &mut Reads,
    ) -> Result<bool, EvalError> {
        if let Program::Cexl(Typed { code, value_type: ValueType::Bool, .. }) = &self.program {
            return code.bool(&mut Env::new(attributes.into(), reads));
        }
        match self.eval(attributes, reads)? {
            Evaluated::Bool(value) => Ok(value),
            other => {
                Err(EvalError::new(EvalErrorKind::NotBool { actual: other.value_type() }, Span::default()))
            }
        }
    }
}

#[cfg(feature = "cel")]
impl From<cel::Program> for Expression {
    fn from(program: cel::Program) -> Self {
        let (invalid_constants, slots) =
            (program.invalid_constants.as_slice().into(), program.slots().collect());
        Self {
            program: Program::Cel(program),
            nullability: Nullability::default(),
            invalid_constants,
            doubtful_calls: Box::default(),
            slots,
        }
    }
}

fn first(errors: Vec<CompileError>, text: &str) -> CompileError {
    let whole = Span::new(0, text.len());
    CompileError::first_of(errors)
        .unwrap_or_else(|| CompileError::new(CompileErrorKind::Parse, whole, "not a valid expression"))
}

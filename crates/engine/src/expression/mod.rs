//! The expression language of Mixer (docs/behaviour/expressions.md).
//!
//! An [`Expression`] is compiled once, over a [`Vocabulary`], and evaluated for every request. Compiling finds
//! everything that is wrong with the expression; evaluating can only find something wrong with the request.
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
mod error;
mod evaluated;
mod format;
#[doc(hidden)]
pub mod fuzzing;
mod presence;
mod span;
mod syntax;

pub use error::{CompileError, CompileErrorKind, EvalError, EvalErrorKind};
pub use evaluated::Evaluated;
pub use presence::IdleFallback;
pub use span::Span;

use std::borrow::Cow;

use self::{
    code::{Code, Env},
    compile::Typed,
    presence::Presence,
};
use crate::attribute::{Attributes, Reads, Vocabulary};
use mixer_adapter_core::value::ValueType;

/// What an expression is written in: the annotation `policy.istio.io/lang` of a rule or an instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Language {
    /// Mixer's own language.
    #[default]
    Cexl,
    /// The Common Expression Language, with attributes as objects. Missing attributes read as zero values.
    Cel,
    /// Mixer's own language, read as CEL.
    Compat,
}

impl Language {
    /// The language an annotation names; anything but `CEL` and `COMPAT` is Mixer's own, as in a real Mixer.
    pub fn annotated(annotation: &str) -> Self {
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
    presence: Presence,
}

#[derive(Debug)]
enum Program {
    Cexl(Typed),
    #[cfg(feature = "cel")]
    Cel(cel::Program),
}

impl Expression {
    /// Compiles a text in Mixer's own language. The expression can read bags of this vocabulary, and of one that
    /// stands over it.
    ///
    /// # Errors
    /// The text is no expression, names what does not exist or mixes types; the error says where.
    pub fn compile(text: &str, vocabulary: &Vocabulary) -> Result<Self, CompileError> {
        let ast = syntax::parse(text)?;
        let program = Program::Cexl(compile::compile(&ast, vocabulary)?);
        Ok(Self { program, presence: Presence::of(&ast, text) })
    }

    /// Compiles a text in one of the languages.
    ///
    /// # Errors
    /// As [`Expression::compile`]. Without the feature `cel` of this crate, every text in CEL or COMPAT is refused.
    pub fn compile_in(language: Language, text: &str, vocabulary: &Vocabulary) -> Result<Self, CompileError> {
        match language {
            Language::Cexl => Self::compile(text, vocabulary),
            #[cfg(feature = "cel")]
            Language::Cel => Ok(cel::compile(text, vocabulary)?.into()),
            #[cfg(feature = "cel")]
            Language::Compat => Ok(cel::compile_compat(text, vocabulary)?.into()),
            #[cfg(not(feature = "cel"))]
            Language::Cel | Language::Compat => {
                let message = "this program was built without CEL";
                Err(CompileError::new(CompileErrorKind::Cel, Span::new(0, text.len()), message)
                    .help("build it with the feature `cel`"))
            }
        }
    }

    /// The attributes without which it may have no value, in the order of their names. In CEL there are none: what is missing
    /// reads as a zero value.
    pub fn needed(&self) -> &[Box<str>] {
        &self.presence.needed
    }

    /// Where a `|` in it does not do what it seems to.
    pub fn idle_fallbacks(&self) -> &[IdleFallback] {
        &self.presence.idle
    }

    /// The type of its values. UNSPECIFIED for an expression in CEL whose value no attribute could hold, or whose type
    /// is not known before it is evaluated.
    pub fn value_type(&self) -> ValueType {
        match &self.program {
            Program::Cexl(typed) => typed.value_type,
            #[cfg(feature = "cel")]
            Program::Cel(program) => program.value_type(),
        }
    }

    /// The value for a request. Every attribute looked at is added to `reads`, also where there is no value.
    ///
    /// # Errors
    /// An attribute is missing or has another type than declared, or a text is not what a function reads it as.
    pub fn eval<'a>(
        &'a self,
        attributes: impl Into<Attributes<'a>>,
        reads: &mut Reads,
    ) -> Result<Evaluated<'a>, EvalError> {
        match &self.program {
            Program::Cexl(typed) => evaluate(typed, &mut Env { attributes: attributes.into(), reads }),
            #[cfg(feature = "cel")]
            Program::Cel(program) => program.eval(attributes.into(), reads),
        }
    }

    /// The value of a BOOL expression.
    ///
    /// # Errors
    /// As [`Expression::eval`]; also when the expression is not BOOL.
    pub fn eval_bool<'a>(
        &'a self,
        attributes: impl Into<Attributes<'a>>,
        reads: &mut Reads,
    ) -> Result<bool, EvalError> {
        if let Program::Cexl(Typed { code: Code::Truth(expr), .. }) = &self.program {
            return expr.value(&mut Env { attributes: attributes.into(), reads });
        }
        match self.eval(attributes, reads)? {
            Evaluated::Bool(truth) => Ok(truth),
            other => {
                Err(EvalError::new(EvalErrorKind::NotBool { actual: other.value_type() }, Span::default()))
            }
        }
    }
}

#[cfg(feature = "cel")]
impl From<cel::Program> for Expression {
    fn from(program: cel::Program) -> Self {
        Self { program: Program::Cel(program), presence: Presence::default() }
    }
}

fn evaluate<'a>(typed: &'a Typed, env: &mut Env<'a, '_>) -> Result<Evaluated<'a>, EvalError> {
    Ok(match &typed.code {
        Code::Text(expr) => Evaluated::text(typed.value_type, expr.value(env)?),
        Code::Int(expr) => Evaluated::Int64(expr.value(env)?),
        Code::Double(expr) => Evaluated::Double(expr.value(env)?),
        Code::Truth(expr) => Evaluated::Bool(expr.value(env)?),
        Code::Instant(expr) => Evaluated::Timestamp(expr.value(env)?.instant),
        Code::Length(expr) => Evaluated::Duration(expr.value(env)?),
        Code::Address(expr) => Evaluated::IpAddress(expr.value(env)?),
        Code::Map(expr) => Evaluated::StringMap(Cow::Borrowed(expr.value(env)?.entries)),
    })
}

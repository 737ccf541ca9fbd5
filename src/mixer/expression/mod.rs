//! The expression language of Mixer (mixer-runtime.md, section 1).
//!
//! An [`Expression`] is compiled once, over a [`Vocabulary`], and evaluated for every request. Compiling finds
//! everything that is wrong with the expression; evaluating can only find something wrong with the request.
//!
//! ```
//! use std::sync::Arc;
//! use mixer_adapter::mixer::{attribute::{Bag, Reads, Vocabulary}, expression::Expression};
//! use mixer_adapter::value::ValueType;
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
mod code;
mod compile;
mod error;
mod evaluated;
mod format;
mod span;
mod syntax;

pub use error::{CompileError, CompileErrorKind, EvalError, EvalErrorKind};
pub use evaluated::Evaluated;
pub use span::Span;

use std::borrow::Cow;

use self::{
    code::{Code, Env},
    compile::Typed,
};
use crate::{
    mixer::attribute::{Attributes, Reads, Vocabulary},
    value::ValueType,
};

/// A compiled expression.
#[derive(Debug)]
pub struct Expression {
    typed: Typed,
}

impl Expression {
    /// Compiles a text. The expression can read bags of this vocabulary, and of one that stands over it.
    ///
    /// # Errors
    /// The text is no expression, names what does not exist or mixes types; the error says where.
    pub fn compile(text: &str, vocabulary: &Vocabulary) -> Result<Self, CompileError> {
        let ast = syntax::parse(text)?;
        Ok(Self { typed: compile::compile(&ast, vocabulary)? })
    }

    /// The type of its values.
    pub fn value_type(&self) -> ValueType {
        self.typed.value_type
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
        let env = &mut Env { attributes: attributes.into(), reads };
        Ok(match &self.typed.code {
            Code::Text(expr) => Evaluated::text(self.typed.value_type, expr.value(env)?),
            Code::Int(expr) => Evaluated::Int64(expr.value(env)?),
            Code::Double(expr) => Evaluated::Double(expr.value(env)?),
            Code::Truth(expr) => Evaluated::Bool(expr.value(env)?),
            Code::Instant(expr) => Evaluated::Timestamp(expr.value(env)?.instant),
            Code::Length(expr) => Evaluated::Duration(expr.value(env)?),
            Code::Address(expr) => Evaluated::IpAddress(expr.value(env)?),
            Code::Map(expr) => Evaluated::StringMap(Cow::Borrowed(expr.value(env)?.entries)),
        })
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
        match &self.typed.code {
            Code::Truth(expr) => expr.value(&mut Env { attributes: attributes.into(), reads }),
            _ => {
                Err(EvalError::new(EvalErrorKind::NotBool { actual: self.typed.value_type }, Span::default()))
            }
        }
    }
}

//! Expressions in CEL and COMPAT, evaluated by the `cel` crate (docs/behaviour/expressions.md#cel-and-compat; differences
//! from Mixer are listed in docs/cel.md).

mod check;
mod functions;
mod macros;
mod overloads;
mod reserved;
mod resolver;
mod spans;
mod translate;
mod types;
mod values;

use std::{borrow::Cow, collections::HashMap, io, mem, sync::Arc};

use cel::{
    Context, Env, ExecutionError, Value,
    common::{
        ast::IdedExpr,
        types::{CelBool, CelDouble, CelDuration, CelInt, CelMap, CelString, CelTimestamp},
        value::Val,
    },
    parser::PrattParser,
};
use parking_lot::Mutex;
use prost_types::Timestamp;
use regex::Regex;

use self::{
    check::Checker,
    functions::CONCAT,
    resolver::Resolver,
    spans::Spans,
    translate::Translator,
    values::{FormattedStr, IpValue, MapValue, WorkCounter},
};
use super::{
    Evaluated, Language,
    code::{Attribute, MAX_CONCATENATED},
    error::{CompileError, CompileErrorKind, EvalError, EvalErrorKind},
    fields,
    span::Span,
    syntax::Ast,
};
use crate::attribute::{Attributes, Reads, StringMap, Vocabulary};
use mixer_adapter_core::value::ValueType;

/// Maximum number of operators in a CEL expression. The parser recurses without a bound on some of them.
const MAX_OPERATORS: usize = 2000;
/// Maximum number of conditional operators.
const MAX_CONDITIONALS: usize = 200;
/// Stack size in bytes that suffices for any expression.
const STACK_SIZE: usize = 32 << 20;
/// Maximum nesting of an expression that is evaluated on the caller's stack.
const MAX_SHALLOW: usize = 32;

/// A compiled expression in CEL or COMPAT.
pub(crate) struct Program {
    /// CEL or COMPAT.
    pub(super) language: Language,
    ast: IdedExpr,
    env: Arc<Env>,
    used: Vec<Attribute>,
    patterns: Vec<Regex>,
    pub(super) invalid_constants: Vec<EvalError>,
    /// The type of its values; UNSPECIFIED for types that attributes do not have, such as a list.
    pub(super) value_type: ValueType,
    /// Levels of nesting.
    depth: usize,
    span: Span,
}

mixer_adapter_core::framework::debug_fields!(Program { ast, value_type });

/// Compiles an expression in CEL.
pub(crate) fn compile(text: &str, vocabulary: &Vocabulary) -> Result<Program, CompileError> {
    let whole = Span::new(0, text.len());
    let operators = text.bytes().filter(|byte| b"+-*/%<>=!?.[({,:".contains(byte)).count();
    if operators > MAX_OPERATORS || text.matches('?').count() > MAX_CONDITIONALS {
        let message =
            format!("this expression has more than {MAX_OPERATORS} operators, or {MAX_CONDITIONALS} `?`");
        return Err(CompileError::new(CompileErrorKind::TooLarge, whole, message));
    }
    compile_on_large_stack(whole, || {
        let parsed = PrattParser::new().parse(&reserved::mark(text)).map_err(|errors| {
            let errors = errors.errors.iter().map(|error| {
                CompileError::new(CompileErrorKind::Cel, position(text, error.pos), error.msg.clone())
            });
            CompileError::first_of(errors.collect()).unwrap_or_else(|| {
                CompileError::new(CompileErrorKind::Cel, whole, "not a valid CEL expression")
            })
        })?;
        check(Language::Cel, parsed, &Spans::Source(text), vocabulary, whole)
    })
}

fn compile_on_large_stack(
    span: Span,
    compile: impl FnOnce() -> Result<Program, CompileError> + Send,
) -> Result<Program, CompileError> {
    on_large_stack(compile)
        .unwrap_or_else(|error| Err(CompileError::new(CompileErrorKind::Cel, span, error.to_string())))
}

/// Compiles an expression in Mixer's own syntax, or a part of it, with the semantics of CEL. `text` is its source.
pub(crate) fn compile_compat(
    text: &str,
    ast: &Ast,
    vocabulary: &Vocabulary,
) -> Result<Program, CompileError> {
    compile_on_large_stack(ast.span, || {
        let mut translator = Translator { source: text, spans: HashMap::new() };
        let translated = translator.translate(ast)?;
        check(Language::Compat, translated, &Spans::ById(translator.spans), vocabulary, ast.span)
    })
}

fn check(
    language: Language,
    mut ast: IdedExpr,
    spans: &Spans<'_>,
    vocabulary: &Vocabulary,
    span: Span,
) -> Result<Program, CompileError> {
    let mut checker = Checker::new(vocabulary, spans);
    let value_type = checker.check_whole(&mut ast)?.value_type();
    let Checker { used, patterns, invalid: invalid_constants, deepest: depth, .. } = checker;
    let env = functions::ENV
        .clone()
        .map_err(|error| CompileError::new(CompileErrorKind::Cel, span, error.to_string()))?;
    Ok(Program { language, ast, env, used, patterns, invalid_constants, value_type, depth, span })
}

/// Runs on a thread whose stack suffices for any expression: the `cel` crate needs more for each level of nesting than
/// an ordinary thread offers.
fn on_large_stack<T: Send>(run: impl FnOnce() -> T + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK_SIZE).spawn_scoped(scope, run);
        let thread = thread.map_err(|error| {
            io::Error::other(format!("cannot start a thread for this expression: {error}"))
        })?;
        thread.join().map_err(|_| io::Error::other("the CEL interpreter panicked"))
    })
}

/// Returns the span of the character at a line and a column, both counted from 1.
fn position(text: &str, (line, column): (isize, isize)) -> Span {
    let before = usize::try_from(line - 1).unwrap_or(0);
    let start: usize = text.split_inclusive('\n').take(before).map(str::len).sum();
    let column = usize::try_from(column - 1).unwrap_or(0);
    let offset = text[start..].char_indices().nth(column).map_or(text.len() - start, |(offset, _)| offset);
    let end = text[start + offset..].chars().next().map_or(0, char::len_utf8);
    Span::new(start + offset, start + offset + end)
}

impl Program {
    /// The names of the attributes that it mentions.
    pub(crate) fn attributes(&self) -> impl Iterator<Item = &str> {
        self.used.iter().map(|used| &*used.name)
    }

    /// The slots of these attributes.
    pub(crate) fn slots(&self) -> impl Iterator<Item = u32> {
        self.used.iter().map(|used| used.slot)
    }

    pub(crate) fn eval(
        &self,
        attributes: Attributes<'_>,
        reads: &mut Reads,
    ) -> Result<Evaluated<'static>, EvalError> {
        if self.depth <= MAX_SHALLOW {
            return self.run(attributes, reads);
        }
        on_large_stack(|| self.run(attributes, reads)).unwrap_or_else(|error| {
            let message = error.to_string().into();
            Err(EvalError::new(EvalErrorKind::Cel { message }, self.span))
        })
    }

    fn run(&self, attributes: Attributes<'_>, reads: &mut Reads) -> Result<Evaluated<'static>, EvalError> {
        let shared = Arc::new(Mutex::new(mem::take(reads)));
        let resolver = Resolver {
            used: &self.used,
            patterns: &self.patterns,
            attributes,
            reads: Arc::clone(&shared),
            work: WorkCounter::default(),
            error: Mutex::new(None),
        };
        let value = {
            let mut context = Context::with_env(Arc::clone(&self.env));
            context.set_variable_resolver(&resolver);
            match Value::resolve_val(&self.ast, &context) {
                Ok(value) => self.value(value.as_ref()),
                Err(error) => Err(self.error(error)),
            }
        };
        *reads = mem::take(&mut shared.lock());
        let error = resolver.error.into_inner();
        error.map_or(value, Err)
    }

    fn error(&self, error: ExecutionError) -> EvalError {
        let ExecutionError::FunctionError { function, message } = error else {
            return EvalError::new(EvalErrorKind::Cel { message: error.to_string().into() }, self.span);
        };
        let to = match function.as_str() {
            "ip" => ValueType::IpAddress,
            "email" => ValueType::EmailAddress,
            "dnsName" => ValueType::DnsName,
            "uri" => ValueType::Uri,
            fields::TO_INT => ValueType::Int64,
            "timestamp" => ValueType::Timestamp,
            "duration" => ValueType::Duration,
            "matches" => {
                return EvalError::new(EvalErrorKind::Pattern { message: message.into() }, self.span);
            }
            CONCAT => {
                return EvalError::new(EvalErrorKind::TooLong { max: MAX_CONCATENATED }, self.span);
            }
            name => {
                if let Some(function) = fields::FUNCTIONS.into_iter().find(|field| *field == name) {
                    let kind = EvalErrorKind::NoValue { function, why: message.into() };
                    return EvalError::new(kind, self.span);
                }
                let message = format!("{function}: {message}").into();
                return EvalError::new(EvalErrorKind::Cel { message }, self.span);
            }
        };
        EvalError::conversion(to, self.span, message)
    }

    fn value(&self, value: &dyn Val) -> Result<Evaluated<'static>, EvalError> {
        let evaluated = match self.value_type {
            ValueType::String => value
                .downcast_ref::<CelString<'_>>()
                .map(|text| Evaluated::String(Cow::Owned(text.inner().to_owned()))),
            ValueType::Int64 => {
                value.downcast_ref::<CelInt>().map(|number| Evaluated::Int64(*number.inner()))
            }
            ValueType::Double => {
                value.downcast_ref::<CelDouble>().map(|number| Evaluated::Double(*number.inner()))
            }
            ValueType::Bool => value.downcast_ref::<CelBool>().map(|value| Evaluated::Bool(*value.inner())),
            ValueType::Timestamp => value.downcast_ref::<CelTimestamp>().map(|time| {
                // A fraction of a second has fewer than 2^31 nanoseconds.
                let nanos = time.inner().timestamp_subsec_nanos() as i32;
                Evaluated::Timestamp(Timestamp { seconds: time.inner().timestamp(), nanos })
            }),
            ValueType::Duration => value
                .downcast_ref::<CelDuration>()
                .and_then(|length| length.inner().num_nanoseconds().map(Evaluated::Duration)),
            ValueType::IpAddress => {
                value.downcast_ref::<IpValue>().map(|ip| Evaluated::IpAddress(Cow::Owned(ip.0.to_vec())))
            }
            ValueType::EmailAddress | ValueType::Uri | ValueType::DnsName => value
                .downcast_ref::<FormattedStr>()
                .map(|value| Evaluated::string(self.value_type, Cow::Owned(value.text.to_string()))),
            ValueType::StringMap => {
                string_map(value).map(|entries| Evaluated::StringMap(Cow::Owned(entries)))
            }
            ValueType::Unspecified => None,
        };
        evaluated.ok_or_else(|| {
            let message = format!(
                "the value is of type {}, not of an attribute type known at compile time",
                value.get_type().name()
            );
            EvalError::new(EvalErrorKind::Cel { message: message.into() }, self.span)
        })
    }
}

fn string_map(value: &dyn Val) -> Option<StringMap> {
    if let Some(map) = value.downcast_ref::<MapValue>() {
        return Some(map.read());
    }
    let map = value.downcast_ref::<CelMap<'_>>()?;
    map.inner().iter().map(|(key, value)| Some((text(key.inner())?, text(value.as_ref())?))).collect()
}

fn text(value: &dyn Val) -> Option<String> {
    value.downcast_ref::<CelString<'_>>().map(|text| text.inner().to_owned())
}

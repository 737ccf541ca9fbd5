//! The type checker for CEL expressions, which the `cel` crate does not have: resolves attribute names and rejects
//! expressions that can never be evaluated.

use std::mem;

use cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, MapExpr, SelectExpr,
};
use regex::Regex;

use super::{macros, overloads, reserved, resolver::JSON_MEMO, spans::Spans, types::Type};
use crate::{
    attribute::{Declaration, Vocabulary},
    expression::{
        code::Attribute,
        constants,
        error::{CompileError, CompileErrorKind, EvalError},
        fields,
        formats::pattern,
        syntax::MAX_NESTING,
    },
};

/// Maximum number of nodes after macro expansion; `pick` duplicates its arguments.
const MAX_NODES: usize = 20_000;

/// Maximum number of errors of one expression.
const MAX_ERRORS: usize = 20;

/// The names that `type(x)` is compared with.
const TYPE_NAMES: [&str; 10] =
    ["bool", "bytes", "double", "int", "list", "map", "null_type", "string", "type", "uint"];

pub(crate) struct Checker<'c> {
    vocabulary: &'c Vocabulary,
    spans: &'c Spans<'c>,
    /// The variables of the enclosing comprehensions.
    scope: Vec<(String, Type)>,
    /// The attributes of the expression: `#0`, `#1`, ...
    pub(crate) used: Vec<Attribute>,
    /// Its constant patterns: `~0`, `~1`, ...
    pub(crate) patterns: Vec<Regex>,
    /// The errors of constant arguments that cannot be evaluated.
    pub(crate) invalid: Vec<EvalError>,
    /// The errors found so far, each once.
    errors: Vec<CompileError>,
    nodes: usize,
    depth: usize,
    /// The maximum of `depth` so far.
    pub(crate) deepest: usize,
}

type Checked = Result<(Expr, Type), CompileError>;

impl<'c> Checker<'c> {
    pub(crate) fn new(vocabulary: &'c Vocabulary, spans: &'c Spans<'c>) -> Self {
        Self {
            vocabulary,
            spans,
            scope: Vec::new(),
            used: Vec::new(),
            patterns: Vec::new(),
            invalid: Vec::new(),
            errors: Vec::new(),
            nodes: 0,
            depth: 0,
            deepest: 0,
        }
    }

    /// Rewrites a whole expression so that it can be evaluated, and returns its type.
    ///
    /// # Errors
    /// All errors of the expression, or the first limit that it exceeds.
    pub(crate) fn check_whole(&mut self, node: &mut IdedExpr) -> Result<Type, CompileError> {
        let checked = self.check(node)?;
        CompileError::first_of(mem::take(&mut self.errors)).map_or(Ok(checked), Err)
    }

    /// Checks a part of an expression. An error is recorded, and the part can be of any type then.
    fn check(&mut self, node: &mut IdedExpr) -> Result<Type, CompileError> {
        let (depth, scope) = (self.depth, self.scope.len());
        match self.check_node(node) {
            Err(error) if error.kind() != CompileErrorKind::TooLarge => {
                self.depth = depth;
                self.scope.truncate(scope);
                // Macros repeat their arguments.
                if self.errors.len() < MAX_ERRORS && !self.errors.contains(&error) {
                    self.errors.push(error);
                }
                Ok(Type::Dyn)
            }
            checked => checked,
        }
    }

    fn check_node(&mut self, node: &mut IdedExpr) -> Result<Type, CompileError> {
        self.nodes += 1;
        self.depth += 1;
        self.deepest = self.deepest.max(self.depth);
        if self.nodes > MAX_NODES || self.depth > MAX_NESTING {
            let message = format!(
                "this expression has more than {MAX_NODES} nodes, or is nested more than {MAX_NESTING} levels deep"
            );
            return Err(CompileError::new(CompileErrorKind::TooLarge, self.spans.of(node.id, ""), message));
        }
        macros::expand(node);
        let (expr, checked) = match mem::take(&mut node.expr) {
            Expr::Literal(literal) => {
                let literal_type = literal_type(&literal);
                (Expr::Literal(literal), literal_type)
            }
            Expr::Ident(name) => self.name(name, node.id)?,
            Expr::Select(select) => self.select(select, node.id)?,
            Expr::Call(call) => self.call(call, node.id)?,
            Expr::List(mut list) => {
                let mut item = None;
                for element in &mut list.elements {
                    let element = self.check(element)?;
                    item = Some(item.map_or(element.clone(), |item: Type| item.join(element)));
                }
                (Expr::List(list), Type::List(Box::new(item.unwrap_or(Type::Open))))
            }
            Expr::Map(map) => self.map(map, node.id)?,
            Expr::Comprehension(comprehension) => self.comprehension(*comprehension, node.id)?,
            Expr::Struct(_) | Expr::Unspecified => {
                let message = "message literals are not supported";
                return Err(self.error(CompileErrorKind::UnsupportedSyntax, node.id, "", message));
            }
        };
        node.expr = expr;
        self.depth -= 1;
        Ok(checked)
    }

    fn error(&self, kind: CompileErrorKind, id: u64, name: &str, message: impl Into<String>) -> CompileError {
        CompileError::new(kind, self.spans.of(id, name), message)
    }

    fn name(&mut self, name: String, id: u64) -> Checked {
        let name = reserved::unmark(&name).to_owned();
        if let Some((_, variable)) = self.scope.iter().rev().find(|(variable, _)| *variable == name) {
            let variable = variable.clone();
            return Ok((Expr::Ident(name), variable));
        }
        match self.attribute(&name, id) {
            Some(found) => Ok(found),
            None if TYPE_NAMES.contains(&name.as_str()) => Ok((Expr::Ident(name), Type::Meta)),
            None => Err(self.unknown_attribute(&name, id)),
        }
    }

    fn unknown_attribute(&self, name: &str, id: u64) -> CompileError {
        self.error(CompileErrorKind::UnknownAttribute, id, name, format!("unknown attribute `{name}`"))
    }

    /// Resolves an attribute, or a prefix of attribute names.
    fn attribute(&mut self, name: &str, id: u64) -> Option<(Expr, Type)> {
        if let Some(declaration) = self.vocabulary.find(name) {
            let index = self.used(declaration, id);
            return Some((Expr::Ident(format!("#{index}")), Type::of(declaration.value_type)));
        }
        let is_prefix = self
            .vocabulary
            .iter()
            .any(|declaration| declaration.name.strip_prefix(name).is_some_and(|rest| rest.starts_with('.')));
        is_prefix.then(|| (Expr::Ident(name.to_owned()), Type::Object(name.to_owned())))
    }

    fn used(&mut self, declaration: Declaration<'_>, id: u64) -> usize {
        match self.used.iter().position(|attribute| attribute.slot == declaration.slot) {
            Some(index) => index,
            None => {
                self.used.push(Attribute::new(declaration, self.spans.of(id, declaration.name)));
                self.used.len() - 1
            }
        }
    }

    fn select(&mut self, mut select: SelectExpr, id: u64) -> Checked {
        match self.check(&mut select.operand)? {
            Type::Object(prefix) => {
                let name = format!("{prefix}.{}", select.field);
                match self.attribute(&name, id) {
                    Some((Expr::Ident(attribute), _)) if select.test => {
                        Ok(match attribute.strip_prefix('#') {
                            Some(index) => (Expr::Ident(format!("?{index}")), Type::Bool),
                            None => (Expr::Literal(LiteralValue::Boolean(true.into())), Type::Bool),
                        })
                    }
                    Some(found) => Ok(found),
                    None => Err(self.unknown_attribute(&name, id)),
                }
            }
            operand => {
                let selected = match operand {
                    Type::StringMap => Type::String,
                    Type::Map(_, value) => *value,
                    Type::Dyn | Type::Open => Type::Dyn,
                    other => {
                        let message = format!("{other} has no field `{}`", select.field);
                        return Err(self.error(CompileErrorKind::ArgumentType, id, &select.field, message));
                    }
                };
                let selected = if select.test { Type::Bool } else { selected };
                Ok((Expr::Select(select), selected))
            }
        }
    }

    fn call(&mut self, mut call: CallExpr, id: u64) -> Checked {
        let mut operands = Vec::with_capacity(call.args.len() + 1);
        for operand in call.target.as_deref_mut().into_iter().chain(&mut call.args) {
            operands.push(self.check(operand)?);
        }
        let name = &call.func_name;
        let readable = name.trim_matches(['_', '@']).replace('_', " ");
        if !overloads::is_known(name) {
            let message = format!("unknown function `{readable}`");
            return Err(self.error(CompileErrorKind::UnknownFunction, id, name, message));
        }
        let Some(result) = overloads::result(name, call.target.is_some(), &operands) else {
            let operands: Vec<_> = operands.iter().map(Type::to_string).collect();
            let message = format!("`{readable}` does not accept arguments of type {}", operands.join(", "));
            return Err(self.error(CompileErrorKind::ArgumentType, id, name, message));
        };
        if let Some(Expr::Literal(LiteralValue::String(text))) =
            call.args.first().map(|argument| &argument.expr)
        {
            let span = self.spans.of(call.args[0].id, text);
            self.invalid.extend(constants::check(name, text, span).err());
        }
        match (name.as_str(), operands.as_slice()) {
            ("matches", _) => {
                self.prepare(&mut call.args);
                call.args.splice(..0, call.target.take().map(|target| *target));
                "@matches".clone_into(&mut call.func_name);
            }
            (fields::JSON | "@has_json", _) => self.add_body(&mut call, id),
            // Parsed as elsewhere in Mixer, not by the `cel` crate.
            ("timestamp", [Type::String]) => "@timestamp".clone_into(&mut call.func_name),
            ("duration", [Type::String]) => "@duration".clone_into(&mut call.func_name),
            // Concatenations of texts or bytes have a budget.
            ("_+_", _) if matches!(result, Type::String | Type::Bytes | Type::Dyn | Type::Open) => {
                macros::count_bytes(&mut call, id);
            }
            _ => {}
        }
        Ok((Expr::Call(call), result))
    }

    /// Compiles constant patterns. An invalid pattern remains and is an error when it is evaluated.
    fn prepare(&mut self, arguments: &mut [IdedExpr]) {
        for argument in arguments {
            if let Expr::Literal(LiteralValue::String(source)) = &argument.expr
                && let Ok(regex) = pattern::compile(source)
            {
                argument.expr = Expr::Ident(format!("~{}", self.patterns.len()));
                self.patterns.push(regex);
            }
        }
    }

    /// Adds to the operands of `json` the memo, and if the text is the body of the request, whether that is there, whether
    /// [`fields::TRUNCATED`] is there, and its value.
    fn add_body(&mut self, call: &mut CallExpr, id: u64) {
        let body = self
            .used
            .iter()
            .position(|used| *used.name == *fields::BODY)
            .filter(|body| call.args.iter().any(|operand| mentions(operand, &format!("#{body}"))));
        let truncated = self.vocabulary.find(fields::TRUNCATED);
        let state = match (body, truncated) {
            (Some(body), Some(truncated)) => {
                let truncated = self.used(truncated, id);
                [format!("?{body}"), format!("?{truncated}"), format!("#{truncated}")].map(Expr::Ident)
            }
            _ => [false; 3].map(|no| Expr::Literal(LiteralValue::Boolean(no.into()))),
        };
        let added = std::iter::once(Expr::Ident(JSON_MEMO.to_owned())).chain(state);
        call.args.extend(added.map(|expr| IdedExpr { id, expr }));
    }

    fn map(&mut self, mut map: MapExpr, id: u64) -> Checked {
        let mut types: Option<(Type, Type)> = None;
        for entry in &mut map.entries {
            let EntryExpr::MapEntry(entry) = &mut entry.expr else {
                let message = "only map entries are supported here";
                return Err(self.error(CompileErrorKind::UnsupportedSyntax, id, "", message));
            };
            let (key, value) = (self.check(&mut entry.key)?, self.check(&mut entry.value)?);
            types = Some(match types {
                None => (key, value),
                Some((keys, values)) => (keys.join(key), values.join(value)),
            });
        }
        let (keys, values) = types.unwrap_or((Type::Open, Type::Open));
        Ok((Expr::Map(map), Type::Map(Box::new(keys), Box::new(values))))
    }

    fn comprehension(&mut self, mut comprehension: ComprehensionExpr, id: u64) -> Checked {
        let range = self.check(&mut comprehension.iter_range)?;
        let item = match range {
            Type::List(item) => *item,
            Type::Map(key, _) => *key,
            Type::Dyn | Type::Open => Type::Dyn,
            other => {
                let message = format!("cannot iterate over {other}");
                return Err(self.error(CompileErrorKind::ArgumentType, id, "", message));
            }
        };
        let outer = self.scope.len();
        let accumulator = self.check(&mut comprehension.accu_init)?;
        self.scope.push((comprehension.accu_var.clone(), accumulator));
        let inner = self.scope.len();
        self.scope.push((comprehension.iter_var.clone(), item));
        if let Some(second) = &comprehension.iter_var2 {
            self.scope.push((second.clone(), Type::Dyn));
        }
        let before = self.nodes;
        self.check(&mut comprehension.loop_cond)?;
        let step = self.check(&mut comprehension.loop_step)?;
        macros::count_steps(&mut comprehension.iter_range, self.nodes - before);
        self.scope.truncate(inner);
        self.scope[outer].1 = step;
        let result = self.check(&mut comprehension.result)?;
        self.scope.truncate(outer);
        Ok((Expr::Comprehension(Box::new(comprehension)), result))
    }
}

/// Returns whether a checked part has a name.
fn mentions(part: &IdedExpr, name: &str) -> bool {
    match &part.expr {
        Expr::Ident(found) => found == name,
        Expr::Call(call) => {
            call.target.as_deref().into_iter().chain(&call.args).any(|operand| mentions(operand, name))
        }
        _ => false,
    }
}

fn literal_type(literal: &LiteralValue) -> Type {
    match literal {
        LiteralValue::Boolean(_) => Type::Bool,
        LiteralValue::Bytes(_) => Type::Bytes,
        LiteralValue::Double(_) => Type::Double,
        LiteralValue::Int(_) => Type::Int,
        LiteralValue::Null => Type::Null,
        LiteralValue::String(_) => Type::String,
        LiteralValue::UInt(_) => Type::Uint,
    }
}

//! The subset of Go's expression grammar that the language accepts (docs/behaviour/expressions.md#syntax).

use super::{
    ast::{Ast, Call, Chain, MAX_NESTING, Node, too_deep},
    lexer::{Token, TokenKind, tokens},
    literal::{Literal, literal},
};
use crate::expression::{
    error::{CompileError, CompileErrorKind},
    span::Span,
};

/// Maximum length of an expression in bytes.
const MAX_LENGTH: usize = 1 << 20;

pub(crate) fn parse(source: &str) -> Result<Ast, CompileError> {
    if source.len() > MAX_LENGTH {
        let message = format!("this expression is longer than {MAX_LENGTH} bytes");
        return Err(CompileError::new(CompileErrorKind::TooLarge, Span::default(), message));
    }
    let mut parser = Parser { source, tokens: tokens(source)?, next: 0, nesting: 0 };
    let ast = parser.expression(1)?;
    match parser.token().kind {
        TokenKind::End => Ok(ast),
        TokenKind::LineEnd => Err(parser
            .unexpected("unexpected end of line")
            .help("break lines after an operator, not before it")),
        TokenKind::Operator("=") => {
            Err(parser.unexpected("`=` is not an operator").help("compare with `==`"))
        }
        _ => Err(parser.unexpected("expected the end of the expression")),
    }
}

/// The precedence of a binary operator, as in Go, where `|` binds tighter than `==`.
fn precedence(kind: TokenKind) -> Option<(u8, &'static str)> {
    let TokenKind::Operator(symbol) = kind else { return None };
    let level = match symbol {
        "||" => 1,
        "&&" => 2,
        "==" | "!=" | "<" | "<=" | ">" | ">=" => 3,
        "+" | "-" | "|" | "^" => 4,
        "*" | "/" | "%" | "<<" | ">>" | "&" | "&^" => 5,
        _ => return None,
    };
    Some((level, symbol))
}

struct Parser<'s> {
    source: &'s str,
    tokens: Vec<Token>,
    next: usize,
    nesting: usize,
}

/// A primary expression that may be continued by `.`, `(` or `[`.
enum Operand {
    /// `a.b.c`: an attribute, or a function or method if `(` follows.
    Name(Vec<Token>),
    Value {
        ast: Ast,
        /// Whether it is a map entry without parentheses.
        entry: bool,
    },
}

impl Parser<'_> {
    fn token(&self) -> Token {
        self.tokens[self.next]
    }

    fn text(&self, token: Token) -> &str {
        token.span.of(self.source)
    }

    /// Consumes the next token if it is the given operator.
    fn take(&mut self, symbol: &str) -> Option<Token> {
        let token = self.token();
        let found = matches!(token.kind, TokenKind::Operator(operator) if operator == symbol);
        self.next += usize::from(found);
        found.then_some(token)
    }

    fn expect(&mut self, symbol: &str) -> Result<Token, CompileError> {
        self.take(symbol).ok_or_else(|| self.unexpected(format!("expected `{symbol}`")))
    }

    fn unexpected(&self, message: impl Into<String>) -> CompileError {
        CompileError::new(CompileErrorKind::Parse, self.token().span, message)
    }

    fn nested<T>(
        &mut self,
        inner: impl FnOnce(&mut Self) -> Result<T, CompileError>,
    ) -> Result<T, CompileError> {
        if self.nesting == MAX_NESTING {
            return Err(too_deep(self.token().span));
        }
        self.nesting += 1;
        let result = inner(self);
        self.nesting -= 1;
        result
    }

    /// Parses operators of at least the precedence `lowest`.
    fn expression(&mut self, lowest: u8) -> Result<Ast, CompileError> {
        let mut left = self.unary()?;
        while let Some((level, symbol)) = precedence(self.token().kind).filter(|&(level, _)| level >= lowest)
        {
            left = match Chain::of(symbol) {
                Some(chain) => self.chain(chain, left, level)?,
                None => {
                    let operator = self.token();
                    self.next += 1;
                    let right = self.expression(level + 1)?;
                    let span = left.span.to(right.span);
                    call(symbol.to_owned(), operator.span, None, vec![left, right], span)?
                }
            };
        }
        Ok(left)
    }

    /// Parses the operands of a chain.
    fn chain(&mut self, chain: Chain, first: Ast, level: u8) -> Result<Ast, CompileError> {
        let mut span = first.span;
        let mut operands = vec![first];
        while self.take(chain.symbol()).is_some() {
            let operand = self.expression(level + 1)?;
            span = span.to(operand.span);
            operands.push(operand);
        }
        Ast::new(Node::Chain(chain, operands), span)
    }

    fn unary(&mut self) -> Result<Ast, CompileError> {
        let operator = self.token();
        match operator.kind {
            TokenKind::Operator("+" | "-" | "!" | "^" | "&" | "<-") => {
                self.next += 1;
                let operand = self.nested(Self::unary)?;
                let span = operator.span.to(operand.span);
                let name = self.text(operator).to_owned();
                call(name, operator.span, None, vec![operand], span)
            }
            TokenKind::Operator("*") => Err(unsupported(operator.span, "pointers are not supported")),
            _ => self.primary(),
        }
    }

    fn primary(&mut self) -> Result<Ast, CompileError> {
        let mut operand = self.operand()?;
        loop {
            operand = if self.take(".").is_some() {
                self.selection(operand)?
            } else if self.take("(").is_some() {
                let (arguments, end) = self.nested(Self::arguments)?;
                self.call(operand, arguments, end)?
            } else if self.take("[").is_some() {
                self.index(operand)?
            } else if matches!((self.token().kind, &operand), (TokenKind::Operator("{"), Operand::Name(_))) {
                return Err(unsupported(self.token().span, "composite literals are not supported"));
            } else {
                return self.value(operand);
            };
        }
    }

    fn operand(&mut self) -> Result<Operand, CompileError> {
        let token = self.token();
        match token.kind {
            TokenKind::Identifier => {
                self.next += 1;
                Ok(Operand::Name(vec![token]))
            }
            TokenKind::Int | TokenKind::Float | TokenKind::Imaginary => self.literal(token),
            TokenKind::Char | TokenKind::Str | TokenKind::RawStr => self.literal(token),
            TokenKind::Operator("(") => {
                self.next += 1;
                let mut ast = self.nested(|parser| parser.expression(1))?;
                ast.span = token.span.to(self.expect(")")?.span);
                Ok(Operand::Value { ast, entry: false })
            }
            TokenKind::Operator("[") if self.is_array_type() => {
                Err(unsupported(token.span, "lists are not supported"))
            }
            TokenKind::Operator("[") => Err(self.unexpected("lists are not supported")),
            TokenKind::Keyword
                if matches!(self.text(token), "func" | "map" | "struct" | "chan" | "interface") =>
            {
                Err(unsupported(token.span, format!("`{}` is a keyword of Go", self.text(token))))
            }
            TokenKind::Keyword => Err(self
                .unexpected(format!("`{}` is a keyword and cannot be an attribute name", self.text(token)))),
            _ => Err(self.unexpected("expected a value")),
        }
    }

    /// Returns whether a bracket begins a type of Go, such as `[]string` or `[2]int`. Go's grammar has no lists like `[1, 2]`.
    fn is_array_type(&self) -> bool {
        use TokenKind::{Identifier, Operator};
        let kinds: Vec<TokenKind> =
            self.tokens[self.next + 1..].iter().take(3).map(|token| token.kind).collect();
        match kinds[..] {
            [Operator("]"), next, ..] => next == Identifier,
            [_, close, next] => (close, next) == (Operator("]"), Identifier),
            _ => false,
        }
    }

    fn literal(&mut self, token: Token) -> Result<Operand, CompileError> {
        self.next += 1;
        let literal = literal(token.kind, self.text(token), token.span)?;
        Ok(Operand::Value { ast: Ast::new(Node::Literal(literal), token.span)?, entry: false })
    }

    /// Parses the name after a dot.
    fn selection(&mut self, operand: Operand) -> Result<Operand, CompileError> {
        let token = self.token();
        match (token.kind, operand) {
            (TokenKind::Identifier, Operand::Name(mut segments)) => {
                self.next += 1;
                segments.push(token);
                Ok(Operand::Name(segments))
            }
            (TokenKind::Identifier, Operand::Value { ast, entry: on_entry }) => {
                self.next += 1;
                if self.take("(").is_none() {
                    return Err(unsupported(ast.span.to(token.span), "values do not have fields"));
                }
                let (arguments, end) = self.nested(Self::arguments)?;
                let span = ast.span.to(end);
                let (name, receiver) = (self.text(token).to_owned(), Some(Box::new(ast)));
                let call = Call { name, name_span: token.span, receiver, on_entry, arguments };
                Ok(Operand::Value { ast: Ast::new(Node::Call(call), span)?, entry: false })
            }
            (TokenKind::Operator("("), _) => {
                Err(unsupported(token.span, "type assertions are not supported"))
            }
            (TokenKind::Keyword, _) => {
                let message =
                    format!("`{}` is a keyword and cannot be part of an attribute name", self.text(token));
                Err(self.unexpected(message))
            }
            _ => Err(self.unexpected("expected a name after the dot")),
        }
    }

    /// Parses the arguments of a call; also returns the span of the closing parenthesis.
    fn arguments(&mut self) -> Result<(Vec<Ast>, Span), CompileError> {
        let mut arguments = Vec::new();
        loop {
            if let Some(end) = self.take(")") {
                return Ok((arguments, end.span));
            }
            arguments.push(self.expression(1)?);
            if let Some(dots) = self.take("...") {
                return Err(unsupported(dots.span, "variadic arguments are not supported"));
            }
            if self.take(",").is_none() {
                return Ok((arguments, self.expect(")")?.span));
            }
        }
    }

    /// Parses a call of a function, or of a method of an attribute.
    fn call(&self, callee: Operand, arguments: Vec<Ast>, end: Span) -> Result<Operand, CompileError> {
        let mut segments = match callee {
            Operand::Name(segments) => segments,
            Operand::Value { ast, .. } => return Err(unsupported(ast.span, "this is not a function")),
        };
        let span = segments[0].span.to(end);
        let method = segments.pop().unwrap_or(self.token());
        let mut receiver = None;
        if !segments.is_empty() {
            receiver = Some(Box::new(self.attribute(&segments)?));
        }
        let ast = call(self.text(method).to_owned(), method.span, receiver, arguments, span)?;
        Ok(Operand::Value { ast, entry: false })
    }

    fn index(&mut self, operand: Operand) -> Result<Operand, CompileError> {
        let bracket = self.tokens[self.next - 1];
        let map = self.value(operand)?;
        if let Some(colon) = self.take(":") {
            return Err(unsupported(colon.span, "slices are not supported"));
        }
        let key = self.nested(|parser| parser.expression(1))?;
        if let Some(colon) = self.take(":") {
            return Err(unsupported(colon.span, "slices are not supported"));
        }
        let end = self.expect("]")?;
        let span = map.span.to(end.span);
        let ast = call("[]".to_owned(), bracket.span.to(end.span), None, vec![map, key], span)?;
        Ok(Operand::Value { ast, entry: true })
    }

    fn value(&self, operand: Operand) -> Result<Ast, CompileError> {
        match operand {
            Operand::Name(segments) => self.name(&segments),
            Operand::Value { ast, .. } => Ok(ast),
        }
    }

    /// Converts a name to an attribute, or to `true` or `false` in any letter case.
    fn name(&self, segments: &[Token]) -> Result<Ast, CompileError> {
        let value = match segments {
            [only] if self.text(*only).eq_ignore_ascii_case("true") => true,
            [only] if self.text(*only).eq_ignore_ascii_case("false") => false,
            _ => return self.attribute(segments),
        };
        Ast::new(Node::Literal(Literal::Bool(value)), segments[0].span)
    }

    fn attribute(&self, segments: &[Token]) -> Result<Ast, CompileError> {
        let span = segments.iter().map(|token| token.span).reduce(Span::to).unwrap_or_default();
        let name = segments.iter().map(|&token| self.text(token)).collect::<Vec<_>>().join(".");
        Ast::new(Node::Attribute(name), span)
    }
}

fn call(
    name: String,
    name_span: Span,
    receiver: Option<Box<Ast>>,
    arguments: Vec<Ast>,
    span: Span,
) -> Result<Ast, CompileError> {
    Ast::new(Node::Call(Call { name, name_span, receiver, on_entry: false, arguments }), span)
}

fn unsupported(span: Span, message: impl Into<String>) -> CompileError {
    CompileError::new(CompileErrorKind::UnsupportedSyntax, span, message)
}

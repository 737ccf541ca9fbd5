//! The tokens of Go, whose syntax the expression language has (docs/behaviour/expressions.md#syntax).

use crate::expression::{
    error::{CompileError, CompileErrorKind},
    span::Span,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenKind {
    Identifier,
    Keyword,
    Int,
    Float,
    Imaginary,
    /// `'x'`
    Char,
    /// `"x"`
    Str,
    /// `` `x` ``
    RawStr,
    Operator(&'static str),
    /// The semicolon that Go inserts after a line that can end a statement.
    LineEnd,
    End,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Token {
    pub(crate) kind: TokenKind,
    pub(crate) span: Span,
}

const KEYWORDS: &str = "break case chan const continue default defer else fallthrough for func go goto if import \
                        interface map package range return select struct switch type var";

/// Longer operators precede their prefixes.
const OPERATORS: [&str; 47] = [
    "<<=", ">>=", "&^=", "...", "&&", "||", "<-", "++", "--", "==", "!=", "<=", ">=", ":=", "+=", "-=", "*=",
    "/=", "%=", "&=", "|=", "^=", "<<", ">>", "&^", "+", "-", "*", "/", "%", "&", "|", "^", "<", ">", "=",
    "!", "(", ")", "[", "]", "{", "}", ",", ";", ".", ":",
];

/// Splits the source into tokens; the last one is `End`.
pub(crate) fn tokens(source: &str) -> Result<Vec<Token>, CompileError> {
    let mut lexer = Lexer { source, at: 0 };
    let mut tokens = Vec::new();
    loop {
        let ends_line = tokens.last().is_some_and(|last: &Token| may_end_line(source, last));
        let token = lexer.next(ends_line)?;
        tokens.push(token);
        if token.kind == TokenKind::End {
            return Ok(tokens);
        }
    }
}

fn may_end_line(source: &str, token: &Token) -> bool {
    match token.kind {
        TokenKind::Operator(symbol) => matches!(symbol, "++" | "--" | ")" | "]" | "}"),
        TokenKind::Keyword => {
            let word = &source[token.span.start as usize..token.span.end as usize];
            matches!(word, "break" | "continue" | "fallthrough" | "return")
        }
        TokenKind::LineEnd | TokenKind::End => false,
        _ => true,
    }
}

struct Lexer<'s> {
    source: &'s str,
    at: usize,
}

impl Lexer<'_> {
    fn next(&mut self, ends_line: bool) -> Result<Token, CompileError> {
        if let Some(newline) = self.skip_space()?.filter(|_| ends_line && self.at < self.source.len()) {
            return Ok(Token { kind: TokenKind::LineEnd, span: Span::new(newline, newline + 1) });
        }
        let start = self.at;
        let kind = match self.peek() {
            None => TokenKind::End,
            Some(c) if is_letter(c) => self.word(),
            Some(c) if c.is_ascii_digit() => self.number()?,
            Some('.') if self.rest()[1..].starts_with(|c: char| c.is_ascii_digit()) => self.number()?,
            Some('"') => self.quoted('"', TokenKind::Str)?,
            Some('\'') => self.quoted('\'', TokenKind::Char)?,
            Some('`') => self.raw()?,
            Some(c) => self.operator(c)?,
        };
        Ok(Token { kind, span: Span::new(start, self.at) })
    }

    fn rest(&self) -> &str {
        &self.source[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    /// Skips white space and comments; returns the offset of the first newline among them.
    fn skip_space(&mut self) -> Result<Option<usize>, CompileError> {
        let mut newline = None;
        loop {
            let start = self.at;
            let rest = self.rest();
            let skipped = if rest.starts_with("//") {
                rest.find('\n').unwrap_or(rest.len())
            } else if let Some(comment) = rest.strip_prefix("/*") {
                match comment.find("*/") {
                    Some(end) => end + 4,
                    None => return Err(parse_error(start, start + 2, "this comment is not terminated")),
                }
            } else {
                rest.find(|c| !matches!(c, ' ' | '\t' | '\r' | '\n')).unwrap_or(rest.len())
            };
            if skipped == 0 {
                return Ok(newline);
            }
            newline = newline.or(rest[..skipped].find('\n').map(|offset| start + offset));
            self.at += skipped;
        }
    }

    fn word(&mut self) -> TokenKind {
        let rest = self.rest();
        let end = rest.find(|c| !is_letter(c) && !char::is_numeric(c)).unwrap_or(rest.len());
        let is_keyword = KEYWORDS.split(' ').any(|keyword| keyword == &rest[..end]);
        let kind = if is_keyword { TokenKind::Keyword } else { TokenKind::Identifier };
        self.at += end;
        kind
    }

    fn number(&mut self) -> Result<TokenKind, CompileError> {
        let start = self.at;
        let digits: fn(char) -> bool = match self.rest().as_bytes().get(..2) {
            Some(b"0x" | b"0X") => |c| c.is_ascii_hexdigit() || c == '_',
            _ => |c| c.is_ascii_digit() || c == '_',
        };
        let based = matches!(self.rest().as_bytes(), [b'0', b'x' | b'X' | b'b' | b'B' | b'o' | b'O', ..]);
        let hexadecimal = matches!(self.rest().as_bytes(), [b'0', b'x' | b'X', ..]);
        if based {
            self.at += 2;
        }
        let mut mantissa = self.skip_while(digits);
        let mut float = false;
        if self.peek() == Some('.') && (hexadecimal || !based) {
            float = true;
            self.at += 1;
            mantissa += self.skip_while(digits);
        }
        if mantissa == 0 {
            return Err(parse_error(start, self.at, "this number has no digits"));
        }
        let exponent = self.peek().is_some_and(|c| {
            let marks = if hexadecimal { ['p', 'P'] } else { ['e', 'E'] };
            marks.contains(&c) && (hexadecimal || !based)
        });
        if exponent {
            self.at += 1;
            self.at += usize::from(self.peek().is_some_and(|c| matches!(c, '+' | '-')));
            if self.skip_while(|c| c.is_ascii_digit() || c == '_') == 0 {
                return Err(parse_error(start, self.at, "the exponent of this number has no digits"));
            }
        } else if hexadecimal && float {
            return Err(parse_error(start, self.at, "a hexadecimal fraction needs an exponent, `p0`"));
        }
        let text = &self.source[start..self.at];
        if text.ends_with('_') || ["__", "_.", "._"].iter().any(|misplaced| text.contains(misplaced)) {
            return Err(parse_error(start, self.at, "`_` must separate two digits of a number"));
        }
        if self.peek() == Some('i') {
            self.at += 1;
            return Ok(TokenKind::Imaginary);
        }
        if float || exponent {
            return Ok(TokenKind::Float);
        }
        let octal = !based && text.len() > 1 && text.starts_with('0');
        if octal && text.contains(['8', '9']) {
            return Err(parse_error(start, self.at, "an octal number has only the digits 0 to 7"));
        }
        Ok(TokenKind::Int)
    }

    /// Skips matching characters and returns the number of digits among them.
    fn skip_while(&mut self, fits: impl Fn(char) -> bool) -> usize {
        let rest = self.rest();
        let end = rest.find(|c| !fits(c)).unwrap_or(rest.len());
        let digits = rest[..end].chars().filter(|&c| c != '_').count();
        self.at += end;
        digits
    }

    fn quoted(&mut self, quote: char, kind: TokenKind) -> Result<TokenKind, CompileError> {
        let start = self.at;
        let mut escaped = false;
        for (offset, c) in self.rest().char_indices().skip(1) {
            match c {
                '\n' => break,
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                _ if c == quote => {
                    self.at += offset + 1;
                    return Ok(kind);
                }
                _ => {}
            }
        }
        let line = self.rest().lines().next().unwrap_or_default().len();
        Err(parse_error(start, start + line, format!("this string has no closing {quote}")))
    }

    fn raw(&mut self) -> Result<TokenKind, CompileError> {
        match self.rest()[1..].find('`') {
            Some(end) => {
                self.at += end + 2;
                Ok(TokenKind::RawStr)
            }
            None => Err(parse_error(self.at, self.at + 1, "this string has no closing `")),
        }
    }

    fn operator(&mut self, c: char) -> Result<TokenKind, CompileError> {
        match OPERATORS.iter().find(|symbol| self.rest().starts_with(**symbol)) {
            Some(symbol) => {
                self.at += symbol.len();
                Ok(TokenKind::Operator(symbol))
            }
            None => {
                let error = parse_error(self.at, self.at + c.len_utf8(), format!("unexpected `{c}`"));
                Err(if c == '?' {
                    error.help("`conditional(condition, a, b)` chooses between two values")
                } else {
                    error
                })
            }
        }
    }
}

fn is_letter(c: char) -> bool {
    c == '_' || c.is_alphabetic()
}

fn parse_error(start: usize, end: usize, message: impl Into<String>) -> CompileError {
    CompileError::new(CompileErrorKind::Parse, Span::new(start, end), message)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn kinds(source: &str) -> Vec<TokenKind> {
        tokens(source).unwrap().iter().map(|token| token.kind).collect()
    }

    #[test]
    fn a_line_that_could_end_a_statement_ends_one() {
        use TokenKind::*;
        assert_eq!(kinds("a\n|b"), [Identifier, LineEnd, Operator("|"), Identifier, End]);
        assert_eq!(kinds("a|\nb"), [Identifier, Operator("|"), Identifier, End]);
        assert_eq!(kinds("a // c\n b"), [Identifier, LineEnd, Identifier, End]);
        assert_eq!(kinds("a /* \n */ b"), [Identifier, LineEnd, Identifier, End]);
        assert_eq!(kinds("a /* c */ b"), [Identifier, Identifier, End]);
        assert_eq!(kinds("a\n\n"), [Identifier, End]);
    }

    #[test]
    fn numbers_are_those_of_go() {
        use TokenKind::*;
        for (text, kind) in [
            ("0", Int),
            ("007", Int),
            ("0x1F", Int),
            ("0b1", Int),
            ("1_000", Int),
            (".5", Float),
            ("5.", Float),
            ("1e3", Float),
            ("0x1p4", Float),
            ("08.5", Float),
            ("2i", Imaginary),
        ] {
            assert_eq!(kinds(text), [kind, End], "{text}");
        }
        for text in ["08", "0x", "1e", "0x1.8", "1__0", "1_"] {
            assert_eq!(tokens(text).unwrap_err().kind(), CompileErrorKind::Parse, "{text}");
        }
        assert_eq!(kinds("1.5.a"), [Float, Operator("."), Identifier, End]);
    }

    #[test]
    fn strings_end_on_their_line_unless_raw() {
        use TokenKind::*;
        assert_eq!(kinds(r#""a\"b" 'c' `d"#.to_owned().as_str().trim_end_matches(" `d")), [Str, Char, End]);
        assert_eq!(kinds("`a\nb`"), [RawStr, End]);
        for text in ["\"a\nb\"", "\"a\\", "'a", "`a", "/* a", "a ? b", "@"] {
            assert!(tokens(text).is_err(), "{text}");
        }
    }
}

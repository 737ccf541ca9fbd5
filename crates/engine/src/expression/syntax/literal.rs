//! Literals. A string that Go parses as a duration is a duration: `"1s"`, but also `"0"`
//! (docs/behaviour/expressions.md#literals).

use super::lexer::TokenKind;
use crate::expression::{
    error::{CompileError, CompileErrorKind},
    span::Span,
};
use mixer_adapter_core::value::{parse_duration, parse_float};

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Literal {
    Str(String),
    Int(i64),
    Double(f64),
    Bool(bool),
    /// Nanoseconds.
    Duration(i64),
}

/// Parses a literal token.
pub(crate) fn literal(kind: TokenKind, text: &str, span: Span) -> Result<Literal, CompileError> {
    let error =
        |message: &str| Err(CompileError::new(CompileErrorKind::Literal, span, format!("{message}: {text}")));
    match kind {
        TokenKind::Int => match text.parse() {
            Ok(number) => Ok(Literal::Int(number)),
            Err(_) if text.bytes().all(|b| b.is_ascii_digit()) => {
                error("this number is out of range for INT64")
            }
            Err(_) => error("integers are written in plain decimal digits"),
        },
        TokenKind::Float => match parse_float(text) {
            Some(number) => Ok(Literal::Double(number)),
            None => error("this number is out of range for DOUBLE"),
        },
        TokenKind::Imaginary => error("imaginary numbers are not supported"),
        TokenKind::RawStr => Ok(string_or_duration(text.trim_matches('`').replace('\r', ""))),
        _ => {
            let content = unquote(text, span)?;
            if kind == TokenKind::Char && content.chars().count() != 1 {
                let message = "single quotes hold exactly one character";
                return Err(CompileError::new(CompileErrorKind::Parse, span, message)
                    .help("write a string in double quotes"));
            }
            Ok(string_or_duration(content))
        }
    }
}

fn string_or_duration(text: String) -> Literal {
    match parse_duration(&text) {
        Some(nanos) => Literal::Duration(nanos),
        None => Literal::Str(text),
    }
}

/// Returns the content of `"..."` or `'...'` with escapes replaced.
fn unquote(text: &str, span: Span) -> Result<String, CompileError> {
    let quote = text.as_bytes()[0];
    let inner = &text[1..text.len() - 1];
    let mut content = Vec::with_capacity(inner.len());
    let mut rest = inner;
    while let Some(start) = rest.find('\\') {
        content.extend_from_slice(&rest.as_bytes()[..start]);
        let escape = &rest[start..];
        let Some(length) = unescape(escape, quote, &mut content) else {
            let at = span.start as usize + text.len() - 1 - escape.len();
            let end = at + 1 + escape[1..].chars().next().map_or(0, char::len_utf8);
            let message = "invalid escape sequence";
            return Err(CompileError::new(CompileErrorKind::Parse, Span::new(at, end), message)
                .help("a backslash itself is written `\\\\`"));
        };
        rest = &escape[length..];
    }
    content.extend_from_slice(rest.as_bytes());
    String::from_utf8(content).map_err(|_| {
        CompileError::new(CompileErrorKind::Literal, span, format!("this string is not UTF-8: {text}"))
    })
}

/// Appends the character of the escape sequence at the start of `escape`; returns the length of the sequence.
fn unescape(escape: &str, quote: u8, content: &mut Vec<u8>) -> Option<usize> {
    let byte = escape.as_bytes().get(1)?;
    let plain = match byte {
        b'a' => 7,
        b'b' => 8,
        b'f' => 12,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'v' => 11,
        b'\\' => b'\\',
        _ if *byte == quote => quote,
        b'x' => return number(escape, 2, 2, 16).and_then(|code| push_byte(code, 4, content)),
        b'0'..=b'7' => return number(escape, 1, 3, 8).and_then(|code| push_byte(code, 4, content)),
        b'u' => return number(escape, 2, 4, 16).and_then(|code| push_char(code, 6, content)),
        b'U' => return number(escape, 2, 8, 16).and_then(|code| push_char(code, 10, content)),
        _ => return None,
    };
    content.push(plain);
    Some(2)
}

fn number(escape: &str, from: usize, digits: usize, radix: u32) -> Option<u32> {
    let digits = escape.get(from..from + digits)?;
    digits.chars().try_fold(0u32, |code, digit| Some(code.checked_mul(radix)? + digit.to_digit(radix)?))
}

fn push_byte(code: u32, length: usize, content: &mut Vec<u8>) -> Option<usize> {
    content.push(u8::try_from(code).ok()?);
    Some(length)
}

fn push_char(code: u32, length: usize, content: &mut Vec<u8>) -> Option<usize> {
    let mut buffer = [0; 4];
    content.extend_from_slice(char::from_u32(code)?.encode_utf8(&mut buffer).as_bytes());
    Some(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(kind: TokenKind, text: &str) -> Result<Literal, CompileErrorKind> {
        literal(kind, text, Span::new(0, text.len())).map_err(|error| error.kind())
    }

    #[test]
    fn escapes_are_those_of_go() {
        let text = |content: &str| Ok(Literal::Str(content.to_owned()));
        assert_eq!(read(TokenKind::Str, r#""\x41\101\u00e9\U0001F600\t\"""#), text("AAé😀\t\""));
        assert_eq!(read(TokenKind::Char, r"'\''"), text("'"));
        assert_eq!(read(TokenKind::Str, r#""\xc3\xa9""#), text("é"));
        assert_eq!(read(TokenKind::RawStr, "`\\n\r`"), text("\\n"));
        for bad in [r#""\q""#, r#""\'""#, r#""\x4""#, r#""\400""#, r#""\ud800""#, r#""\x4é""#] {
            assert_eq!(read(TokenKind::Str, bad), Err(CompileErrorKind::Parse), "{bad}");
        }
        assert_eq!(read(TokenKind::Str, r#""\xff""#), Err(CompileErrorKind::Literal));
        assert_eq!(read(TokenKind::Char, "'ab'"), Err(CompileErrorKind::Parse));
    }

    #[test]
    fn numbers_out_of_range_are_errors() {
        assert_eq!(read(TokenKind::Int, "9223372036854775808"), Err(CompileErrorKind::Literal));
        assert_eq!(read(TokenKind::Float, "1e400"), Err(CompileErrorKind::Literal));
        assert_eq!(read(TokenKind::Float, "1_0.5"), Ok(Literal::Double(10.5)));
        assert_eq!(read(TokenKind::Float, "0x1.8p1"), Ok(Literal::Double(3.0)));
        assert_eq!(read(TokenKind::Float, "0x1p-1074"), Ok(Literal::Double(f64::from_bits(1))));
    }
}

//! What literals mean. A text that Go reads as a duration is one: `"1s"`, but also `"0"`
//! (docs/behaviour/expressions.md#literals).

use super::lexer::TokenKind;
use crate::expression::{
    error::{CompileError, CompileErrorKind},
    span::Span,
};
use mixer_adapter_core::value::parse_duration;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Literal {
    Text(String),
    Int(i64),
    Double(f64),
    Bool(bool),
    /// Nanoseconds.
    Duration(i64),
}

/// Reads the text of a literal token.
pub(crate) fn literal(kind: TokenKind, text: &str, span: Span) -> Result<Literal, CompileError> {
    let refuse =
        |message: &str| Err(CompileError::new(CompileErrorKind::Literal, span, format!("{message}: {text}")));
    match kind {
        TokenKind::Int => match text.parse() {
            Ok(number) => Ok(Literal::Int(number)),
            Err(_) if text.bytes().all(|b| b.is_ascii_digit()) => refuse("this number does not fit INT64"),
            Err(_) => refuse("integers are written in plain decimal digits"),
        },
        TokenKind::Float => match float(&text.replace('_', "")) {
            Some(number) if number.is_finite() => Ok(Literal::Double(number)),
            _ => refuse("this number does not fit DOUBLE"),
        },
        TokenKind::Imaginary => refuse("imaginary numbers are not supported"),
        TokenKind::RawText => Ok(text_or_duration(text.trim_matches('`').replace('\r', ""))),
        _ => {
            let content = unquote(text, span)?;
            if kind == TokenKind::Char && content.chars().count() != 1 {
                let message = "single quotes hold exactly one character";
                return Err(CompileError::new(CompileErrorKind::Parse, span, message)
                    .help("write a text in double quotes"));
            }
            Ok(text_or_duration(content))
        }
    }
}

fn text_or_duration(text: String) -> Literal {
    match parse_duration(&text) {
        Some(nanos) => Literal::Duration(nanos),
        None => Literal::Text(text),
    }
}

fn float(text: &str) -> Option<f64> {
    let Some(digits) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) else {
        return text.parse().ok();
    };
    let (mantissa, exponent) = digits.split_once(['p', 'P'])?;
    let exponent: i32 = exponent.parse().ok()?;
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let value = whole
        .chars()
        .chain(fraction.chars())
        .try_fold(0.0, |value, digit| Some(value * 16.0 + f64::from(digit.to_digit(16)?)))?;
    let scale = exponent.checked_sub(i32::try_from(fraction.len()).ok()?.checked_mul(4)?)?;
    // Halved, so that a scale below the smallest power of two does not become zero too early.
    Some(value * 2f64.powi(scale / 2) * 2f64.powi(scale - scale / 2))
}

/// The content of `"..."` or `'...'`, escapes replaced.
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
            let message = "this escape sequence does not exist, or does not stand for a character";
            return Err(CompileError::new(CompileErrorKind::Parse, Span::new(at, end), message)
                .help("a backslash itself is written `\\\\`"));
        };
        rest = &escape[length..];
    }
    content.extend_from_slice(rest.as_bytes());
    String::from_utf8(content).map_err(|_| {
        CompileError::new(CompileErrorKind::Literal, span, format!("this text is not UTF-8: {text}"))
    })
}

/// Appends what the escape sequence at the start of `escape` stands for; returns its length.
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
        let text = |content: &str| Ok(Literal::Text(content.to_owned()));
        assert_eq!(read(TokenKind::Text, r#""\x41\101\u00e9\U0001F600\t\"""#), text("AAé😀\t\""));
        assert_eq!(read(TokenKind::Char, r"'\''"), text("'"));
        assert_eq!(read(TokenKind::Text, r#""\xc3\xa9""#), text("é"));
        assert_eq!(read(TokenKind::RawText, "`\\n\r`"), text("\\n"));
        for bad in [r#""\q""#, r#""\'""#, r#""\x4""#, r#""\400""#, r#""\ud800""#, r#""\x4é""#] {
            assert_eq!(read(TokenKind::Text, bad), Err(CompileErrorKind::Parse), "{bad}");
        }
        assert_eq!(read(TokenKind::Text, r#""\xff""#), Err(CompileErrorKind::Literal));
        assert_eq!(read(TokenKind::Char, "'ab'"), Err(CompileErrorKind::Parse));
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        assert_eq!(read(TokenKind::Int, "9223372036854775808"), Err(CompileErrorKind::Literal));
        assert_eq!(read(TokenKind::Float, "1e400"), Err(CompileErrorKind::Literal));
        assert_eq!(read(TokenKind::Float, "1_0.5"), Ok(Literal::Double(10.5)));
        assert_eq!(read(TokenKind::Float, "0x1.8p1"), Ok(Literal::Double(3.0)));
        assert_eq!(read(TokenKind::Float, "0x1p-1074"), Ok(Literal::Double(f64::from_bits(1))));
    }
}

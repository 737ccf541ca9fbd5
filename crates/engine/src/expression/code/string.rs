use std::borrow::Cow;

use super::{Env, Expr};
use crate::expression::{
    error::{EvalError, EvalErrorKind, quoted},
    formats::{dns, email, uri},
    span::Span,
};
use mixer_adapter_core::value::ValueType;

/// A type whose values are strings of a certain format, with its own validation and equality.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StrFormat {
    DnsName,
    Email,
    Uri,
}

/// The most bytes that the concatenations of one evaluation make.
pub(crate) const MAX_CONCATENATED: usize = 8 << 20;

/// Evaluates the parts of a text.
#[inline(never)]
pub(super) fn concat<'a>(parts: &'a [Expr], env: &mut Env<'a, '_>) -> Result<Cow<'a, str>, EvalError> {
    let mut text = String::new();
    for part in parts {
        let part = part.text(env)?;
        env.concatenated += part.len();
        if env.concatenated > MAX_CONCATENATED {
            return Err(EvalError::new(EvalErrorKind::TooLong { max: MAX_CONCATENATED }, Span::default()));
        }
        text.push_str(&part);
    }
    Ok(Cow::Owned(text))
}

/// Converts character by character, as Go does: a character never becomes two, and a final sigma is not special.
pub(crate) fn to_lower(text: Cow<'_, str>) -> Cow<'_, str> {
    if text.chars().all(|c| lower(c) == c) { text } else { Cow::Owned(text.chars().map(lower).collect()) }
}

fn lower(c: char) -> char {
    c.to_lowercase().next().unwrap_or(c)
}

impl StrFormat {
    /// Returns the format of the values of a type.
    pub(crate) fn of(value_type: ValueType) -> Option<Self> {
        [Self::DnsName, Self::Email, Self::Uri].into_iter().find(|format| format.value_type() == value_type)
    }

    /// Validates a string; a DNS name is returned with its punycode decoded, the others unchanged.
    pub(crate) fn validate(self, text: Cow<'_, str>, span: Span) -> Result<Cow<'_, str>, EvalError> {
        let decoded = match self {
            StrFormat::DnsName => dns::to_unicode(&text),
            StrFormat::Email => email::validate(&text).map(|()| Cow::Borrowed("")),
            StrFormat::Uri => uri::validate(&text).map(|()| Cow::Borrowed("")),
        };
        match decoded {
            Ok(Cow::Owned(decoded)) => Ok(Cow::Owned(decoded)),
            Ok(Cow::Borrowed(_)) => Ok(text),
            Err(error) => {
                let message = format!("`{}`: {error}", quoted(&text));
                Err(EvalError::conversion(self.value_type(), span, message))
            }
        }
    }

    /// Returns whether two values are equal. Values from a request may be invalid, which is an error.
    pub(crate) fn equal(self, a: &str, b: &str, span: Span) -> Result<bool, EvalError> {
        let equal = match self {
            StrFormat::DnsName => Ok(dns::equal(a, b)),
            StrFormat::Email => email::equal(a, b),
            StrFormat::Uri => uri::equal(a, b),
        };
        equal.map_err(|error| EvalError::conversion(self.value_type(), span, error.to_string()))
    }

    pub(crate) fn value_type(self) -> ValueType {
        match self {
            StrFormat::DnsName => ValueType::DnsName,
            StrFormat::Email => ValueType::EmailAddress,
            StrFormat::Uri => ValueType::Uri,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use crate::{
        attribute::{AttributeValue, Bag, Reads, Vocabulary},
        expression::{Expression, Language},
    };
    use mixer_adapter_core::value::ValueType;

    fn eval(language: Language, text: &str, length: usize) -> Result<(), String> {
        let mut vocabulary = Vocabulary::new();
        vocabulary.declare("a", ValueType::String).unwrap();
        let expression = Expression::compile_in(language, text, &vocabulary).unwrap();
        let mut bag = Bag::new(Arc::new(vocabulary));
        bag.insert("a", AttributeValue::String("a".repeat(length).into()));
        expression.eval(&bag, &mut Reads::default()).map(|_| ()).map_err(|error| error.to_string())
    }

    #[test]
    fn concatenations_of_one_evaluation_are_limited() {
        let too_long = Err("concatenations make more than 8 MiB".to_owned());
        let sum = "a + a + a + a + (a + a)";
        assert_eq!(eval(Language::Cexl, sum, 1 << 20), Ok(()));
        assert_eq!(eval(Language::Cexl, sum, 2 << 20), too_long);
        // Each sum of CEL counts: 2 + 3 + 4 + 2 + 6 times the text.
        #[cfg(feature = "cel")]
        for language in [Language::Cel, Language::Compat] {
            assert_eq!(eval(language, sum, 400 << 10), Ok(()), "{language:?}");
            assert_eq!(eval(language, sum, 1 << 20), too_long, "{language:?}");
        }
    }

    /// Each of the macros doubles the text.
    #[cfg(feature = "cel")]
    #[test]
    fn concatenations_in_macros_are_limited() {
        let too_long = Err("concatenations make more than 8 MiB".to_owned());
        for start in ["a", "dyn(a)"] {
            let doubled = format!("[{start}]{} == []", ".map(x, x + x)".repeat(20));
            assert_eq!(eval(Language::Cel, &doubled, 1), Ok(()), "{start}");
            assert_eq!(eval(Language::Cel, &doubled, 64), too_long, "{start}");
        }
        assert_eq!(
            eval(Language::Cel, "dyn(1) + dyn(2) == dyn(3) && dyn([1]) + dyn([2]) == [1, 2]", 1),
            Ok(())
        );
    }
}

//! Words that CEL reserves now but did not in Mixer's version: an attribute may be called `as` or `package`.

const RESERVED: &str =
    "as break const continue else for function if import let loop namespace package return var void while";

fn is_reserved(name: &str) -> bool {
    RESERVED.split(' ').any(|reserved| reserved == name)
}

/// The suffix of a reserved name during parsing.
const MARK: &str = "__reserved";

/// Appends [`MARK`] to reserved names. Field names such as `a.package` are not reserved.
pub(crate) fn mark(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut field = false;
    while let Some(c) = rest.chars().next() {
        let length = match c {
            '"' | '\'' => quoted(rest, c),
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            _ if is_name(c) => rest.find(|c| !is_name(c)).unwrap_or(rest.len()),
            _ => c.len_utf8(),
        };
        let (token, after) = rest.split_at(length);
        out.push_str(token);
        if is_reserved(token) && !field {
            out.push_str(MARK);
        }
        field = token == "." || field && token.trim().is_empty();
        rest = after;
    }
    out
}

/// Removes the mark of a reserved name.
pub(crate) fn unmark(name: &str) -> &str {
    name.strip_suffix(MARK).filter(|name| is_reserved(name)).unwrap_or(name)
}

fn is_name(c: char) -> bool {
    c == '_' || c.is_ascii_alphanumeric()
}

/// Returns the length of a string literal with its quotes, one or three at each end.
fn quoted(rest: &str, quote: char) -> usize {
    let triple: String = [quote; 3].iter().collect();
    let end = if rest.starts_with(&triple) { triple.as_str() } else { &triple[..1] };
    let mut at = end.len();
    while let Some(c) = rest[at..].chars().next() {
        if rest[at..].starts_with(end) {
            return at + end.len();
        }
        at += c.len_utf8();
        if c == '\\' {
            at += rest[at..].chars().next().map_or(0, char::len_utf8);
        }
    }
    rest.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_names_outside_of_strings_and_fields_are_marked() {
        assert_eq!(mark("as == 'as' && a.as . as // as"), "as__reserved == 'as' && a.as . as // as");
        assert_eq!(mark(r#"f(as, "\" as", ask)"#), r#"f(as__reserved, "\" as", ask)"#);
        assert_eq!(mark("\"\"\"as \" as\"\"\" + as"), "\"\"\"as \" as\"\"\" + as__reserved");
        assert_eq!(mark("'as"), "'as");
        assert_eq!((unmark("as__reserved"), unmark("ask__reserved")), ("as", "ask__reserved"));
    }
}

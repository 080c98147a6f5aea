//! Names, literals and expressions of a command line, as parts of a SQL text.
//!
//! Invariants: a name or a literal is quoted, whatever it holds; an expression stands between
//! parentheses that it cannot leave.
//!
//! It must not know what the SQL is for.

use std::fmt;

/// PostgreSQL cuts a longer name, and would take another table for it.
const NAME_LIMIT_BYTES: usize = 63;

/// What is wrong with a part of the command line, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FollowSqlError {
    /// Not the name of a table with its schema.
    #[error("expected SCHEMA.TABLE, such as public.users, found {0:?}")]
    Table(String),
    /// A name that PostgreSQL does not take as it stands.
    #[error("expected a name of 1 to 63 bytes without control characters, found {0:?}")]
    Name(String),
    /// Not one expression.
    #[error("expected a column, or one expression over the row NEW, found {found:?}: {fault}")]
    Expression {
        /// What was given.
        found: String,
        /// What is wrong with it.
        fault: &'static str,
    },
}

/// A name as SQL takes it, whatever it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Name(pub(super) String);

impl Name {
    /// Takes a name as it is written, case included; double quotes around it are taken off.
    pub(super) fn parse(text: &str) -> Result<Self, FollowSqlError> {
        let inside = text
            .strip_prefix('"')
            .and_then(|rest| rest.strip_suffix('"'));
        let name = match inside {
            Some(inside) if inside.replace("\"\"", "").contains('"') => None,
            Some(inside) => Some(inside.replace("\"\"", "\"")),
            None => Some(text.to_owned()),
        };
        name.filter(|name| (1..=NAME_LIMIT_BYTES).contains(&name.len()))
            .filter(|name| !name.contains(char::is_control))
            .map(Self)
            .ok_or_else(|| FollowSqlError::Name(text.to_owned()))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "\"{}\"", self.0.replace('"', "\"\""))
    }
}

/// A table with its schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Table {
    pub(super) schema: Name,
    pub(super) name: Name,
}

impl Table {
    pub(super) fn parse(text: &str) -> Result<Self, FollowSqlError> {
        let mut is_quoted = false;
        let dot = text.char_indices().find(|(_, c)| {
            is_quoted ^= *c == '"';
            *c == '.' && !is_quoted
        });
        let (dot, _) = dot.ok_or_else(|| FollowSqlError::Table(text.to_owned()))?;
        Ok(Self {
            schema: Name::parse(&text[..dot])?,
            name: Name::parse(&text[dot + 1..])?,
        })
    }
}

impl fmt::Display for Table {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{}", self.schema, self.name)
    }
}

/// What is taken of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    Column(Name),
    Expression(String),
}

impl Value {
    pub(super) fn parse(text: &str) -> Result<Self, FollowSqlError> {
        let text = text.trim();
        let is_quoted = text.len() > 1 && text.starts_with('"') && text.ends_with('"');
        if (is_identifier(text) || is_quoted)
            && let Ok(name) = Name::parse(text)
        {
            return Ok(Self::Column(name));
        }
        match fault_of_expression(text) {
            None => Ok(Self::Expression(text.to_owned())),
            Some(fault) => Err(FollowSqlError::Expression {
                found: text.to_owned(),
                fault,
            }),
        }
    }

    pub(super) fn column(&self) -> Option<&Name> {
        match self {
            Self::Column(name) => Some(name),
            Self::Expression(_) => None,
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Column(name) => write!(out, "NEW.{name}"),
            Self::Expression(text) => write!(out, "({text})"),
        }
    }
}

fn is_identifier(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '$' || !c.is_ascii();
    text.starts_with(|c: char| is_part(c) && !c.is_ascii_digit() && c != '$')
        && text.chars().all(is_part)
}

/// What keeps a text from standing between parentheses as one expression. It reads the quotes as
/// PostgreSQL does; what the expression means PostgreSQL itself says.
fn fault_of_expression(text: &str) -> Option<&'static str> {
    let mut open = Vec::new();
    let mut before = ' ';
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\'' | '"' => {
                let has_escapes = c == '\'' && matches!(before, 'e' | 'E');
                loop {
                    match rest.next() {
                        None => return Some("a quote is not closed"),
                        Some('\\') if has_escapes => drop(rest.next()),
                        Some(other) if other == c => break,
                        Some(_) => {}
                    }
                }
            }
            '(' | '[' => open.push(c),
            ')' if open.pop() != Some('(') => return Some("a parenthesis closes none"),
            ']' if open.pop() != Some('[') => return Some("a bracket closes none"),
            ';' => return Some("leave out the semicolon"),
            '\\' => return Some("leave out the backslash, or write it in a quoted text"),
            '$' if !before.is_alphanumeric() => return Some("write '…' for a quoted text"),
            '-' if rest.peek() == Some(&'-') => return Some("leave out the comment"),
            '/' if rest.peek() == Some(&'*') => return Some("leave out the comment"),
            _ => {}
        }
        before = c;
    }
    if text.is_empty() {
        return Some("it is empty");
    }
    (!open.is_empty()).then_some("a parenthesis or bracket is not closed")
}

/// A text as a literal.
pub(super) fn literal(text: &str) -> String {
    let quoted = text.replace('\'', "''");
    if text.contains('\\') {
        format!("E'{}'", quoted.replace('\\', "\\\\"))
    } else {
        format!("'{quoted}'")
    }
}

/// A text between dollar quotes that do not stand in it.
pub(super) fn dollar_quoted(text: &str) -> String {
    let mut tag = "$bloomgate$".to_owned();
    while text.contains(tag.trim_end_matches('$')) {
        tag.insert(tag.len() - 1, 'x');
    }
    format!("{tag}{text}{tag}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_taken_as_it_is_written_and_quoted() {
        for (text, quoted) in [
            ("public.users", "\"public\".\"users\""),
            ("Auth.Token", "\"Auth\".\"Token\""),
            ("\"Auth Data\".\"to.ken\"", "\"Auth Data\".\"to.ken\""),
            (
                "a.\"b\"\"; DROP TABLE c; --\"",
                "\"a\".\"b\"\"; DROP TABLE c; --\"",
            ),
        ] {
            assert_eq!(Table::parse(text).unwrap().to_string(), quoted);
        }
    }

    #[test]
    fn what_is_no_name_is_refused() {
        let long = format!("public.{}", "x".repeat(64));
        for text in ["users", "", "a.", ".b", "a.b\nc", "a.\"b\"c\"", &long] {
            assert!(Table::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_bare_or_quoted_name_is_a_column_and_anything_else_an_expression() {
        for (text, value) in [
            ("email", "NEW.\"email\""),
            ("tokenId", "NEW.\"tokenId\""),
            ("\"Token Id\"", "NEW.\"Token Id\""),
            ("\"a\"\"b\"", "NEW.\"a\"\"b\""),
            ("lower(NEW.email)", "(lower(NEW.email))"),
            (
                "NEW.\"a\" || ')' || NEW.\"b\"",
                "(NEW.\"a\" || ')' || NEW.\"b\")",
            ),
            ("E'\\')' || NEW.a", "(E'\\')' || NEW.a)"),
        ] {
            assert_eq!(Value::parse(text).unwrap().to_string(), value);
        }
    }

    #[test]
    fn an_expression_cannot_leave_its_parentheses() {
        for text in [
            "",
            "1); DROP TABLE a; --",
            "a) OR (b",
            "(a",
            "'a",
            "NEW.\"a",
            "a -- b",
            "a /* b",
            "NEW.a; b",
            "$$a$$",
            "$x$a",
            "a[1",
            "(a]",
            "NEW.a \\! ls",
            "E'\\' || NEW.a",
        ] {
            assert!(Value::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_dollar_quote_is_none_that_stands_inside() {
        let text = "$bloomgate$ $bloomgatex$";
        assert_eq!(
            dollar_quoted(text),
            format!("$bloomgatexx${text}$bloomgatexx$")
        );
        assert_eq!(literal("a'b\\"), "E'a''b\\\\'");
    }
}

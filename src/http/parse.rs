//! JSON, read strictly, with faults that say where and what without repeating a value.
//!
//! serde's own messages quote what was found (`invalid type: string "ann@…"`), and what was found
//! may be an item. So a fault is put together anew from the kind of error, the path to it and the
//! static text of what was expected. serde gives the kind only as the beginning of its message;
//! the tests pin each beginning.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use serde_json::error::Category;
use serde_path_to_error::{Path, Segment};

use super::problem::Problem;
use super::problem_kind::ProblemKind;

/// Why a text is not the JSON that was expected.
#[derive(Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is no JSON.
    Malformed {
        /// Where it ceases to be, counted from 1.
        line: usize,
        /// As `line`, in bytes.
        column: usize,
    },
    /// It is JSON, and a field is not as it must be.
    Field {
        /// A JSON pointer to the field (RFC 6901).
        pointer: String,
        /// What was expected.
        detail: String,
    },
}

impl From<Fault> for Problem {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Malformed { line, column } => Self::new(
                ProblemKind::MalformedBody,
                format!("expected JSON; it ends being JSON at line {line}, column {column}"),
            ),
            Fault::Field { pointer, detail } => {
                Self::at(ProblemKind::InvalidField, pointer, detail)
            }
        }
    }
}

/// Reads one JSON value, and nothing after it. May borrow from `json`.
///
/// # Errors
/// Where it is no JSON, or not what `T` takes. The second pass, which finds the path, is made
/// only then.
pub fn parse<'json, T: Deserialize<'json>>(json: &'json [u8]) -> Result<T, Fault> {
    serde_json::from_slice(json).map_err(|error| match error.classify() {
        Category::Data => field_fault::<T>(json),
        Category::Syntax | Category::Eof | Category::Io => malformed(&error),
    })
}

fn malformed(error: &serde_json::Error) -> Fault {
    Fault::Malformed {
        line: error.line(),
        column: error.column(),
    }
}

/// JSON that ceases to be UTF-8 after `text`.
fn no_text(text: &[u8]) -> Fault {
    let lines = || text.split(|byte| *byte == b'\n');
    Fault::Malformed {
        line: lines().count(),
        column: lines().next_back().map_or(0, <[u8]>::len) + 1,
    }
}

fn field_fault<'json, T: Deserialize<'json>>(json: &'json [u8]) -> Fault {
    // The first pass stopped at the field; what follows may still be no JSON.
    if let Err(error) = serde_json::from_slice::<IgnoredAny>(json) {
        return malformed(&error);
    }
    // What is ignored may hold any bytes; JSON is UTF-8.
    if let Err(error) = std::str::from_utf8(json) {
        return no_text(&json[..error.valid_up_to()]);
    }
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    match serde_path_to_error::deserialize::<_, T>(&mut deserializer) {
        Ok(_) => Fault::Field {
            pointer: String::new(),
            detail: "is not as it must be".to_owned(),
        },
        Err(error) => {
            let (field, detail) = explain(&error.inner().to_string());
            let pointer = pointer_to(error.path(), field.as_deref());
            Fault::Field { pointer, detail }
        }
    }
}

/// What a message of serde says of a field: its name, where the path does not hold it, and what
/// was expected of it.
fn explain(message: &str) -> (Option<String>, String) {
    let quoted = |rest: &str| {
        let name = rest.split('`').next().unwrap_or_default();
        is_identifier(name).then(|| name.to_owned())
    };
    if let Some(rest) = message.strip_prefix("missing field `") {
        (quoted(rest), "is required".to_owned())
    } else if let Some(rest) = message.strip_prefix("duplicate field `") {
        (quoted(rest), "is given twice".to_owned())
    } else if let Some(rest) = message.strip_prefix("unknown field `") {
        (quoted(rest), "is not a field of this request".to_owned())
    } else {
        (None, format!("must be {}", expectation(message)))
    }
}

/// The static end of a message of serde. What was found stands before it and may hold anything,
/// the separator included: therefore the last one counts.
fn expectation(message: &str) -> &str {
    let position = message.rfind(" at line ").unwrap_or(message.len());
    match message[..position].rsplit_once(", expected ") {
        Some((_, "f64")) => "a number",
        Some((_, "u64")) => "a whole number from 0 on",
        Some((_, "a map")) => "an object",
        Some((_, "a sequence")) => "an array",
        Some((_, expected)) => expected,
        None => "as the document says",
    }
}

/// Whether a name may be repeated to the caller: it looks like one of ours, and like no item.
fn is_identifier(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}

fn pointer_to(path: &Path, field: Option<&str>) -> String {
    let mut pointer = String::new();
    let mut last = None;
    for segment in path {
        match segment {
            Segment::Seq { index } => {
                pointer.push_str(&format!("/{index}"));
                last = None;
            }
            Segment::Map { key } if is_identifier(key) => {
                pointer.push('/');
                pointer.push_str(key);
                last = Some(key.as_str());
            }
            Segment::Map { .. } | Segment::Enum { .. } | Segment::Unknown => break,
        }
    }
    if let Some(field) = field
        && last != Some(field)
    {
        pointer.push('/');
        pointer.push_str(field);
    }
    pointer
}

/// A JSON object, and not an array of its fields' values, which serde would take as well.
#[derive(Clone)]
pub struct Object<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = Object<T>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Object)
    }
}

/// A JSON string, borrowed from the body where it holds no escapes. `Vec<Cow<str>>` with
/// `#[serde(borrow)]` would allocate each. It has no `Debug`, for it is an item.
#[derive(Clone)]
pub struct Text<'a>(pub Cow<'a, str>);

impl AsRef<str> for Text<'_> {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(TextVisitor)
    }
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Text<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a string")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Text(Cow::Borrowed(text)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Text(Cow::Owned(text.to_owned())))
    }
}

/// For an optional field that may be left out and may not be null.
///
/// # Errors
/// Those of `T`, null included.
pub fn present<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    T::deserialize(deserializer).map(Some)
}

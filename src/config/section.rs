//! One table of the configuration, read key by key.
//!
//! Invariants: every fault of every key becomes a problem under the key's full path, and the
//! reading goes on, so that one fault hides no other; what was never asked for is unknown, and
//! that is a problem as well. This module must not know which keys there are.

use std::ops::RangeInclusive;
use std::time::Duration;

use toml::{Table, Value};

use super::problems::{ProblemKind, Problems, shown};
use super::units::{
    BYTES_FORM, DURATION_FORM, bytes_text, duration_text, parse_bytes, parse_duration,
};

/// How alike two keys must be (Jaro-Winkler, 0 to 1) for the one to be offered for the other.
const ALIKE: f64 = 0.85;

/// A table and the path to it.
pub(super) struct Section<'p> {
    path: String,
    table: Table,
    known: Vec<&'static str>,
    problems: &'p mut Problems,
}

impl<'p> Section<'p> {
    /// Reads a table: gives it to `read`, then reports the keys that `read` did not ask for.
    pub(super) fn read<T>(
        path: String,
        table: Table,
        problems: &'p mut Problems,
        read: impl FnOnce(&mut Section<'_>) -> T,
    ) -> T {
        let mut section = Section {
            path,
            table,
            known: Vec::new(),
            problems,
        };
        let value = read(&mut section);
        section.report_unknown();
        value
    }

    /// The full path of a key of this table.
    pub(super) fn path_of(&self, key: &str) -> String {
        let key = path_segment(key);
        if self.path.is_empty() {
            key
        } else {
            format!("{}.{key}", self.path)
        }
    }

    /// Adds a problem with a key of this table.
    pub(super) fn problem(&mut self, key: &str, kind: ProblemKind) {
        self.problems.add(self.path_of(key), kind);
    }

    /// Adds a problem with the table itself.
    pub(super) fn own_problem(&mut self, kind: ProblemKind) {
        self.problems.add(self.path.clone(), kind);
    }

    /// Whether one of these keys of this table, or what lies below it, has a problem already, so
    /// that its value is not to be judged together with others.
    pub(super) fn faulty(&self, keys: &[&str]) -> bool {
        keys.iter()
            .any(|key| self.problems.concern(&self.path_of(key)))
    }

    /// Takes a key's value out; the key is known from now on.
    pub(super) fn take(&mut self, key: &'static str) -> Option<Value> {
        self.known.push(key);
        self.table.remove(key)
    }

    /// Takes out every key that was not asked for by name, for a table whose keys are the user's own.
    /// What is much like a name that was asked for is taken for a slip, and stays unknown.
    pub(super) fn take_rest(&mut self) -> Vec<(String, Value)> {
        let is_slip = |key: &str| nearest(key, &self.known).is_some();
        let (slips, rest) = std::mem::take(&mut self.table)
            .into_iter()
            .partition::<Vec<_>, _>(|(key, _)| is_slip(key));
        self.table.extend(slips);
        rest
    }

    /// Reads a key that may be left out: none when it is, or when it has a problem.
    pub(super) fn optional<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(Value) -> Result<T, ProblemKind>,
    ) -> Option<T> {
        match read(self.take(key)?) {
            Ok(value) => Some(value),
            Err(kind) => {
                self.problem(key, kind);
                None
            }
        }
    }

    /// Reads a key that must be there: none when it has a problem.
    pub(super) fn required<T>(
        &mut self,
        key: &'static str,
        remedy: &str,
        read: impl FnOnce(Value) -> Result<T, ProblemKind>,
    ) -> Option<T> {
        if !self.table.contains_key(key) {
            self.known.push(key);
            self.problem(key, ProblemKind::missing(remedy));
            return None;
        }
        self.optional(key, read)
    }

    /// Reads a duration within bounds.
    pub(super) fn duration(
        &mut self,
        key: &'static str,
        default: Duration,
        bounds: &RangeInclusive<Duration>,
    ) -> Duration {
        self.optional(key, |value| duration(value, bounds))
            .unwrap_or(default)
    }

    /// Reads a whole number within bounds.
    pub(super) fn number(
        &mut self,
        key: &'static str,
        default: u32,
        bounds: &RangeInclusive<u32>,
    ) -> u32 {
        self.optional(key, |value| number(value, bounds))
            .unwrap_or(default)
    }

    /// Reads an amount of memory within bounds, in bytes.
    pub(super) fn bytes(
        &mut self,
        key: &'static str,
        default: u64,
        bounds: &RangeInclusive<u64>,
    ) -> u64 {
        self.optional(key, |value| bytes(value, bounds))
            .unwrap_or(default)
    }

    /// Reads a table under this one; one that is left out is read as an empty one.
    pub(super) fn table<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&mut Section<'_>) -> T,
    ) -> T {
        let table = self.optional(key, table);
        let path = self.path_of(key);
        Section::read(path, table.unwrap_or_default(), self.problems, read)
    }

    /// Reads a table of named tables, such as `[filters.NAME]`: none when it is left out. A name
    /// for which `read` gives none is left out of the result.
    pub(super) fn named<T>(
        &mut self,
        key: &'static str,
        mut read: impl FnMut(&str, &mut Section<'_>) -> Option<T>,
    ) -> Option<Vec<T>> {
        let table = self.optional(key, table)?;
        let base = self.path_of(key);
        let mut values = Vec::new();
        for (name, value) in table {
            let path = format!("{base}.{}", path_segment(&name));
            let read_one = |section: &mut Section<'_>| read(&name, section);
            values.extend(self.read_element(path, value, read_one));
        }
        Some(values)
    }

    /// Reads an array of tables, such as `[[keys]]`; one that is left out is read as an empty
    /// one. A table for which `read` gives none is left out of the result.
    pub(super) fn tables<T>(
        &mut self,
        key: &'static str,
        mut read: impl FnMut(&mut Section<'_>) -> Option<T>,
    ) -> Vec<T> {
        let base = self.path_of(key);
        let tables = self.optional(key, |value| array(value, "an array of tables"));
        let mut values = Vec::new();
        for (index, value) in tables.into_iter().flatten().enumerate() {
            let path = format!("{base}[{index}]");
            values.extend(self.read_element(path, value, &mut read));
        }
        values
    }

    /// Reads a table that is one of many.
    fn read_element<T>(
        &mut self,
        path: String,
        value: Value,
        read: impl FnOnce(&mut Section<'_>) -> Option<T>,
    ) -> Option<T> {
        match table(value) {
            Ok(table) => Section::read(path, table, self.problems, read),
            Err(kind) => {
                self.problems.add(path, kind);
                None
            }
        }
    }

    fn report_unknown(&mut self) {
        let unknown: Vec<String> = self.table.keys().cloned().collect();
        for key in unknown {
            let nearest = nearest(&key, &self.known);
            self.problem(&key, ProblemKind::UnknownKey { nearest });
        }
    }
}

/// The known key that is most like the unknown one, if any is alike at all.
fn nearest(unknown: &str, known: &[&'static str]) -> Option<&'static str> {
    known
        .iter()
        .map(|key| (strsim::jaro_winkler(unknown, key), *key))
        .filter(|(likeness, _)| *likeness >= ALIKE)
        .max_by(|left, right| left.0.total_cmp(&right.0))
        .map(|(_, key)| key)
}

/// A key as it stands in a path: bare where TOML allows it, else quoted.
fn path_segment(key: &str) -> String {
    let bare = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if !key.is_empty() && key.bytes().all(bare) {
        key.to_owned()
    } else {
        shown(key)
    }
}

/// A value of another type than the expected one. The value itself is not shown.
fn wrong_type(expected: &str, found: &Value) -> ProblemKind {
    let article = if matches!(found, Value::Integer(_) | Value::Array(_)) {
        "an"
    } else {
        "a"
    };
    ProblemKind::unexpected(expected, format!("{article} {}", found.type_str()))
}

fn table(value: Value) -> Result<Table, ProblemKind> {
    let Value::Table(table) = value else {
        return Err(wrong_type("a table", &value));
    };
    Ok(table)
}

fn array(value: Value, expected: &str) -> Result<Vec<Value>, ProblemKind> {
    let Value::Array(values) = value else {
        return Err(wrong_type(expected, &value));
    };
    Ok(values)
}

/// Reads a text.
pub(super) fn text(value: Value) -> Result<String, ProblemKind> {
    text_in_form(value, "a string")
}

/// Reads a text, for a message that says more of it than its type.
pub(super) fn text_in_form(value: Value, expected: &str) -> Result<String, ProblemKind> {
    let Value::String(text) = value else {
        return Err(wrong_type(expected, &value));
    };
    Ok(text)
}

/// Reads a text that is not blank.
pub(super) fn filled_text(value: Value) -> Result<String, ProblemKind> {
    let text = text(value)?;
    if text.trim().is_empty() {
        return Err(ProblemKind::unexpected("a text", "a blank one"));
    }
    Ok(text)
}

/// Reads an array of texts.
pub(super) fn texts(value: Value) -> Result<Vec<String>, ProblemKind> {
    let values = array(value, "an array of strings")?;
    values.into_iter().map(text).collect()
}

/// Reads a truth value.
pub(super) fn boolean(value: Value) -> Result<bool, ProblemKind> {
    let Value::Boolean(boolean) = value else {
        return Err(wrong_type("true or false", &value));
    };
    Ok(boolean)
}

/// Reads a duration within bounds.
pub(super) fn duration(
    value: Value,
    bounds: &RangeInclusive<Duration>,
) -> Result<Duration, ProblemKind> {
    let text = text_in_form(value, DURATION_FORM)?;
    let duration = parse_duration(&text)
        .ok_or_else(|| ProblemKind::unexpected(DURATION_FORM, shown(&text)))?;
    within(duration, bounds, |bound| duration_text(*bound))
}

/// Reads an amount of memory within bounds, in bytes.
pub(super) fn bytes(value: Value, bounds: &RangeInclusive<u64>) -> Result<u64, ProblemKind> {
    let (bytes, found) = if let Value::Integer(number) = value {
        (u64::try_from(number).ok(), number.to_string())
    } else {
        let text = text_in_form(value, BYTES_FORM)?;
        (parse_bytes(&text), shown(&text))
    };
    let bytes = bytes.ok_or_else(|| ProblemKind::unexpected(BYTES_FORM, found))?;
    within(bytes, bounds, |bound| bytes_text(*bound))
}

/// Reads a whole number of any sign.
pub(super) fn integer(value: Value) -> Result<i64, ProblemKind> {
    let Value::Integer(number) = value else {
        return Err(wrong_type("a whole number", &value));
    };
    Ok(number)
}

/// Reads a whole number within bounds.
pub(super) fn number(value: Value, bounds: &RangeInclusive<u32>) -> Result<u32, ProblemKind> {
    let found = integer(value)?;
    let out_of_bounds = || {
        let expected = format!("a whole number from {} to {}", bounds.start(), bounds.end());
        ProblemKind::unexpected(expected, found.to_string())
    };
    u32::try_from(found)
        .ok()
        .filter(|number| bounds.contains(number))
        .ok_or_else(out_of_bounds)
}

/// Reads a number, with or without a decimal point.
pub(super) fn real(value: Value) -> Result<f64, ProblemKind> {
    if let Value::Float(number) = value {
        return Ok(number);
    }
    let Value::Integer(number) = value else {
        return Err(wrong_type("a number", &value));
    };
    i32::try_from(number)
        .map(f64::from)
        .map_err(|_| ProblemKind::unexpected("a number", number.to_string()))
}

fn within<T: PartialOrd>(
    value: T,
    bounds: &RangeInclusive<T>,
    print: impl Fn(&T) -> String,
) -> Result<T, ProblemKind> {
    if bounds.contains(&value) {
        return Ok(value);
    }
    let expected = format!("{} to {}", print(bounds.start()), print(bounds.end()));
    Err(ProblemKind::unexpected(expected, print(&value)))
}

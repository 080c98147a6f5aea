//! The SQL that makes the writes to a table known to a filter, for a DBA to review and run.
//!
//! Invariants: names and literals are quoted, whatever they hold; an expression stands between
//! parentheses that it cannot leave; the whole is one transaction, and may be run again.
//!
//! It must not know the configuration, nor run anything.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

use super::columns::ITEM_TYPES;
pub use super::sql_text::FollowSqlError;
use super::sql_text::{Name, Table, Value, dollar_quoted, literal};

/// What every followed source of a database shares.
const SCHEMA: &str = include_str!("follow_schema.sql");

/// A table that a source is to be followed on.
#[derive(Debug)]
pub struct FollowSql {
    filter: String,
    source: String,
    table: Table,
    item: Value,
    expires: Option<Value>,
    when: Option<Value>,
    role: Name,
}

/// The command line's part of it, as it was given.
#[derive(Debug, Clone, Copy)]
pub struct FollowedTable<'a> {
    /// `SCHEMA.TABLE`, either of them in double quotes or not.
    pub table: &'a str,
    /// A column, or an expression over the row `NEW`.
    pub item: &'a str,
    /// When the item may be forgotten: the same.
    pub expires: Option<&'a str>,
    /// Which rows are told: the same, of type boolean.
    pub when: Option<&'a str>,
    /// The role that the source logs in as.
    pub role: &'a str,
}

impl FollowSql {
    /// Takes a table for a source of a filter. Both have names of the form of a filter's.
    ///
    /// # Errors
    /// When a part is no name or expression.
    pub fn new(
        filter: &str,
        source: &str,
        followed: FollowedTable<'_>,
    ) -> Result<Self, FollowSqlError> {
        Ok(Self {
            filter: filter.to_owned(),
            source: source.to_owned(),
            table: Table::parse(followed.table)?,
            item: Value::parse(followed.item)?,
            expires: followed.expires.map(Value::parse).transpose()?,
            when: followed.when.map(Value::parse).transpose()?,
            role: Name::parse(followed.role)?,
        })
    }

    /// The columns that are taken as they are.
    fn columns(&self) -> impl Iterator<Item = &Name> {
        [Some(&self.item), self.expires.as_ref()]
            .into_iter()
            .flatten()
            .filter_map(Value::column)
    }

    fn expires(&self) -> String {
        match &self.expires {
            Some(expires) => expires.to_string(),
            None => "NULL::pg_catalog.timestamptz".to_owned(),
        }
    }

    /// Of its own for each source of each table, so that each may be run again by itself.
    fn function(&self) -> String {
        let parts = [
            &self.filter,
            &self.source,
            &self.table.schema.0,
            &self.table.name.0,
        ];
        format!("bloomgate_follow.record_{}", digest(&parts))
    }

    fn trigger(&self) -> String {
        format!("bloomgate_{}", digest(&[&self.filter, &self.source]))
    }

    /// Proves on no row that the values can be had, before anybody's write depends on it.
    fn check(&self) -> String {
        let (table, item, expires) = (&self.table, &self.item, self.expires());
        let columns: Vec<_> = self.columns().map(|column| literal(&column.0)).collect();
        let columns = match columns.as_slice() {
            [] => "NULL".to_owned(),
            columns => columns.join(", "),
        };
        let whole = literal(&table.to_string());
        let item_types: Vec<_> = ITEM_TYPES.iter().map(|name| literal(name)).collect();
        let item_types = item_types.join(", ");
        dollar_quoted(&format!(
            "
DECLARE
    path text := pg_catalog.current_setting('search_path');
    found oid[];
    is_item boolean[];
BEGIN
    PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
    -- Two of the table, so that a column without NEW is ambiguous, as the trigger knows none.
    found := ARRAY[
        pg_typeof((SELECT {item} FROM {table} AS new, {table} AS another LIMIT 0)),
        pg_typeof((SELECT {expires} FROM {table} AS new, {table} AS another LIMIT 0))];
    FOR part IN 1..2 LOOP
        WHILE (SELECT typtype = 'd' FROM pg_type WHERE oid = found[part]) LOOP
            found[part] := (SELECT typbasetype FROM pg_type WHERE oid = found[part]);
        END LOOP;
    END LOOP;
    IF NOT EXISTS (SELECT FROM pg_type WHERE oid = found[1] AND (typname = 'citext'
            OR typnamespace = 'pg_catalog'::regnamespace AND typname IN ({item_types}))) THEN
        RAISE EXCEPTION 'expected text, varchar, char, citext, uuid or an integer as the item, found %',
            format_type(found[1], NULL);
    END IF;
    IF found[2] <> 'timestamptz'::regtype THEN
        RAISE EXCEPTION 'expected timestamp with time zone as the expiry, found %',
            format_type(found[2], NULL);
    END IF;
    IF EXISTS (SELECT FROM pg_attribute WHERE attrelid = {whole}::regclass
            AND attname IN ({columns}) AND attgenerated = 'v') THEN
        RAISE EXCEPTION 'a virtual generated column has no value in a trigger: give its expression';
    END IF;
    PERFORM set_config('search_path', path, true);
END
"
        ))
    }

    /// With columns alone every name in it is qualified, and a path that is set and reset costs a
    /// write more than all the rest. What an expression names is looked up in `pg_catalog`.
    fn path_clause(&self) -> &'static str {
        let has_expression = [Some(&self.item), self.expires.as_ref()]
            .into_iter()
            .flatten()
            .any(|value| value.column().is_none());
        if has_expression {
            " SET search_path = pg_catalog, pg_temp"
        } else {
            ""
        }
    }

    fn body(&self) -> String {
        let (filter, source) = (literal(&self.filter), literal(&self.source));
        let (item, expires) = (&self.item, self.expires());
        dollar_quoted(&format!(
            "
BEGIN
    -- No NOTIFY: it would have the commits of all writers wait for one another.
    INSERT INTO bloomgate_follow.change (filter, source, item, expires_at)
    VALUES ({filter}, {source}, {item}::pg_catalog.text, {expires});
    RETURN NULL;
END
"
        ))
    }

    /// The SQL.
    #[must_use]
    pub fn sql(&self) -> String {
        let Self {
            filter,
            source,
            table,
            role,
            ..
        } = self;
        let (function, trigger) = (self.function(), self.trigger());
        let (check, body, path) = (self.check(), self.body(), self.path_clause());
        let (filter_argument, source_argument) = (literal(filter), literal(source));
        let mut out = String::new();
        let when = match &self.when {
            Some(when) => format!("\n    WHEN ({when})"),
            None => String::new(),
        };
        // A String takes whatever is written to it.
        let _ = write!(
            out,
            "{INTRODUCTION}\n{SCHEMA}
-- The source {source} of the filter {filter}.

-- Waits for the writes that are under way, so that every later one is recorded as said here.
LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE;

DO {check};

-- With the rights of its owner, so that who writes to the table needs none on the changes.
CREATE OR REPLACE FUNCTION {function}() RETURNS pg_catalog.trigger
LANGUAGE plpgsql SECURITY DEFINER{path} AS {body};
REVOKE ALL ON FUNCTION {function}() FROM PUBLIC;

-- For each row: a statement's trigger on a partitioned table is passed by where a partition is
-- written to directly. Always: replicated rows and restores count as well.
CREATE OR REPLACE TRIGGER {trigger} AFTER INSERT OR UPDATE ON {table}
    FOR EACH ROW{when}
    EXECUTE FUNCTION {function}({filter_argument}, {source_argument});
ALTER TABLE {table} ENABLE ALWAYS TRIGGER {trigger};

GRANT USAGE ON SCHEMA bloomgate_follow TO {role};
GRANT SELECT ON bloomgate_follow.change, bloomgate_follow.marker, bloomgate_follow.horizon,
    bloomgate_follow.server_start TO {role};
GRANT EXECUTE ON FUNCTION bloomgate_follow.renew_marker() TO {role};
GRANT EXECUTE ON FUNCTION bloomgate_follow.prune(pg_catalog.interval) TO {role};

COMMIT;

-- To end it: DROP TRIGGER {trigger} ON {table}; DROP FUNCTION {function}();
-- and with the last of them: DROP SCHEMA bloomgate_follow CASCADE;
"
        );
        out
    }
}

/// What stands at the front. The schema must be of whoever runs this: the functions in it run with
/// their owner's rights on what lies there.
const INTRODUCTION: &str = "\
-- Printed by bloomgate follow-sql, for a DBA to review and run in the source's database
-- (PostgreSQL 14 or later), as a role that may create schemas and owns the table.
-- It may be run again.
BEGIN;

-- Who writes to the table waits behind this for as long as this waits for others.
SET LOCAL lock_timeout = '10s';
SET LOCAL client_min_messages = 'warning';

DO $bloomgate$
BEGIN
    PERFORM pg_catalog.pg_advisory_xact_lock(7092166037565433452);
    CREATE SCHEMA IF NOT EXISTS bloomgate_follow;
    IF EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = 'bloomgate_follow'
            AND nspowner <> current_user::pg_catalog.regrole) THEN
        RAISE EXCEPTION 'the schema bloomgate_follow belongs to another role: run this as that role';
    END IF;
END
$bloomgate$;
";

/// 24 hexadecimal digits: with a prefix, within what a name may have.
fn digest(parts: &[&String]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    hex::encode(&hash.finalize()[..12])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn followed<'a>(table: &'a str, item: &'a str) -> FollowedTable<'a> {
        FollowedTable {
            table,
            item,
            expires: None,
            when: None,
            role: "app",
        }
    }

    #[test]
    fn each_source_and_table_has_a_function_of_its_own() {
        let one = FollowSql::new("f", "s", followed("a.b", "x")).unwrap();
        let other = FollowSql::new("f", "s", followed("a.c", "x")).unwrap();
        assert_ne!(one.function(), other.function());
        assert_eq!(one.trigger(), other.trigger());
    }
}

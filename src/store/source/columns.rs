//! The columns of a source's query: which types may be an item, which an expiry.

use sqlx::postgres::PgColumn;
use sqlx::postgres::types::Oid;
use sqlx::{Column as _, PgConnection};

use crate::service::ports::StoreError;
use crate::store::postgres::errors::{Fault, within};
use crate::store::postgres::session::STEP_LIMIT;
use crate::store::postgres::stream::ItemFormat;

/// Types of the server whose text is the item as its owner knows it. `varchar` and `bpchar` are
/// what SQL calls `character varying` and `character`.
pub(super) const ITEM_TYPES: [&str; 8] = [
    "text", "varchar", "bpchar", "name", "uuid", "int2", "int4", "int8",
];

/// An extension's type: it lies in whatever schema the extension does.
const CASELESS_TEXT: &str = "citext";

/// The schema of the server's own types.
const SERVER_SCHEMA: &str = "pg_catalog";

/// A column and its type. A server tells of a column of a domain the type beneath, and of a domain
/// over domains the one beneath them all.
pub(super) struct Column {
    name: String,
    /// As SQL writes it: `character`, `timestamp with time zone`.
    sql_type: String,
    schema: String,
    type_name: String,
}

impl Column {
    /// Asks the catalogue for the column's type.
    ///
    /// # Errors
    /// When the server does not answer.
    pub(super) async fn look_up(
        connection: &mut PgConnection,
        what: &str,
        column: &PgColumn,
    ) -> Result<Self, StoreError> {
        let oid: Oid = column.type_info().oid().ok_or_else(|| {
            let detail = format!(
                "its column {:?} has no type that can be told",
                column.name()
            );
            Fault::Failed(detail).of(what)
        })?;
        let question = sqlx::query_as(
            "SELECT pg_catalog.format_type(type.oid, NULL), space.nspname::pg_catalog.text,
                    type.typname::pg_catalog.text
               FROM pg_catalog.pg_type AS type
               JOIN pg_catalog.pg_namespace AS space ON space.oid = type.typnamespace
              WHERE type.oid = $1",
        )
        .bind(oid)
        .persistent(false);
        let answer = within(STEP_LIMIT, what, question.fetch_one(connection));
        let (sql_type, schema, type_name): (String, String, String) = answer.await?;
        Ok(Self {
            name: column.name().to_owned(),
            sql_type,
            schema,
            type_name,
        })
    }

    fn is_item(&self) -> bool {
        self.type_name == CASELESS_TEXT
            || (self.schema == SERVER_SCHEMA && ITEM_TYPES.contains(&self.type_name.as_str()))
    }

    /// How its values are best copied.
    pub(super) fn item_format(&self) -> ItemFormat {
        if self.schema == SERVER_SCHEMA && self.type_name == "uuid" {
            ItemFormat::Uuid
        } else {
            ItemFormat::Bytes
        }
    }

    fn is_expiry(&self) -> bool {
        self.schema == SERVER_SCHEMA && self.type_name == "timestamptz"
    }

    fn item_hint(&self) -> String {
        let name = &self.name;
        match self.type_name.as_str() {
            "bytea" => format!("write encode({name}, 'hex') or convert_from({name}, 'UTF8')"),
            _ => format!("write {name}::text if its text is what is checked"),
        }
    }

    fn expiry_hint(&self) -> String {
        let name = &self.name;
        match self.type_name.as_str() {
            "timestamp" | "date" => {
                format!("write {name}::timestamp AT TIME ZONE 'UTC', with the zone that it is in")
            }
            "int2" | "int4" | "int8" | "numeric" | "float4" | "float8" => {
                format!("write to_timestamp({name}) if it is in seconds since 1970")
            }
            _ => "leave it out if it is no expiry".to_owned(),
        }
    }
}

/// Says what is wrong with the columns of a query, in one line.
///
/// # Errors
/// When they are not an item and perhaps an expiry.
pub(super) fn refuse_unfit(columns: &[Column]) -> Result<(), String> {
    let (item, expiry) = match columns {
        [item] => (item, None),
        [item, expiry] => (item, Some(expiry)),
        _ => {
            return Err(format!(
                "expected one or two columns in its query (the item, and when it expires), \
                 found {}",
                columns.len()
            ));
        }
    };
    if !item.is_item() {
        return Err(format!(
            "expected text, varchar, char, citext, uuid or an integer in the column {:?}, \
             found {}; {}",
            item.name,
            item.sql_type,
            item.item_hint()
        ));
    }
    if let Some(expiry) = expiry.filter(|expiry| !expiry.is_expiry()) {
        return Err(format!(
            "expected timestamp with time zone in the column {:?}, found {}; {}",
            expiry.name,
            expiry.sql_type,
            expiry.expiry_hint()
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(name: &str, type_name: &str) -> Column {
        Column {
            name: name.to_owned(),
            sql_type: type_name.to_owned(),
            schema: SERVER_SCHEMA.to_owned(),
            type_name: type_name.to_owned(),
        }
    }

    #[test]
    fn an_item_and_perhaps_an_expiry_are_taken() {
        for type_name in ITEM_TYPES {
            assert_eq!(refuse_unfit(&[column("jti", type_name)]), Ok(()));
        }
        let columns = [column("jti", "uuid"), column("expires_at", "timestamptz")];
        assert_eq!(refuse_unfit(&columns), Ok(()));
    }

    #[test]
    fn another_type_is_refused_with_its_column_and_a_remedy() {
        let message = refuse_unfit(&[column("jti", "bytea")]).unwrap_err();
        assert!(message.contains("\"jti\"") && message.contains("encode(jti, 'hex')"));
        for (type_name, remedy) in [
            ("timestamp", "AT TIME ZONE"),
            ("date", "AT TIME ZONE"),
            ("int8", "to_timestamp(exp)"),
        ] {
            let columns = [column("jti", "text"), column("exp", type_name)];
            let message = refuse_unfit(&columns).unwrap_err();
            assert!(
                message.contains("\"exp\"") && message.contains(remedy),
                "{message}"
            );
        }
    }

    #[test]
    fn a_users_own_type_is_no_item_because_of_its_name() {
        let mut own = column("jti", "text");
        own.schema = "public".to_owned();
        assert!(refuse_unfit(&[own]).is_err());
    }

    #[test]
    fn none_or_three_columns_are_refused() {
        assert!(refuse_unfit(&[]).is_err());
        let three = ["a", "b", "c"].map(|name| column(name, "text"));
        assert!(refuse_unfit(&three).is_err());
    }
}

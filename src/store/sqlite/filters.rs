//! The tables `filter` and `deleted_filter`.

use sqlx::Row as _;
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use uuid::Uuid;

use super::writer::Writer;
use crate::filter::profile::EmailOptions;
use crate::service::ports::FilterId;
use crate::store::record::FilterRecord;

/// Rows of a deleted filter that go in one transaction: some ten milliseconds.
const PURGE_ROWS: i64 = 5_000;

/// A row of the table `filter`.
pub(super) fn record(row: &SqliteRow) -> Result<FilterRecord, sqlx::Error> {
    Ok(FilterRecord {
        id: row.try_get("id")?,
        name: row.try_get("name")?,
        profile: row.try_get("profile")?,
        profile_version: row.try_get("profile_version")?,
        options: EmailOptions {
            gmail_dots: row.try_get("gmail_dots")?,
            googlemail: row.try_get("googlemail")?,
            plus_tags: row.try_get("plus_tags")?,
        },
        capacity: row.try_get("capacity")?,
        false_positive_rate: row.try_get("false_positive_rate")?,
        sources: texts(row.try_get("sources")?)?,
        source_digests: texts(row.try_get("source_digests")?)?,
        declared_by: row.try_get("declared_by")?,
        forgotten: row.try_get("forgotten")?,
    })
}

fn texts(json: &str) -> Result<Vec<String>, sqlx::Error> {
    serde_json::from_str(json).map_err(|error| sqlx::Error::Decode(error.into()))
}

/// Texts as a column holds them.
pub(super) fn json(texts: &[String]) -> Result<String, sqlx::Error> {
    serde_json::to_string(texts).map_err(|error| sqlx::Error::Encode(error.into()))
}

/// Writes a declaration, and gives the id of its filter and how many of its rows were forgotten.
/// None when a PUT finds the filter declared otherwise: it changes nothing then.
pub(super) async fn declare(
    writer: &mut Writer,
    record: FilterRecord,
) -> Result<Option<(Uuid, i64)>, sqlx::Error> {
    let form = record.canonical_form();
    // A transaction of its own would be committed only as the statement is dropped, where nobody
    // hears whether that went well.
    let transaction = writer.begin().await?;
    let declared: Option<(Uuid, i64)> = sqlx::query_as(
        "INSERT INTO filter AS there
                (id, name, profile, profile_version, gmail_dots, googlemail, plus_tags,
                 capacity, false_positive_rate, sources, source_digests, declared_by,
                 canonical_forms)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, json_array(?13))
         ON CONFLICT (name) DO UPDATE
            SET profile = excluded.profile, profile_version = excluded.profile_version,
                gmail_dots = excluded.gmail_dots, googlemail = excluded.googlemail,
                plus_tags = excluded.plus_tags, capacity = excluded.capacity,
                false_positive_rate = excluded.false_positive_rate, sources = excluded.sources,
                source_digests = excluded.source_digests, declared_by = excluded.declared_by,
                canonical_forms = CASE
                    WHEN ?13 IN (SELECT value FROM json_each(there.canonical_forms))
                    THEN there.canonical_forms
                    ELSE json_insert(there.canonical_forms, '$[#]', ?13) END
          WHERE excluded.declared_by = 'config'
             OR (there.profile, there.gmail_dots, there.googlemail, there.plus_tags,
                 there.capacity, there.false_positive_rate, there.sources)
              = (excluded.profile, excluded.gmail_dots, excluded.googlemail, excluded.plus_tags,
                 excluded.capacity, excluded.false_positive_rate, excluded.sources)
         RETURNING id, forgotten",
    )
    .bind(record.id)
    .bind(record.name)
    .bind(record.profile)
    .bind(record.profile_version)
    .bind(record.options.gmail_dots)
    .bind(record.options.googlemail)
    .bind(record.options.plus_tags)
    .bind(record.capacity)
    .bind(record.false_positive_rate)
    .bind(json(&record.sources)?)
    .bind(json(&record.source_digests)?)
    .bind(record.declared_by)
    .bind(form)
    .fetch_optional(&mut *transaction)
    .await?;
    notice(transaction).await?;
    writer.commit().await?;
    Ok(declared)
}

/// Lets those who follow look at the filters anew.
async fn notice(transaction: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    sqlx::query("UPDATE store SET declarations = declarations + 1")
        .execute(transaction)
        .await?;
    Ok(())
}

/// Deletes a filter; false when it was not there. Its rows are left to [`purge`].
pub(super) async fn delete(writer: &mut Writer, filter: FilterId) -> Result<bool, sqlx::Error> {
    let transaction = writer.begin().await?;
    let deleted = sqlx::query("DELETE FROM filter WHERE id = ?")
        .bind(filter.0)
        .execute(&mut *transaction)
        .await?;
    let was_there = deleted.rows_affected() > 0;
    if was_there {
        sqlx::query("INSERT INTO deleted_filter (id) VALUES (?)")
            .bind(filter.0)
            .execute(&mut *transaction)
            .await?;
        notice(transaction).await?;
    }
    writer.commit().await?;
    Ok(was_there)
}

/// Deletes some rows of a deleted filter, or the note of one that has none left; false when no
/// filter is noted.
pub(super) async fn purge(writer: &mut Writer) -> Result<bool, sqlx::Error> {
    let transaction = writer.begin().await?;
    let filter: Option<Uuid> = sqlx::query_scalar("SELECT id FROM deleted_filter LIMIT 1")
        .fetch_optional(&mut *transaction)
        .await?;
    let Some(filter) = filter else {
        writer.roll_back().await;
        return Ok(false);
    };
    let deleted = sqlx::query(
        "DELETE FROM item WHERE filter_id = ?1 AND item_digest IN
                (SELECT item_digest FROM item WHERE filter_id = ?1 LIMIT ?2)",
    )
    .bind(filter)
    .bind(PURGE_ROWS)
    .execute(&mut *transaction)
    .await?;
    if deleted.rows_affected() == 0 {
        sqlx::query("DELETE FROM deleted_filter WHERE id = ?")
            .bind(filter)
            .execute(&mut *transaction)
            .await?;
    }
    writer.commit().await?;
    Ok(true)
}

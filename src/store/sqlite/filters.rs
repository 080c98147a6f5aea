//! The tables `filter` and `deleted_filter`.

use sqlx::Row as _;
use sqlx::sqlite::SqliteRow;
use uuid::Uuid;

use super::writer::Writer;
use crate::filter::profile::EmailOptions;
use crate::service::ports::FilterId;
use crate::store::record::FilterRecord;

/// Rows of a deleted filter that go in one transaction: some ten milliseconds.
const PURGE_ROWS: i64 = 5_000;

/// A row of the table `filter`.
pub(super) fn record(row: &SqliteRow) -> Result<FilterRecord, sqlx::Error> {
    let sources: String = row.try_get("sources")?;
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
        sources: serde_json::from_str(&sources)
            .map_err(|error| sqlx::Error::Decode(error.into()))?,
        declared_by: row.try_get("declared_by")?,
    })
}

/// Writes a declaration and gives the id of its filter.
pub(super) async fn declare(
    writer: &mut Writer,
    record: FilterRecord,
) -> Result<Uuid, sqlx::Error> {
    let sources = serde_json::to_string(&record.sources)
        .map_err(|error| sqlx::Error::Decode(error.into()))?;
    // A transaction of its own would be committed only as the statement is dropped, where nobody
    // hears whether that went well.
    let transaction = writer.begin().await?;
    let id = sqlx::query_scalar(
        "INSERT INTO filter
                (id, name, profile, profile_version, gmail_dots, googlemail, plus_tags,
                 capacity, false_positive_rate, sources, declared_by)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
         ON CONFLICT (name) DO UPDATE
            SET profile = excluded.profile, profile_version = excluded.profile_version,
                gmail_dots = excluded.gmail_dots, googlemail = excluded.googlemail,
                plus_tags = excluded.plus_tags, capacity = excluded.capacity,
                false_positive_rate = excluded.false_positive_rate, sources = excluded.sources,
                declared_by = excluded.declared_by
         RETURNING id",
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
    .bind(sources)
    .bind(record.declared_by)
    .fetch_one(&mut *transaction)
    .await?;
    writer.commit().await?;
    Ok(id)
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

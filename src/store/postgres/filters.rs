//! The tables `filter` and `deleted_filter`.
//!
//! Invariant: whatever changes which filters there are, or what they are declared to be, raises
//! `declarations` in the same commit, and takes that row's lock before any other.

use sqlx::{PgConnection, Row as _};
use uuid::Uuid;

use super::errors::{Fault, classify, within};
use super::session::STEP_LIMIT;
use crate::filter::profile::EmailOptions;
use crate::service::ports::{FilterId, StoreError, StoredFilter};
use crate::store::record::FilterRecord;

/// Rows of a deleted filter that go at once: a few milliseconds.
const PURGE_ROWS: i64 = 5_000;

/// Every filter, by name.
pub(super) async fn list(
    connection: &mut PgConnection,
    what: &str,
) -> Result<Vec<StoredFilter>, StoreError> {
    let question = sqlx::query(
        "SELECT id, name, profile, profile_version, gmail_dots, googlemail, plus_tags,
                capacity, false_positive_rate, sources, source_digests, declared_by, forgotten
           FROM bloomgate.filter ORDER BY name",
    );
    let rows = within(STEP_LIMIT, what, question.fetch_all(connection)).await?;
    let filters = rows.iter().map(|row| {
        let record = record(row).map_err(|error| classify(&error))?;
        record.into_filter().map_err(Fault::Refused)
    });
    filters
        .collect::<Result<_, Fault>>()
        .map_err(|fault| fault.of(what))
}

fn record(row: &sqlx::postgres::PgRow) -> Result<FilterRecord, sqlx::Error> {
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
        sources: row.try_get("sources")?,
        source_digests: row.try_get("source_digests")?,
        declared_by: row.try_get("declared_by")?,
        forgotten: row.try_get("forgotten")?,
    })
}

/// Writes a declaration, and gives the id of its filter and how many of its rows were forgotten.
/// None when a PUT finds the filter declared otherwise: it changes nothing then.
pub(super) async fn declare(
    connection: &mut PgConnection,
    record: FilterRecord,
) -> Result<Option<(Uuid, i64)>, sqlx::Error> {
    let form = record.canonical_form();
    sqlx::query_as(
        "WITH noticed AS (
             UPDATE bloomgate.store SET declarations = declarations + 1 RETURNING 1
         )
         INSERT INTO bloomgate.filter AS there
                (id, name, profile, profile_version, gmail_dots, googlemail, plus_tags,
                 capacity, false_positive_rate, sources, source_digests, declared_by,
                 canonical_forms)
         SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13 FROM noticed
         ON CONFLICT (name) DO UPDATE
            SET profile = excluded.profile, profile_version = excluded.profile_version,
                gmail_dots = excluded.gmail_dots, googlemail = excluded.googlemail,
                plus_tags = excluded.plus_tags, capacity = excluded.capacity,
                false_positive_rate = excluded.false_positive_rate, sources = excluded.sources,
                source_digests = excluded.source_digests, declared_by = excluded.declared_by,
                canonical_forms = CASE
                    WHEN there.canonical_forms @> excluded.canonical_forms
                    THEN there.canonical_forms
                    ELSE there.canonical_forms || excluded.canonical_forms END
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
    .bind(record.sources)
    .bind(record.source_digests)
    .bind(record.declared_by)
    .bind(vec![form])
    .fetch_optional(connection)
    .await
}

/// Deletes a filter; false when it was not there.
///
/// It waits for the adds that hold the filter's row, and later ones find it gone: so whoever purges
/// afterwards sees every row that the filter ever gets.
pub(super) async fn delete(
    connection: &mut PgConnection,
    filter: FilterId,
) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar(
        "WITH noticed AS (
             UPDATE bloomgate.store SET declarations = declarations + 1 RETURNING 1
         ), gone AS (
             DELETE FROM bloomgate.filter WHERE id = $1 AND EXISTS (SELECT FROM noticed)
             RETURNING id
         ), noted AS (
             INSERT INTO bloomgate.deleted_filter (id) SELECT id FROM gone
         )
         SELECT EXISTS (SELECT FROM gone)",
    )
    .bind(filter.0)
    .fetch_one(connection)
    .await
}

/// Deletes some rows of a deleted filter, or the note of one that has none left; false when no
/// filter is noted.
pub(super) async fn purge(connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
    let (filter, rows): (Option<Uuid>, i64) = sqlx::query_as(
        "WITH one AS MATERIALIZED (
             SELECT id FROM bloomgate.deleted_filter LIMIT 1
         ), part AS MATERIALIZED (
             SELECT filter_id, item_digest FROM bloomgate.item
              WHERE filter_id = (SELECT id FROM one) LIMIT $1
         ), gone AS (
             DELETE FROM bloomgate.item USING part
              WHERE item.filter_id = part.filter_id AND item.item_digest = part.item_digest
             RETURNING 1
         )
         SELECT (SELECT id FROM one), (SELECT count(*) FROM gone)",
    )
    .bind(PURGE_ROWS)
    .fetch_one(&mut *connection)
    .await?;
    if rows == 0 {
        sqlx::query("DELETE FROM bloomgate.deleted_filter WHERE id = $1")
            .bind(filter)
            .execute(connection)
            .await?;
    }
    Ok(filter.is_some())
}

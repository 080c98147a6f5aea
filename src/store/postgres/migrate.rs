//! The schema `bloomgate`: brought up to what this program knows, inside one transaction.
//!
//! Invariant: two processes never migrate at once, a schema that is newer than the program is refused,
//! and a process that runs on the older schema is never kept waiting for long.

use std::collections::HashMap;
use std::time::Duration;

use sqlx::error::DatabaseError;
use sqlx::migrate::{Migrate as _, MigrateError, Migrator};
use sqlx::{Acquire as _, PgConnection};

use super::errors::{Fault, classify, within};
use super::session::STEP_LIMIT;
use crate::service::ports::StoreError;
use crate::store::record::migration_refusal;

/// The table of what was applied. In our schema: sqlx's default name lies in the user's own, where
/// an application of theirs may keep its migrations.
const TABLE: &str = "bloomgate.migration";

/// Held while migrating, and only as long as the transaction: a lock of the session would stay
/// behind on a pooler's connection. The bytes are "bloom-mg".
const LOCK_KEY: i64 = 0x626c_6f6f_6d2d_6d67;

/// How long a migration waits for a table. Whoever comes after it waits behind it, and a load by another
/// process may take the table for an hour: rather is it tried again.
const TABLE_LOCK_LIMIT: &str = "2s";

/// The SQLSTATE of who has waited for so long.
const LOCK_NOT_AVAILABLE: &str = "55P03";

/// Time for all migrations, and for those of another process before them.
const MIGRATE_LIMIT: Duration = Duration::from_secs(600);

fn migrator() -> Migrator {
    let mut migrator = sqlx::migrate!("migrations/postgres");
    migrator.dangerous_set_table_name(TABLE);
    // Ours is taken below.
    migrator.set_locking(false);
    migrator
}

/// Applies what is not yet applied. A role that may not create anything is enough when there is
/// nothing to apply.
///
/// # Errors
/// [`StoreError::Refused`] when the schema is newer than the program, was altered, or the role
/// lacks the rights; [`StoreError::Unreachable`] when others use a table that is to be changed; else when a
/// statement fails.
pub(super) async fn migrate(connection: &mut PgConnection, what: &str) -> Result<(), StoreError> {
    let migrator = migrator();
    if is_up_to_date(connection, what, &migrator).await? {
        return Ok(());
    }
    let applied = tokio::time::timeout(MIGRATE_LIMIT, apply(connection, &migrator)).await;
    match applied {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(refusal(&error).of(what)),
        Err(_elapsed) => {
            let detail = format!("its migrations were not through within {MIGRATE_LIMIT:?}");
            Err(Fault::Unreachable(detail).of(what))
        }
    }
}

async fn is_up_to_date(
    connection: &mut PgConnection,
    what: &str,
    migrator: &Migrator,
) -> Result<bool, StoreError> {
    let table = sqlx::query_scalar("SELECT to_regclass($1) IS NOT NULL").bind(TABLE);
    if !within(STEP_LIMIT, what, table.fetch_one(&mut *connection)).await? {
        return Ok(false);
    }
    let applied = connection
        .list_applied_migrations(TABLE)
        .await
        .map_err(|error| refusal(&error).of(what))?;
    let applied: HashMap<_, _> = applied
        .into_iter()
        .map(|migration| (migration.version, migration.checksum))
        .collect();
    // Said here too: a role that may create nothing would be told of its rights instead.
    if let Some(newer) = applied
        .keys()
        .find(|version| !migrator.version_exists(**version))
    {
        return Err(refusal(&MigrateError::VersionMissing(*newer)).of(what));
    }
    Ok(migrator
        .iter()
        .all(|known| applied.get(&known.version) == Some(&known.checksum)))
}

async fn apply(connection: &mut PgConnection, migrator: &Migrator) -> Result<(), MigrateError> {
    let mut transaction = connection.begin().await?;
    // A migration may have to read every row.
    sqlx::query("SET LOCAL statement_timeout = 0")
        .execute(&mut *transaction)
        .await?;
    sqlx::query("SELECT pg_advisory_xact_lock($1)")
        .bind(LOCK_KEY)
        .execute(&mut *transaction)
        .await?;
    sqlx::query("SELECT set_config('lock_timeout', $1, true)")
        .bind(TABLE_LOCK_LIMIT)
        .execute(&mut *transaction)
        .await?;
    // Asked first, for CREATE SCHEMA IF NOT EXISTS wants the right to create one even where it
    // is there: an administrator may have made it for us.
    let schema: bool = sqlx::query_scalar("SELECT to_regnamespace('bloomgate') IS NOT NULL")
        .fetch_one(&mut *transaction)
        .await?;
    if !schema {
        sqlx::query("CREATE SCHEMA bloomgate")
            .execute(&mut *transaction)
            .await?;
    }
    migrator.run_direct(None, &mut *transaction, false).await?;
    transaction.commit().await?;
    Ok(())
}

fn refusal(error: &MigrateError) -> Fault {
    if let MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) = error {
        let database_error = error.as_database_error();
        if database_error.and_then(DatabaseError::code).as_deref() == Some(LOCK_NOT_AVAILABLE) {
            let detail = "a table that is to be changed is in use, as by a load; trying again";
            return Fault::Unreachable(detail.to_owned());
        }
        classify(error)
    } else {
        Fault::Refused(migration_refusal(error))
    }
}

//! A session with a PostgreSQL server: how it is opened and what is set on it.
//!
//! It must not know tables.

use std::time::Duration;

use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, PgConnection};

use super::errors::{Fault, classify, within};
use super::url::Target;
use crate::service::ports::StoreError;

/// Time to connect, TLS and authentication included.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// Time to say goodbye.
const CLOSE_LIMIT: Duration = Duration::from_secs(1);

/// Time for a step that touches a few rows at most.
pub(crate) const STEP_LIMIT: Duration = Duration::from_secs(10);

/// Settings of a server, each with a value.
pub(crate) type Settings = &'static [(&'static str, &'static str)];

/// Whether settings last for the session or for the transaction.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    Session,
    Transaction,
}

impl Target {
    /// Opens a session, without settings.
    ///
    /// # Errors
    /// [`StoreError::Unreachable`] or [`StoreError::Refused`].
    pub(crate) async fn connect(&self) -> Result<PgConnection, StoreError> {
        for file in &self.files {
            // Otherwise it would look like a server whose socket is not there.
            tokio::fs::File::open(file).await.map_err(|error| {
                Fault::Refused(format!("{} cannot be read: {error}", file.display())).of(&self.what)
            })?;
        }
        match tokio::time::timeout(CONNECT_LIMIT, self.options.connect()).await {
            Ok(Ok(connection)) => Ok(connection),
            Ok(Err(sqlx::Error::Protocol(_))) => {
                let detail = "what answers there does not speak the PostgreSQL protocol; check \
                              host and port";
                Err(Fault::Refused(detail.to_owned()).of(&self.what))
            }
            Ok(Err(error)) => Err(classify(&error).of(&self.what)),
            Err(_elapsed) => {
                let detail = format!("no connection within {CONNECT_LIMIT:?}");
                Err(Fault::Unreachable(detail).of(&self.what))
            }
        }
    }
}

/// Sets what the server knows of `settings`: some came with later versions.
///
/// # Errors
/// When the server does not answer or refuses a value.
pub(crate) async fn set(
    connection: &mut PgConnection,
    what: &str,
    settings: Settings,
    scope: Scope,
) -> Result<(), StoreError> {
    let values: Vec<_> = settings
        .iter()
        .map(|(name, value)| format!("('{name}', '{value}')"))
        .collect();
    let statement = format!(
        "SELECT count(pg_catalog.set_config(wanted.name, wanted.value, {}))
           FROM (VALUES {}) AS wanted (name, value)
           JOIN pg_catalog.pg_settings AS known ON known.name = wanted.name",
        scope == Scope::Transaction,
        values.join(", "),
    );
    // Names and values are constants of this program.
    let statement = sqlx::query(AssertSqlSafe(statement)).persistent(false);
    within(STEP_LIMIT, what, statement.execute(connection)).await?;
    Ok(())
}

/// Ends a session in good manners, and by force when the server does not answer.
pub(crate) async fn close(connection: PgConnection) {
    // Whatever comes of it, the session ends here: there is nothing to tell.
    let _ = tokio::time::timeout(CLOSE_LIMIT, connection.close()).await;
}

//! A session with a PostgreSQL server: how it is opened and what is set on it.
//!
//! A connection pooler may stand in between, which gives the server's sessions away between
//! transactions. This is the one place that knows it. Behind a pooler every step is a transaction
//! with its own settings, which leaves neither a setting nor a prepared statement behind; without
//! one a session is set up once, and a step costs nothing beside its statements.
//!
//! It must not know tables.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering;
use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use sqlx::{
    AssertSqlSafe, ConnectOptions as _, Connection as _, PgConnection, Postgres, Row as _,
    Transaction,
};
use uuid::Uuid;

use super::errors::{Fault, classify, within};
use super::url::Target;
use crate::service::ports::StoreError;

/// Time to connect, TLS and authentication included.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// Time to say goodbye.
const CLOSE_LIMIT: Duration = Duration::from_secs(1);

/// Time for a step that touches a few rows at most.
pub(crate) const STEP_LIMIT: Duration = Duration::from_secs(10);

/// A setting of our own, asked for at the start of a session. A server shows it in the session; a
/// pooler refuses it, or leaves it out.
const PROOF: &str = "bloomgate.session";

/// Said by poolers of a parameter that they do not know, and of much else.
const PROTOCOL_VIOLATION: &str = "08P01";

/// Said by a standby of a transaction that may write.
const NOT_SUPPORTED: &str = "0A000";

/// sqlx takes the end of a connection for an answer of zero. A proxy in front of a server that is down
/// takes connections and ends them so. (Where in its own source it says so follows.)
const CLOSED_UNANSWERED: &str = "unexpected response from SSLRequest: 0x00";

/// Settings of a server, each with a value.
pub(crate) type Settings = &'static [(&'static str, &'static str)];

/// Whether settings last for the session or for the transaction.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    Session,
    Transaction,
}

/// A session of the store, whose statements are run in steps.
pub(super) struct Session {
    connection: PgConnection,
    /// What to set in each step; none where it is set for the session.
    pooled: Option<Settings>,
}

/// Statements that one session of the server runs. Dropped, what they wrote may be undone;
/// [`end`](Self::end) makes it durable.
pub(super) enum Step<'s> {
    /// Each statement commits by itself.
    Direct(&'s mut PgConnection),
    /// All commit together.
    Together(Transaction<'s, Postgres>),
}

impl Target {
    /// Opens a connection, without settings.
    ///
    /// # Errors
    /// [`StoreError::Unreachable`] or [`StoreError::Refused`].
    pub(crate) async fn connect(&self) -> Result<PgConnection, StoreError> {
        let connected = self.connect_with(&self.options).await?;
        connected.map_err(|error| self.not_connected(&error))
    }

    /// Opens a session whose every step has these settings.
    ///
    /// # Errors
    /// As [`connect`](Self::connect); also when the server refuses a setting.
    pub(super) async fn session(&self, settings: Settings) -> Result<Session, StoreError> {
        if let Some(mut connection) = self.connect_directly().await? {
            set(&mut connection, &self.what, settings, Scope::Session).await?;
            return Ok(Session {
                connection,
                pooled: None,
            });
        }
        Ok(Session {
            connection: self.connect().await?,
            pooled: Some(settings),
        })
    }

    /// Whether a pooler was found between us and the server. It is not forgotten: what works with a
    /// pooler works without one.
    pub(super) fn is_pooled(&self) -> bool {
        self.pooled.load(Ordering::Relaxed)
    }

    /// A connection that was seen to be one to the server itself; none where there is a pooler.
    async fn connect_directly(&self) -> Result<Option<PgConnection>, StoreError> {
        if self.is_pooled() {
            return Ok(None);
        }
        let (options, proof) = self.asking_for_proof();
        let connection = match self.connect_with(&options).await? {
            Ok(mut connection) => {
                let proven = proves(&mut connection, &proof);
                if within(STEP_LIMIT, &self.what, proven).await? {
                    return Ok(Some(connection));
                }
                connection
            }
            // A pooler that says the same without the parameter means something else.
            Err(error) if has_code(&error, PROTOCOL_VIOLATION) => self.connect().await?,
            Err(error) => return Err(self.not_connected(&error)),
        };
        close(connection).await;
        if !self.pooled.swap(true, Ordering::Relaxed) {
            tracing::info!(
                store = self.what,
                "a connection pooler stands in front of it: each statement takes a transaction, and \
                 what other processes add is found by polling alone"
            );
        }
        Ok(None)
    }

    /// Options that ask for a setting which nobody else asks for, and its value.
    pub(super) fn asking_for_proof(&self) -> (PgConnectOptions, String) {
        let proof = Uuid::new_v4().simple().to_string();
        let options = self.options.clone().options([(PROOF, &proof)]);
        (options, proof)
    }

    async fn connect_with(
        &self,
        options: &PgConnectOptions,
    ) -> Result<Result<PgConnection, sqlx::Error>, StoreError> {
        for file in &self.files {
            // Otherwise it would look like a server whose socket is not there.
            tokio::fs::File::open(file).await.map_err(|error| {
                Fault::Refused(format!("{} cannot be read: {error}", file.display())).of(&self.what)
            })?;
        }
        let connecting = tokio::time::timeout(CONNECT_LIMIT, options.connect());
        connecting.await.map_err(|_elapsed| {
            let detail = format!("no connection within {CONNECT_LIMIT:?}");
            Fault::Unreachable(detail).of(&self.what)
        })
    }

    fn not_connected(&self, error: &sqlx::Error) -> StoreError {
        if let sqlx::Error::Protocol(found) = error
            && found.starts_with(CLOSED_UNANSWERED)
        {
            let detail = "the connection was closed without an answer";
            return Fault::Unreachable(detail.to_owned()).of(&self.what);
        }
        if matches!(error, sqlx::Error::Protocol(_)) {
            let detail = "what answers there does not speak the PostgreSQL protocol; check host \
                          and port";
            return Fault::Refused(detail.to_owned()).of(&self.what);
        }
        classify(error).of(&self.what)
    }
}

impl Session {
    /// Begins a step.
    ///
    /// # Errors
    /// When the server does not answer, or is a standby behind a pooler.
    pub(super) async fn begin(&mut self, what: &str) -> Result<Step<'_>, StoreError> {
        if self.pooled.is_none() {
            return Ok(Step::Direct(&mut self.connection));
        }
        self.begin_together(what).await
    }

    /// Begins a step whose statements commit together, with a pooler or without.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    pub(super) async fn begin_together(&mut self, what: &str) -> Result<Step<'_>, StoreError> {
        // What a pooler leads to may change at any time: a standby refuses this.
        let mut begin = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE".to_owned();
        if let Some(settings) = self.pooled {
            begin = format!("{begin}; {}", statement(settings, Scope::Transaction));
        }
        // Names and values are constants of this program.
        let begun = self.connection.begin_with(AssertSqlSafe(begin));
        match tokio::time::timeout(STEP_LIMIT, begun).await {
            Ok(Ok(transaction)) => Ok(Step::Together(transaction)),
            Ok(Err(error)) if has_code(&error, NOT_SUPPORTED) => {
                Err(Fault::Refused(STANDBY.to_owned()).of(what))
            }
            Ok(Err(error)) => Err(classify(&error).of(what)),
            Err(_elapsed) => {
                let detail = format!("no answer within {STEP_LIMIT:?}");
                Err(Fault::Unreachable(detail).of(what))
            }
        }
    }

    /// Whether it still answers.
    pub(super) async fn ping(&mut self) -> Result<(), sqlx::Error> {
        self.connection.ping().await
    }

    /// Ends the session.
    pub(super) async fn close(self) {
        close(self.connection).await;
    }
}

impl Step<'_> {
    /// Ends the step, which makes durable what it wrote. To be called after statements that ended
    /// well.
    ///
    /// # Errors
    /// When the server does not answer, or the commit fails: nothing may be acknowledged then.
    pub(super) async fn end(self, what: &str) -> Result<(), StoreError> {
        let Self::Together(mut transaction) = self else {
            return Ok(());
        };
        let ended = async {
            // Whoever gets this session of the server next may give the same names.
            transaction.clear_cached_statements().await?;
            transaction.commit().await
        };
        within(STEP_LIMIT, what, ended).await
    }
}

impl Deref for Step<'_> {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        match self {
            Self::Direct(connection) => connection,
            Self::Together(transaction) => transaction,
        }
    }
}

impl DerefMut for Step<'_> {
    fn deref_mut(&mut self) -> &mut PgConnection {
        match self {
            Self::Direct(connection) => connection,
            Self::Together(transaction) => transaction,
        }
    }
}

/// Whether the server shows what was asked for at the start of the session.
pub(super) async fn proves(
    connection: &mut PgConnection,
    proof: &str,
) -> Result<bool, sqlx::Error> {
    let question = format!("SELECT pg_catalog.current_setting('{PROOF}', true)");
    // The simple protocol: between its one message and the answer no pooler changes the session.
    let question = sqlx::raw_sql(AssertSqlSafe(question));
    let shown: Option<String> = question.fetch_one(connection).await?.try_get(0)?;
    Ok(shown.as_deref() == Some(proof))
}

fn has_code(error: &sqlx::Error, sqlstate: &str) -> bool {
    let error = error.as_database_error();
    error.is_some_and(|error| error.code().as_deref() == Some(sqlstate))
}

/// What is said of a standby.
pub(super) const STANDBY: &str =
    "it is a standby, which takes no writes; give the address of the primary";

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
    // Names and values are constants of this program.
    let statement = sqlx::query(AssertSqlSafe(statement(settings, scope))).persistent(false);
    within(STEP_LIMIT, what, statement.execute(connection)).await?;
    Ok(())
}

fn statement(settings: Settings, scope: Scope) -> String {
    let values: Vec<_> = settings
        .iter()
        .map(|(name, value)| format!("('{name}', '{value}')"))
        .collect();
    format!(
        "SELECT count(pg_catalog.set_config(wanted.name, wanted.value, {}))
           FROM (VALUES {}) AS wanted (name, value)
           JOIN pg_catalog.pg_settings AS known ON known.name = wanted.name",
        scope == Scope::Transaction,
        values.join(", "),
    )
}

/// Ends a session in good manners, and by force when the server does not answer.
pub(crate) async fn close(connection: PgConnection) {
    // Whatever comes of it, the session ends here: there is nothing to tell.
    let _ = tokio::time::timeout(CLOSE_LIMIT, connection.close()).await;
}

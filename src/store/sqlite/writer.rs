//! The connection that writes, and its transactions.
//!
//! Invariant: whatever ended a transaction, the next one begins. sqlx's own transactions count
//! their levels and lose count where SQLite rolls back by itself, as it does when the disk is full:
//! from then on every one would be refused, also with room on the disk.

use sqlx::sqlite::SqliteConnection;

/// The connection that writes.
pub(super) struct Writer {
    connection: SqliteConnection,
    /// Set until a transaction ended well or was rolled back.
    in_transaction: bool,
}

impl Writer {
    /// A connection that is in no transaction.
    pub(super) fn new(connection: SqliteConnection) -> Self {
        Self {
            connection,
            in_transaction: false,
        }
    }

    /// For a statement that is a transaction of its own, after [`roll_back`](Self::roll_back).
    pub(super) fn connection(&mut self) -> &mut SqliteConnection {
        &mut self.connection
    }

    /// The connection, for good.
    pub(super) fn into_connection(self) -> SqliteConnection {
        self.connection
    }

    /// Begins a transaction, with the write lock at once: a lock that is taken later could find
    /// that the cut has moved on.
    ///
    /// # Errors
    /// When SQLite does not begin it.
    pub(super) async fn begin(&mut self) -> Result<&mut SqliteConnection, sqlx::Error> {
        self.roll_back().await;
        self.in_transaction = true;
        sqlx::query("BEGIN IMMEDIATE")
            .execute(&mut self.connection)
            .await?;
        Ok(&mut self.connection)
    }

    /// Commits: what was written is durable when this returns.
    ///
    /// # Errors
    /// When SQLite does not commit; the next [`roll_back`](Self::roll_back) undoes it all.
    pub(super) async fn commit(&mut self) -> Result<(), sqlx::Error> {
        sqlx::query("COMMIT").execute(&mut self.connection).await?;
        self.in_transaction = false;
        Ok(())
    }

    /// Undoes what is left of a transaction that failed, or whose caller has given up.
    pub(super) async fn roll_back(&mut self) {
        if self.in_transaction {
            // It fails where SQLite has rolled back already, and then there is nothing to undo.
            let _ = sqlx::query("ROLLBACK").execute(&mut self.connection).await;
            self.in_transaction = false;
        }
    }
}

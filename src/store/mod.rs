//! The adapters of the ports [`Store`](crate::service::ports::Store) and
//! [`Source`](crate::service::ports::Source): PostgreSQL and SQLite.
//!
//! Invariants:
//!
//! * an add is one commit, and it has reached the disk before it is answered;
//! * a load gives the rows of one cut, all of them or an error, in constant memory;
//! * no message carries an item, a password or a value of a row.
//!
//! These modules must not know what a filter's bits look like, when a verdict may be given, or
//! HTTP.

mod copy_binary;
mod postgres;
mod record;
mod rows;
mod source;
mod sqlite;

pub use postgres::url::role_of;
pub use postgres::{PostgresStore, PostgresStoreOptions};
pub use source::{FollowSql, FollowSqlError, FollowedTable, PostgresSource, PostgresSourceOptions};
pub use sqlite::SqliteStore;

//! A database of one's own.

use std::process::{Command, Stdio};

use sqlx::postgres::{PgPool, PgPoolOptions, PgRow};
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use super::environment::{postgres_program, shared_cluster_url};

/// What a fresh database differs in from the cluster's default (UTF8, locale C.UTF-8).
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DatabaseOptions {
    /// Such as `SQL_ASCII`, which takes any bytes.
    pub(crate) encoding: Option<&'static str>,
    /// A locale of the C library for LC_COLLATE and LC_CTYPE. There are `C`, `C.UTF-8`,
    /// `en_US.UTF-8` and `tr_TR.UTF-8`.
    pub(crate) locale: Option<&'static str>,
    /// A locale of ICU that is the database's default collation, such as `tr-TR`.
    pub(crate) icu_locale: Option<&'static str>,
}

impl DatabaseOptions {
    fn clauses(self) -> String {
        let mut clauses = String::from("TEMPLATE template0");
        if let Some(encoding) = self.encoding {
            clauses += &format!(" ENCODING '{encoding}'");
        }
        if let Some(locale) = self.locale {
            clauses += &format!(" LC_COLLATE '{locale}' LC_CTYPE '{locale}'");
        }
        if let Some(icu_locale) = self.icu_locale {
            clauses += &format!(" LOCALE_PROVIDER icu ICU_LOCALE '{icu_locale}'");
        }
        clauses
    }
}

/// An empty database for one test. Dropped with all its sessions when this is dropped.
pub(crate) struct Database {
    name: String,
    url: String,
    maintenance_url: String,
    pool: PgPool,
}

impl Database {
    /// A database in the shared cluster.
    pub(crate) async fn create() -> Self {
        Self::create_with(DatabaseOptions::default()).await
    }

    /// A database in the shared cluster, of another encoding or locale.
    pub(crate) async fn create_with(options: DatabaseOptions) -> Self {
        Self::create_at(&shared_cluster_url(), &options).await
    }

    /// A database in the cluster whose maintenance database this is.
    pub(crate) async fn create_at(maintenance_url: &str, options: &DatabaseOptions) -> Self {
        let name = format!("test_{}", uuid::Uuid::new_v4().simple());
        let mut connection = PgConnection::connect(maintenance_url).await.unwrap();
        let statement = format!("CREATE DATABASE {name} {}", options.clauses());
        sqlx::raw_sql(AssertSqlSafe(statement))
            .execute(&mut connection)
            .await
            .unwrap();
        connection.close().await.unwrap();
        let (server, _) = maintenance_url.rsplit_once('/').unwrap();
        let url = format!("{server}/{name}");
        let pool = PgPoolOptions::new().max_connections(4).connect_lazy(&url);
        Self {
            name,
            url,
            maintenance_url: maintenance_url.to_owned(),
            pool: pool.unwrap(),
        }
    }

    /// Its name, unique in its cluster.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Its URL, for a superuser, on 127.0.0.1.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Its URL with another `host:port`: a proxy's, or `localhost` for a certificate's sake.
    pub(crate) fn url_at(&self, address: &str) -> String {
        let (credentials, place) = self.url.split_once('@').unwrap();
        let (_, database) = place.split_once('/').unwrap();
        format!("{credentials}@{address}/{database}")
    }

    /// The `host:port` of its server, for a proxy to go to.
    pub(crate) fn address(&self) -> &str {
        let (_, place) = self.url.split_once('@').unwrap();
        place.split_once('/').unwrap().0
    }

    /// Sessions on this database, for what the methods below do not cover.
    pub(crate) fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// Runs statements, separated by semicolons, in one session.
    pub(crate) async fn execute(&self, statements: &str) {
        sqlx::raw_sql(AssertSqlSafe(statements.to_owned()))
            .execute(&self.pool)
            .await
            .unwrap();
    }

    /// The rows of a query.
    pub(crate) async fn query(&self, query: &str) -> Vec<PgRow> {
        sqlx::query(AssertSqlSafe(query.to_owned()))
            .fetch_all(&self.pool)
            .await
            .unwrap()
    }

    /// The one value that a query gives.
    pub(crate) async fn query_value<T>(&self, query: &str) -> T
    where
        T: Send + Unpin + for<'r> sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres>,
    {
        sqlx::query_scalar(AssertSqlSafe(query.to_owned()))
            .fetch_one(&self.pool)
            .await
            .unwrap()
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // A process of its own, for a drop cannot wait for a task. It fails where the test has
        // stopped the cluster, and then the cluster's end is the database's.
        let _ = Command::new(postgres_program("dropdb"))
            .args(["--force", "--maintenance-db", &self.maintenance_url])
            .arg(&self.name)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
    }
}

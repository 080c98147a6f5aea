//! Tables of the user's, which sources follow by their triggers: what is committed there is owed,
//! whichever transaction wrote it, though no replica has acknowledged it.

use std::time::Duration;

use sqlx::postgres::{PgPool, PgPoolOptions};
use sqlx::{AssertSqlSafe, PgConnection};

use super::WRITERS;
use crate::support::{Database, Launch, Random};

/// The filters that have a source, by their places in the ledger. Each source's table has the
/// filter's name.
pub(super) const FOLLOWED: [&str; 2] = [super::FILTERS[0], super::FILTERS[1]];

/// What a commit has to be confirmed within.
const COMMIT_LIMIT: Duration = Duration::from_secs(6);

/// In front of an item that is not what it will be yet.
const DRAFT: &str = "draft of ";

/// How the rows come about.
#[derive(Debug, Clone, Copy)]
pub(super) enum Writing {
    Insert,
    /// In a subtransaction, after another that is taken back.
    Nested,
    /// Other items, which an UPDATE in a later transaction makes these.
    Rename,
    /// The items long expired, whose expiry an UPDATE in a later transaction puts off.
    PutOff,
}

const WRITINGS: [(u64, Writing); 4] = [
    (4, Writing::Insert),
    (2, Writing::Nested),
    (2, Writing::Rename),
    (2, Writing::PutOff),
];

/// A transaction, all of which was drawn before it begins.
pub(super) struct Write {
    pub(super) writing: Writing,
    /// How long it stays open after its rows were written, while others begin and commit.
    pub(super) held: Duration,
}

impl Write {
    pub(super) fn draw(random: &mut Random) -> Self {
        let held_ms = random.weighted(&[(6, 1), (3, 300), (1, 2_500)]);
        Self {
            writing: random.weighted(&WRITINGS),
            held: Duration::from_millis(random.within(&(0..held_ms))),
        }
    }
}

/// Sessions of who writes to the tables, past all proxies.
pub(super) struct Tables {
    pool: PgPool,
}

impl Tables {
    /// Makes the tables, with the triggers that `follow-sql` prints for this configuration.
    pub(super) async fn make(database: &Database, launch: &Launch, config: &str) -> Self {
        let file = launch.folder().join("bloomgate.toml");
        std::fs::write(&file, config).unwrap();
        for filter in FOLLOWED {
            let make =
                format!("CREATE TABLE {filter} (item text PRIMARY KEY, expires_at timestamptz)");
            database.execute(&make).await;
            let table = format!("public.{filter}");
            let command = ["follow-sql", filter, "--config", file.to_str().unwrap()];
            let columns = [
                "--table",
                &table,
                "--item",
                "item",
                "--expires",
                "expires_at",
            ];
            let launch = launch.clone().database_url(database.url());
            let printed = launch.run(&[&command[..], &columns].concat()).await;
            assert_eq!(printed.exit_code, Some(0), "{printed:?}");
            database.execute(&printed.stdout).await;
        }
        let pool = PgPoolOptions::new()
            .max_connections(u32::try_from(WRITERS).unwrap())
            .acquire_timeout(COMMIT_LIMIT)
            .connect_lazy(database.url());
        Self {
            pool: pool.unwrap(),
        }
    }

    /// Writes the items; whether their commit was confirmed.
    pub(super) async fn commit(
        &self,
        table: &str,
        items: &[String],
        expires_at: Option<&str>,
        write: &Write,
    ) -> bool {
        let commit = self.try_commit(table, items, expires_at, write);
        let confirmed = tokio::time::timeout(COMMIT_LIMIT, commit).await;
        matches!(confirmed, Ok(Ok(())))
    }

    async fn try_commit(
        &self,
        table: &str,
        items: &[String],
        expires_at: Option<&str>,
        write: &Write,
    ) -> sqlx::Result<()> {
        let drafts: Vec<_> = items.iter().map(|item| format!("{DRAFT}{item}")).collect();
        let mut transaction = self.pool.begin().await?;
        match write.writing {
            Writing::Insert => insert(&mut transaction, table, items, expires_at).await?,
            Writing::Nested => {
                let mut nested = sqlx::Connection::begin(&mut *transaction).await?;
                insert(&mut nested, table, &drafts, None).await?;
                nested.rollback().await?;
                let mut nested = sqlx::Connection::begin(&mut *transaction).await?;
                insert(&mut nested, table, items, expires_at).await?;
                nested.commit().await?;
            }
            Writing::Rename => {
                insert(&mut transaction, table, &drafts, None).await?;
                transaction.commit().await?;
                transaction = self.pool.begin().await?;
                update(&mut transaction, table, &drafts, expires_at).await?;
            }
            Writing::PutOff => {
                insert(&mut transaction, table, items, Some("2001-01-01Z")).await?;
                transaction.commit().await?;
                transaction = self.pool.begin().await?;
                update(&mut transaction, table, items, expires_at).await?;
            }
        }
        tokio::time::sleep(write.held).await;
        // What fails before this ends the transaction, so that an answer to it is that of a commit.
        transaction.commit().await
    }
}

async fn insert(
    transaction: &mut PgConnection,
    table: &str,
    items: &[String],
    expires_at: Option<&str>,
) -> sqlx::Result<()> {
    let insert = format!(
        "INSERT INTO {table} (item, expires_at)
         SELECT item, $2::text::timestamptz FROM unnest($1::text[]) AS item"
    );
    let insert = sqlx::query(AssertSqlSafe(insert)).bind(items);
    let done = insert.bind(expires_at).execute(transaction).await?;
    assert_eq!(done.rows_affected(), items.len() as u64);
    Ok(())
}

/// Makes of drafts what they are drafts of, and sets the expiry.
async fn update(
    transaction: &mut PgConnection,
    table: &str,
    items: &[String],
    expires_at: Option<&str>,
) -> sqlx::Result<()> {
    let update = format!(
        "UPDATE {table} SET item = replace(item, '{DRAFT}', ''),
                            expires_at = $2::text::timestamptz
          WHERE item = ANY ($1)"
    );
    let update = sqlx::query(AssertSqlSafe(update)).bind(items);
    let done = update.bind(expires_at).execute(transaction).await?;
    assert_eq!(done.rows_affected(), items.len() as u64);
    Ok(())
}

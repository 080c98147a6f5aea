//! A connection pool between the program and its database.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgRow};
use sqlx::{ConnectOptions, Connection, Row};

use super::cluster::{free_port, fresh_folder, remove_folder};
use super::environment::{postgres_password, server_command, server_program};
use super::{Database, eventually};

/// How long it may take to come up.
const START_DEADLINE: Duration = Duration::from_secs(30);

/// How many sessions of the server all clients share.
const POOL_SESSIONS: usize = 2;

/// A PgBouncer in transaction mode in front of the server of one database, as its defaults are: a
/// start-up parameter that it does not know is refused, and a statement that was prepared in one
/// transaction may be unknown in the next, or another's. Ended on drop.
pub(crate) struct PgBouncer {
    folder: PathBuf,
    port: u16,
    url: String,
    process: Option<Child>,
}

impl PgBouncer {
    /// Starts it and waits until it takes connections.
    pub(crate) async fn start(database: &Database) -> Self {
        let port = free_port();
        let folder = fresh_folder("pgbouncer");
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("pgbouncer.ini"), settings(database, port)).unwrap();
        let users = format!("\"postgres\" \"{}\"\n", postgres_password());
        fs::write(folder.join("users.txt"), users).unwrap();
        let mut pooler = Self {
            folder,
            port,
            url: database.url_at(&format!("127.0.0.1:{port}")),
            process: None,
        };
        pooler.start_again().await;
        pooler
    }

    /// The URL of the database through the pool, for a superuser.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Its `host:port`.
    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Kills it, which ends its clients' and its own sessions.
    pub(crate) fn stop(&mut self) {
        let mut process = self.process.take().unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
    }

    /// Starts it again on the same port, and waits until it takes connections.
    pub(crate) async fn start_again(&mut self) {
        assert!(self.process.is_none(), "PgBouncer runs already");
        self.process = Some(self.spawn());
        eventually("PgBouncer takes connections", START_DEADLINE, async || {
            let process = self.process.as_mut().unwrap();
            let ended = process.try_wait().unwrap();
            assert!(ended.is_none(), "PgBouncer ended: {}", self.log());
            tokio::net::TcpStream::connect(self.address()).await.ok()
        })
        .await;
    }

    /// How many sessions of the server it holds for the database at the moment.
    pub(crate) async fn server_sessions(&self) -> usize {
        let console: PgConnectOptions = self.url.parse().unwrap();
        let console = console.database("pgbouncer").extra_float_digits(None);
        let mut connection = console.connect().await.unwrap();
        let rows = sqlx::raw_sql("SHOW SERVERS").fetch_all(&mut connection);
        let rows: Vec<PgRow> = rows.await.unwrap();
        connection.close().await.unwrap();
        let name = self.url.rsplit_once('/').unwrap().1;
        let of_database = |row: &&PgRow| row.get::<String, _>("database") == name;
        rows.iter().filter(of_database).count()
    }

    /// What it has logged.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    fn spawn(&self) -> Child {
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.folder.join("log"));
        server_command(&server_program("pgbouncer"))
            .arg("pgbouncer.ini")
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.unwrap())
            .spawn()
            .unwrap()
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        if self.process.is_some() {
            self.stop();
        }
        if std::thread::panicking() {
            eprintln!("--- log of PgBouncer\n{}", self.log());
        }
        remove_folder(&self.folder);
    }
}

fn settings(database: &Database, port: u16) -> String {
    let (server_host, server_port) = database.address().split_once(':').unwrap();
    let mut settings = format!(
        "[databases]
* = host={server_host} port={server_port}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = users.txt
admin_users = postgres
pool_mode = transaction
default_pool_size = {POOL_SESSIONS}
"
    );
    if knows_prepared_statements() {
        settings += "max_prepared_statements = 0\n";
    }
    settings
}

/// Whether it can be told to carry prepared statements from session to session. From 1.21 on it
/// can, before it never did, and refuses the setting.
fn knows_prepared_statements() -> bool {
    let told = Command::new(server_program("pgbouncer"))
        .arg("--version")
        .output();
    let told = String::from_utf8(told.unwrap().stdout).unwrap();
    let version = told.split_whitespace().nth(1).unwrap();
    let mut numbers = version.split('.').map(|number| number.parse().unwrap());
    (numbers.next(), numbers.next()) >= (Some(1), Some(21_u32))
}

//! A PostgreSQL server of one's own.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use sqlx::{Connection, PgConnection};

use super::environment::{postgres_owner, postgres_password, postgres_program, run_folder};
use super::{Database, DatabaseOptions, eventually};

/// How long a server may take to come up, crash recovery included, or to end.
const SERVER_DEADLINE: Duration = Duration::from_secs(60);

/// A PostgreSQL server that one test owns, to stop, kill and start again. It is a copy of the
/// template that `tests/run` has initialized: all clusters of a run share one system identifier.
/// Ended and removed on drop.
pub(crate) struct Cluster {
    folder: PathBuf,
    port: u16,
    settings: Vec<(String, String)>,
    server: Option<Child>,
}

impl Cluster {
    /// Starts a server with the template's settings.
    pub(crate) async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// Starts a server with settings of `postgresql.conf` beside the template's.
    pub(crate) async fn start_with(settings: &[(&str, &str)]) -> Self {
        let name = format!("cluster-{}", uuid::Uuid::new_v4().simple());
        let folder = run_folder().join("clusters").join(name);
        let copied = Command::new("cp")
            .arg("-a")
            .arg(run_folder().join("template"))
            .arg(&folder)
            .status();
        assert!(
            copied.unwrap().success(),
            "the cluster template cannot be copied"
        );
        let mut cluster = Self {
            folder,
            port: free_port(),
            settings: settings
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            server: None,
        };
        cluster.start_again().await;
        cluster
    }

    /// The URL of a database in this cluster, for a superuser.
    pub(crate) fn url_of(&self, database: &str) -> String {
        let password = postgres_password();
        let port = self.port;
        format!("postgres://postgres:{password}@127.0.0.1:{port}/{database}")
    }

    /// The URL of the maintenance database.
    pub(crate) fn url(&self) -> String {
        self.url_of("postgres")
    }

    /// The port on 127.0.0.1, the same after every start.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// A fresh database in this cluster.
    pub(crate) async fn create_database(&self) -> Database {
        Database::create_at(&self.url(), &DatabaseOptions::default()).await
    }

    /// Ends the server as an administrator does (`pg_ctl stop -m fast`): sessions are ended, what
    /// is in memory is written.
    pub(crate) async fn stop_fast(&mut self) {
        self.end(Signal::INT).await;
    }

    /// Kills the server's first process. The next start goes through crash recovery.
    pub(crate) async fn kill_9(&mut self) {
        self.end(Signal::KILL).await;
    }

    /// Starts the server again on the same folder and port, and waits until it takes connections.
    pub(crate) async fn start_again(&mut self) {
        assert!(self.server.is_none(), "the server runs already");
        let url = self.url();
        eventually(
            "the PostgreSQL server takes connections",
            SERVER_DEADLINE,
            async || {
                // After a kill the server refuses to start until the last orphaned backend is gone.
                if self.has_ended() {
                    self.server = Some(self.spawn());
                }
                let connection = PgConnection::connect(&url).await.ok()?;
                connection.close().await.ok()
            },
        )
        .await;
    }

    /// What the server has logged since it was made.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    fn log_path(&self) -> PathBuf {
        self.folder.join("server.log")
    }

    fn has_ended(&mut self) -> bool {
        match &mut self.server {
            Some(server) => server.try_wait().unwrap().is_some(),
            None => true,
        }
    }

    fn spawn(&self) -> Child {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log_path());
        let log = log.unwrap();
        let mut command = Command::new(postgres_program("postgres"));
        command
            .arg("-D")
            .arg(&self.folder)
            .arg("-p")
            .arg(self.port.to_string())
            .env("LOCPATH", run_folder().join("locales"))
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        for (name, value) in &self.settings {
            command.arg("-c").arg(format!("{name}={value}"));
        }
        if let Some((user, group)) = postgres_owner() {
            command.uid(user).gid(group);
        }
        command.spawn().unwrap()
    }

    async fn end(&mut self, signal: Signal) {
        let mut server = self.server.take().unwrap();
        kill_process(Pid::from_child(&server), signal).unwrap();
        eventually("the PostgreSQL server ends", SERVER_DEADLINE, async || {
            server.try_wait().unwrap()
        })
        .await;
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.take() {
            // An immediate shutdown: nothing of it is needed any more.
            let _ = kill_process(Pid::from_child(&server), Signal::QUIT);
            let _ = server.wait();
        }
        if std::thread::panicking() {
            eprintln!("--- log of PostgreSQL\n{}", self.log());
        }
        remove_folder(&self.folder);
    }
}

/// A backend that outlives its killed postmaster by a moment may still write.
fn remove_folder(folder: &Path) {
    for _ in 0..3 {
        if fs::remove_dir_all(folder).is_ok() {
            return;
        }
    }
}

/// A port on 127.0.0.1 that nobody listens on, below the range that the kernel gives to clients, so
/// that it is still free when a server comes back to it.
fn free_port() -> u16 {
    let bytes = uuid::Uuid::new_v4().into_bytes();
    let start = u16::from_be_bytes([bytes[0], bytes[1]]) % 20_000;
    (0..20_000)
        .map(|step| 12_000 + (start + step) % 20_000)
        .find(|port| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .unwrap()
}

//! A PostgreSQL server of one's own.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use sqlx::{Connection, PgConnection};

use super::environment::{
    postgres_owner, postgres_password, postgres_program, run_folder, server_command,
};
use super::{Backup, Database, DatabaseOptions, eventually};

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
        let folder = fresh_folder("cluster");
        copy_folder(&run_folder().join("template"), &folder);
        let settings = settings
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Self::start_in(folder, settings.collect()).await
    }

    /// Starts a server in a data folder that is there, which is its own from now on.
    pub(super) async fn start_in(folder: PathBuf, settings: Vec<(String, String)>) -> Self {
        let mut cluster = Self {
            folder,
            port: free_port(),
            settings,
            server: None,
        };
        cluster.start_again().await;
        cluster
    }

    /// What it was started with beside the template's settings.
    pub(super) fn settings(&self) -> &[(String, String)] {
        &self.settings
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

    /// Kills one backend, upon which the server ends all of them and goes through crash recovery
    /// while its first process lives. Returns when it takes connections again.
    pub(crate) async fn kill_backend_9(&self) {
        let url = self.url();
        let mut witness = PgConnection::connect(&url).await.unwrap();
        let mut victim = PgConnection::connect(&url).await.unwrap();
        let backend: i32 = sqlx::query_scalar("SELECT pg_backend_pid()")
            .fetch_one(&mut victim)
            .await
            .unwrap();
        kill_process(Pid::from_raw(backend).unwrap(), Signal::KILL).unwrap();
        // From the witness's end on nobody is let in until the recovery is done.
        eventually("all backends end", SERVER_DEADLINE, async || {
            witness.ping().await.err()
        })
        .await;
        eventually("the server has recovered", SERVER_DEADLINE, async || {
            PgConnection::connect(&url).await.ok()
        })
        .await;
    }

    /// A copy of the data folder, taken while the server runs.
    pub(crate) async fn physical_backup(&self) -> Backup {
        Backup::take(self, &[]).await
    }

    /// A copy of the data folder, taken between a stop in good order and the next start: it has whatever
    /// a clean restart keeps.
    pub(crate) async fn cold_backup(&mut self) -> Backup {
        self.stop_fast().await;
        let backup = Backup::of_stopped(&self.folder);
        self.start_again().await;
        backup
    }

    /// Stops the server, puts the backup in the place of its data folder, and starts it on the
    /// same port. It recovers up to the end of the backup; what was committed later is lost.
    pub(crate) async fn restore_from(&mut self, backup: &Backup) {
        self.stop_fast().await;
        let log = self.log();
        fs::remove_dir_all(&self.folder).unwrap();
        copy_folder(backup.folder(), &self.folder);
        fs::write(self.log_path(), log).unwrap();
        self.start_again().await;
    }

    /// Starts the server again as a standby of a primary that is nowhere: it can be read, and lags.
    pub(crate) async fn start_as_standby(&mut self) {
        let signal = self.folder.join("standby.signal");
        File::create(&signal).unwrap();
        if let Some((user, group)) = postgres_owner() {
            std::os::unix::fs::chown(&signal, Some(user), Some(group)).unwrap();
        }
        self.start_again().await;
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
        let mut command = server_command(&postgres_program("postgres"));
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

/// A name for a folder of this run that no one has used.
pub(super) fn fresh_folder(what: &str) -> PathBuf {
    let name = format!("{what}-{}", uuid::Uuid::new_v4().simple());
    run_folder().join("clusters").join(name)
}

/// Copies a folder with its owners to a place where nothing is.
pub(super) fn copy_folder(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").arg(from).arg(to).status();
    let from = from.display();
    assert!(copied.unwrap().success(), "{from} cannot be copied");
}

/// A backend that outlives its killed postmaster by a moment may still write.
pub(super) fn remove_folder(folder: &Path) {
    for _ in 0..3 {
        if fs::remove_dir_all(folder).is_ok() {
            return;
        }
    }
}

/// A port on 127.0.0.1 that nobody listens on, below the range that the kernel gives to clients, so
/// that it is still free when a server comes back to it.
pub(crate) fn free_port() -> u16 {
    let bytes = uuid::Uuid::new_v4().into_bytes();
    let start = u16::from_be_bytes([bytes[0], bytes[1]]) % 20_000;
    (0..20_000)
        .map(|step| 12_000 + (start + step) % 20_000)
        .find(|port| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .unwrap()
}

//! How the program is started: its configuration, flags and environment.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;

use super::{Bloomgate, eventually};

/// How long the program may take to end by itself.
const END_DEADLINE: Duration = Duration::from_secs(30);

/// A way to start the program, in a temporary folder of its own that is its working directory too.
/// The environment holds what is given here and `PATH`, nothing of the caller's.
#[derive(Debug, Clone)]
pub(crate) struct Launch {
    folder: Arc<TempDir>,
    config: Option<String>,
    listen: Option<String>,
    flags: Vec<String>,
    environment: Vec<(String, String)>,
    /// What the program's own command line is appended to.
    wrapper: Vec<String>,
}

/// How a program that ended by itself ended.
#[derive(Debug)]
pub(crate) struct Finished {
    /// The exit code; none where a signal ended it.
    pub(crate) exit_code: Option<i32>,
    /// What it printed.
    pub(crate) stdout: String,
    /// What it logged.
    pub(crate) stderr: String,
}

/// A running process and the files that its output goes to.
pub(crate) struct Process {
    pub(crate) child: Child,
    stdout_path: PathBuf,
    stderr_path: PathBuf,
}

impl Process {
    /// What it has printed so far.
    pub(crate) fn stdout(&self) -> String {
        fs::read_to_string(&self.stdout_path).unwrap()
    }

    /// What it has logged so far.
    pub(crate) fn stderr(&self) -> String {
        fs::read_to_string(&self.stderr_path).unwrap()
    }
}

impl Launch {
    /// Serves on a free port of 127.0.0.1, with a fresh data directory and nothing configured.
    pub(crate) fn new() -> Self {
        Self {
            folder: Arc::new(tempfile::tempdir().unwrap()),
            config: None,
            listen: Some("127.0.0.1:0".to_owned()),
            flags: Vec::new(),
            environment: Vec::new(),
            wrapper: Vec::new(),
        }
    }

    /// With this TOML as configuration file.
    pub(crate) fn config(mut self, toml: &str) -> Self {
        self.config = Some(toml.to_owned());
        self
    }

    /// With this address instead of a free port of 127.0.0.1; none leaves it to the configuration.
    pub(crate) fn listen(mut self, address: Option<&str>) -> Self {
        self.listen = address.map(str::to_owned);
        self
    }

    /// With one more argument.
    pub(crate) fn flag(mut self, flag: &str) -> Self {
        self.flags.push(flag.to_owned());
        self
    }

    /// With one more variable in the environment.
    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Run by another program, which must `exec` the command line that it is given behind its own.
    pub(crate) fn through(mut self, wrapper: &[&str]) -> Self {
        self.wrapper = wrapper.iter().map(|word| (*word).to_owned()).collect();
        self
    }

    /// With this PostgreSQL as store.
    pub(crate) fn database_url(self, url: &str) -> Self {
        self.env("DATABASE_URL", url)
    }

    /// The working directory, which holds `data`.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The data directory.
    pub(crate) fn data_dir(&self) -> PathBuf {
        self.folder().join("data")
    }

    /// Starts the service and waits until it says where it listens.
    pub(crate) async fn start(self) -> Bloomgate {
        Bloomgate::launch(self).await
    }

    /// Starts the service, which must end by itself, with a code other than 0.
    pub(crate) async fn expect_start_failure(self) -> Finished {
        let finished = self.finish(self.spawn()).await;
        assert!(
            finished.exit_code.is_some_and(|code| code != 0),
            "{finished:?}"
        );
        finished
    }

    /// Runs a command of the program that ends by itself, such as `plan`, with these arguments only.
    pub(crate) async fn run(self, arguments: &[&str]) -> Finished {
        let process = self.spawn_with(arguments.iter().map(|argument| (*argument).to_owned()));
        self.finish(process).await
    }

    /// Starts the service. Each start writes to files of its own.
    pub(crate) fn spawn(&self) -> Process {
        let mut arguments = vec![
            "--data-dir".to_owned(),
            self.data_dir().to_str().unwrap().to_owned(),
        ];
        if let Some(listen) = &self.listen {
            arguments.extend(["--listen".to_owned(), listen.clone()]);
        }
        if let Some(config) = &self.config {
            let path = self.folder().join("bloomgate.toml");
            fs::write(&path, config).unwrap();
            arguments.extend(["--config".to_owned(), path.to_str().unwrap().to_owned()]);
        }
        arguments.extend(self.flags.iter().cloned());
        self.spawn_with(arguments)
    }

    fn spawn_with(&self, arguments: impl IntoIterator<Item = String>) -> Process {
        let output = tempfile::Builder::new()
            .prefix("output-")
            .disable_cleanup(true)
            .tempdir_in(self.folder())
            .unwrap();
        let stdout_path = output.path().join("stdout");
        let stderr_path = output.path().join("stderr");
        let program = env!("CARGO_BIN_EXE_bloomgate").to_owned();
        let mut words = self.wrapper.iter().cloned().chain([program]);
        let child = Command::new(words.next().unwrap())
            .args(words)
            .args(arguments)
            .current_dir(self.folder())
            .env_clear()
            .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
            .env("HOME", self.folder())
            .env("RUST_BACKTRACE", "1")
            .envs(self.environment.iter().cloned())
            .stdin(Stdio::null())
            .stdout(File::create(&stdout_path).unwrap())
            .stderr(File::create(&stderr_path).unwrap())
            .spawn()
            .unwrap();
        Process {
            child,
            stdout_path,
            stderr_path,
        }
    }

    async fn finish(&self, mut process: Process) -> Finished {
        let ended = async {
            eventually("the program ends by itself", END_DEADLINE, async || {
                process.child.try_wait().unwrap()
            })
            .await
        };
        let status = ended.await;
        Finished {
            exit_code: status.code(),
            stdout: process.stdout(),
            stderr: process.stderr(),
        }
    }
}

//! An application with one of the samples in front of it, as a process of its own.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use reqwest::Client;
use tempfile::TempDir;

use super::{DEADLINE, KEY, STOLEN, TOTAL, TRY};
use crate::support::{eventually, free_port};

/// Past this something hangs that should not.
const PATIENCE: Duration = Duration::from_secs(15);

/// A running application. Killed on drop; its log is printed where the test has failed.
pub(super) struct Application {
    process: Child,
    port: u16,
    folder: TempDir,
    client: Client,
}

/// What an end user is answered.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) status: u16,
    pub(super) challenge: Option<String>,
    pub(super) took: Duration,
}

impl Application {
    /// Starts the example of a stack, as `tests/middleware` has built it, with bloomgate at this URL.
    pub(super) async fn start(stack: &str, bloomgate: &str) -> Self {
        let program = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("target/middleware")
            .join(stack)
            .join("run");
        assert!(program.is_file(), "tests/middleware {stack} builds it");
        let folder = tempfile::tempdir().unwrap();
        let port = free_port();
        let log = File::create(folder.path().join("log")).unwrap();
        let milliseconds = |limit: Duration| limit.as_millis().to_string();
        let mut command = Command::new(program);
        command
            .current_dir(folder.path())
            .env_clear()
            .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
            .env("HOME", folder.path())
            .env("BLOOMGATE_URL", bloomgate)
            .env("BLOOMGATE_KEY", KEY)
            .env("REVOKED_FILE", folder.path().join("revoked"))
            .env("PORT", port.to_string())
            .env("TRY_MS", milliseconds(TRY))
            .env("TOTAL_MS", milliseconds(TOTAL))
            .env("NODE_USE_ENV_PROXY", "1");
        // Nobody listens there: who takes a proxy from the environment gets no answer.
        for name in ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"] {
            command.env(name, "http://127.0.0.1:1");
        }
        let process = command
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let client = Client::builder().timeout(PATIENCE).no_proxy().build();
        let mut application = Self {
            process,
            port,
            folder,
            client: client.unwrap(),
        };
        application.let_look_ups_work(true);
        eventually("the application answers", DEADLINE, async || {
            let ended = application.process.try_wait().unwrap();
            assert!(ended.is_none(), "the application ended with {ended:?}");
            let asked = application.client.get(application.url("lookups"));
            asked.send().await.ok()
        })
        .await;
        application
    }

    fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}/{path}", self.port)
    }

    fn revoked_file(&self) -> PathBuf {
        self.folder.path().join("revoked")
    }

    /// Whether the application's own look-up works.
    pub(super) fn let_look_ups_work(&self, works: bool) {
        if works {
            fs::write(self.revoked_file(), format!("another\n{STOLEN}\n")).unwrap();
        } else {
            fs::remove_file(self.revoked_file()).unwrap();
        }
    }

    /// Asks for what only who may pass gets.
    pub(super) async fn ask(&self, authorization: Option<&str>) -> Told {
        let begun = Instant::now();
        let mut request = self.client.get(self.url("orders"));
        if let Some(value) = authorization {
            request = request.header("authorization", value);
        }
        let response = request.send().await.unwrap();
        let challenge = response.headers().get("www-authenticate");
        let told = Told {
            status: response.status().as_u16(),
            challenge: challenge.map(|value| value.to_str().unwrap().to_owned()),
            took: begun.elapsed(),
        };
        let text = response.text().await.unwrap();
        assert_eq!(text.contains("orders"), told.status == 200, "{told:?}");
        told
    }

    /// How often it has looked an id up itself.
    pub(super) async fn lookups(&self) -> u64 {
        let response = self.client.get(self.url("lookups")).send().await.unwrap();
        response.text().await.unwrap().trim().parse().unwrap()
    }

    /// Everything that it has logged.
    pub(super) fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Application {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        if std::thread::panicking() {
            eprintln!("--- log of the application\n{}", self.log());
        }
    }
}

//! A client that openapi-python-client makes of the document runs the whole flow against the
//! running service, and reads every refusal as a problem. `tests/python` holds the flow.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::support::environment::variable;
use crate::support::{Bloomgate, Database, Launch};

const TESTS_PYTHON: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/python");

/// The Python that `tests/run` has installed the generator for.
fn python() -> Command {
    let mut python = Command::new(variable("BLOOMGATE_TEST_PYTHON"));
    python.env("PYTHONDONTWRITEBYTECODE", "1");
    python
}

/// Runs to the end. Panics with all that was printed where it fails.
fn run(command: &mut Command) {
    let ran = command.output().unwrap();
    let stdout = String::from_utf8_lossy(&ran.stdout);
    let stderr = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{}\n{stdout}\n{stderr}", ran.status);
}

/// Generates the package `bloomgate_client` from the document, without a single warning.
fn generate() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/openapi/openapi.json");
    let config = Path::new(TESTS_PYTHON).join("client-generator.yml");
    let mut generator = python();
    generator
        .args(["-m", "openapi_python_client", "generate", "--meta", "none"])
        .args(["--fail-on-warning", "--path", document, "--config"])
        .arg(config)
        .arg("--output-path")
        .arg(folder.path().join("bloomgate_client"));
    run(&mut generator);
    folder
}

fn run_flow(client: &TempDir, service: &Bloomgate, key: &str, phase: &str) {
    let mut flow = python();
    flow.env("PYTHONPATH", client.path())
        .arg(Path::new(TESTS_PYTHON).join("whole_flow.py"))
        .args([service.base_url(), key, phase]);
    run(&mut flow);
}

/// A key with every scope, and the block to paste for it.
async fn admin_key() -> (String, String) {
    let arguments = ["key", "new", "--id", "generated-client", "--scope", "admin"];
    let made = Launch::new().run(&arguments).await.stdout;
    let key = made.lines().find(|line| line.starts_with("bg_"));
    let (_, block) = made.split_once("[[keys]]").unwrap();
    (key.unwrap().to_owned(), format!("[[keys]]{block}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_generated_client_runs_the_whole_flow_and_reads_every_refusal() {
    let client = generate();
    let (key, keys) = admin_key().await;
    let database = Database::create().await;
    let launch = Launch::new().config(&keys).database_url(database.url());
    let mut service = launch.start().await;
    service.use_key(&key);
    service.wait_live("registered-email").await;
    service.wait_live("revoked-jti").await;
    run_flow(&client, &service, &key, "serving");

    let nobody_listens = database.url_at("127.0.0.1:1");
    let launch = Launch::new().config(&keys).database_url(&nobody_listens);
    let service = launch.start().await;
    run_flow(&client, &service, &key, "store-down");
}

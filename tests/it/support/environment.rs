//! What `tests/run` tells the tests about the machine they run on.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A variable that `tests/run` exports. Panics with the remedy where it is missing.
pub(crate) fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| {
        panic!(
            "{name} is not set: these tests need the PostgreSQL cluster that `tests/run` starts. \
             Run `tests/run`, with the name of a test to run only that one."
        )
    })
}

/// The folder of this run: the cluster template, the certificates, and what the tests write.
pub(crate) fn run_folder() -> PathBuf {
    variable("BLOOMGATE_TEST_FOLDER").into()
}

/// The folder with `ca.pem`, which signed the servers' certificate for the name `localhost`, and
/// `other-ca.pem`, which did not.
pub(crate) fn tls_folder() -> PathBuf {
    run_folder().join("tls")
}

/// One of PostgreSQL's own programs.
pub(crate) fn postgres_program(name: &str) -> PathBuf {
    PathBuf::from(variable("BLOOMGATE_TEST_POSTGRES_PROGRAMS")).join(name)
}

/// User and group id that a server must run as: PostgreSQL refuses root. None when this process is
/// not root.
pub(crate) fn postgres_owner() -> Option<(u32, u32)> {
    let owner = std::env::var("BLOOMGATE_TEST_POSTGRES_OWNER").ok()?;
    let (user, group) = owner.split_once(':').unwrap();
    Some((user.parse().unwrap(), group.parse().unwrap()))
}

/// A server's program, to be run as whom PostgreSQL accepts. PgBouncer refuses root as well.
pub(crate) fn server_command(program: &Path) -> Command {
    let mut command = Command::new(program);
    if let Some((user, group)) = postgres_owner() {
        command.uid(user).gid(group);
    }
    command
}

/// The program of a server, which Debian keeps off the PATH of everyone but root.
pub(crate) fn server_program(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/usr/local/sbin".into()])
        .map(|folder: PathBuf| folder.join(name))
        .find(|program| program.is_file())
        .unwrap_or_else(|| panic!("no {name} on this machine: tests/install-missing installs it"))
}

/// The password of the role `postgres` in every cluster of this run.
pub(crate) fn postgres_password() -> String {
    std::fs::read_to_string(run_folder().join("password")).unwrap()
}

/// The URL of the shared cluster's maintenance database, for a superuser.
pub(crate) fn shared_cluster_url() -> String {
    variable("BLOOMGATE_TEST_DATABASE_URL")
}

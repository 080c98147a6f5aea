//! A copy of a cluster's data folder.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use super::Cluster;
use super::cluster::{copy_folder, fresh_folder, remove_folder};
use super::environment::{postgres_program, server_command};

/// What `pg_basebackup` took of a running server, with the log that makes it consistent. Removed
/// on drop.
pub(crate) struct Backup {
    folder: PathBuf,
}

impl Backup {
    /// Takes a backup, with arguments of `pg_basebackup` beside the usual.
    pub(super) async fn take(cluster: &Cluster, arguments: &[&str]) -> Self {
        let backup = Self {
            folder: fresh_folder("backup"),
        };
        let mut command = server_command(&postgres_program("pg_basebackup"));
        command
            .args(["--checkpoint=fast", "--no-sync", "--wal-method=stream"])
            .args(["--dbname", &cluster.url(), "--pgdata"])
            .arg(&backup.folder)
            .args(arguments)
            .current_dir("/")
            .stdin(Stdio::null());
        let taken = tokio::task::spawn_blocking(move || command.output());
        let taken = taken.await.unwrap().unwrap();
        let complaint = String::from_utf8_lossy(&taken.stderr);
        assert!(taken.status.success(), "pg_basebackup: {complaint}");
        // It takes the server's log along, which is none of the copy's.
        File::create(backup.folder.join("server.log")).unwrap();
        backup
    }

    /// Copies the folder of a server that is stopped: consistent as it lies.
    pub(super) fn of_stopped(data_folder: &Path) -> Self {
        let folder = fresh_folder("backup");
        copy_folder(data_folder, &folder);
        Self { folder }
    }

    /// Where it lies.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Gives the folder away, to live in.
    pub(super) fn into_folder(mut self) -> PathBuf {
        std::mem::take(&mut self.folder)
    }
}

impl Drop for Backup {
    fn drop(&mut self) {
        if !self.folder.as_os_str().is_empty() {
            remove_folder(&self.folder);
        }
    }
}

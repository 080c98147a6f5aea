//! That a source works behind PgBouncer in transaction mode, where each transaction may be another
//! session's.

use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bloomgate::service::ports::Source;

use super::followed_tables::{Followed, followed_table};
use crate::support::environment::{postgres_owner, postgres_password, run_folder};
use crate::support::{Database, eventually};

/// A pooler of two sessions.
struct Pooler {
    process: Child,
    url: String,
}

impl Pooler {
    async fn start(database: &Database) -> Self {
        let (host, port) = database.address().split_once(':').unwrap();
        let (name, password) = (database.name(), postgres_password());
        let own_port = free_port();
        let settings = format!(
            "[databases]\n\
             {name} = host={host} port={port} user=postgres password={password}\n\
             [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {own_port}\nunix_socket_dir =\n\
             auth_type = any\npool_mode = transaction\ndefault_pool_size = 2\n"
        );
        let path = run_folder().join("tmp").join(format!("{name}.ini"));
        std::fs::write(&path, settings).unwrap();
        let mut command = Command::new("pgbouncer");
        command
            .arg(&path)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        if let Some((user, group)) = postgres_owner() {
            command.uid(user).gid(group);
        }
        let process = command.spawn().unwrap();
        let url = format!("postgres://postgres@127.0.0.1:{own_port}/{name}");
        eventually("the pooler answers", Duration::from_secs(20), async || {
            std::net::TcpStream::connect(("127.0.0.1", own_port)).ok()
        })
        .await;
        Self { process, url }
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

#[tokio::test]
async fn two_replicas_load_and_follow_a_source_behind_a_pooler_in_transaction_mode() {
    let database = Database::create().await;
    followed_table(&database).await;
    let pooler = Pooler::start(&database).await;
    let query = "SELECT item FROM t";
    let mut replicas = Vec::new();
    for _ in 0..2 {
        let mut replica = Followed::load(&pooler.url, query).await;
        replica.source.examine().await.unwrap();
        replica.load_again().await;
        replicas.push(replica);
    }
    for item in ["a", "b", "c"] {
        let statement = format!("INSERT INTO t VALUES ('{item}')");
        database.execute(&statement).await;
        for replica in &mut replicas {
            assert_eq!(replica.news().await, [item]);
            replica.source.prune(Duration::from_secs(60)).await.unwrap();
        }
    }
}

//! Caddy, by `forward_auth`.

use std::process::Command;

use super::{GATEWAY_KEY, Places, run};
use crate::support::environment::server_program;

fn command(places: &Places) -> Command {
    let port = format!(":{} {{", places.port);
    places.write_sample("Caddyfile", &[(":8000 {", &port)]);
    let mut caddy = Command::new(server_program("caddy"));
    caddy
        .args(["run", "--config", "Caddyfile", "--adapter", "caddyfile"])
        .env("HOME", places.folder())
        .env("BLOOMGATE_KEY", GATEWAY_KEY);
    caddy
}

#[tokio::test(flavor = "multi_thread")]
async fn caddy_lets_through_what_bloomgate_lets_pass_and_nothing_else() {
    run(command).await;
}

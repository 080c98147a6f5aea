//! HAProxy, by the Lua script beside its configuration.

use std::process::Command;

use super::{GATEWAY_KEY, Places, run};
use crate::support::environment::server_program;

fn command(places: &Places) -> Command {
    let script = places.folder().join("bloomgate.lua");
    places.write_sample("bloomgate.lua", &[]);
    places.write_sample(
        "haproxy.cfg",
        &[
            ("abns@bloomgate", &format!("abns@bloomgate-{}", places.port)),
            ("127.0.0.1:8000", &format!("127.0.0.1:{}", places.port)),
            ("/etc/haproxy/bloomgate.lua", script.to_str().unwrap()),
            ("bg_the-key-of-this-gateway", GATEWAY_KEY),
        ],
    );
    let mut haproxy = Command::new(server_program("haproxy"));
    haproxy.args(["-db", "-f", "haproxy.cfg"]);
    haproxy
}

#[tokio::test(flavor = "multi_thread")]
async fn haproxy_lets_through_what_bloomgate_lets_pass_and_nothing_else() {
    run(command).await;
}

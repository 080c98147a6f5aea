//! nginx, by `auth_request`.

use std::process::Command;

use super::{GATEWAY_KEY, Places, run};
use crate::support::environment::server_program;

fn command(places: &Places) -> Command {
    let folder = places.folder().display();
    // Debian's own places for these are not everyone's to write to.
    let http = format!(
        "http {{ access_log off; client_body_temp_path {folder}/body; proxy_temp_path \
         {folder}/proxy; fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; \
         scgi_temp_path {folder}/scgi;"
    );
    places.write_sample(
        "nginx.conf",
        &[
            ("http {", &http),
            ("127.0.0.1:8000", &format!("127.0.0.1:{}", places.port)),
            ("bg_the-key-of-this-gateway", GATEWAY_KEY),
        ],
    );
    let mut nginx = Command::new(server_program("nginx"));
    nginx
        .args(["-p", &folder.to_string()])
        .args(["-c", &format!("{folder}/nginx.conf"), "-e", "stderr", "-g"])
        // One process, so that none is left when it is killed.
        .arg(format!("daemon off; master_process off; pid {folder}/pid;"));
    nginx
}

#[tokio::test(flavor = "multi_thread")]
async fn nginx_lets_through_what_bloomgate_lets_pass_and_nothing_else() {
    run(command).await;
}

//! Gateways, as they are really run: the sample configurations of `deploy`, with nothing changed but ports,
//! paths and the key, let through what bloomgate lets pass, and nothing when it is stale, loading, hung
//! or gone.

mod caddy;
mod haproxy;
mod nginx;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use reqwest::{Client, Method};
use rustix::process::Signal;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::authz::token;
use crate::support::{Conduct, Database, Launch, Proxy, eventually, free_port};

/// Long enough for whatever must come on a busy machine.
const DEADLINE: Duration = Duration::from_secs(30);

const GATEWAY_KEY: &str = "bg_gateway-key-of-the-tests";
const ADMIN_KEY: &str = "bg_admin-key-of-the-tests";

const INVALID: &str = "Bearer error=\"invalid_token\"";

/// Where everything is in one test.
struct Places {
    /// `host:port` of bloomgate.
    bloomgate: String,
    /// `host:port` of the API behind.
    api: String,
    /// The port of the gateway on 127.0.0.1.
    port: u16,
    /// A folder of the gateway's own.
    folder: TempDir,
}

impl Places {
    fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a file of `deploy` into the folder, with these words replaced, each of which must be
    /// there, and the places of bloomgate and the API.
    fn write_sample(&self, name: &str, words: &[(&str, &str)]) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("deploy")
            .join(name);
        let mut text = std::fs::read_to_string(path).unwrap();
        for (from, to) in words {
            assert!(text.contains(from), "deploy/{name} has no {from}");
            text = text.replace(from, to);
        }
        text = text.replace("127.0.0.1:8080", &self.bloomgate);
        text = text.replace("127.0.0.1:3000", &self.api);
        std::fs::write(self.folder().join(name), text).unwrap();
    }
}

/// The API behind the gateway, which answers everything with the body that it was sent.
struct Api {
    address: String,
    reached: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

impl Api {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let reached = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&reached);
        let echo = move |body: Bytes| {
            counter.fetch_add(1, Ordering::Relaxed);
            async move { body }
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            axum::serve(listener, Router::new().fallback(echo))
                .await
                .unwrap();
        });
        Self {
            address,
            reached,
            _tasks: tasks,
        }
    }

    fn reached(&self) -> usize {
        self.reached.load(Ordering::Relaxed)
    }
}

/// A running gateway. Killed on drop; its log is printed where the test has failed.
struct Gateway {
    process: Child,
    places: Places,
    client: Client,
}

/// What an end user is answered.
#[derive(Debug)]
struct Told {
    status: u16,
    challenge: Option<String>,
    text: String,
}

impl Gateway {
    async fn start(places: Places, command: fn(&Places) -> Command) -> Self {
        let log = std::fs::File::create(places.folder().join("log")).unwrap();
        let process = command(&places)
            .current_dir(places.folder())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let client = Client::builder().timeout(DEADLINE).no_proxy().build();
        let mut gateway = Self {
            process,
            places,
            client: client.unwrap(),
        };
        eventually("the gateway listens", DEADLINE, async || {
            let ended = gateway.process.try_wait().unwrap();
            assert!(ended.is_none(), "the gateway ended with {ended:?}");
            TcpStream::connect(("127.0.0.1", gateway.places.port))
                .await
                .ok()
        })
        .await;
        gateway
    }

    /// Asks for something of the API, with these values of Authorization.
    async fn ask(&self, method: Method, authorization: &[&str], body: &str) -> Told {
        // None of what an end user adds may count for anything.
        let lure = token(&json!({"jti": "live"}));
        let url = format!(
            "http://localhost:{}/orders/7?access_token={lure}",
            self.places.port
        );
        let mut request = self.client.request(method, url);
        for value in authorization {
            request = request.header("authorization", *value);
        }
        let request = request.header("x-api-key", "of-the-end-user");
        let response = request.body(body.to_owned()).send().await.unwrap();
        let challenge = response.headers().get("www-authenticate");
        Told {
            status: response.status().as_u16(),
            challenge: challenge.map(|value| value.to_str().unwrap().to_owned()),
            text: response.text().await.unwrap(),
        }
    }

    async fn get(&self, authorization: &str) -> Told {
        self.ask(Method::GET, &[authorization], "").await
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.places.folder().join("log"));
            eprintln!("--- log of the gateway\n{}", log.unwrap_or_default());
        }
    }
}

fn config() -> String {
    let digest = |key: &str| hex::encode(Sha256::digest(key));
    format!(
        "max_staleness = \"2s\"\npoll_interval = \"100ms\"\n\
         [authz.api]\njti = \"revoked-jti\"\n\
         [filters.revoked-jti]\nprofile = \"jti\"\ncapacity = 1000\nfalse_positive_rate = 1e-9\n\
         [[keys]]\nid = \"gateway\"\nsha256 = \"{}\"\nscopes = [\"check\"]\n\
         filters = [\"revoked-jti\"]\n\
         [[keys]]\nid = \"admin\"\nsha256 = \"{}\"\nscopes = [\"admin\"]\n",
        digest(GATEWAY_KEY),
        digest(ADMIN_KEY)
    )
}

fn bearer(jti: &str) -> String {
    format!("Bearer {}", token(&json!({"jti": jti, "sub": "ann"})))
}

/// Takes a gateway through all that may be and may happen.
async fn run(command: fn(&Places) -> Command) {
    let database = Database::create().await;
    let proxy = Proxy::start(database.address()).await;
    let bloomgate = format!("127.0.0.1:{}", free_port());
    let launch = || {
        let url = database.url_at(&proxy.address());
        let launch = Launch::new().config(&config()).listen(Some(&bloomgate));
        launch.database_url(&url)
    };
    let mut service = launch().start().await;
    service.use_key(ADMIN_KEY);
    service.wait_live("revoked-jti").await;
    service.add("revoked-jti", "stolen").await;
    let api = Api::start().await;
    let places = Places {
        bloomgate: bloomgate.clone(),
        api: api.address.clone(),
        port: free_port(),
        folder: tempfile::tempdir().unwrap(),
    };
    let gateway = Gateway::start(places, command).await;

    everything_is_in_order(&gateway, &api).await;

    let only_known_is_denied = async |what: &str| {
        let reached = api.reached();
        for jti in ["live", "stolen"] {
            let told = gateway.get(&bearer(jti)).await;
            assert_eq!(told.status, 403, "{what}: {told:?}");
        }
        assert_eq!(gateway.get("Bearer odd").await.status, 401, "{what}");
        assert_eq!(api.reached(), reached, "{what}");
    };
    let nothing_comes_through = async |what: &str| {
        let reached = api.reached();
        for authorization in [&[bearer("live").as_str()][..], &[]] {
            let told = gateway.ask(Method::POST, authorization, "x").await;
            assert!(
                [403, 500, 502, 503, 504].contains(&told.status),
                "{what}: {told:?}"
            );
        }
        assert_eq!(api.reached(), reached, "{what}");
    };

    service.send(Signal::STOP);
    nothing_comes_through("hung").await;
    service.send(Signal::CONT);
    proxy.switch(Conduct::Refuse);
    proxy.cut();
    eventually("live tokens are denied", DEADLINE, async || {
        (gateway.get(&bearer("live")).await.status == 403).then_some(())
    })
    .await;
    only_known_is_denied("stale, with the database gone").await;
    service.kill_9();
    nothing_comes_through("gone").await;
    drop(service);
    let mut service = launch().start().await;
    service.use_key(ADMIN_KEY);
    let checked = service.check("revoked-jti", "live").await;
    assert_eq!(checked.reason.as_deref(), Some("loading"));
    only_known_is_denied("loading").await;
    proxy.switch(Conduct::Pass);
    eventually("live tokens come through again", DEADLINE, async || {
        (gateway.get(&bearer("live")).await.status == 200).then_some(())
    })
    .await;
    assert_eq!(gateway.get(&bearer("stolen")).await.status, 401);
}

async fn everything_is_in_order(gateway: &Gateway, api: &Api) {
    let live = bearer("live");
    let body = "b".repeat(100_000);
    for method in [Method::GET, Method::POST, Method::PUT, Method::DELETE] {
        let reached = api.reached();
        let told = gateway.ask(method, &[&live], &body).await;
        assert_eq!((told.status, told.text.len()), (200, body.len()));
        assert_eq!(api.reached(), reached + 1);
    }
    let reached = api.reached();
    let stolen = bearer("stolen");
    let without_jti = format!("Bearer {}", token(&json!({"sub": "ann"})));
    let encrypted = format!("{live}.x.y");
    for authorization in [
        &stolen,
        &without_jti,
        &encrypted,
        "Bearer odd",
        &format!("{live}="),
    ] {
        for method in [Method::GET, Method::POST] {
            let told = gateway.ask(method, &[authorization], "x").await;
            assert_eq!(told.status, 401, "{authorization}: {told:?}");
            assert_eq!(told.challenge.as_deref(), Some(INVALID), "{authorization}");
        }
    }
    for authorization in [&[][..], &["Basic YTpi"]] {
        let told = gateway.ask(Method::GET, authorization, "").await;
        assert_eq!(
            (told.status, told.challenge.as_deref()),
            (401, Some("Bearer"))
        );
    }
    for two in [[live.as_str(), &stolen], [&stolen, &live], [&live, &live]] {
        let told = gateway.ask(Method::GET, &two, "").await;
        assert!([400, 401].contains(&told.status), "{told:?}");
    }
    assert_eq!(api.reached(), reached, "what was denied came through");
}

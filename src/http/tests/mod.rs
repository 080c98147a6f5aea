//! The routes as a caller meets them, over the real service and its SQLite store.

mod access;
mod authz;
mod bad_input;
mod bulk_load;
mod check_many;
mod connections;
mod document;
mod flow;
mod gate;
mod hot;
mod problems;

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt;
use jiff::SignedDuration;
use metrics_exporter_prometheus::PrometheusBuilder;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use super::access::Access;
use super::hot::Routes;
use super::{AppState, HttpLimits};
use crate::clock::SystemClock;
use crate::config::{ApiKey, Scope};
use crate::disk::Snapshots;
use crate::filter::hashing::MasterKey;
use crate::filter::profile::{EmailOptions, Profile};
use crate::service::authz::Policy;
use crate::service::declaration::{Declaration, FilterName};
use crate::service::lifecycle::Lifecycle;
use crate::service::ports::{StoreError, StoreIdentity, StoreTie};
use crate::service::registry::ConfiguredFilter;
use crate::service::{Adapters, Service, Settings};
use crate::store::SqliteStore;

/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(20);

struct AnyStore;

impl StoreTie for AnyStore {
    fn tie(&self, _: StoreIdentity) -> Result<(), StoreError> {
        Ok(())
    }
}

/// A running service behind its routes, with the filters `revoked-jti` and `registered-email`.
struct App {
    routes: Routes,
    stop: CancellationToken,
    tasks: Vec<JoinHandle<()>>,
    _data_dir: TempDir,
}

impl Drop for App {
    fn drop(&mut self) {
        self.stop.cancel();
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

struct Answer {
    status: u16,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// The name of the problem, after a look at what every problem holds.
    #[track_caller]
    fn problem(&self) -> String {
        let text = String::from_utf8_lossy(&self.body);
        assert_eq!(
            self.header("content-type"),
            Some("application/problem+json"),
            "{} {text}",
            self.status
        );
        let body = self.json();
        assert_eq!(body["status"], self.status, "{text}");
        assert_eq!(body["request_id"].as_str(), self.header("x-request-id"));
        for member in ["title", "detail"] {
            assert!(!body[member].as_str().unwrap().is_empty(), "{text}");
        }
        let kind = body["type"].as_str().unwrap();
        kind.strip_prefix("/problems/").unwrap().to_owned()
    }

    #[track_caller]
    fn pointer(&self) -> String {
        let body = self.json();
        let errors = body["errors"].as_array().expect("no errors in {body}");
        assert_eq!(errors.len(), 1);
        errors[0]["pointer"].as_str().unwrap().to_owned()
    }
}

fn configured(name: &str, profile: Profile, capacity: u64) -> ConfiguredFilter {
    ConfiguredFilter {
        name: FilterName::parse(name).unwrap(),
        declaration: Declaration::new(profile, capacity, 0.01).unwrap(),
        sources: Arc::from([]),
    }
}

fn settings() -> Settings {
    Settings {
        max_staleness: Duration::from_secs(30),
        poll_interval: Duration::from_millis(50),
        change_retention: Duration::from_secs(3_600),
        snapshot_interval: Duration::from_secs(3_600),
        rebuild_interval: Duration::from_secs(3_600),
        wait_timeout: Duration::from_secs(1),
        expiry_leeway: SignedDuration::from_secs(120),
        max_batch: 10_000,
        max_confirms: 4,
        memory_budget_bytes: 64 * 1024 * 1024,
    }
}

impl App {
    async fn start() -> Self {
        Self::start_with(Vec::new(), HttpLimits::default()).await
    }

    async fn start_with(keys: Vec<ApiKey>, limits: HttpLimits) -> Self {
        Self::start_for_gateways(keys, limits, Vec::new()).await
    }

    async fn start_for_gateways(keys: Vec<ApiKey>, limits: HttpLimits, authz: Vec<Policy>) -> Self {
        let data_dir = TempDir::new().unwrap();
        let adapters = Adapters {
            store: Arc::new(SqliteStore::new(data_dir.path())),
            tie: Arc::new(AnyStore),
            snapshots: Arc::new(Snapshots::open(data_dir.path()).unwrap()),
            clock: Arc::new(SystemClock),
        };
        let filters = vec![
            configured("revoked-jti", Profile::Jti, 10_000),
            configured(
                "registered-email",
                Profile::Email(EmailOptions::default()),
                10_000,
            ),
        ];
        let master_key = MasterKey::from_bytes([7; 32]);
        let (service, writer) = Service::new(settings(), adapters, master_key, filters);
        let stop = CancellationToken::new();
        let mut lifecycle = Lifecycle::new(Arc::clone(&service));
        lifecycle.open().await.unwrap();
        let (stop_writer, stop_lifecycle) = (stop.clone(), stop.clone());
        let tasks = vec![
            tokio::spawn(async move { writer.run(stop_writer).await }),
            tokio::spawn(async move { lifecycle.run(stop_lifecycle).await.unwrap() }),
        ];
        let deadline = Instant::now() + PATIENCE;
        while !service.readiness().ready {
            assert!(Instant::now() < deadline, "not ready in time");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let state = AppState {
            service,
            access: Arc::new(Access::new(keys)),
            limits,
            authz,
            prometheus: PrometheusBuilder::new().build_recorder().handle(),
        };
        Self {
            routes: Routes::new(state),
            stop,
            tasks,
            _data_dir: data_dir,
        }
    }

    async fn send(&self, request: Request<Body>) -> Answer {
        let response = self.routes.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        Answer {
            status: parts.status.as_u16(),
            headers: parts.headers,
            body: body.collect().await.unwrap().to_bytes().to_vec(),
        }
    }

    async fn ask(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Body>,
    ) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.send(request.body(body.into()).unwrap()).await
    }

    async fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[], Body::empty()).await
    }

    /// Sends JSON, or what claims to be JSON.
    async fn json(&self, method: &str, path: &str, body: impl Into<Body>) -> Answer {
        let json = [("content-type", "application/json")];
        self.ask(method, path, &json, body).await
    }

    async fn post(&self, path: &str, body: Value) -> Answer {
        self.json("POST", path, body.to_string()).await
    }

    async fn verdict(&self, filter: &str, item: &str) -> String {
        let path = format!("/v1/filters/{filter}/check");
        let answer = self.post(&path, json!({ "item": item })).await;
        assert_eq!(answer.status, StatusCode::OK.as_u16());
        answer.json()["verdict"].as_str().unwrap().to_owned()
    }
}

fn key(text: &str, scopes: &[Scope]) -> ApiKey {
    ApiKey {
        id: text.to_owned(),
        sha256: ApiKey::digest(text.as_bytes()),
        scopes: scopes.iter().copied().collect(),
        filters: None,
        requests_per_second: None,
    }
}

//! The composition root: builds the process out of its parts, starts the tasks, and stops them in
//! order.
//!
//! It is the one place that sees all layers and that starts long-lived tasks: the server, the
//! writer of the store, the lifecycle of the filters (which owns the loads that it starts), the
//! saving of snapshots, and the upkeep of the metrics. A task that ends before it was told to ends
//! the process, with an error.

pub mod snapshots;
mod tasks;

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use jiff::SignedDuration;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinError;

use self::tasks::{Stop, Task, Tasks};
use crate::clock::SystemClock;
use crate::config::{Config, FilterConfig, Limits, SourceConfig, StoreConfig};
use crate::disk::{DataDirectory, DiskError, Snapshots, StoreKind};
use crate::filter::codec::CodecError;
use crate::http::access::Access;
use crate::http::hot::Routes;
use crate::http::{self, AppState, HttpLimits};
use crate::service::declaration::FilterName;
use crate::service::ingest::Writer;
use crate::service::lifecycle::{Lifecycle, LifecycleError};
use crate::service::ports::{Store, StoreError};
use crate::service::registry::{ConfiguredFilter, ConfiguredSource};
use crate::service::{Adapters, Service, Settings};
use crate::store::{
    PostgresSource, PostgresSourceOptions, PostgresStore, PostgresStoreOptions, SqliteStore,
};
use crate::telemetry;

/// How long the start waits for the store and the sources before it goes on without them.
const START_PATIENCE: Duration = Duration::from_secs(10);

/// How long a task that has nothing left to do may take to end.
const STOP_GRACE: Duration = Duration::from_secs(5);

/// How long a snapshot that is being saved may take to end: it grows with the filter and the disk.
const SAVING_GRACE: Duration = Duration::from_secs(120);

/// Sessions for writes to PostgreSQL.
const POSTGRES_WRITE_SESSIONS: usize = 4;

/// Why the process cannot start, or ended before it was told to.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// The data directory cannot be used.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The store or a source refuses.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A snapshot is not what it should be.
    #[error("the snapshot {} {fault}: {error}", path.display())]
    Snapshot {
        /// The file.
        path: PathBuf,
        /// What it does not do.
        fault: &'static str,
        /// Why.
        error: CodecError,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {listen}: {source}; choose another address with --listen")]
    Listen {
        /// The address.
        listen: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// The server ended.
    #[error("the server ended: {0}")]
    Server(#[source] std::io::Error),
    /// The lifecycle ended.
    #[error("the lifecycle of the filters ended: {0}")]
    Lifecycle(#[from] LifecycleError),
    /// A task ended that should not have.
    #[error("the {0} ended before it was told to")]
    TaskEnded(&'static str),
    /// A task was told to end and did not.
    #[error("the {0} did not end in time after it was told to")]
    TaskHangs(&'static str),
    /// A task panicked.
    #[error("a task panicked: {0}")]
    TaskDied(#[source] JoinError),
    /// The process cannot be told to stop.
    #[error("cannot listen for signals: {0}")]
    Signals(#[source] std::io::Error),
}

/// Serves until SIGTERM or SIGINT. `announce` is given the lines to print once it listens.
///
/// # Errors
/// When it cannot start, or a task ended before it was told to.
pub async fn serve(
    config: Config,
    prometheus: PrometheusHandle,
    announce: impl FnOnce(&str),
) -> Result<(), AppError> {
    let data_dir = open_data_directory(&config)?;
    let master_key = data_dir.master_key(config.hash_key_file.as_deref())?;
    let store = store(&config)?;
    let filters = configured_filters(&config)?;
    let adapters = Adapters {
        store: Arc::clone(&store),
        snapshots: Arc::new(Snapshots::open(data_dir.path())?),
        tie: Arc::new(data_dir),
        clock: Arc::new(SystemClock),
    };
    let (service, writer) = Service::new(settings(&config), adapters, master_key, filters);
    let mut lifecycle = Lifecycle::new(Arc::clone(&service));
    let mut signals = Signals::new().map_err(AppError::Signals)?;
    tokio::select! {
        () = signals.told_to_stop() => return Ok(()),
        begun = begin(&mut lifecycle, &service) => begun?,
    }

    let failed = |source| AppError::Listen {
        listen: config.listen,
        source,
    };
    let listener = TcpListener::bind(config.listen).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let limits = http_limits(&config.limits);
    let routes = Routes::new(AppState {
        service: Arc::clone(&service),
        access: Arc::new(Access::new(config.keys.clone())),
        limits: limits.clone(),
        authz: config.authz.clone(),
        prometheus: prometheus.clone(),
    });
    let mut tasks = Tasks::default();
    let stop_upkeep = tasks.start(Task::MetricsUpkeep, async |stop| {
        telemetry::keep_metrics_small(prometheus, stop).await;
        Ok(())
    });
    let stop_lifecycle = tasks.start(Task::Lifecycle, async |stop| {
        Ok(lifecycle.run(stop).await?)
    });
    let saving = Arc::clone(&service);
    let stop_snapshots = tasks.start(Task::Snapshots, async |stop| {
        saving.keep_saving(stop).await.map_err(AppError::TaskDied)
    });
    let stop_writer = start_writer(&mut tasks, writer);
    let stop_server = tasks.start(Task::Server, async move |stop| {
        let served = http::serve::serve(listener, routes, &limits, stop).await;
        served.map_err(AppError::Server)
    });
    warn_of_unknown_filters(&config);
    announce(&start_lines(&config, address));

    tokio::select! {
        () = signals.told_to_stop() => {}
        // What a task that died stands for can no longer be trusted: the others end with it.
        error = tasks.ended_early() => return Err(error),
    }
    tracing::info!("draining");
    service.begin_draining();
    // The server first, so that no add is left without a writer; then the writer, so that no
    // commit is left without a store.
    let drain_timeout = config.limits.drain_timeout;
    tasks.stop(stop_server, drain_timeout + STOP_GRACE).await?;
    tasks.stop(stop_writer, STOP_GRACE * 2).await?;
    tasks.stop(stop_lifecycle, STOP_GRACE).await?;
    tasks.stop(stop_upkeep, STOP_GRACE).await?;
    // A large one that is under way ends first.
    tasks.stop(stop_snapshots, SAVING_GRACE).await?;
    // What was added since the last snapshot need not be loaded at the next start.
    service.save_snapshots().await.map_err(AppError::TaskDied)?;
    store.close().await;
    tracing::info!("stopped");
    Ok(())
}

/// By the time the writer is told to stop the server has ended and nobody waits for an answer: what
/// a store that does not answer has not taken then was never acknowledged.
fn start_writer(tasks: &mut Tasks, writer: Writer) -> Stop {
    tasks.start(Task::Writer, async |stop| {
        let given_up = async {
            stop.cancelled().await;
            tokio::time::sleep(STOP_GRACE).await;
        };
        tokio::select! {
            () = writer.run(stop.clone()) => {}
            () = given_up => tracing::warn!("the last adds were given up"),
        }
        Ok(())
    })
}

/// Brings the schema of the configured store up to date.
///
/// # Errors
/// When the store cannot be reached, or refuses.
pub async fn migrate(config: &Config) -> Result<(), AppError> {
    match &config.store {
        StoreConfig::Postgres { database_url } => {
            postgres_store(config, database_url)?.migrate().await?;
        }
        StoreConfig::Sqlite => {
            let data_dir = open_data_directory(config)?;
            let store = SqliteStore::new(data_dir.path());
            store.open().await?;
            store.close().await;
        }
    }
    Ok(())
}

fn open_data_directory(config: &Config) -> Result<DataDirectory, DiskError> {
    let kind = match config.store {
        StoreConfig::Sqlite => StoreKind::Sqlite,
        StoreConfig::Postgres { .. } => StoreKind::Postgres,
    };
    DataDirectory::open(&config.data_dir, kind, config.accept_new_store)
}

fn store(config: &Config) -> Result<Arc<dyn Store>, StoreError> {
    Ok(match &config.store {
        StoreConfig::Sqlite => Arc::new(SqliteStore::new(&config.data_dir)),
        StoreConfig::Postgres { database_url } => Arc::new(postgres_store(config, database_url)?),
    })
}

fn postgres_store(
    config: &Config,
    database_url: &secrecy::SecretString,
) -> Result<PostgresStore, StoreError> {
    PostgresStore::new(&PostgresStoreOptions {
        url: database_url.clone(),
        max_staleness: config.max_staleness,
        max_connections: POSTGRES_WRITE_SESSIONS,
    })
}

fn settings(config: &Config) -> Settings {
    Settings {
        max_staleness: config.max_staleness,
        poll_interval: config.poll_interval,
        rebuild_interval: config.rebuild_interval,
        change_retention: config.change_retention,
        snapshot_interval: config.snapshot_interval,
        wait_timeout: config.wait_timeout,
        expiry_leeway: SignedDuration::try_from(config.expiry_leeway)
            .unwrap_or(SignedDuration::MAX),
        max_batch: config.limits.max_batch as usize,
        max_confirms: config.limits.max_confirms as usize,
        memory_budget_bytes: config.memory_budget_bytes,
    }
}

fn http_limits(limits: &Limits) -> HttpLimits {
    HttpLimits {
        max_body_bytes: usize::try_from(limits.max_body_bytes).unwrap_or(usize::MAX),
        header_timeout: limits.header_timeout,
        request_timeout: limits.request_timeout,
        drain_timeout: limits.drain_timeout,
        max_connections: limits.max_connections as usize,
        ..HttpLimits::default()
    }
}

fn configured_filters(config: &Config) -> Result<Vec<ConfiguredFilter>, StoreError> {
    let filters = config.filters.iter();
    filters
        .map(|filter| configured_filter(config, filter))
        .collect()
}

fn configured_filter(
    config: &Config,
    filter: &FilterConfig,
) -> Result<ConfiguredFilter, StoreError> {
    let mut sources = filter
        .sources
        .iter()
        .map(|source| configured_source(config, filter, source))
        .collect::<Result<Vec<_>, StoreError>>()?;
    sources.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(ConfiguredFilter {
        name: filter.name.clone(),
        declaration: filter.declaration.clone(),
        sources: sources.into(),
    })
}

fn configured_source(
    config: &Config,
    filter: &FilterConfig,
    source: &SourceConfig,
) -> Result<ConfiguredSource, StoreError> {
    let stated = source.stated_max_staleness;
    let followed_max_staleness = stated.unwrap_or(config.max_staleness);
    let adapter = PostgresSource::new(&PostgresSourceOptions {
        filter: filter.name.to_string(),
        source: source.name.clone(),
        url: source.database_url.clone(),
        query: source.query.clone(),
        max_staleness: followed_max_staleness,
    })?;
    let adapter = match &source.confirm_query {
        Some(query) => adapter.asked_by(query)?,
        None => adapter,
    };
    Ok(ConfiguredSource {
        name: source.name.clone(),
        refresh_interval: source.refresh_interval,
        max_staleness: source.max_staleness,
        followed_max_staleness,
        adapter: Arc::new(adapter),
    })
}

/// What tells the process to stop. As the first process of a container it would otherwise not be
/// told at all.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn told_to_stop(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Takes back what snapshots there are, looks at the sources and opens the store.
async fn begin(lifecycle: &mut Lifecycle, service: &Arc<Service>) -> Result<(), AppError> {
    let restoring = Arc::clone(service);
    tokio::task::spawn_blocking(move || restoring.restore_snapshots())
        .await
        .map_err(AppError::TaskDied)?;
    examine_sources(service.configured()).await?;
    Ok(open_store(lifecycle).await?)
}

/// Ends the start for a source that refuses; one that is down is loaded when it comes up.
async fn examine_sources(filters: &[ConfiguredFilter]) -> Result<(), StoreError> {
    let sources = filters
        .iter()
        .flat_map(|filter| filter.sources.iter().map(move |source| (filter, source)));
    let examinations = sources.map(|(filter, source)| async move {
        let filter = &filter.name;
        match tokio::time::timeout(START_PATIENCE, source.adapter.examine()).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error @ StoreError::Refused { .. })) => Err(error),
            Ok(Err(error)) => {
                tracing::warn!(%filter, source = source.name, %error, "the source is not to be had yet");
                Ok(())
            }
            Err(_) => {
                tracing::warn!(%filter, source = source.name, "the source does not answer yet");
                Ok(())
            }
        }
    });
    join_all(examinations).await.into_iter().collect()
}

/// Ends the start for a store that refuses; one that is down is opened when it comes up.
async fn open_store(lifecycle: &mut Lifecycle) -> Result<(), StoreError> {
    match tokio::time::timeout(START_PATIENCE, lifecycle.open()).await {
        Ok(Err(error @ StoreError::Unreachable { .. })) => {
            tracing::error!(%error, "starting without the store; every check is maybe until it is there");
            Ok(())
        }
        Err(_) => {
            tracing::error!(
                "the store does not answer; starting without it, every check is maybe until it does"
            );
            Ok(())
        }
        Ok(opened) => opened,
    }
}

/// A filter that gateways' tokens are looked for in may be made later; a slip of the pen is told
/// before it keeps everybody out.
fn warn_of_unknown_filters(config: &Config) {
    let is_declared = |name: &FilterName| config.filters.iter().any(|filter| filter.name == *name);
    for policy in &config.authz {
        for claim in &policy.claims {
            if !is_declared(&claim.filter) {
                let (authz, filter) = (&policy.name, &claim.filter);
                tracing::warn!(%authz, %filter, "the configuration does not declare this filter; \
                               until it is made through the API no token passes");
            }
        }
    }
}

/// What a newcomer needs to see: where it listens, where the data lies, and one line to try.
fn start_lines(config: &Config, address: SocketAddr) -> String {
    let data_dir = shown_path(&config.data_dir);
    let store = match config.store {
        StoreConfig::Sqlite => format!("data in {data_dir} (store: sqlite)"),
        StoreConfig::Postgres { .. } => format!("data in {data_dir} (store: postgres)"),
    };
    let filter = config
        .filters
        .first()
        .map_or("NAME", |filter| filter.name.as_str());
    let key = if config.keys.is_empty() {
        ""
    } else {
        " -H \"X-API-Key: $KEY\""
    };
    format!(
        "bloomgate listens on http://{address}\n{store}\ntry: curl -s http://{address}/v1/filters/{filter}/check \
         -H 'Content-Type: application/json'{key} -d '{{\"item\":\"some-item\"}}'\n"
    )
}

fn shown_path(path: &Path) -> String {
    path.display().to_string()
}

//! What is broken, and how it is mended.
//!
//! A further fault is one more line in a table, and one more arm in [`Site::strike`] and
//! [`Site::mend`].

use std::time::{Duration, Instant};

use jiff::Timestamp;
use rustix::process::Signal;

use super::Storm;
use super::disk::Disk;
use crate::support::{Bloomgate, Cluster, Conduct, Database, Proxy, Random};

/// How long a replica may take to end in good manners, with a store that does not answer.
const END_DEADLINE: Duration = Duration::from_secs(60);

/// How long everything may take to be live after the last fault.
const LIVE_DEADLINE: Duration = Duration::from_secs(60);

/// Kinds of faults, by weight.
pub(super) type Kinds = &'static [(u64, Kind)];

/// Where replicas share a PostgreSQL server.
pub(super) const ON_POSTGRES: Kinds = &[
    (3, Kind::KillReplica),
    (2, Kind::TerminateReplica),
    (1, Kind::SuspendReplica),
    (2, Kind::StopPostgres),
    (2, Kind::KillPostgres),
    (3, Kind::KillBackend),
    (2, Kind::Cut),
    (3, Kind::Freeze),
    (2, Kind::Delay),
    (2, Kind::Truncate),
    (1, Kind::Refuse),
];

/// Where one replica has a disk.
pub(super) const ON_SQLITE: Kinds = &[
    (3, Kind::KillReplica),
    (1, Kind::TerminateReplica),
    (1, Kind::SuspendReplica),
    (4, Kind::FillDisk),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// kill -9, and a start on the same data directory.
    KillReplica,
    /// SIGTERM, and a start on the same data directory.
    TerminateReplica,
    /// SIGSTOP and SIGCONT.
    SuspendReplica,
    StopPostgres,
    KillPostgres,
    /// kill -9 of one backend: the postmaster goes through crash recovery at once.
    KillBackend,
    Cut,
    Freeze,
    Delay,
    Truncate,
    Refuse,
    /// The replica's disk has a little room left.
    FillDisk,
}

impl Kind {
    fn is_of_server(self) -> bool {
        matches!(
            self,
            Self::StopPostgres | Self::KillPostgres | Self::KillBackend
        )
    }
}

/// A fault, all of which was drawn before it strikes.
#[derive(Debug, Clone, Copy)]
struct Fault {
    kind: Kind,
    replica: usize,
    held: Duration,
    /// Bytes, milliseconds or a choice, as the kind takes it.
    measure: u64,
}

impl Fault {
    fn draw(kinds: Kinds, replicas: usize, random: &mut Random) -> Self {
        let kind = random.weighted(kinds);
        let held_ms = match kind {
            Kind::Freeze | Kind::SuspendReplica => 1_000..6_000,
            Kind::KillBackend | Kind::Cut => 1..100,
            Kind::KillReplica
            | Kind::TerminateReplica
            | Kind::StopPostgres
            | Kind::KillPostgres
            | Kind::Delay
            | Kind::Truncate
            | Kind::Refuse
            | Kind::FillDisk => 50..3_000,
        };
        Self {
            kind,
            replica: random.index(replicas),
            held: Duration::from_millis(random.within(&held_ms)),
            measure: random.next(),
        }
    }

    /// Whether both can be at a time.
    fn goes_with(self, other: Self) -> bool {
        if self.kind.is_of_server() || other.kind.is_of_server() {
            self.kind.is_of_server() != other.kind.is_of_server()
        } else {
            self.replica != other.replica
        }
    }
}

/// Everything that can be broken.
pub(super) struct Site {
    pub(super) replicas: Vec<Bloomgate>,
    pub(super) proxies: Vec<Proxy>,
    /// In front of the server, which goes last.
    pub(super) database: Option<Database>,
    pub(super) cluster: Option<Cluster>,
    /// Below the one replica that has its store there, which goes first.
    pub(super) disk: Option<Disk>,
    pub(super) kinds: Kinds,
}

impl Site {
    /// Breaks and mends until the storm is over. All is mended then, and live.
    pub(super) async fn break_and_mend(&mut self, storm: &Storm, mut random: Random) {
        while storm.goes_on() {
            let calm = Duration::from_millis(random.within(&(1_300..3_500)));
            let mut faults = Vec::<Fault>::new();
            for _ in 0..random.weighted(&[(4, 1), (4, 2), (2, 3)]) {
                let fault = Fault::draw(self.kinds, self.replicas.len(), &mut random);
                if faults.iter().all(|other| fault.goes_with(*other)) {
                    faults.push(fault);
                }
            }
            let apart = Duration::from_millis(random.within(&(0..400)));
            tokio::time::sleep(calm).await;
            storm.report.fault_begins();
            for fault in &faults {
                storm.report.note(format!("strikes: {fault:?}"));
                storm.report.count(&format!("fault: {:?}", fault.kind), 1);
                self.strike(fault, storm).await;
                tokio::time::sleep(apart).await;
            }
            for fault in &faults {
                tokio::time::sleep(fault.held).await;
                self.mend(fault, storm).await;
                storm.report.note(format!("mended: {:?}", fault.kind));
            }
            self.wait_live(storm).await;
            storm.report.fault_is_over();
        }
    }

    async fn strike(&mut self, fault: &Fault, storm: &Storm) {
        let replica = fault.replica;
        match fault.kind {
            Kind::KillReplica => self.replicas[replica].kill_9(),
            Kind::TerminateReplica => self.replicas[replica].send(Signal::TERM),
            Kind::SuspendReplica => self.replicas[replica].send(Signal::STOP),
            Kind::StopPostgres => self.cluster.as_mut().unwrap().stop_fast().await,
            Kind::KillPostgres => self.cluster.as_mut().unwrap().kill_9().await,
            Kind::KillBackend => self.kill_backend(fault.measure, storm).await,
            Kind::Cut => self.proxies[replica].cut(),
            Kind::Freeze => self.proxies[replica].switch(Conduct::Freeze),
            Kind::Delay => {
                let delay = Duration::from_millis(50 + fault.measure % 1_500);
                self.proxies[replica].switch(Conduct::Delay(delay));
            }
            Kind::Truncate => {
                let bytes = usize::try_from(fault.measure % 20_000).unwrap();
                self.proxies[replica].switch(Conduct::TruncateAfter { bytes });
            }
            Kind::Refuse => {
                self.proxies[replica].switch(Conduct::Refuse);
                self.proxies[replica].cut();
            }
            Kind::FillDisk => {
                let disk = self.disk.as_ref().unwrap();
                if !disk.fill(&self.replicas[replica], fault.measure % 200_000) {
                    storm.report.count("disk not filled", 1);
                }
            }
        }
    }

    async fn mend(&mut self, fault: &Fault, storm: &Storm) {
        let replica = fault.replica;
        match fault.kind {
            Kind::KillReplica => self.start_again(replica, storm).await,
            Kind::TerminateReplica => {
                let ended = self.replicas[replica].wait_end(END_DEADLINE).await;
                if ended.code() != Some(0) {
                    storm.report.count("replica told to end: not with 0", 1);
                }
                self.start_again(replica, storm).await;
            }
            Kind::SuspendReplica => self.replicas[replica].send(Signal::CONT),
            Kind::StopPostgres | Kind::KillPostgres => {
                self.cluster.as_mut().unwrap().start_again().await;
            }
            Kind::KillBackend | Kind::Cut => {}
            Kind::Freeze | Kind::Delay | Kind::Truncate | Kind::Refuse => {
                self.proxies[replica].switch(Conduct::Pass);
            }
            Kind::FillDisk => {
                let disk = self.disk.as_ref().unwrap();
                disk.make_room(&self.replicas[replica]);
            }
        }
    }

    /// Also where the store is broken at the same time: then it comes up `loading`.
    async fn start_again(&mut self, replica: usize, storm: &Storm) {
        self.replicas[replica].restart().await;
        storm.replica_is_at(replica, self.replicas[replica].base_url());
    }

    /// Kills one backend, of a replica or of who writes to the tables.
    async fn kill_backend(&self, choice: u64, storm: &Storm) {
        let database = self.database.as_ref().unwrap();
        let pids: Result<Vec<i32>, _> = sqlx::query_scalar(
            "SELECT pid FROM pg_stat_activity
              WHERE datname = current_database() AND pid <> pg_backend_pid()
              ORDER BY backend_start, pid",
        )
        .fetch_all(database.pool())
        .await;
        let pids = pids.unwrap_or_default();
        if pids.is_empty() {
            storm.report.count("no backend to kill", 1);
            return;
        }
        let pid = pids[usize::try_from(choice % pids.len() as u64).unwrap()];
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        let _ = rustix::process::kill_process(pid, Signal::KILL);
    }

    async fn wait_live(&self, storm: &Storm) {
        let (begun, mended) = (Instant::now(), Timestamp::now());
        for replica in 0..self.replicas.len() {
            for filter in 0..super::PASSING {
                while !storm.is_live_since(replica, filter, mended).await {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    if begun.elapsed() > LIVE_DEADLINE {
                        let name = storm.ledger.name(filter);
                        let failure = format!(
                            "{name} is not live on replica {replica} within {LIVE_DEADLINE:?}"
                        );
                        storm.report.failure(failure);
                        return;
                    }
                }
            }
        }
        storm.report.was_live_after(begun.elapsed());
    }
}

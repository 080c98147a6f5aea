//! A network that can fail in every way, between a client and a server.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// What the proxy does with connections and bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Conduct {
    /// Passes everything.
    Pass,
    /// Nobody listens: new connections are refused, present ones go on.
    Refuse,
    /// Passes everything so much later, both ways.
    Delay(Duration),
    /// Half-open: connections are taken and stay open, and nothing passes any more.
    Freeze,
    /// Passes so many bytes more of what the server answers on each connection, and ends it then.
    TruncateAfter {
        /// Counted from the switch, or from the connection's begin where that came later.
        bytes: usize,
    },
}

#[derive(Debug, Clone, Copy)]
struct Rules {
    upstream: SocketAddr,
    conduct: Conduct,
    /// How often all connections were cut.
    cuts: u64,
}

/// A TCP proxy on 127.0.0.1 whose conduct can be switched at any time. Ends on drop.
pub(crate) struct Proxy {
    address: SocketAddr,
    rules: watch::Sender<Rules>,
    _tasks: JoinSet<()>,
}

impl Proxy {
    /// Listens on a port of its own and passes everything on to `upstream` (an IP address and a port).
    pub(crate) async fn start(upstream: &str) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (rules, seen_rules) = watch::channel(Rules {
            upstream: upstream.parse().unwrap(),
            conduct: Conduct::Pass,
            cuts: 0,
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, seen_rules));
        Self {
            address,
            rules,
            _tasks: tasks,
        }
    }

    /// Its own `host:port`.
    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    /// Leads new connections to another server, as an address does that moves in a failover.
    pub(crate) fn lead_to(&self, upstream: &str) {
        let upstream = upstream.parse().unwrap();
        self.rules.send_modify(|rules| rules.upstream = upstream);
    }

    /// Switches the conduct, for present connections too.
    pub(crate) fn switch(&self, conduct: Conduct) {
        self.rules.send_modify(|rules| rules.conduct = conduct);
    }

    /// Ends all present connections at once.
    pub(crate) fn cut(&self) {
        self.rules.send_modify(|rules| rules.cuts += 1);
    }
}

/// Takes connections until the proxy is dropped; their tasks end with it.
async fn accept(listener: TcpListener, mut rules: watch::Receiver<Rules>) {
    let address = listener.local_addr().unwrap();
    let mut listener = Some(listener);
    let mut connections = JoinSet::new();
    loop {
        if rules.borrow_and_update().conduct == Conduct::Refuse {
            listener = None;
        } else if listener.is_none() {
            listener = Some(TcpListener::bind(address).await.unwrap());
        }
        let accepted = async {
            match &listener {
                Some(listener) => listener.accept().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            accepted = accepted => {
                let (client, _) = accepted.unwrap();
                connections.spawn(relay(client, rules.clone()));
            }
            changed = rules.changed() => if changed.is_err() { return },
        }
    }
}

/// Serves one connection until either end, or a cut, ends it.
async fn relay(client: TcpStream, rules: watch::Receiver<Rules>) {
    let upstream = rules.borrow().upstream;
    let Ok(server) = TcpStream::connect(upstream).await else {
        return;
    };
    let (client_reader, client_writer) = client.into_split();
    let (server_reader, server_writer) = server.into_split();
    let cuts = rules.borrow().cuts;
    let mut cut = rules.clone();
    tokio::select! {
        () = pass(client_reader, server_writer, rules.clone(), false) => {}
        () = pass(server_reader, client_writer, rules, true) => {}
        _ = cut.wait_for(|rules| rules.cuts != cuts) => {}
    }
}

/// Passes bytes one way, as the rules of the moment say.
async fn pass(
    mut reader: OwnedReadHalf,
    mut writer: OwnedWriteHalf,
    mut rules: watch::Receiver<Rules>,
    is_answer: bool,
) {
    let mut chunk = vec![0; 16 * 1024];
    let mut passed_bytes = 0;
    loop {
        let Ok(read_bytes @ 1..) = reader.read(&mut chunk).await else {
            return;
        };
        if rules.has_changed().unwrap_or(false) {
            passed_bytes = 0;
        }
        let Ok(current) = rules
            .wait_for(|rules| rules.conduct != Conduct::Freeze)
            .await
            .map(|rules| *rules)
        else {
            return;
        };
        let mut allowed_bytes = usize::MAX;
        match current.conduct {
            Conduct::TruncateAfter { bytes } if is_answer => allowed_bytes = bytes - passed_bytes,
            Conduct::Delay(delay) => tokio::time::sleep(delay).await,
            Conduct::Pass | Conduct::Refuse | Conduct::Freeze | Conduct::TruncateAfter { .. } => {}
        }
        let due_bytes = read_bytes.min(allowed_bytes);
        if writer.write_all(&chunk[..due_bytes]).await.is_err() || due_bytes == allowed_bytes {
            return;
        }
        passed_bytes += due_bytes;
    }
}

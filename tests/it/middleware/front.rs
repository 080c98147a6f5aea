//! What stands between a middleware and bloomgate: it passes requests on, and can do anything else with
//! any one of them.

use std::collections::VecDeque;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// The longest body that is taken from either side.
const MAX_BODY_BYTES: usize = 1024 * 1024;

/// What is done with a request.
#[derive(Debug, Clone)]
pub(super) enum Act {
    /// bloomgate answers it.
    Pass,
    /// bloomgate answers it, so much later.
    Late(Duration),
    /// bloomgate's answer comes up to the middle of its body, and nothing more for ever.
    StopInBody,
    /// bloomgate's answer comes up to the middle of its body, and the connection ends.
    CutInBody,
    /// bloomgate's answer comes byte by byte, with this pause before each.
    Drip(Duration),
    /// The connection ends without an answer.
    Close,
    /// It is answered with these bytes.
    Answer(Vec<u8>),
    /// It is answered with these bytes, and blanks without end.
    Endless(Vec<u8>),
}

/// A request that came.
#[derive(Clone)]
pub(super) struct Seen {
    /// Which connection it came on, in the order of their coming.
    pub(super) connection: usize,
    /// Which request of that connection it was, from 1.
    pub(super) nth: usize,
    /// Its first line and its headers.
    pub(super) head: String,
}

impl fmt::Debug for Seen {
    /// Without the head, which holds the key.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            connection, nth, ..
        } = self;
        write!(formatter, "request {nth} of connection {connection}")
    }
}

struct Plan {
    standing: Act,
    next: VecDeque<Act>,
    seen: Vec<Seen>,
}

#[derive(Debug, Clone, Copy)]
struct Network {
    is_refusing: bool,
    /// How often all connections were ended.
    cuts: u64,
}

/// A server on 127.0.0.1 with bloomgate behind. Ends on drop.
pub(super) struct Front {
    address: SocketAddr,
    plan: Arc<Mutex<Plan>>,
    network: watch::Sender<Network>,
    _tasks: JoinSet<()>,
}

impl Front {
    /// Listens on a port of its own; `upstream` is bloomgate's `host:port`.
    pub(super) async fn start(upstream: &str) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let plan = Arc::new(Mutex::new(Plan {
            standing: Act::Pass,
            next: VecDeque::new(),
            seen: Vec::new(),
        }));
        let (network, seen_network) = watch::channel(Network {
            is_refusing: false,
            cuts: 0,
        });
        let mut tasks = JoinSet::new();
        let upstream = upstream.parse().unwrap();
        tasks.spawn(accept(listener, upstream, Arc::clone(&plan), seen_network));
        Self {
            address,
            plan,
            network,
            _tasks: tasks,
        }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Does this with every request from now on.
    pub(super) fn always(&self, act: Act) {
        self.plan.lock().unwrap().standing = act;
    }

    /// Does these with the next requests, one each, before what is always done.
    pub(super) fn next(&self, acts: impl IntoIterator<Item = Act>) {
        self.plan.lock().unwrap().next.extend(acts);
    }

    /// Ends every connection, as a server does that has seen nothing on it for long.
    pub(super) fn cut(&self) {
        self.network.send_modify(|network| network.cuts += 1);
    }

    /// Whether new connections are refused from now on; those that are there end.
    pub(super) fn refuse(&self, is_refusing: bool) {
        self.network.send_modify(|network| {
            network.is_refusing = is_refusing;
            network.cuts += 1;
        });
    }

    /// The requests that came so far, in their order.
    pub(super) fn seen(&self) -> Vec<Seen> {
        self.plan.lock().unwrap().seen.clone()
    }
}

/// Takes connections until the front is dropped; their tasks end with it.
async fn accept(
    listener: TcpListener,
    upstream: SocketAddr,
    plan: Arc<Mutex<Plan>>,
    mut network: watch::Receiver<Network>,
) {
    let address = listener.local_addr().unwrap();
    let mut listener = Some(listener);
    let mut connections = JoinSet::new();
    let mut accepted_count = 0;
    loop {
        if network.borrow_and_update().is_refusing {
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
                let serving = serve(client, upstream, Arc::clone(&plan), accepted_count);
                accepted_count += 1;
                let cuts = network.borrow().cuts;
                let mut cut = network.clone();
                connections.spawn(async move {
                    tokio::select! {
                        _ = serving => {}
                        _ = cut.wait_for(|network| network.cuts != cuts) => {}
                    }
                });
            }
            changed = network.changed() => if changed.is_err() { return },
        }
    }
}

/// Serves one connection until it ends; none where that came in the middle.
async fn serve(
    client: TcpStream,
    upstream: SocketAddr,
    plan: Arc<Mutex<Plan>>,
    connection: usize,
) -> Option<()> {
    let mut client = BufReader::new(client);
    for nth in 1.. {
        let request = Message::read(&mut client).await?;
        let act = {
            let mut plan = plan.lock().unwrap();
            plan.seen.push(Seen {
                connection,
                nth,
                head: String::from_utf8(request.head.clone()).unwrap(),
            });
            let standing = plan.standing.clone();
            plan.next.pop_front().unwrap_or(standing)
        };
        match act {
            Act::Pass => {
                let answer = ask(upstream, &request).await?;
                send(&mut client, &answer.bytes()).await?;
            }
            Act::Late(delay) => {
                let answer = ask(upstream, &request).await?;
                tokio::time::sleep(delay).await;
                send(&mut client, &answer.bytes()).await?;
            }
            Act::StopInBody => {
                send(&mut client, &ask(upstream, &request).await?.half()).await?;
                std::future::pending().await
            }
            Act::CutInBody => {
                send(&mut client, &ask(upstream, &request).await?.half()).await?;
                return None;
            }
            Act::Drip(pause) => {
                for byte in ask(upstream, &request).await?.bytes() {
                    tokio::time::sleep(pause).await;
                    send(&mut client, &[byte]).await?;
                }
            }
            Act::Close => return None,
            Act::Answer(bytes) => send(&mut client, &bytes).await?,
            Act::Endless(bytes) => {
                send(&mut client, &bytes).await?;
                loop {
                    send(&mut client, &[b' '; 16 * 1024]).await?;
                }
            }
        }
    }
    None
}

async fn send(client: &mut BufReader<TcpStream>, bytes: &[u8]) -> Option<()> {
    client.write_all(bytes).await.ok()
}

/// What bloomgate answers; none where it does not.
async fn ask(upstream: SocketAddr, request: &Message) -> Option<Message> {
    let mut server = BufReader::new(TcpStream::connect(upstream).await.ok()?);
    send(&mut server, &request.bytes()).await?;
    Message::read(&mut server).await
}

/// A request or an answer.
struct Message {
    /// Up to the empty line and with it.
    head: Vec<u8>,
    body: Vec<u8>,
}

impl Message {
    /// Reads one, which has a body where it says how long that is; none where the connection ends before.
    async fn read(stream: &mut BufReader<TcpStream>) -> Option<Self> {
        let mut head = Vec::new();
        let mut body_bytes = 0;
        loop {
            let start = head.len();
            let line_bytes = stream.read_until(b'\n', &mut head).await.ok()?;
            if line_bytes == 0 {
                return None;
            }
            let line = str::from_utf8(&head[start..]).unwrap().trim_end();
            if line.is_empty() {
                break;
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                body_bytes = value.trim().parse().unwrap();
            }
        }
        assert!(body_bytes <= MAX_BODY_BYTES);
        let mut body = vec![0; body_bytes];
        stream.read_exact(&mut body).await.ok()?;
        Some(Self { head, body })
    }

    fn bytes(&self) -> Vec<u8> {
        [&*self.head, &self.body].concat()
    }

    fn half(&self) -> Vec<u8> {
        [&*self.head, &self.body[..self.body.len() / 2]].concat()
    }
}

//! Asks a service on this machine whether it lives: one HTTP request, so that a container needs
//! no tool beside the program.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const PATIENCE: Duration = Duration::from_secs(2);
const WANTED: &[u8] = b"HTTP/1.1 200 ";
const REQUEST: &[u8] = b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

/// Why the service does not count as alive.
#[derive(Debug, thiserror::Error)]
pub enum HealthcheckError {
    /// It cannot be asked.
    #[error("no service answers on {address}: {source}; is it listening on another port?")]
    Unreachable {
        /// The address that was asked.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// It answers otherwise.
    #[error("the service on {address} does not answer GET /livez with 200")]
    Unhealthy {
        /// The address that was asked.
        address: SocketAddr,
    },
}

/// Asks the service that listens on `listen`; where that is every address, on loopback.
///
/// # Errors
/// When it does not answer with 200 within two seconds.
pub async fn ask(listen: SocketAddr) -> Result<(), HealthcheckError> {
    let address = reachable(listen);
    let answer = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(REQUEST).await?;
        let mut start = [0; WANTED.len()];
        stream.read_exact(&mut start).await?;
        Ok(start == WANTED)
    };
    let answer = tokio::time::timeout(PATIENCE, answer).await;
    match answer.unwrap_or_else(|elapsed| Err(elapsed.into())) {
        Ok(true) => Ok(()),
        Ok(false) => Err(HealthcheckError::Unhealthy { address }),
        Err(source) => Err(HealthcheckError::Unreachable { address, source }),
    }
}

fn reachable(listen: SocketAddr) -> SocketAddr {
    let ip = listen.ip();
    if !ip.is_unspecified() {
        return listen;
    }
    let loopback = match ip {
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    SocketAddr::new(loopback, listen.port())
}

//! Serving: connections are bounded in number and in time, and are drained at the end.
//!
//! The headers of the first request on a connection must come within `header_timeout`. Later ones
//! have [`IDLE_TIMEOUT`], for the same clock runs while a connection is kept alive between two
//! requests, and one that closes under a proxy's hands loses that proxy's next request.

use std::convert::Infallible;
use std::future::ready;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum_server::{AddrListener, Address, Handle, Server};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::HttpLimits;
use super::hot::Routes;

/// How long a connection is kept between two requests: longer than the 60 seconds that common
/// proxies keep theirs.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(75);

/// Serves until `shutdown`; then takes no more connections, closes idle ones, and gives requests
/// under way `drain_timeout`.
///
/// # Errors
/// When the listener cannot be used.
pub async fn serve(
    listener: std::net::TcpListener,
    routes: Routes,
    limits: &HttpLimits,
    shutdown: CancellationToken,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = BoundedListener {
        listener: TcpListener::from_std(listener)?,
        places: Arc::new(Semaphore::new(limits.max_connections)),
    };
    let handle = Handle::new();
    let mut server = Server::<Peer>::from_listener(listener)
        .handle(handle.clone())
        .first_request_timeout(limits.header_timeout)
        .accept_error_handler(|_, error| tracing::warn!(%error, "a connection was not accepted"));
    let idle_timeout = IDLE_TIMEOUT.max(limits.header_timeout);
    let builder = server.http_builder();
    // An answer is small: copied behind its head it goes out sooner than as two buffers.
    builder
        .http1()
        .header_read_timeout(idle_timeout)
        .writev(false);
    builder.http2().keep_alive_interval(idle_timeout);
    let of_connection = move |_: Peer| ready(Ok::<_, Infallible>(routes.clone()));
    let serving = server.serve(tower::service_fn(of_connection));
    tokio::pin!(serving);
    tokio::select! {
        served = &mut serving => served,
        () = shutdown.cancelled() => {
            handle.graceful_shutdown(Some(limits.drain_timeout));
            serving.await
        }
    }
}

/// Who connected.
#[derive(Debug, Clone, Copy)]
struct Peer(#[expect(dead_code, reason = "a peer is an address, which nothing logs")] SocketAddr);

impl Address for Peer {
    type Stream = BoundedStream;
    type Listener = BoundedListener;
}

/// Accepts a connection only when there is a place for it. The others wait in the backlog of the
/// kernel, where they cost no descriptor.
struct BoundedListener {
    listener: TcpListener,
    places: Arc<Semaphore>,
}

impl AddrListener<BoundedStream, Peer> for BoundedListener {
    async fn bind_to(_: Peer) -> io::Result<Self> {
        Err(io::Error::other("the listener is bound by its owner"))
    }

    async fn accept_stream(&self) -> io::Result<(BoundedStream, Peer)> {
        let place = Arc::clone(&self.places).acquire_owned().await;
        let place = place.map_err(io::Error::other)?;
        let (stream, peer) = self.listener.accept().await?;
        // An answer is one small segment, and must not wait for the one before.
        stream.set_nodelay(true)?;
        let bounded = BoundedStream {
            stream,
            _place: place,
        };
        Ok((bounded, Peer(peer)))
    }

    fn get_local_addr(&self) -> io::Result<Peer> {
        self.listener.local_addr().map(Peer)
    }
}

/// A connection and its place.
struct BoundedStream {
    stream: TcpStream,
    _place: OwnedSemaphorePermit,
}

impl AsyncRead for BoundedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for BoundedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

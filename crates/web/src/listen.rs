//! Connections: how many, how slow they may be, and how they end.

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep, timeout};

const MOST_CONNECTIONS: usize = 1024;
const BACKLOG: u32 = 1024;
/// The head of a request must be here after this long; a connection may idle as long between two.
const HEAD: Duration = Duration::from_secs(10);
/// A client that takes nothing for this long is dropped.
const STALL: Duration = Duration::from_secs(30);
/// What the kernel keeps for a client that does not read; more would hold much of an answer per connection.
const SEND_BUFFER_BYTES: u32 = 256 << 10;
/// How soon a wish to stop is noticed.
const LOOK: Duration = Duration::from_millis(50);
/// Requests that were on the wire when the server was told to stop are still answered.
const LAST_CALL: Duration = Duration::from_millis(250);

/// Listens on an address.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.set_send_buffer_size(SEND_BUFFER_BYTES)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Serves until `stop` says so, then finishes what was begun; `draining` is called when nothing more is taken on. False
/// where something was still under way after `drain`.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    stop: impl Fn() -> bool,
    draining: impl FnOnce(),
    drain: Duration,
) -> bool {
    let (connections, places) = (GracefulShutdown::new(), Arc::new(Semaphore::new(MOST_CONNECTIONS)));
    while !stop() {
        accept(&listener, &router, &connections, &places, LOOK).await;
    }
    // Whoever the kernel has let in is served too.
    while accept(&listener, &router, &connections, &places, Duration::ZERO).await {}
    drop(listener);
    sleep(LAST_CALL).await;
    draining();
    timeout(drain, connections.shutdown()).await.is_ok()
}

/// Accepts one connection; false where nobody came in time.
async fn accept(
    listener: &TcpListener,
    router: &Router,
    connections: &GracefulShutdown,
    places: &Arc<Semaphore>,
    patience: Duration,
) -> bool {
    let Ok(Ok(place)) = timeout(LOOK, places.clone().acquire_owned()).await else { return false };
    match timeout(patience, listener.accept()).await {
        Ok(Ok((stream, _))) => attend(stream, router, connections, place),
        Ok(Err(_)) => {
            sleep(LOOK).await; // out of file descriptors, most likely: some will be given back
            return false;
        }
        Err(_) => return false,
    }
    true
}

fn attend(stream: TcpStream, router: &Router, connections: &GracefulShutdown, place: OwnedSemaphorePermit) {
    let _ = stream.set_nodelay(true); // only a matter of speed
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD);
    let service = TowerToHyperService::new(router.clone());
    let connection = http.serve_connection(TokioIo::new(WriteTimeout::new(stream)), service);
    let connection = connections.watch(connection);
    tokio::spawn(async move {
        let _ = connection.await; // a client that breaks off is no news
        drop(place);
    });
}

/// A connection that fails when the other side takes nothing for too long.
struct WriteTimeout {
    stream: TcpStream,
    patience: Pin<Box<Sleep>>,
    waiting: bool,
}

impl WriteTimeout {
    fn new(stream: TcpStream) -> Self {
        WriteTimeout { stream, patience: Box::pin(sleep(STALL)), waiting: false }
    }

    /// Passes on what a write came to; one that waits too long has failed.
    fn watch(&mut self, context: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.waiting = false;
            return written;
        }
        if !self.waiting {
            self.waiting = true;
            self.patience.as_mut().reset(Instant::now() + STALL);
        }
        ready!(self.patience.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for WriteTimeout {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for WriteTimeout {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.watch(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.watch(context, written)
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

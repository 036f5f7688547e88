//! News as server-sent events.

use super::hub::Hub;
use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use hyper::body::Frame;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Something is sent this often, so that both ends notice when the other is gone.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// News on their way to one client. More wait in the hub, and are lost there.
const ON_THE_WAY: usize = 4;

/// The answer that news go into as they come.
pub fn events(hub: &Arc<Hub>) -> Response {
    let (sender, receiver) = mpsc::channel::<Bytes>(ON_THE_WAY);
    let (latest, mut news) = hub.subscribe();
    tokio::spawn(async move {
        for event in latest {
            if sender.send(bytes(&event)).await.is_err() {
                return;
            }
        }
        loop {
            let next = match timeout(HEARTBEAT, news.recv()).await {
                Err(_) => Bytes::from_static(b": \n\n"),
                Ok(Ok(event)) => bytes(&event),
                Ok(Err(RecvError::Lagged(_))) => continue,
                Ok(Err(RecvError::Closed)) => return,
            };
            if sender.send(next).await.is_err() {
                return;
            }
        }
    });
    ([(header::CONTENT_TYPE, "text/event-stream")], Body::new(Events(receiver))).into_response()
}

fn bytes(event: &str) -> Bytes {
    Bytes::copy_from_slice(event.as_bytes())
}

struct Events(mpsc::Receiver<Bytes>);

impl hyper::body::Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|next| next.map(|bytes| Ok(Frame::data(bytes))))
    }
}

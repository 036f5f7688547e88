//! Speech over HTTP: OpenAI's interface, a page to try it with, and figures for Prometheus.
//!
//! One thread owns the voice ([`worker`]); another runs every connection. Between them lie a queue with a fixed number
//! of places and, for each request, a channel of a few pieces: neither many clients nor slow ones make memory grow.

mod body;
mod gate;
mod listen;
mod metrics;
mod page;
mod refusal;
mod reply;
mod speech;
mod uploads;
mod voices;
mod worker;

pub use voices::Voices;

use crate::synth::Synthesizer;
use anyhow::{Context, Result, anyhow};
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::{Router, middleware};
use metrics::Metrics;
use refusal::Refusal;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;
use tokio::sync::Semaphore;
use worker::{Order, Worker};

/// What the command line says.
pub struct Settings {
    pub address: SocketAddr,
    /// Requests accepted at one time; one more gets 429.
    pub queue: usize,
    /// Requests in one forward pass.
    pub batch: usize,
    /// Characters of one request.
    pub max_text: usize,
    /// From acceptance to the last sample.
    pub timeout: Duration,
    /// For what is under way when the server is told to stop.
    pub drain: Duration,
    pub allow_uploads: bool,
    /// Of the bearer token that every request but the page's own must carry.
    pub token: Option<blake3::Hash>,
    /// Sites whose pages may use this server.
    pub origins: Vec<String>,
    /// What the model is called.
    pub model: String,
}

/// What every request may see.
struct App {
    settings: Settings,
    rate_hz: u32,
    languages: Vec<String>,
    clones: bool,
    voices: Voices,
    orders: mpsc::Sender<Order>,
    places: Arc<Semaphore>,
    uploading: Semaphore,
    metrics: Arc<Metrics>,
    draining: AtomicBool,
}

impl App {
    fn order(&self, order: Order) -> Result<(), Refusal> {
        self.orders.send(order).map_err(|_| Refusal::internal("the voice has failed; see the server's log"))
    }

    fn accepted(&self) -> usize {
        self.settings.queue - self.places.available_permits()
    }
}

/// How a server ended.
pub struct Ended {
    /// Everything that was accepted was answered in time.
    pub drained: bool,
}

/// Serves until `stop`. `ready` is told where; `tell`, what fails and is nobody's fault but the server's.
pub fn serve(
    voice: Synthesizer,
    voices: Voices,
    settings: Settings,
    ready: impl FnOnce(SocketAddr),
    tell: fn(&str),
    stop: &AtomicBool,
) -> Result<Ended> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let address = settings.address;
    let listener = runtime.block_on(async { listen::bind(address) });
    let listener = listener.with_context(|| format!("{address}: cannot be listened on\nhint: --host and --port"))?;
    let (orders, inbox) = mpsc::channel();
    let metrics = Arc::new(Metrics::default());
    let app = Arc::new(App {
        rate_hz: voice.rate_hz(),
        languages: voice.languages().to_vec(),
        clones: voice.clones(),
        voices,
        orders,
        places: Arc::new(Semaphore::new(settings.queue)),
        uploading: Semaphore::new(1),
        metrics: metrics.clone(),
        draining: AtomicBool::new(false),
        settings,
    });
    let worker = Worker { voice, batch: app.settings.batch, metrics, tell };
    let worker = thread::Builder::new().name("voice".into()).spawn(move || worker.run(&inbox))?;
    ready(listener.local_addr()?);
    let (drain, router) = (app.settings.drain, router(app.clone()));
    let ending = || stop.load(Ordering::Relaxed) || worker.is_finished();
    let drained = runtime.block_on(listen::serve(
        listener,
        router,
        ending,
        || app.draining.store(true, Ordering::Relaxed),
        drain,
    ));
    // Connections that are left hold senders of orders; with them gone, the worker ends.
    runtime.shutdown_timeout(Duration::from_secs(1));
    drop(app);
    worker.join().map_err(|_| anyhow!("the voice's thread has failed"))?;
    Ok(Ended { drained })
}

fn router(app: Arc<App>) -> Router {
    let guarded = Router::new()
        .route("/v1/audio/speech", post(speech::speech))
        .route("/v1/voices", get(list_voices).post(uploads::upload))
        .route("/v1/voices/{id}", delete(uploads::forget))
        .route("/v1/models", get(list_models))
        .route("/v1/models/{id}", get(show_model))
        .route("/metrics", get(show_metrics))
        .layer(middleware::from_fn_with_state(app.clone(), gate::require_token));
    let open = Router::new().route("/", get(page::page)).route("/healthz", get(health));
    open.merge(guarded)
        .fallback(unknown)
        .method_not_allowed_fallback(wrong_method)
        .layer(middleware::from_fn_with_state(app.clone(), gate::watch))
        .with_state(app)
}

async fn list_voices(State(app): State<Arc<App>>) -> Response {
    let voices: Vec<Value> = app.voices.names().iter().map(|id| json!({ "id": id, "object": "voice" })).collect();
    answer(&json!({
        "object": "list",
        "data": voices,
        "languages": app.languages,
        "sample_rate": app.rate_hz,
        "max_text": app.settings.max_text,
        "uploads": app.settings.allow_uploads && app.clones,
    }))
}

async fn list_models(State(app): State<Arc<App>>) -> Response {
    answer(&json!({ "object": "list", "data": [model(&app)] }))
}

async fn show_model(State(app): State<Arc<App>>, id: axum::extract::Path<String>) -> Result<Response, Refusal> {
    if id.0 == app.settings.model { Ok(answer(&model(&app))) } else { Err(speech::no_model(&app)) }
}

fn model(app: &App) -> Value {
    json!({ "id": app.settings.model, "object": "model", "created": 0, "owned_by": "myxtts" })
}

async fn health(State(app): State<Arc<App>>) -> Result<&'static str, Refusal> {
    if app.draining.load(Ordering::Relaxed) { Err(Refusal::draining()) } else { Ok("ok\n") }
}

async fn show_metrics(State(app): State<Arc<App>>) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], app.metrics.text(app.accepted())).into_response()
}

async fn unknown() -> Refusal {
    Refusal::new(StatusCode::NOT_FOUND, "not_found", "nothing is here; POST /v1/audio/speech speaks")
}

async fn wrong_method() -> Refusal {
    Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "not with this method")
}

fn answer(value: &Value) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], format!("{value}\n")).into_response()
}

//! Speech over HTTP: OpenAI's interface, a page to try it with, and figures for Prometheus.
//!
//! One thread owns the voice ([`worker`]); another runs every connection. Between them lie a queue with a fixed number
//! of places and, for each request, a channel of a few pieces: neither many clients nor slow ones make memory grow.

mod metrics;
mod middleware;
mod response;
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
use axum::{Router, middleware as layer};
use host::error::WithHint;
use metrics::Metrics;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, mpsc};
use std::thread;
use std::time::Duration;
use tokio::sync::Semaphore;
use web::error::ApiError;
use web::page::Page;
use web::{json_response, listen};
use worker::{Worker, WorkerRequest};

/// Settings of a server, as the command line gives them.
pub struct ServerSettings {
    pub address: SocketAddr,
    /// Requests accepted at one time; one more gets 429.
    pub queue: usize,
    /// Requests in one forward pass.
    pub batch: usize,
    /// Characters of one request.
    pub max_text: usize,
    /// Time of a request from acceptance to the last sample.
    pub timeout: Duration,
    /// Time that requests under way have when the server is told to stop.
    pub drain: Duration,
    pub allow_uploads: bool,
    /// Hash of the bearer token that every request but the page's own must carry.
    pub token: Option<blake3::Hash>,
    /// Sites whose pages may use the server.
    pub origins: Vec<String>,
    /// Name of the model.
    pub model: String,
}

/// State that every handler may see.
struct AppState {
    settings: ServerSettings,
    rate_hz: u32,
    languages: Vec<String>,
    clones: bool,
    voices: Voices,
    worker: mpsc::Sender<WorkerRequest>,
    queue_places: Arc<Semaphore>,
    uploading: Semaphore,
    metrics: Arc<Metrics>,
    draining: AtomicBool,
}

impl AppState {
    fn send(&self, request: WorkerRequest) -> Result<(), ApiError> {
        self.worker.send(request).map_err(|_| ApiError::internal("the voice has failed; see the server's log"))
    }

    fn accepted(&self) -> usize {
        self.settings.queue - self.queue_places.available_permits()
    }
}

/// How a server shut down.
pub struct Shutdown {
    /// Everything that was accepted was answered in time.
    pub drained: bool,
}

/// Serves until `stop`. `ready` is called with the address; `log_failure`, with what fails by no fault of a client.
pub fn serve(
    voice: Synthesizer,
    voices: Voices,
    settings: ServerSettings,
    ready: impl FnOnce(SocketAddr),
    log_failure: fn(&str),
    stop: &AtomicBool,
) -> Result<Shutdown> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let address = settings.address;
    let listener = runtime.block_on(async { listen::bind(address) });
    let listener = listener.hint("--host and --port").with_context(|| format!("{address}: cannot be listened on"))?;
    let (requests, inbox) = mpsc::channel();
    let metrics = Arc::new(Metrics::default());
    let app = Arc::new(AppState {
        rate_hz: voice.rate_hz(),
        languages: voice.languages().to_vec(),
        clones: voice.clones(),
        voices,
        worker: requests,
        queue_places: Arc::new(Semaphore::new(settings.queue)),
        uploading: Semaphore::new(1),
        metrics: metrics.clone(),
        draining: AtomicBool::new(false),
        settings,
    });
    let worker = Worker { voice, batch: app.settings.batch, metrics, log_failure };
    let (drain, router) = (app.settings.drain, router(app.clone()));
    let speaks = AtomicBool::new(true);
    ready(listener.local_addr()?);
    // The voice stays in the thread that loaded it: threads that compute for another one would be one too many for the cores,
    // and sleep wherever they wait.
    let drained = thread::scope(|scope| {
        let connections = thread::Builder::new().name("connections".into()).spawn_scoped(scope, || {
            let ending = || stop.load(Ordering::Relaxed) || !speaks.load(Ordering::Relaxed);
            let begin_draining = || app.draining.store(true, Ordering::Relaxed);
            let drained = runtime.block_on(listen::serve(listener, router, ending, begin_draining, drain));
            // Connections that are left hold senders to the worker; with them gone, it ends.
            runtime.shutdown_timeout(Duration::from_secs(1));
            drop(app);
            drained
        })?;
        let spoken = catch_unwind(AssertUnwindSafe(move || worker.run(&inbox)));
        speaks.store(false, Ordering::Relaxed);
        let drained = connections.join().map_err(|_| anyhow!("the connections' thread has failed"))?;
        spoken.map_err(|_| anyhow!("the voice has failed"))?;
        anyhow::Ok(drained)
    })?;
    Ok(Shutdown { drained })
}

/// All routes. One more is a handler in a file of its own and a line here; metrics count it by its path.
fn router(app: Arc<AppState>) -> Router {
    let guarded = Router::new()
        .route("/v1/audio/speech", post(speech::speech))
        .route("/v1/voices", get(list_voices).post(uploads::upload))
        .route("/v1/voices/{id}", delete(uploads::forget))
        .route("/v1/models", get(list_models))
        .route("/v1/models/{id}", get(show_model))
        .route("/metrics", get(show_metrics))
        .layer(layer::from_fn_with_state(app.clone(), middleware::require_token));
    let open = Router::new().route("/", get(show_page)).route("/healthz", get(health));
    open.merge(guarded)
        .fallback(unknown)
        .method_not_allowed_fallback(wrong_method)
        .layer(layer::from_fn_with_state(app.clone(), middleware::count_and_allow_origin))
        .with_state(app)
}

/// The page to try it with.
async fn show_page() -> impl IntoResponse {
    static PAGE: LazyLock<Page> = LazyLock::new(|| Page::new(include_str!("page.html"), &[]));
    PAGE.answer()
}

async fn list_voices(State(app): State<Arc<AppState>>) -> Response {
    let voices: Vec<Value> = app.voices.names().iter().map(|id| json!({ "id": id, "object": "voice" })).collect();
    json_response(&json!({
        "object": "list",
        "data": voices,
        "languages": app.languages,
        "sample_rate": app.rate_hz,
        "max_text": app.settings.max_text,
        "uploads": app.settings.allow_uploads && app.clones,
    }))
}

async fn list_models(State(app): State<Arc<AppState>>) -> Response {
    json_response(&json!({ "object": "list", "data": [model(&app)] }))
}

async fn show_model(State(app): State<Arc<AppState>>, id: axum::extract::Path<String>) -> Result<Response, ApiError> {
    if id.0 == app.settings.model { Ok(json_response(&model(&app))) } else { Err(speech::no_model(&app)) }
}

fn model(app: &AppState) -> Value {
    json!({ "id": app.settings.model, "object": "model", "created": 0, "owned_by": "myxtts" })
}

async fn health(State(app): State<Arc<AppState>>) -> Result<&'static str, ApiError> {
    if app.draining.load(Ordering::Relaxed) { Err(ApiError::draining()) } else { Ok("ok\n") }
}

async fn show_metrics(State(app): State<Arc<AppState>>) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], app.metrics.text(app.accepted())).into_response()
}

async fn unknown() -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, "not_found", "nothing is here; POST /v1/audio/speech speaks")
}

async fn wrong_method() -> ApiError {
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "not with this method")
}

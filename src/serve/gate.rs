//! What every request passes: counting, the bearer token, pages of other sites.

use super::App;
use super::refusal::Refusal;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::sync::Arc;

/// Counted by these names, so that made-up paths make no new ones.
const ROUTES: [&str; 6] = ["/v1/audio/speech", "/v1/voices", "/v1/models", "/metrics", "/healthz", "/"];

/// Counts answers, and lets pages of the sites that are allowed read them.
pub async fn watch(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let route = ROUTES.into_iter().find(|&route| path == route).unwrap_or("other");
    let origin = allowed_origin(&app, request.headers());
    let preflight = request.method() == Method::OPTIONS && origin.is_some();
    let mut response = if preflight { StatusCode::NO_CONTENT.into_response() } else { next.run(request).await };
    if let Some(origin) = origin {
        allow(&mut response, origin);
    }
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    app.metrics.answered(route, response.status().as_u16());
    response
}

fn allowed_origin(app: &App, headers: &HeaderMap) -> Option<HeaderValue> {
    let origin = headers.get(header::ORIGIN)?;
    app.settings.origins.iter().any(|allowed| allowed.as_bytes() == origin.as_bytes()).then(|| origin.clone())
}

fn allow(response: &mut Response, origin: HeaderValue) {
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(header::VARY, HeaderValue::from_static("origin"));
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST, DELETE"));
    headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static("authorization, content-type"));
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("x-sample-rate, retry-after"));
}

pub async fn require_token(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    match &app.settings.token {
        Some(token) if !carries(request.headers(), token) => {
            let message = "a bearer token is needed: `Authorization: Bearer …`";
            Refusal::new(StatusCode::UNAUTHORIZED, "invalid_api_key", message).into_response()
        }
        _ => next.run(request).await,
    }
}

/// Hashes are compared, in constant time: how long it takes says nothing about the token.
fn carries(headers: &HeaderMap, token: &blake3::Hash) -> bool {
    let given = headers.get(header::AUTHORIZATION).and_then(|value| value.as_bytes().split_at_checked(7));
    given.is_some_and(|(scheme, given)| scheme.eq_ignore_ascii_case(b"bearer ") && blake3::hash(given) == *token)
}

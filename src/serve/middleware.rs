//! Middleware of every request: metrics, cross-origin headers, the bearer token.

use super::AppState;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::sync::Arc;
use web::error::ApiError;

/// Route of requests to paths that are none.
const NO_ROUTE: &str = "other";

/// Counts answers by route, so that made-up paths make no new counters, and lets pages of allowed sites read them.
pub async fn count_and_allow_origin(State(app): State<Arc<AppState>>, request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().cloned();
    let origin = allowed_origin(&app, request.headers());
    let preflight = request.method() == Method::OPTIONS && origin.is_some();
    let mut response = if preflight { StatusCode::NO_CONTENT.into_response() } else { next.run(request).await };
    if let Some(origin) = origin {
        allow_origin(&mut response, origin);
    }
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    app.metrics.answered(route.as_ref().map_or(NO_ROUTE, MatchedPath::as_str), response.status().as_u16());
    response
}

fn allowed_origin(app: &AppState, headers: &HeaderMap) -> Option<HeaderValue> {
    let origin = headers.get(header::ORIGIN)?;
    app.settings.origins.iter().any(|allowed| allowed.as_bytes() == origin.as_bytes()).then(|| origin.clone())
}

fn allow_origin(response: &mut Response, origin: HeaderValue) {
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(header::VARY, HeaderValue::from_static("origin"));
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST, DELETE"));
    headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static("authorization, content-type"));
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("x-sample-rate, retry-after"));
}

/// Refuses requests without the server's token, where it has one.
pub async fn require_token(State(app): State<Arc<AppState>>, request: Request, next: Next) -> Response {
    match &app.settings.token {
        Some(token) if !web::token::carries(request.headers(), token) => {
            let message = "a bearer token is needed: `Authorization: Bearer …`";
            ApiError::new(StatusCode::UNAUTHORIZED, "invalid_api_key", message).into_response()
        }
        _ => next.run(request).await,
    }
}

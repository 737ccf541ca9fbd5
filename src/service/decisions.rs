//! `/decisions`: the last decisions, as JSON.

use std::sync::Arc;

use axum::{
    Router,
    extract::{RawQuery, State},
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse as _, Response},
    routing::get,
};

use mixer_adapter_engine::Mixer;

/// Returns the router of `/decisions` for an engine.
///
/// `GET /decisions?after=7` returns the decisions after the seventh one since the start, and the number with which to continue.
/// Decisions are recorded while they are read.
pub(super) fn router(mixer: Arc<Mixer>) -> Router {
    Router::new().route("/decisions", get(decisions)).with_state(mixer)
}

async fn decisions(State(mixer): State<Arc<Mixer>>, RawQuery(query): RawQuery) -> Response {
    let after = match query.as_deref() {
        None | Some("") => Some(0),
        Some(query) => query.strip_prefix("after=").and_then(|number| number.parse().ok()),
    };
    let Some(after) = after else {
        return (StatusCode::BAD_REQUEST, "write after=NUMBER, the value of `last` of a former response\n")
            .into_response();
    };
    ([(CONTENT_TYPE, "application/json")], mixer.decision_log().recent().read(after)).into_response()
}

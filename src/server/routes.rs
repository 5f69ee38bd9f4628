//! The two routes, and what stands before them: token, then path, then method.

use std::any::Any;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{Response, StatusCode};
use axum::middleware::{self, Next};
use axum::routing::{MethodRouter, get, post};
use bytes::Bytes;
use http::HeaderValue;
use http::header::{ALLOW, CONNECTION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http_body::Body as _;
use tokio::time::Instant;
use tower_http::catch_panic::CatchPanicLayer;

use super::intake::{NotReceived, Received};
use super::peer::Peer;
use super::{Adapter, Service};
use crate::contract::{Conversation, Failure};
use crate::observe::metrics::Gauges;
use crate::observe::{Status, TurnRecord};

/// Where `weir status` asks. It is no route of the contract, and the app never asks for it; it wants the same token.
pub const STATUS: &str = "/weir/status";

/// The contract's two routes, and the one for `weir status`.
pub fn contract(adapter: Arc<Adapter>) -> Router {
    let chat = post(chat).fallback(|| async { answer_failure(&Failure::wrong_method("POST")) });
    let routes = Router::new()
        .route("/v1/models", only_get(get(models)))
        .route("/v1/chat/completions", chat)
        .route(STATUS, only_get(get(status)));
    guarded(routes, adapter)
}

/// The one route of the metrics port; it wants the same token.
pub fn metrics(adapter: Arc<Adapter>) -> Router {
    guarded(Router::new().route("/metrics", only_get(get(scrape))), adapter)
}

/// axum's own `get` also answers HEAD; here only GET is known.
fn only_get(route: MethodRouter<Arc<Adapter>>) -> MethodRouter<Arc<Adapter>> {
    async fn wrong_method() -> Response<Body> {
        answer_failure(&Failure::wrong_method("GET"))
    }
    route.head(wrong_method).fallback(wrong_method)
}

/// From the outside in: a panic becomes an answer; then the token; and only behind it axum looks at the path and the method.
fn guarded(routes: Router<Arc<Adapter>>, adapter: Arc<Adapter>) -> Router {
    routes
        .fallback(|| async { answer_failure(&Failure::unknown_path()) })
        .layer((
            CatchPanicLayer::custom(answer_panic),
            middleware::from_fn_with_state(Arc::clone(&adapter), at_the_door),
        ))
        .with_state(adapter)
}

/// Marks an answer whose request body was read to its end: its connection can take another request.
#[derive(Debug, Clone, Copy)]
struct BodyWasRead;

/// Checks the token; a body that nobody read announces the end of its connection.
async fn at_the_door(State(adapter): State<Arc<Adapter>>, request: Request, next: Next) -> Response<Body> {
    let has_body = !request.body().is_end_stream();
    let admitted = adapter.service().guard.admits(request.headers());
    let mut response = if admitted { next.run(request).await } else { answer_failure(&Failure::unauthorized()) };
    if has_body && response.extensions().get::<BodyWasRead>().is_none() {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// The panic's message is dropped unread: it can quote what was being worked on. The panic hook has logged its place.
fn answer_panic(_: Box<dyn Any + Send>) -> Response<Body> {
    let mut response = answer_failure(&Failure::upstream_failure("this adapter itself failed; its log says where"));
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

async fn models(State(adapter): State<Arc<Adapter>>) -> Response<Body> {
    let snapshot = adapter.service().catalog.after_first_look().await;
    if snapshot.entries.is_empty() && snapshot.loading {
        return answer_failure(&Failure::overloaded("the model server is still loading"));
    }
    if snapshot.entries.is_empty() {
        return answer_failure(&Failure::upstream_failure(
            "no model server has given a list of models yet, and none is named in the configuration; the log says why",
        ));
    }
    answer_json(StatusCode::OK, snapshot.list.clone())
}

async fn chat(State(adapter): State<Arc<Adapter>>, request: Request) -> Response<Body> {
    let service = adapter.service();
    let (parts, body) = request.into_parts();
    let received = match service.intake.receive(&parts.headers, body).await {
        Ok(received) => received,
        Err(NotReceived::Refused(failure)) => return answer_failure(&failure),
        Err(NotReceived::Gone) => return answer_failure(&Failure::malformed("the request body ended early")),
    };
    let hang_up = async {
        match parts.extensions.get::<Peer>() {
            Some(peer) => peer.gone().await,
            None => std::future::pending().await,
        }
    };
    let answered = tokio::select! {
        biased;
        answered = run_turn(&adapter, &service, received) => answered,
        () = hang_up => return answer_failure(&Failure::malformed("nobody waits for the answer any more")),
    };
    let mut response = match answered {
        Ok(reply) => answer_json(StatusCode::OK, reply.into()),
        Err(failure) => answer_failure(&failure),
    };
    response.extensions_mut().insert(BodyWasRead);
    response
}

/// One turn, from its complete body to its answer. Its clock starts here.
async fn run_turn(adapter: &Adapter, service: &Service, received: Received) -> Result<Vec<u8>, Failure> {
    let since = Instant::now();
    let mut record = TurnRecord::new(since, received.body.len() as u64, Arc::clone(&adapter.ledger));
    let result = async {
        let conversation = Conversation::parse(&received.body, service.settings.limits.image)?;
        record.messages = conversation.messages.len();
        record.images = conversation.image_count();
        // In a place of its own: it is large, and what stands around it is moved several times on its way here.
        let turn = Box::pin(service.turns.run(conversation, since, &mut record));
        let shutting_down = || Failure::overloaded("this adapter is shutting down");
        let reply = adapter.stopping_turns.run_until_cancelled(turn).await.ok_or_else(shutting_down)??;
        let body = reply.to_json();
        if body.len() as u64 > service.settings.limits.reply {
            return Err(Failure::upstream_failure("the answer is over this adapter's cap (limits.reply)"));
        }
        Ok(body)
    }
    .await;
    record.finish(result.as_ref().err());
    result
}

async fn status(State(adapter): State<Arc<Adapter>>) -> Response<Body> {
    let service = adapter.service();
    let (running, queued) = service.turns.load();
    let status = Status {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        up_seconds: adapter.started.elapsed().as_secs(),
        running,
        queued,
        upstreams: service.catalog.upstream_statuses(),
        models: service.catalog.now().model_statuses(),
        turns: adapter.ledger.recent.list(),
    };
    // Plain values only: nothing in it can fail to become JSON.
    answer_json(StatusCode::OK, serde_json::to_vec(&status).unwrap_or_default().into())
}

async fn scrape(State(adapter): State<Arc<Adapter>>) -> Response<Body> {
    let service = adapter.service();
    let (running, queued) = service.turns.load();
    let upstreams = service.catalog.liveness();
    let gauges = Gauges { running, queued, bytes_in_flight: service.intake.in_flight(), upstreams };
    let mut response = Response::new(Body::from(adapter.ledger.metrics.to_text(&gauges)));
    let text = HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, text);
    response
}

fn answer_json(status: StatusCode, body: Bytes) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn answer_failure(failure: &Failure) -> Response<Body> {
    let mut response = answer_json(failure.status, failure.to_json().into());
    let headers = response.headers_mut();
    if let Some(allow) = failure.allow {
        headers.insert(ALLOW, HeaderValue::from_static(allow));
    }
    if let Some(seconds) = failure.retry_after {
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    if failure.status == StatusCode::UNAUTHORIZED {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;
    use tower::ServiceExt as _;

    use super::*;

    #[tokio::test]
    async fn a_panic_becomes_a_502_that_says_nothing_of_its_message() {
        let routes: Router = Router::new()
            .route(
                "/",
                get(|| async {
                    if true {
                        panic!("CANARY of a panic")
                    }
                }),
            )
            .layer(CatchPanicLayer::custom(answer_panic));
        let response = routes.oneshot(Request::new(Body::empty())).await.unwrap();
        assert_eq!(response.status(), StatusCode::BAD_GATEWAY);
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let body = String::from_utf8(body.to_vec()).unwrap();
        assert!(body.contains("upstream_failure") && !body.contains("CANARY"), "{body}");
    }
}

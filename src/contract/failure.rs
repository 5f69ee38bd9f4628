//! The answers that are not a reply: status, `type`, `code` and our own prose, as one value.
//!
//! Contract, "Errors". `error.message` is ours alone: an upstream's words can echo the conversation, and the app
//! matches some words of a message that carries no code, so nothing foreign is ever put into it.

use std::borrow::Cow;

use http::StatusCode;
use serde::{Deserialize, Serialize};

/// The contract's closed vocabulary of machine-readable failure codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// The current turn carries an image that this adapter cannot accept (400).
    ImageUnsupported,
    /// The supplied model matches no advertised id (400).
    ModelNotFound,
    /// The conversation exceeds what the engine can accept (400).
    ContextTooLong,
    /// An image exceeds a size cap (413).
    ImageTooLarge,
    /// Busy: a turn cannot start in time (429 or 503).
    Overloaded,
    /// The engine hit the internal deadline (504).
    UpstreamTimeout,
    /// The engine crashed or produced no usable result (502).
    UpstreamFailure,
}

impl Code {
    /// The word on the wire, which is also the word in logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Code::ImageUnsupported => "image_unsupported",
            Code::ModelNotFound => "model_not_found",
            Code::ContextTooLong => "context_too_long",
            Code::ImageTooLarge => "image_too_large",
            Code::Overloaded => "overloaded",
            Code::UpstreamTimeout => "upstream_timeout",
            Code::UpstreamFailure => "upstream_failure",
        }
    }
}

/// A refusal or failure as it leaves Weir.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The status of the answer; the contract makes it normative.
    pub status: StatusCode,
    /// The code, where one of the seven fits.
    pub code: Option<Code>,
    /// Prose for whoever reads the log of a client. Never text of an upstream or of the request.
    pub message: Cow<'static, str>,
    /// Seconds after which another try makes sense, for `Retry-After`. The app does not read it; other clients do.
    pub retry_after: Option<u32>,
    /// The methods that the path knows, for `Allow` on a 405 (RFC 9110).
    pub allow: Option<&'static str>,
}

impl Failure {
    fn new(status: StatusCode, code: Option<Code>, message: impl Into<Cow<'static, str>>) -> Self {
        Failure { status, code, message: message.into(), retry_after: None, allow: None }
    }

    /// 400 without a code: the body or a field of it is malformed.
    pub fn malformed(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, None, message)
    }

    /// 401: the token is missing or wrong. Decided before anything else is looked at.
    pub fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, None, "this service needs 'Authorization: Bearer' with its exact token")
    }

    /// 404: no such path. It never means anything else.
    pub fn unknown_path() -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            None,
            "unknown path; this adapter has GET /v1/models and POST /v1/chat/completions",
        )
    }

    /// 405: a known path with the wrong method; `allow` names the right one.
    pub fn wrong_method(allow: &'static str) -> Self {
        Failure {
            allow: Some(allow),
            ..Self::new(StatusCode::METHOD_NOT_ALLOWED, None, "this path does not know that method")
        }
    }

    /// 413 without a code: the whole body is over the cap. None of the seven codes fits a whole body.
    pub fn body_too_large(cap: u64) -> Self {
        Self::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            None,
            format!("the request body is over this adapter's cap of {cap} bytes (limits.body)"),
        )
    }

    /// 408: the body did not arrive in time (`timeouts.body`). Not one of the contract's cases: the clock of a turn
    /// starts only when the body is complete.
    pub fn body_too_slow() -> Self {
        Self::new(StatusCode::REQUEST_TIMEOUT, None, "the request body did not arrive in time")
    }

    /// 400 `image_unsupported`.
    pub fn image_unsupported(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, Some(Code::ImageUnsupported), message)
    }

    /// 413 `image_too_large`.
    pub fn image_too_large(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, Some(Code::ImageTooLarge), message)
    }

    /// 400 `model_not_found`: deliberately not OpenAI's 404.
    pub fn model_not_found() -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            Some(Code::ModelNotFound),
            "no model of that name is served here; GET /v1/models lists those that are",
        )
    }

    /// 400 `context_too_long`.
    pub fn context_too_long() -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            Some(Code::ContextTooLong),
            "the conversation is longer than the model's context",
        )
    }

    /// 429 `overloaded`: the queue is full, or the turn has no chance to start in time.
    pub fn queue_full(message: &'static str) -> Self {
        Failure { retry_after: Some(5), ..Self::new(StatusCode::TOO_MANY_REQUESTS, Some(Code::Overloaded), message) }
    }

    /// 503 `overloaded`: the backend is loading or busy, or Weir itself is short of room or shutting down.
    pub fn overloaded(message: &'static str) -> Self {
        Failure { retry_after: Some(5), ..Self::new(StatusCode::SERVICE_UNAVAILABLE, Some(Code::Overloaded), message) }
    }

    /// 504 `upstream_timeout`.
    pub fn upstream_timeout(message: &'static str) -> Self {
        Self::new(StatusCode::GATEWAY_TIMEOUT, Some(Code::UpstreamTimeout), message)
    }

    /// 502 `upstream_failure`.
    pub fn upstream_failure(message: &'static str) -> Self {
        Self::new(StatusCode::BAD_GATEWAY, Some(Code::UpstreamFailure), message)
    }

    /// The body in the OpenAI error shape. `type` is the coarse kind that goes with the status class.
    pub fn to_json(&self) -> Vec<u8> {
        #[derive(Serialize)]
        struct Body<'a> {
            error: Error<'a>,
        }
        #[derive(Serialize)]
        struct Error<'a> {
            message: &'a str,
            r#type: &'static str,
            #[serde(skip_serializing_if = "Option::is_none")]
            code: Option<Code>,
        }
        let r#type = if self.status.is_client_error() { "invalid_request_error" } else { "server_error" };
        let body = Body { error: Error { message: &self.message, r#type, code: self.code } };
        serde_json::to_vec(&body).unwrap_or_default()
    }
}

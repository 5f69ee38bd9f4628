//! Takes in a request body: under its cap, under the budget of all bodies together, and under its own clock.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, TRANSFER_ENCODING};
use http_body_util::BodyExt as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::contract::Failure;

/// The budget is kept in units of this many bytes.
const UNIT: u64 = 1024;

/// By how much the share of a body of unknown length grows.
const GROWTH: u64 = 1024 * 1024;

/// How long a body waits for room in the budget before it is refused.
const WAIT_FOR_ROOM: Duration = Duration::from_secs(2);

/// Takes in bodies.
#[derive(Debug, Clone)]
pub struct Intake {
    cap: u64,
    patience: Duration,
    budget: Arc<Semaphore>,
    units: u64,
}

/// A whole body and its share of the budget, which returns when this is dropped.
#[derive(Debug)]
pub struct Received {
    /// The bytes.
    pub body: Bytes,
    _share: Share,
}

#[derive(Debug, Default)]
struct Share(Vec<OwnedSemaphorePermit>);

/// Why a body was not taken in.
#[derive(Debug)]
pub enum NotReceived {
    /// The phone is told this.
    Refused(Failure),
    /// The connection ended inside the body: there is nobody to tell.
    Gone,
}

impl From<Failure> for NotReceived {
    fn from(failure: Failure) -> Self {
        NotReceived::Refused(failure)
    }
}

impl Intake {
    /// Bodies of at most `cap` bytes, each within `patience`, all together at most `in_flight` bytes at a time.
    pub fn new(cap: u64, in_flight: u64, patience: Duration) -> Self {
        let units = in_flight / UNIT;
        let most = Semaphore::MAX_PERMITS.min(u32::MAX as usize);
        let budget = Arc::new(Semaphore::new(usize::try_from(units).unwrap_or(most).min(most)));
        Intake { cap, patience, budget, units }
    }

    /// Bytes of bodies that are held now.
    pub fn in_flight(&self) -> u64 {
        self.units.saturating_sub(self.budget.available_permits() as u64) * UNIT
    }

    /// Reads the body of a request.
    ///
    /// # Errors
    /// 413 over the cap (told from `Content-Length` before a byte is read), 400 for a compressed body, which is never inflated, 408
    /// when it is too slow, 503 when there is no room.
    pub async fn receive(&self, headers: &HeaderMap, body: Body) -> Result<Received, NotReceived> {
        if headers.get(CONTENT_ENCODING).is_some_and(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity")) {
            return Err(Failure::malformed("compressed request bodies are not read; send it plain").into());
        }
        if headers.get(TRANSFER_ENCODING).is_some_and(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"chunked")) {
            return Err(Failure::malformed("the only transfer encoding that is read is chunked").into());
        }
        let length = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        if length.is_some_and(|length| length > self.cap) {
            return Err(Failure::body_too_large(self.cap).into());
        }
        tokio::time::timeout(self.patience, self.read(length, body))
            .await
            .unwrap_or_else(|_| Err(Failure::body_too_slow().into()))
    }

    async fn read(&self, length: Option<u64>, mut body: Body) -> Result<Received, NotReceived> {
        let mut share = Share::default();
        let mut room = length.unwrap_or(0);
        self.reserve(&mut share, room).await?;
        let mut whole = BytesMut::with_capacity(usize::try_from(room).unwrap_or(0));
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(|_| NotReceived::Gone)?.into_data() else { continue };
            let total = (whole.len() + data.len()) as u64;
            if total > self.cap {
                return Err(Failure::body_too_large(self.cap).into());
            }
            while total > room {
                self.reserve(&mut share, GROWTH).await?;
                room += GROWTH;
            }
            whole.extend_from_slice(&data);
        }
        Ok(Received { body: whole.freeze(), _share: share })
    }

    async fn reserve(&self, share: &mut Share, bytes: u64) -> Result<(), NotReceived> {
        let units = u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX);
        if units == 0 {
            return Ok(());
        }
        let permits = Arc::clone(&self.budget).acquire_many_owned(units);
        match tokio::time::timeout(WAIT_FOR_ROOM, permits).await {
            Ok(Ok(permits)) => {
                share.0.push(permits);
                Ok(())
            }
            _ => {
                Err(Failure::overloaded("there is no room for this request body at the moment (limits.in_flight)")
                    .into())
            }
        }
    }
}

//! Takes in a request body: under its cap, under the budget of all bodies together, and under its own clock.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, TRANSFER_ENCODING};
use http_body::Frame;
use http_body_util::BodyExt as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::buffer::{append, make_room};
use crate::contract::Failure;

/// The budget is kept in units of this many bytes.
const UNIT: u64 = 1024;

/// By how much the share of a body of unknown length grows.
const GROWTH: u64 = 1024 * 1024;

/// How long a body waits for room in the budget before it is refused.
const WAIT_FOR_ROOM: Duration = Duration::from_secs(2);

/// A body that is still coming has to grow by this many bytes in each [`RATE_WINDOW`]: 4 KiB a second, which the worst mobile
/// link has, and far less than what a peer that only wants to hold a place would send.
const LEAST_IN_A_WINDOW: usize = 60 * 1024;

/// How long a link may be as good as dead before its body is given up.
const RATE_WINDOW: Duration = Duration::from_secs(15);

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
    /// Bodies of at most `cap` bytes, each within `patience`, all together at most `in_flight` bytes at a time. Those that `before` took
    /// in count, as long as the budget is the same.
    pub fn new(cap: u64, in_flight: u64, patience: Duration, before: Option<&Intake>) -> Self {
        let units = in_flight / UNIT;
        let most = Semaphore::MAX_PERMITS.min(u32::MAX as usize);
        let budget = match before.filter(|before| before.units == units) {
            Some(before) => Arc::clone(&before.budget),
            None => Arc::new(Semaphore::new(usize::try_from(units).unwrap_or(most).min(most))),
        };
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
    /// when it is too slow as a whole or stalls, 503 when there is no room.
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
        let mut whole = BytesMut::new();
        make_room(&mut whole, usize::try_from(room).unwrap_or(0));
        let mut window = Window::new(self.least_in_a_window(room));
        while let Some(frame) = window.next(&mut body, whole.len()).await? {
            let Ok(data) = frame.map_err(|_| NotReceived::Gone)?.into_data() else { continue };
            let total = (whole.len() + data.len()) as u64;
            if total > self.cap {
                return Err(Failure::body_too_large(self.cap).into());
            }
            while total > room {
                self.reserve(&mut share, GROWTH).await?;
                room += GROWTH;
            }
            append(&mut whole, &data);
        }
        Ok(Received { body: whole.freeze(), _share: share })
    }

    /// By how many bytes a body has to grow in each window. One that takes a large part of the budget from the start has to come at
    /// half the pace at least at which it would be whole in its time.
    fn least_in_a_window(&self, length: u64) -> usize {
        let windows = (self.patience.as_secs() / RATE_WINDOW.as_secs()).max(1);
        usize::try_from(length / windows / 2).unwrap_or(usize::MAX).max(LEAST_IN_A_WINDOW)
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

/// The time in which a body has to grow by so much.
struct Window {
    until: Instant,
    least: usize,
    length_before: usize,
}

impl Window {
    fn new(least: usize) -> Self {
        Window { until: Instant::now() + RATE_WINDOW, least, length_before: 0 }
    }

    /// The next frame of a body of which `length` bytes are there.
    async fn next(
        &mut self,
        body: &mut Body,
        length: usize,
    ) -> Result<Option<Result<Frame<Bytes>, axum::Error>>, NotReceived> {
        if length - self.length_before >= self.least {
            *self = Window { length_before: length, ..Window::new(self.least) };
        }
        tokio::time::timeout_at(self.until, body.frame()).await.map_err(|_| Failure::body_too_slow().into())
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::{StreamExt as _, stream};
    use http::{HeaderValue, StatusCode};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(600);

    /// A body whose pieces of that many bytes come after that many seconds each.
    fn coming(pieces: &'static [(usize, u64)]) -> Body {
        Body::from_stream(stream::iter(pieces).then(|(bytes, seconds)| async move {
            tokio::time::sleep(Duration::from_secs(*seconds)).await;
            Ok::<_, Infallible>(vec![b' '; *bytes])
        }))
    }

    async fn received(body: Body) -> Result<usize, NotReceived> {
        let intake = Intake::new(64 << 20, 512 << 20, PATIENCE, None);
        let received = intake.receive(&HeaderMap::new(), body).await;
        assert_eq!(received.as_ref().map_or(0, |received| received.body.len()) == 0, intake.in_flight() == 0);
        received.map(|received| received.body.len())
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_on_a_bad_link_is_taken_in_as_long_as_it_keeps_coming() {
        // Sixteen seconds in all, with pauses, and then a large rest.
        assert_eq!(
            received(coming(&[(70_000, 12), (70_000, 14), (70_000, 9), (900_000, 14)])).await.unwrap(),
            1_110_000
        );
        // A short one is not slow.
        assert_eq!(received(coming(&[(10, 1), (10, 6), (10, 6)])).await.unwrap(), 30);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_announced_much_has_to_come_at_half_its_pace() {
        let intake = Intake::new(64 << 20, 512 << 20, PATIENCE, None);
        let headers = HeaderMap::from_iter([(CONTENT_LENGTH, HeaderValue::from(60_000_000))]);
        // 60 MB in ten minutes are 1.5 MB in a window.
        for (piece, comes) in [(&[(800_000, 14); 75], true), (&[(700_000, 14); 75], false)] {
            let since = Instant::now();
            let received = intake.receive(&headers, coming(piece)).await;
            assert_eq!(received.is_ok() || since.elapsed() >= PATIENCE, comes, "{piece:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_hardly_comes_is_given_up_long_before_its_own_clock() {
        for drip in [&[(1, 1); 100][..], &[(60_000, 14), (10_000, 30)], &[(1_000_000, 1), (1, 16)]] {
            let since = Instant::now();
            match received(coming(drip)).await {
                Err(NotReceived::Refused(failure)) => assert_eq!(failure.status, StatusCode::REQUEST_TIMEOUT),
                other => panic!("{other:?}"),
            }
            assert!(since.elapsed() <= RATE_WINDOW * 2, "{:?}", since.elapsed());
        }
    }
}

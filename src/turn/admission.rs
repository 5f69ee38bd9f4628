//! The queue in front of one model server: a permit for each turn that it really runs at once, and a short, fair line for the
//! rest.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::upstream::Upstream;
use crate::upstream::dialect::Dialect;

/// Why a turn does not start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotAdmitted {
    /// The line is as long as `limits.queue` allows.
    QueueFull,
    /// Its time ran out in the line.
    NeverStarted,
}

/// The permits of one server. Who waits is served in the order of coming; who goes away leaves no trace.
#[derive(Debug)]
pub struct Admission {
    permits: Arc<Semaphore>,
    /// How many permits there are in all, running ones included.
    total: Mutex<usize>,
    waiting: AtomicUsize,
    longest_queue: usize,
}

/// The right to run one turn; dropping it gives the place to the next.
#[derive(Debug)]
pub struct Permit {
    _permit: OwnedSemaphorePermit,
}

impl Admission {
    /// No permit yet: [`Admission::resize`] says how many turns run at once. `longest_queue` turns may wait.
    pub fn new(longest_queue: usize) -> Self {
        let permits = Arc::new(Semaphore::new(0));
        Admission { permits, total: Mutex::new(0), waiting: AtomicUsize::new(0), longest_queue }
    }

    /// Follows what the server tells about itself. Turns that run keep their permits: a smaller number takes effect as they end.
    pub fn resize(&self, turns_at_once: usize) {
        let mut total = self.total.lock().unwrap_or_else(PoisonError::into_inner);
        if turns_at_once > *total {
            self.permits.add_permits(turns_at_once - *total);
            *total = turns_at_once;
        } else {
            *total -= self.permits.forget_permits(*total - turns_at_once);
        }
    }

    /// Waits for a permit until `latest`.
    ///
    /// # Errors
    /// The line is full, or the time ran out. Nothing was sent to the server then.
    pub async fn admit(&self, latest: Instant) -> Result<Permit, NotAdmitted> {
        let permits = Arc::clone(&self.permits);
        if let Ok(permit) = Arc::clone(&permits).try_acquire_owned() {
            return Ok(Permit { _permit: permit });
        }
        let _place = self.join_queue().ok_or(NotAdmitted::QueueFull)?;
        match tokio::time::timeout_at(latest, permits.acquire_owned()).await {
            Ok(Ok(permit)) => Ok(Permit { _permit: permit }),
            _ => Err(NotAdmitted::NeverStarted),
        }
    }

    fn join_queue(&self) -> Option<Place<'_>> {
        let join = |waiting| (waiting < self.longest_queue).then_some(waiting + 1);
        self.waiting.fetch_update(Ordering::AcqRel, Ordering::Acquire, join).ok()?;
        Some(Place(&self.waiting))
    }

    /// How many turns wait.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Acquire)
    }

    /// How many turns run.
    pub fn running(&self) -> usize {
        let total = *self.total.lock().unwrap_or_else(PoisonError::into_inner);
        total.saturating_sub(self.permits.available_permits())
    }
}

/// How often a server is asked whether it is free again.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// For how long at most a permit is held for a server that does not become free.
const LONGEST_HOLD: Duration = Duration::from_secs(120);

/// A permit in the hands of a turn. If the turn ends (the phone hung up, or its time ran out) while llama-server still reads
/// the prompt, the permit stays held until a slot is free: it cannot be stopped while it reads, and the next turn would be sent
/// into a stuck engine.
#[derive(Debug)]
pub struct HeldPermit {
    permit: Option<Permit>,
    upstream: Arc<Upstream>,
    dialect: Dialect,
    reading: AtomicBool,
}

impl HeldPermit {
    /// Takes a permit for a turn on that server.
    pub fn new(permit: Permit, upstream: Arc<Upstream>, dialect: Dialect) -> Self {
        HeldPermit { permit: Some(permit), upstream, dialect, reading: AtomicBool::new(false) }
    }

    /// A question is on its way: from now on the server may be reading it.
    pub fn asking(&self) {
        self.reading.store(true, Ordering::Release);
    }

    /// The server answers, or has refused: it is not reading any more.
    pub fn answered(&self) {
        self.reading.store(false, Ordering::Release);
    }
}

impl Drop for HeldPermit {
    fn drop(&mut self) {
        let Some(permit) = self.permit.take() else { return };
        if !self.reading.load(Ordering::Acquire) || !self.dialect.cannot_be_stopped_while_reading() {
            return;
        }
        let upstream = Arc::clone(&self.upstream);
        let until_free = async move {
            while !upstream.has_free_slot().await {
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        };
        tokio::spawn(async move {
            // Free again, or given up: the permit returns in either case.
            let _ = tokio::time::timeout(LONGEST_HOLD, until_free).await;
            drop(permit);
        });
    }
}

/// A place in the line, given up however the wait ends.
struct Place<'a>(&'a AtomicUsize);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_line_refuses_at_once_and_a_dropped_wait_leaves_its_place() {
        let admission = Admission::new(1);
        admission.resize(1);
        let running = admission.admit(soon()).await.unwrap();
        let mut queued = Box::pin(admission.admit(soon()));
        assert!(futures_util::poll!(queued.as_mut()).is_pending());
        assert_eq!((admission.running(), admission.waiting()), (1, 1));
        assert_eq!(admission.admit(soon()).await.unwrap_err(), NotAdmitted::QueueFull);
        drop(queued);
        assert_eq!(admission.waiting(), 0);
        drop(running);
        assert_eq!(admission.running(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_too_long_never_starts() {
        let admission = Admission::new(1);
        admission.resize(1);
        let _running = admission.admit(soon()).await.unwrap();
        let latest = Instant::now() + Duration::from_secs(1);
        assert_eq!(admission.admit(latest).await.unwrap_err(), NotAdmitted::NeverStarted);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_shrinks_gets_fewer_turns_as_running_ones_end() {
        let admission = Admission::new(8);
        admission.resize(2);
        let first = admission.admit(soon()).await.unwrap();
        let second = admission.admit(soon()).await.unwrap();
        admission.resize(1);
        drop(first);
        admission.resize(1);
        assert_eq!(admission.running(), 1);
        assert!(tokio::time::timeout(Duration::from_secs(1), admission.admit(soon())).await.is_err());
        drop(second);
        assert!(admission.admit(soon()).await.is_ok());
    }
}

//! The queue in front of one model server: a permit for each turn that it really runs at once, and a short, fair line for the
//! rest.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::upstream::Upstream;
use crate::upstream::dialect::Dialect;

/// Of how many turns the durations are kept: the next turns are likely to be as long as the last ones were.
const RECENT_TURNS: usize = 16;

/// From how few of them nothing is foretold.
const TELLING_TURNS: usize = 4;

/// Why a turn does not start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotAdmitted {
    /// The line is as long as `limits.queue` allows.
    QueueFull,
    /// The turns before it would leave it no time, if they take as long as turns did lately.
    NoChance,
    /// Its time ran out in the line.
    NeverStarted,
}

/// The permits of one server. Who waits is served in the order of coming; who goes away leaves no trace.
#[derive(Debug)]
pub struct Admission {
    permits: Arc<Semaphore>,
    state: Arc<Mutex<State>>,
    longest_queue: usize,
}

#[derive(Debug, Default)]
struct State {
    /// How many permits there are in all, running ones included.
    total: usize,
    waiting: usize,
    /// When each turn that runs began.
    running: BTreeMap<u64, Instant>,
    next: u64,
    /// How long the last turns took, the newest at the end.
    recent: VecDeque<Duration>,
}

/// The right to run one turn; dropping it gives the place to the next.
#[derive(Debug)]
pub struct Permit {
    number: u64,
    state: Arc<Mutex<State>>,
    _permit: OwnedSemaphorePermit,
}

impl Admission {
    /// No permit yet: [`Admission::resize`] says how many turns run at once. `longest_queue` turns may wait.
    pub fn new(longest_queue: usize) -> Self {
        Admission { permits: Arc::new(Semaphore::new(0)), state: Arc::default(), longest_queue }
    }

    /// The same permits and the same line under other settings: turns that run, and those that wait, still count.
    pub fn carried_over(&self, longest_queue: usize) -> Self {
        Admission { permits: Arc::clone(&self.permits), state: Arc::clone(&self.state), longest_queue }
    }

    /// Follows what the server tells about itself. Turns that run keep their permits: a smaller number takes effect as they end.
    pub fn resize(&self, turns_at_once: usize) {
        let mut state = lock(&self.state);
        if turns_at_once > state.total {
            self.permits.add_permits(turns_at_once - state.total);
            state.total = turns_at_once;
        } else {
            state.total -= self.permits.forget_permits(state.total - turns_at_once);
        }
    }

    /// Waits for a permit for a turn that has to start by `latest` and to end by `deadline`.
    ///
    /// # Errors
    /// The line is full, the wait would leave the turn no chance, or its time ran out. Nothing was sent to the server then.
    pub async fn admit(&self, latest: Instant, deadline: Instant) -> Result<Permit, NotAdmitted> {
        let permits = Arc::clone(&self.permits);
        if let Ok(permit) = Arc::clone(&permits).try_acquire_owned() {
            return Ok(self.begin(permit));
        }
        let _place = self.join_queue(latest, deadline)?;
        match tokio::time::timeout_at(latest, permits.acquire_owned()).await {
            Ok(Ok(permit)) => Ok(self.begin(permit)),
            _ => Err(NotAdmitted::NeverStarted),
        }
    }

    fn begin(&self, permit: OwnedSemaphorePermit) -> Permit {
        let mut state = lock(&self.state);
        let number = state.next;
        state.next += 1;
        state.running.insert(number, Instant::now());
        Permit { number, state: Arc::clone(&self.state), _permit: permit }
    }

    fn join_queue(&self, latest: Instant, deadline: Instant) -> Result<Place<'_>, NotAdmitted> {
        let mut state = lock(&self.state);
        if state.waiting >= self.longest_queue {
            return Err(NotAdmitted::QueueFull);
        }
        if let Some((start, shortest)) = state.foretell()
            && (start > latest || start + shortest > deadline)
        {
            return Err(NotAdmitted::NoChance);
        }
        state.waiting += 1;
        Ok(Place(&self.state))
    }

    /// How many turns wait.
    pub fn waiting(&self) -> usize {
        lock(&self.state).waiting
    }

    /// How many turns run.
    pub fn running(&self) -> usize {
        lock(&self.state).total.saturating_sub(self.permits.available_permits())
    }
}

impl State {
    /// When a turn that comes now would start, if each turn before it takes as long as the middle one of the last ones, and how long
    /// the shortest of those was; `None` while too few are known. A turn that runs longer than that is taken to end at any moment.
    fn foretell(&self) -> Option<(Instant, Duration)> {
        let mut recent: Vec<Duration> = self.recent.iter().copied().collect();
        if recent.len() < TELLING_TURNS {
            return None;
        }
        recent.sort_unstable();
        let (shortest, typical) = (recent[0], recent[recent.len() / 2]);
        let now = Instant::now();
        let mut free: BinaryHeap<_> = self.running.values().map(|since| Reverse((*since + typical).max(now))).collect();
        for _ in 0..self.waiting {
            let Reverse(next) = free.pop()?;
            free.push(Reverse(next + typical));
        }
        let Reverse(start) = free.pop()?;
        Some((start, shortest))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut state = lock(&self.state);
        if let Some(since) = state.running.remove(&self.number) {
            state.recent.push_back(since.elapsed());
        }
        if state.recent.len() > RECENT_TURNS {
            state.recent.pop_front();
        }
    }
}

/// A place in the line, given up however the wait ends.
struct Place<'a>(&'a Mutex<State>);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        lock(self.0).waiting -= 1;
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
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
        let running = admission.admit(soon(), soon()).await.unwrap();
        let mut queued = Box::pin(admission.admit(soon(), soon()));
        assert!(futures_util::poll!(queued.as_mut()).is_pending());
        assert_eq!((admission.running(), admission.waiting()), (1, 1));
        assert_eq!(admission.admit(soon(), soon()).await.unwrap_err(), NotAdmitted::QueueFull);
        drop(queued);
        assert_eq!(admission.waiting(), 0);
        drop(running);
        assert_eq!(admission.running(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_too_long_never_starts() {
        let admission = Admission::new(1);
        admission.resize(1);
        let _running = admission.admit(soon(), soon()).await.unwrap();
        let latest = Instant::now() + Duration::from_secs(1);
        assert_eq!(admission.admit(latest, soon()).await.unwrap_err(), NotAdmitted::NeverStarted);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_shrinks_gets_fewer_turns_as_running_ones_end() {
        let admission = Admission::new(8);
        admission.resize(2);
        let first = admission.admit(soon(), soon()).await.unwrap();
        let second = admission.admit(soon(), soon()).await.unwrap();
        admission.resize(1);
        drop(first);
        admission.resize(1);
        assert_eq!(admission.running(), 1);
        assert!(tokio::time::timeout(Duration::from_secs(1), admission.admit(soon(), soon())).await.is_err());
        drop(second);
        assert!(admission.admit(soon(), soon()).await.is_ok());
    }

    /// One place, and four turns behind it that took `seconds` each.
    async fn after_turns_of(seconds: u64) -> Admission {
        let admission = Admission::new(8);
        admission.resize(1);
        for _ in 0..TELLING_TURNS {
            let permit = admission.admit(soon(), soon()).await.unwrap();
            tokio::time::advance(Duration::from_secs(seconds)).await;
            drop(permit);
        }
        admission
    }

    fn within(seconds: u64) -> Instant {
        Instant::now() + Duration::from_secs(seconds)
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_that_would_wait_too_long_by_the_last_turns_is_refused_at_once() {
        let admission = after_turns_of(60).await;
        let _running = admission.admit(within(285), within(285)).await.unwrap();
        tokio::time::advance(Duration::from_secs(20)).await;
        // It would start in 40 s.
        assert_eq!(admission.admit(within(39), within(285)).await.unwrap_err(), NotAdmitted::NoChance);
        // And it would need until 100 s from now.
        assert_eq!(admission.admit(within(90), within(99)).await.unwrap_err(), NotAdmitted::NoChance);
        let mut second = Box::pin(admission.admit(within(90), within(101)));
        assert!(futures_util::poll!(second.as_mut()).is_pending());
        // Behind that one, a further minute goes by.
        assert_eq!(admission.admit(within(159), within(159)).await.unwrap_err(), NotAdmitted::NoChance);
        let mut third = Box::pin(admission.admit(within(161), within(161)));
        assert!(futures_util::poll!(third.as_mut()).is_pending());
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_that_runs_longer_than_others_did_leaves_who_waits_a_chance() {
        let admission = after_turns_of(5).await;
        let running = admission.admit(within(285), within(285)).await.unwrap();
        tokio::time::advance(Duration::from_secs(200)).await;
        let mut waiting = Box::pin(admission.admit(within(10), within(10)));
        assert!(futures_util::poll!(waiting.as_mut()).is_pending());
        drop(running);
        assert!(waiting.await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_foretold_from_too_few_turns() {
        let admission = Admission::new(8);
        admission.resize(1);
        let _running = admission.admit(soon(), soon()).await.unwrap();
        let mut waiting = Box::pin(admission.admit(within(1), within(1)));
        assert!(futures_util::poll!(waiting.as_mut()).is_pending());
    }
}

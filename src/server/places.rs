//! The places for connections: how many may be open, and which one has to go where a new one finds none.
//!
//! A connection without a request costs its place as much as one with a turn, and a front keeps some open on purpose. So that idle
//! ones never shut out a phone that has something to say, the one that was opened first ends where a place is needed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::clock::Phase;

/// All places of one listener.
#[derive(Debug, Clone)]
pub struct Places {
    free: Arc<Semaphore>,
    open: Arc<Mutex<Open>>,
    became_idle: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    connections: BTreeMap<u64, (Phase, CancellationToken)>,
}

/// The place of one connection; dropping it makes room for another.
#[derive(Debug)]
pub struct Place {
    number: u64,
    /// What the connection does.
    pub phase: Phase,
    /// Cancelled when it has to go.
    pub needed: CancellationToken,
    open: Arc<Mutex<Open>>,
    _permit: OwnedSemaphorePermit,
}

impl Places {
    /// So many places.
    pub fn new(count: usize) -> Self {
        Places { free: Arc::new(Semaphore::new(count)), open: Arc::default(), became_idle: Arc::default() }
    }

    /// A place for a connection that is there already. If all are taken, an idle connection ends for it; if none is idle, it waits
    /// until one is or goes.
    pub async fn take(&self) -> Place {
        let permit = loop {
            // Not in order of coming, but there is only ever one that asks: the listener.
            if let Ok(permit) = Arc::clone(&self.free).try_acquire_owned() {
                break permit;
            }
            self.end_an_idle_one();
            tokio::select! {
                Ok(permit) = Arc::clone(&self.free).acquire_owned() => break permit,
                () = self.became_idle.notified() => {}
            }
        };
        let (phase, needed) = (Phase::new(Arc::clone(&self.became_idle)), CancellationToken::new());
        let mut open = lock(&self.open);
        let number = open.next;
        open.next += 1;
        open.connections.insert(number, (phase.clone(), needed.clone()));
        Place { number, phase, needed, open: Arc::clone(&self.open), _permit: permit }
    }

    fn end_an_idle_one(&self) {
        let open = lock(&self.open);
        let mut idle = open.connections.values().filter(|(phase, _)| phase.is_idle()).peekable();
        // One that was told to go and is idle still is just about to; one that got a request meanwhile goes after its answer.
        let first = idle.peek().map(|(_, needed)| needed.clone());
        if let Some(first) = first
            && !idle.any(|(_, needed)| needed.is_cancelled())
        {
            first.cancel();
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        lock(&self.open).connections.remove(&self.number);
    }
}

fn lock(open: &Mutex<Open>) -> MutexGuard<'_, Open> {
    open.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_first_idle_connection_has_to_go_where_there_is_no_place() {
        let places = Places::new(2);
        let (working, idle) = (places.take().await, places.take().await);
        working.phase.begin_work();
        let mut third = Box::pin(places.take());
        assert!(futures_util::poll!(third.as_mut()).is_pending());
        assert!(idle.needed.is_cancelled() && !working.needed.is_cancelled());
        drop(idle);
        third.await;
    }

    #[tokio::test]
    async fn where_none_is_idle_the_first_that_becomes_so_has_to_go() {
        let places = Places::new(1);
        let only = places.take().await;
        only.phase.begin_work();
        let mut second = Box::pin(places.take());
        assert!(futures_util::poll!(second.as_mut()).is_pending());
        assert!(!only.needed.is_cancelled());
        only.phase.end_work();
        assert!(futures_util::poll!(second.as_mut()).is_pending());
        assert!(only.needed.is_cancelled());
        drop(only);
        second.await;
    }
}

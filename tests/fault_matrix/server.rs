//! A model server that follows the rules until it is told to break them, from the moment of accepting on.
use super::common::{ReservedPort, read_some};
use super::fault::{Fault, Step, leave_open};
use super::speech::Dialect;
use std::io::{ErrorKind, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// For how long anything is waited for. Only a guard.
pub const GUARD: Duration = Duration::from_secs(20);

/// Within this a connection is closed once its turn is answered.
const CLOSED_WITHIN: Duration = Duration::from_secs(3);

/// Between two bytes of a drip.
const DRIP: Duration = Duration::from_millis(15);

/// Between two writes of a stream.
const PAUSE: Duration = Duration::from_millis(5);

#[derive(Debug, Default)]
struct State {
    fault: Option<Fault>,
    /// Connections on which a fault happened and that are not closed yet.
    open: usize,
    /// Connections that wait for their next request.
    kept: usize,
    /// How often the fault of the moment happened.
    struck: usize,
    stopped: bool,
}

impl State {
    fn meets_new_connections(&self) -> bool {
        self.fault.as_ref().is_some_and(|fault| fault.at_accept.is_some())
    }
}

#[derive(Debug)]
struct Shared {
    dialect: Dialect,
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn is_armed(&self) -> bool {
        self.lock().fault.is_some()
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.lock());
        self.changed.notify_all();
        result
    }
}

/// The server.
#[derive(Debug)]
pub struct FaultyServer {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl FaultyServer {
    /// Listens on any free port of the loopback address; has the model `m`, which sees pictures.
    pub fn start(dialect: Dialect) -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").unwrap(), dialect)
    }

    /// The same on this socket.
    pub fn on(listener: TcpListener, dialect: Dialect) -> Self {
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared { dialect, state: Mutex::default(), changed: Condvar::new() });
        let accepting = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if accepting.lock().stopped {
                    return;
                }
                let (stream, shared) = (stream.unwrap(), Arc::clone(&accepting));
                std::thread::spawn(move || serve(stream, &shared));
            }
        });
        Self { address, shared }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on turns meet this.
    pub fn arm(&self, fault: Fault) {
        self.shared.change(|state| {
            state.fault = Some(fault);
            state.struck = 0;
        });
        let met_by_new_ones_only = |state: &mut State| state.meets_new_connections() && state.kept > 0;
        let waited = self.shared.changed.wait_timeout_while(self.shared.lock(), GUARD, met_by_new_ones_only);
        assert!(!waited.unwrap().1.timed_out(), "a kept connection does not end");
    }

    /// From now on turns are answered well; how often the fault had happened.
    pub fn disarm(&self) -> usize {
        self.shared.change(|state| {
            state.fault = None;
            state.struck
        })
    }

    /// Waits until the fault has happened.
    pub fn wait_struck(&self) {
        let state = self.shared.lock();
        let waited = self.shared.changed.wait_timeout_while(state, GUARD, |state| state.struck == 0);
        assert!(!waited.unwrap().1.timed_out(), "the turn did not come");
    }

    /// Waits until every connection on which a fault happened is closed from the other side.
    pub fn wait_closed(&self) -> Result<(), String> {
        let (state, timeout) =
            self.shared.changed.wait_timeout_while(self.shared.lock(), CLOSED_WITHIN, |state| state.open > 0).unwrap();
        if timeout.timed_out() { Err(format!("{} connections are still open", state.open)) } else { Ok(()) }
    }

    /// Goes away: its port refuses connections from now on.
    pub fn stop(self) -> ReservedPort {
        self.shared.change(|state| state.stopped = true);
        let until = Instant::now() + GUARD;
        while TcpStream::connect(self.address).is_ok() {
            assert!(Instant::now() < until, "the listener did not close");
            std::thread::yield_now();
        }
        ReservedPort::bind(self.address).unwrap()
    }
}

impl Drop for FaultyServer {
    fn drop(&mut self) {
        self.shared.change(|state| {
            state.stopped = true;
            state.fault = None;
        });
        let _ = TcpStream::connect(self.address);
    }
}

/// How a connection is left behind some steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    /// The other side was still there.
    Open,
    /// It was not.
    Gone,
    /// The server cut it.
    Reset,
}

/// One connection and what of its current request is not read yet.
struct Exchange<'a> {
    stream: TcpStream,
    buffer: Vec<u8>,
    unread: usize,
    shared: &'a Shared,
}

fn serve(stream: TcpStream, shared: &Shared) {
    let _ = stream.set_nodelay(true);
    stream.set_read_timeout(Some(GUARD)).unwrap();
    stream.set_write_timeout(Some(GUARD)).unwrap();
    let mut exchange = Exchange { stream, buffer: Vec::new(), unread: 0, shared };
    let at_accept = shared.change(|state| {
        let step = state.fault.as_mut().and_then(|fault| match fault.at_accept {
            // Only the first to come: whoever looks after a free slot must not hang, too.
            Some(Step::Hang) => fault.at_accept.take(),
            ref step => step.clone(),
        });
        let strikes = usize::from(step.is_some());
        state.struck += strikes;
        state.open += strikes;
        step
    });
    if let Some(step) = at_accept {
        if matches!(step, Step::Reset) {
            // A reset any earlier may be taken for a connection that never came about.
            let _ = exchange.stream.peek(&mut [0]);
        }
        exchange.perform(vec![step]);
        return;
    }
    loop {
        let Some(target) = exchange.read_head() else { return };
        let is_turn = target == shared.dialect.chat_path();
        let fault = shared.change(|state| {
            let fault = state.fault.as_ref().filter(|fault| is_turn && fault.at_accept.is_none())?;
            state.struck += 1;
            state.open += 1;
            Some(fault.steps.clone())
        });
        if let Some(steps) = fault {
            if exchange.perform(steps) {
                continue;
            }
            return;
        }
        exchange.read_body(usize::MAX);
        let answer = if is_turn { shared.dialect.good_turn() } else { shared.dialect.discovery(&target, "m") };
        let kept = is_turn && shared.dialect.keeps_connections();
        // Before the answer: whoever has it may arm the next fault.
        shared.change(|state| state.kept += usize::from(kept));
        let _ = exchange.stream.write_all(&answer);
        if !(kept && exchange.is_asked_again()) {
            exchange.close();
            return;
        }
    }
}

impl Exchange<'_> {
    fn read_head(&mut self) -> Option<String> {
        let end = loop {
            if let Some(end) = self.buffer.windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
            let mut piece = [0; 65_536];
            let read = read_some(&mut self.stream, &mut piece).ok().filter(|read| *read > 0)?;
            self.buffer.extend_from_slice(&piece[..read]);
        };
        let head: Vec<u8> = self.buffer.drain(..end).collect();
        let head = String::from_utf8(head).unwrap();
        let length = head
            .lines()
            .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length:")?.trim().parse().ok());
        self.unread = length.unwrap_or(0);
        head.split(' ').nth(1).map(str::to_owned)
    }

    /// Reads and forgets up to this much of the body; says whether the other side is still there.
    fn read_body(&mut self, most: usize) -> bool {
        let mut wanted = most.min(self.unread);
        let mut piece = vec![0; 1 << 20];
        while wanted > 0 {
            let taken = if self.buffer.is_empty() {
                let room = piece.len().min(wanted);
                match read_some(&mut self.stream, &mut piece[..room]) {
                    Ok(read @ 1..) => read,
                    _ => return false,
                }
            } else {
                self.buffer.drain(..self.buffer.len().min(wanted)).count()
            };
            wanted -= taken;
            self.unread -= taken;
        }
        true
    }

    /// Does the steps, to the last or to the end of the connection, which is noted when the other side has closed it. Says whether the
    /// other side asks again on it, which it may where it was answered in order.
    fn perform(&mut self, steps: Vec<Step>) -> bool {
        let may_be_asked_again = leave_open(&steps) && self.shared.dialect.keeps_connections();
        let left = self.do_all(steps);
        let answered = may_be_asked_again && left == Left::Open && self.unread == 0;
        self.shared.change(|state| state.kept += usize::from(answered));
        let asked_again = answered && self.is_asked_again();
        let closed = asked_again || left == Left::Reset || self.ends();
        if closed {
            self.shared.change(|state| state.open -= 1);
        }
        asked_again
    }

    /// Does the steps, to the last or to the end of the connection.
    fn do_all(&mut self, steps: Vec<Step>) -> Left {
        for step in steps {
            let goes_on = match step {
                Step::Read(most) => self.read_body(most),
                Step::ReadAll => self.read_body(usize::MAX),
                Step::ReadSlowly => {
                    while self.shared.is_armed() && self.read_body(1) {
                        std::thread::sleep(DRIP);
                    }
                    true
                }
                Step::Send(bytes) => self.stream.write_all(&bytes).is_ok(),
                Step::Flood(bytes) => {
                    while self.stream.write_all(&bytes).is_ok() {}
                    false
                }
                Step::Stream(bytes) => {
                    while self.stream.write_all(&bytes).is_ok() {
                        std::thread::sleep(PAUSE);
                    }
                    false
                }
                Step::Drip(bytes) => {
                    let mut cycle = bytes.iter().cycle();
                    while self.shared.is_armed()
                        && cycle.next().is_some_and(|byte| self.stream.write_all(&[*byte]).is_ok())
                    {
                        std::thread::sleep(DRIP);
                    }
                    true
                }
                Step::Hang => {
                    while self.shared.is_armed() && !self.hung_up() {
                        std::thread::sleep(DRIP);
                    }
                    true
                }
                Step::Close => {
                    let _ = self.stream.shutdown(Shutdown::Write);
                    true
                }
                Step::Reset => {
                    self.reset();
                    return Left::Reset;
                }
            };
            if !goes_on {
                return Left::Gone;
            }
        }
        Left::Open
    }

    /// Whether the other side ends the connection. What it had sent before is read and forgotten.
    fn ends(&mut self) -> bool {
        let mut piece = vec![0; 1 << 16];
        loop {
            match read_some(&mut self.stream, &mut piece) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => {
                    return !matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut);
                }
            }
        }
    }

    fn close(mut self) {
        let _ = self.stream.shutdown(Shutdown::Write);
        self.ends();
    }

    /// Waits for another request on this connection, which counts as kept, as long as one may meet what is to happen.
    fn is_asked_again(&self) -> bool {
        self.stream.set_read_timeout(Some(DRIP)).unwrap();
        let asked = loop {
            if self.shared.lock().meets_new_connections() {
                break false;
            }
            match self.stream.peek(&mut [0]) {
                Ok(read) => break read > 0,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(_) => break false,
            }
        };
        self.stream.set_read_timeout(Some(GUARD)).unwrap();
        if !asked {
            let _ = self.stream.shutdown(Shutdown::Both);
        }
        self.shared.change(|state| state.kept -= 1);
        asked
    }

    fn hung_up(&self) -> bool {
        self.stream.set_nonblocking(true).unwrap();
        let peeked = self.stream.peek(&mut [0]);
        self.stream.set_nonblocking(false).unwrap();
        match peeked {
            Ok(read) => read == 0,
            Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
        }
    }

    fn reset(&mut self) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        let _entered = runtime.enter();
        let stream = self.stream.try_clone().unwrap();
        stream.set_nonblocking(true).unwrap();
        tokio::net::TcpStream::from_std(stream).unwrap().set_zero_linger().unwrap();
    }
}

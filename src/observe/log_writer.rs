//! Writes the log from a thread of its own: what reads it may be slow or have stopped (a paused terminal, a pipe into a program that
//! hangs), and no turn waits for that.

use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::ThreadId;
use std::time::Duration;

use tracing::error;
use tracing_subscriber::fmt::MakeWriter;

/// The most bytes of lines that wait to be written: some thousand turns. Lines beyond that are counted and lost.
const MOST_WAITING: usize = 256 * 1024;

/// Lines that come within this after others are written together with them: waking the thread costs a turn more than its line does.
const TOGETHER: Duration = Duration::from_millis(10);

/// How long the last lines may take to be written when Weir ends.
const LAST_LINES: Duration = Duration::from_secs(1);

/// So many bytes of room are kept for the next lines.
const ROOM_KEPT: usize = 16 * 1024;

/// Takes whole lines, and never waits.
#[derive(Debug, Clone, Default)]
pub struct LogWriter(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    changed: Condvar,
    /// The thread that writes.
    thread: OnceLock<ThreadId>,
}

#[derive(Default)]
struct Waiting {
    lines: Vec<u8>,
    /// How many lines were lost since the start.
    lost: usize,
    thread: Thread,
    /// Whether somebody waits for the lines to be written.
    in_a_hurry: bool,
}

impl std::fmt::Debug for Waiting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Waiting({} bytes)", self.lines.len())
    }
}

/// What the thread does.
#[derive(Default, PartialEq, Eq)]
enum Thread {
    /// It waits to be woken.
    #[default]
    Asleep,
    /// It looks for lines before it sleeps.
    Awake,
    /// It writes, which may take any time.
    Writing,
}

impl LogWriter {
    /// Starts the thread, which writes to `output` until the program ends.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start(output: impl Write + Send + 'static) -> io::Result<Self> {
        let writer = LogWriter::default();
        let shared = Arc::clone(&writer.0);
        std::thread::Builder::new().name("log".to_owned()).spawn(move || shared.write_to(output))?;
        Ok(writer)
    }

    /// Waits until what was logged is written, a second at the most.
    pub fn flush(&self) {
        let mut waiting = self.0.lock();
        waiting.in_a_hurry = true;
        self.0.changed.notify_all();
        let unwritten = |waiting: &mut Waiting| !waiting.lines.is_empty() || waiting.thread == Thread::Writing;
        // Whether all could be written or not, there is nothing more to be done.
        let _ = self.0.changed.wait_timeout_while(waiting, LAST_LINES, unwritten);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_to(&self, mut output: impl Write) {
        let _ = self.thread.set(std::thread::current().id());
        let mut lines = Vec::new();
        let mut told = 0;
        loop {
            let mut waiting = self.lock();
            while waiting.lines.is_empty() {
                waiting.thread = Thread::Asleep;
                waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
            }
            std::mem::swap(&mut waiting.lines, &mut lines);
            let lost = waiting.lost;
            waiting.thread = Thread::Writing;
            waiting.in_a_hurry = false;
            drop(waiting);
            if lost > told {
                // Behind the lines that there was room for, before those that come from now on.
                error!(
                    lost,
                    "lines of the log were lost, so many since the start: they could not be written as fast as they came"
                );
                told = lost;
            }
            let unwritten = write_what_is_taken(&mut output, &lines, || {
                let _ = self.changed.wait_timeout(self.lock(), TOGETHER);
            });
            lines.clear();
            lines.shrink_to(ROOM_KEPT);
            let mut waiting = self.lock();
            // Nobody can be told now, but perhaps with the next lines.
            waiting.lost += unwritten;
            waiting.thread = Thread::Awake;
            self.changed.notify_all();
            let _ = self.changed.wait_timeout_while(waiting, TOGETHER, |waiting| !waiting.in_a_hurry);
        }
    }
}

/// Writes lines as far as the output takes them, and pauses where it takes none at the moment; gives the number of the others.
fn write_what_is_taken(output: &mut impl Write, mut lines: &[u8], pause: impl Fn()) -> usize {
    while !lines.is_empty() {
        match output.write(lines) {
            Ok(written @ 1..) => lines = lines.get(written..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // Another program that has the same output may have set it so.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => pause(),
            Ok(0) | Err(_) => break,
        }
    }
    memchr::memchr_iter(b'\n', lines).count()
}

impl Write for LogWriter {
    /// Takes one line.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut waiting = self.0.lock();
        // What the thread itself says is how many were lost: that has to come through.
        let is_full = waiting.lines.len() + line.len() > MOST_WAITING;
        if is_full && self.0.thread.get() != Some(&std::thread::current().id()) {
            waiting.lost += 1;
            return Ok(line.len());
        }
        waiting.lines.extend_from_slice(line);
        if waiting.thread == Thread::Asleep {
            waiting.thread = Thread::Awake;
            self.0.changed.notify_all();
        }
        Ok(line.len())
    }

    /// Nothing: [`LogWriter::flush`] is for the last lines.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LogWriter {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;

    /// Hands what is written to a test, and waits until that takes it.
    struct Handed(std::sync::mpsc::SyncSender<Vec<u8>>);

    impl Write for Handed {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.send(bytes.to_vec()).map_err(|_| io::ErrorKind::BrokenPipe)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_come_out_whole_and_in_order_and_nobody_waits_for_them() {
        let (handed, taken) = sync_channel(0);
        let mut writer = LogWriter::start(Handed(handed)).unwrap();
        let lines: Vec<String> = (0..1000).map(|number| format!("line {number}\n")).collect();
        for line in &lines {
            writer.write_all(line.as_bytes()).unwrap();
        }
        let written =
            std::thread::spawn(move || taken.iter().flatten().take(lines.concat().len()).eq(lines.concat().bytes()));
        LogWriter::flush(&writer);
        assert!(writer.0.lock().lines.is_empty());
        assert!(written.join().unwrap());
    }

    #[test]
    fn lines_that_cannot_be_written_are_counted_once_there_is_no_room() {
        let (handed, _never_taken) = sync_channel(0);
        let mut writer = LogWriter::start(Handed(handed)).unwrap();
        writer.write_all(b"the first, which is being written\n").unwrap();
        while writer.0.lock().thread != Thread::Writing {
            std::thread::yield_now();
        }
        for _ in 0..300 {
            writer.write_all(&[b'.'; 1024]).unwrap();
        }
        let waiting = writer.0.lock();
        assert_eq!((waiting.lines.len(), waiting.lost), (MOST_WAITING, 300 - 256));
    }

    /// Takes a number of bytes at each call, or fails as the number says.
    struct Moody(Vec<Result<usize, io::ErrorKind>>, Vec<u8>);

    impl Write for Moody {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let taken = self.0.pop().unwrap_or(Ok(bytes.len()))?.min(bytes.len());
            self.1.extend_from_slice(&bytes[..taken]);
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn an_output_that_does_not_take_everything_at_once_gets_it_in_pieces_and_one_that_fails_loses_whole_lines() {
        use io::ErrorKind::{Interrupted, StorageFull, WouldBlock};
        let mut patient = Moody(vec![Ok(3), Err(WouldBlock), Err(Interrupted), Ok(5)], Vec::new());
        assert_eq!(write_what_is_taken(&mut patient, b"one\ntwo\nthree\n", || ()), 0);
        assert_eq!(patient.1, b"one\ntwo\nthree\n");
        let mut full = Moody(vec![Err(StorageFull), Ok(5)], Vec::new());
        assert_eq!(write_what_is_taken(&mut full, b"one\ntwo\nthree\n", || ()), 2);
    }
}

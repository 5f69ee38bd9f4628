//! Child processes: ended when dropped, and looked at through /proc.

use std::path::Path;
use std::process::{Child, Command, Stdio};

/// `USER_HZ`, the unit of the times in /proc/PID/stat on every Linux.
const TICKS_A_SECOND: f64 = 100.0;

/// A process of ours, with the workers that it started.
#[derive(Debug)]
pub struct Process(Child);

impl Process {
    /// Starts it, its messages in `log`.
    pub fn start(command: &mut Command, log: &Path) -> Self {
        let log = std::fs::File::create(log).expect("a file for the messages of a process");
        let child = command.stdin(Stdio::null()).stderr(log).spawn();
        Process(child.unwrap_or_else(|error| panic!("{command:?} cannot be started: {error}")))
    }

    /// Its standard output, if that was piped.
    pub fn output(&mut self) -> std::process::ChildStdout {
        self.0.stdout.take().expect("the output is piped")
    }

    /// Whether it has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        self.0.try_wait().is_ok_and(|status| status.is_some())
    }

    /// The processor time that it and its workers have used, user and system, in seconds.
    pub fn processor_time(&self) -> f64 {
        let pid = self.0.id();
        let processes = std::fs::read_dir("/proc").expect("/proc is there").flatten();
        let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let ticks = pids.filter_map(stat).filter(|stat| stat.pid == pid || stat.parent == pid).map(|stat| stat.ticks);
        ticks.sum::<u64>() as f64 / TICKS_A_SECOND
    }

    /// A line of /proc/PID/status that is in kB, in bytes: `VmRSS` is what is resident now, `VmHWM` the most that ever was.
    pub fn memory(&self, line: &str) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id())).expect("the process runs");
        let value = status.lines().find_map(|found| found.strip_prefix(line)?.strip_prefix(':'));
        let kilobytes = value.and_then(|value| value.trim().strip_suffix(" kB")?.parse::<f64>().ok());
        kilobytes.expect("a size in kB") * 1024.0
    }
}

impl Drop for Process {
    /// Asks it to end, so that it ends its workers, too.
    fn drop(&mut self) {
        if !self.has_ended() {
            let _ = Command::new("kill").arg("-TERM").arg(self.0.id().to_string()).status();
        }
        let _ = self.0.wait();
    }
}

struct Stat {
    pid: u32,
    parent: u32,
    ticks: u64,
}

/// proc_pid_stat(5): the name in parentheses may hold anything, the fields count from behind it.
fn stat(pid: u32) -> Option<Stat> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit(')').next()?.split_whitespace().collect();
    let number = |place: usize| fields.get(place)?.parse::<u64>().ok();
    Some(Stat { pid, parent: u32::try_from(number(1)?).ok()?, ticks: number(11)? + number(12)? })
}

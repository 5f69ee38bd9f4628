//! What a model server does with a turn, as a list of steps.

/// One thing that the server does with a turn. The head of the request is read before the first of them.
#[derive(Clone, Debug)]
pub enum Step {
    /// Read this much of the request's body.
    Read(usize),
    /// Read what is left of the request's body.
    ReadAll,
    /// Read one byte after another, with pauses, as long as the cell lasts.
    ReadSlowly,
    /// Write.
    Send(Vec<u8>),
    /// Write this again and again, as fast as it is taken, until the other side hangs up.
    Flood(Vec<u8>),
    /// The same with a short pause between.
    Stream(Vec<u8>),
    /// Write this byte by byte, again and again, until the other side hangs up.
    Drip(Vec<u8>),
    /// Do nothing until the other side hangs up or the cell ends.
    Hang,
    /// End the connection in order, and read until the other side has ended it, too.
    Close,
    /// Cut the connection.
    Reset,
}

/// What happens to turns while it is in force.
#[derive(Clone, Debug, Default)]
pub struct Fault {
    /// Done with a connection before anything is read from it.
    pub at_accept: Option<Step>,
    /// Done with a turn.
    pub steps: Vec<Step>,
}

/// Whether these steps end no connection: behind them the other side may ask again.
pub fn leave_open(steps: &[Step]) -> bool {
    steps.iter().all(|step| matches!(step, Step::Read(_) | Step::ReadAll | Step::Send(_)))
}

impl Fault {
    /// Whether a turn ends at once and without a byte: on a connection that was used before, that looks as if the connection had
    /// been closed before the turn came.
    pub fn looks_stale(&self) -> bool {
        self.steps.iter().all(|step| matches!(step, Step::Read(_) | Step::ReadAll | Step::Close | Step::Reset))
    }
}

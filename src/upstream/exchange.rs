//! One question to a model server and its answer, piece by piece.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::BytesMut;
use http::StatusCode;

use super::classify::{Classifier, Meaning};
use super::client::{Broken, KeptConnections, broken};
use super::dialect::Dialect;
use super::framing::{Frame, FramingError, Splitter};
use super::lenient;
use super::piece::Piece;

/// The largest single event or document of an answer, in bytes: above any that a reply within its own cap needs.
const FRAME_CAP: usize = 32 * 1024 * 1024;

/// How much of a refusal is read: its first words say what it means.
const REFUSAL_CAP: usize = 64 * 1024;

/// How long the body of a refusal may take: its status is known already.
const REFUSAL_TIME: Duration = Duration::from_secs(2);

/// Why a server does not take a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// What it means.
    pub meaning: Meaning,
    /// The status of the answer: 200 for a refusal inside a stream.
    pub status: StatusCode,
}

/// What became of a question.
#[derive(Debug)]
pub enum Answer {
    /// The server refused it before it generated anything.
    Refused(Refusal),
    /// The server answers; nothing is known yet about how that ends.
    Begun(Box<Pieces>),
}

/// One step of an answer.
#[derive(Debug)]
pub enum Step {
    /// It goes on.
    Piece(Piece),
    /// The server reports a failure inside its answer.
    Failed(Meaning),
    /// The server says that nothing more comes.
    Done,
}

/// The answer as it arrives. Dropping it closes the connection, which is how the server learns to stop.
pub struct Pieces {
    response: reqwest::Response,
    kept: KeptConnections,
    splitter: Splitter,
    dialect: Dialect,
    ended: bool,
    waiting: VecDeque<Step>,
}

impl std::fmt::Debug for Pieces {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pieces({})", self.response.status())
    }
}

/// Takes the head of an answer and decides whether it is a refusal.
pub(super) async fn begin(
    mut response: reqwest::Response,
    kept: &KeptConnections,
    dialect: Dialect,
    classifier: &Classifier,
) -> Result<Answer, Broken> {
    let status = response.status();
    if status.is_success() {
        let splitter = Splitter::new(FRAME_CAP);
        let kept = kept.clone();
        let pieces = Pieces { response, kept, splitter, dialect, ended: false, waiting: VecDeque::new() };
        return Ok(Answer::Begun(Box::new(pieces)));
    }
    let mut body = BytesMut::new();
    let reading = async {
        while body.len() < REFUSAL_CAP {
            match response.chunk().await {
                Ok(Some(piece)) => body.extend_from_slice(&piece[..piece.len().min(REFUSAL_CAP - body.len())]),
                ended => return ended.is_ok(),
            }
        }
        false
    };
    // A refusal whose body is cut, endless or slow is still one: what came of it speaks, and its status.
    if tokio::time::timeout(REFUSAL_TIME, reading).await == Ok(true) {
        kept.note(&response);
    }
    Ok(Answer::Refused(Refusal { meaning: classifier.classify(status.as_u16(), &body), status }))
}

impl Pieces {
    /// The next step, or `None` when the answer has ended.
    ///
    /// # Errors
    /// The connection was lost, or what came is not an answer. Everything that came before is worthless then.
    pub async fn next(&mut self, classifier: &Classifier) -> Result<Option<Step>, Broken> {
        loop {
            if let Some(step) = self.waiting.pop_front() {
                return Ok(Some(step));
            }
            if self.ended {
                return Ok(None);
            }
            match self.response.chunk().await.map_err(|error| broken(&error))? {
                Some(bytes) => {
                    self.splitter.push(&bytes);
                    while let Some(frame) = self.splitter.next_frame().map_err(unframed)? {
                        self.take(frame, classifier)?;
                    }
                }
                None => {
                    self.ended = true;
                    self.kept.note(&self.response);
                    if let Some(frame) = self.splitter.finish().map_err(unframed)? {
                        self.take(frame, classifier)?;
                    }
                }
            }
        }
    }

    fn take(&mut self, frame: Frame, classifier: &Classifier) -> Result<(), Broken> {
        let step = match frame {
            Frame::Done => Step::Done,
            Frame::Document(document) => {
                let value = lenient::read(&document).ok_or(Broken::NotUnderstood)?;
                match self.dialect.decode(&value) {
                    Some(piece) => Step::Piece(piece),
                    None => Step::Failed(classifier.classify(self.response.status().as_u16(), &document)),
                }
            }
        };
        self.waiting.push_back(step);
        Ok(())
    }
}

fn unframed(error: FramingError) -> Broken {
    match error {
        FramingError::FrameTooLong => Broken::TooLarge,
        FramingError::CutOff => Broken::Lost,
        FramingError::NotAnAnswer => Broken::NotUnderstood,
    }
}

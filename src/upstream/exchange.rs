//! One question to a model server and its answer, piece by piece.

use std::time::Duration;

use bytes::BytesMut;
use http::StatusCode;

use super::broken::Broken;
use super::classify::{Classifier, Meaning};
use super::connection::Response;
use super::dialect::Dialect;
use super::document::Document;
use super::framing::{Frame, FramingError, Splitter};
use super::pattern::Pattern;
use super::piece::Piece;
use crate::json::Index;

/// The largest single event or document of an answer, in bytes: above any that a reply within its own cap needs.
const FRAME_CAP: usize = 20 * 1024 * 1024;

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
pub enum Step<'a> {
    /// It goes on.
    Piece(Piece<'a>),
    /// The server reports a failure inside its answer.
    Failed(Meaning),
    /// The server says that nothing more comes.
    Done,
}

/// The answer as it arrives. Dropping it closes the connection, which is how the server learns to stop.
pub struct Pieces {
    response: Response,
    splitter: Splitter,
    /// What the last step was read from.
    frame: Option<Frame>,
    /// Where the values of that are.
    index: Index,
    /// What the document before it was like.
    pattern: Pattern,
    dialect: Dialect,
    ended: bool,
}

impl std::fmt::Debug for Pieces {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pieces({})", self.response.status())
    }
}

/// Takes the head of an answer and decides whether it is a refusal.
///
/// # Errors
/// There is no answer to read. A refusal whose body breaks off is still one.
pub async fn begin(mut response: Response, dialect: Dialect, classifier: &Classifier) -> Result<Answer, Broken> {
    let status = response.status();
    if status.is_success() {
        let splitter = Splitter::new(FRAME_CAP);
        let pieces = Pieces {
            response,
            splitter,
            frame: None,
            index: Index::default(),
            pattern: Pattern::default(),
            dialect,
            ended: false,
        };
        return Ok(Answer::Begun(Box::new(pieces)));
    }
    let mut body = BytesMut::new();
    let reading = async {
        while let Ok(Some(piece)) = response.chunk().await {
            body.extend_from_slice(&piece[..piece.len().min(REFUSAL_CAP - body.len())]);
            if body.len() == REFUSAL_CAP {
                return;
            }
        }
    };
    // A refusal whose body is cut, endless or slow is still one: what came of it speaks, and its status.
    let _ = tokio::time::timeout(REFUSAL_TIME, reading).await;
    Ok(Answer::Refused(Refusal { meaning: classifier.classify(status.as_u16(), &body), status }))
}

impl Pieces {
    /// Lets go of an answer that is whole; see [`Response::let_go`].
    pub fn let_go(self) {
        self.response.let_go();
    }

    /// The next step, or `None` when the answer has ended.
    ///
    /// # Errors
    /// The connection was lost, or what came is not an answer. Everything that came before is worthless then.
    pub async fn next(&mut self, classifier: &Classifier) -> Result<Option<Step<'_>>, Broken> {
        // Frame by frame: a frame that cannot be read spoils nothing that stands before it, however the answer was cut on its way.
        // The buffer of the splitter is used again once nothing points into it.
        self.frame = None;
        self.frame = loop {
            let frame = self.splitter.next_frame().map_err(unframed)?;
            if frame.is_some() || self.ended {
                break frame;
            }
            match self.response.chunk().await? {
                Some(bytes) => self.splitter.push(&bytes),
                None => {
                    self.ended = true;
                    self.splitter.finish().map_err(unframed)?;
                }
            }
        };
        let failed = |words: &[u8]| Step::Failed(classifier.classify(self.response.status().as_u16(), words));
        Ok(Some(match &self.frame {
            None => return Ok(None),
            Some(Frame::Done) => Step::Done,
            Some(Frame::Failure(words)) => failed(words),
            Some(Frame::Document(bytes)) => {
                if let Some(text) = self.pattern.text_of(bytes) {
                    return Ok(Some(Step::Piece(Piece { text, ..Piece::default() })));
                }
                let document = Document::read(bytes, &mut self.index).ok_or(Broken::NotUnderstood)?;
                let plain = self.splitter.is_plain();
                let piece = match document.borrowed() {
                    Some(root) => self.dialect.decode(root, plain),
                    None => self.dialect.decode(document.root(), plain).map(Piece::into_owned),
                };
                if let Some(piece) = &piece {
                    self.pattern.learn(bytes, piece);
                }
                piece.map_or_else(|| failed(bytes), Step::Piece)
            }
        }))
    }
}

fn unframed(error: FramingError) -> Broken {
    match error {
        FramingError::FrameTooLong => Broken::TooLarge,
        FramingError::CutOff => Broken::Lost,
        FramingError::NotAnAnswer => Broken::NotUnderstood,
    }
}

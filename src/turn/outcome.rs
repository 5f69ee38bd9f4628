//! What a failure of a backend is for the phone: meaning in, status and code out.

use crate::contract::Failure;
use crate::upstream::broken::Broken;
use crate::upstream::classify::Meaning;

/// What of the request decides how a failure is told.
#[derive(Debug, Clone, Copy)]
pub struct Circumstances {
    /// The app named the model, rather than leaving it to the default.
    pub named_model: bool,
    /// The current turn carries a picture.
    pub current_image: bool,
    /// Any message carries one.
    pub any_image: bool,
    /// The server gave a sign of life lately.
    pub seen_lately: bool,
}

impl Circumstances {
    /// The answer for a refusal that no mend could help.
    pub fn failure(self, meaning: Meaning) -> Failure {
        match meaning {
            Meaning::ContextTooLong => Failure::context_too_long(),
            Meaning::ImageUnsupported | Meaning::ImageUnreadable | Meaning::TooManyImages if self.current_image => {
                Failure::image_unsupported("the model server could not take the picture of the current turn")
            }
            Meaning::ImageTooLarge if self.any_image => {
                Failure::image_too_large("the model server found a picture too large")
            }
            Meaning::BodyTooLarge if self.any_image => {
                Failure::image_too_large("the model server found the request too large; it carries pictures")
            }
            Meaning::BodyTooLarge => Failure::context_too_long(),
            Meaning::ModelNotFound if self.named_model => Failure::model_not_found(),
            Meaning::ModelNotFound => Failure::upstream_failure("the default model is not on the model server"),
            Meaning::Busy => Failure::overloaded("the model server is busy"),
            Meaning::Loading => Failure::overloaded("the model server is still loading the model"),
            Meaning::Timeout => Failure::upstream_timeout("the model server reports a timeout"),
            Meaning::Credentials => Failure::upstream_failure("the model server does not accept Weir's key"),
            _ => Failure::upstream_failure("the model server could not answer"),
        }
    }

    /// The answer when the connection to the server did not carry a whole answer.
    pub fn broken(self, broken: Broken) -> Failure {
        match broken {
            Broken::NotConnected(obstacle) if obstacle.is_lasting() => Failure::upstream_failure(
                "no trusted connection to the model server comes about; the adapter's log says why",
            ),
            Broken::NotConnected(_) if self.seen_lately => {
                Failure::overloaded("the model server cannot be reached; it was there a moment ago")
            }
            Broken::NotConnected(_) => Failure::upstream_failure("the model server cannot be reached"),
            Broken::Lost => Failure::upstream_failure("the model server broke off its answer"),
            Broken::Silent => Failure::upstream_timeout("the model server said nothing in time"),
            Broken::TooLarge => Failure::upstream_failure("the answer of the model server is too large"),
            Broken::NotUnderstood => Failure::upstream_failure("what the model server said is not an answer"),
        }
    }
}

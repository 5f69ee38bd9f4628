//! Every variant: its name, the rule that it breaks, and what has to be found.

/// What an adapter does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    ModelsOpen,
    ModelsAnyToken,
    ChatOpen,
    ChatAnyToken,
    RefusesWith403,
    BodyUnread,
    ClosesUnsaid,
    ClosesSaid,
    ListEmpty,
    ListBare,
    ListWithoutIds,
    ListPage,
    ListAsText,
    NeedsModel,
    StrictKeys,
    UnknownModelTaken,
    UnknownModelIs404,
    UnknownModelBare,
    HistoryRefused,
    StreamsAlways,
    StreamsByFlag,
    StreamsByAccept,
    StreamRefused,
    Blank,
    Parts,
    TwoChoices,
    ToolCalls,
    NotANumber,
    ReplyAsText,
    ReplyIs201,
    PictureDropped,
    PictureWithoutCode,
    SmallCap,
    AnyPath,
    AnyMethod,
    MalformedIs500,
}

/// One variant of the adapter.
#[derive(Debug)]
pub struct Variant {
    /// Its name on the command line.
    pub name: &'static str,
    pub fault: Fault,
    /// What it does.
    pub what: &'static str,
    /// The findings of `weir doctor --deep` that fail. Without any, the variant keeps the contract.
    pub fails: &'static [&'static str],
    /// Whether the app maker's checker asks for this as well.
    pub is_checked_elsewhere: bool,
}

const fn variant(name: &'static str, fault: Fault, what: &'static str, fails: &'static [&'static str]) -> Variant {
    Variant { name, fault, what, fails, is_checked_elsewhere: true }
}

const fn only_here(name: &'static str, fault: Fault, what: &'static str, fails: &'static [&'static str]) -> Variant {
    Variant { name, fault, what, fails, is_checked_elsewhere: false }
}

/// A turn that fails without a model and with one.
const NO_TURN: &[&str] = &["turn-default", "turn-model"];

/// All of them; the first few keep the contract.
pub const VARIANTS: &[Variant] = &[
    variant("none", Fault::None, "keeps the contract", &[]),
    variant("closes-said", Fault::ClosesSaid, "ends the connection after a refusal and says so", &[]),
    variant("closes-unsaid", Fault::ClosesUnsaid, "ends the connection after a refusal without saying so", &[]),
    variant("models-open", Fault::ModelsOpen, "lists models to anybody", &["auth-models-missing", "auth-models-wrong"]),
    variant("models-any-token", Fault::ModelsAnyToken, "lists models for any token", &["auth-models-wrong"]),
    variant("chat-open", Fault::ChatOpen, "answers anybody", &["auth-chat-missing", "auth-chat-wrong"]),
    variant("chat-any-token", Fault::ChatAnyToken, "answers any token", &["auth-chat-wrong"]),
    variant(
        "refuses-with-403",
        Fault::RefusesWith403,
        "refuses strangers with 403",
        &["auth-models-missing", "auth-models-wrong", "auth-chat-missing", "auth-chat-wrong"],
    ),
    variant(
        "body-unread",
        Fault::BodyUnread,
        "leaves the body of a refused request on the connection",
        &["refused-token", "refused-large"],
    ),
    variant("list-empty", Fault::ListEmpty, "lists no model", &["models"]),
    variant("list-bare", Fault::ListBare, "lists models without the envelope", &["models"]),
    variant("list-without-ids", Fault::ListWithoutIds, "lists models without ids", &["models"]),
    variant("list-page", Fault::ListPage, "answers the list with a page", &["models"]),
    variant("list-as-text", Fault::ListAsText, "calls the list text", &["models"]),
    variant("needs-model", Fault::NeedsModel, "refuses a turn without a model", &["turn-default"]),
    variant("strict-keys", Fault::StrictKeys, "refuses a key that it doesn't know", &["turn-default"]),
    variant("unknown-model-taken", Fault::UnknownModelTaken, "answers for any model", &["turn-unknown-model"]),
    variant("unknown-model-404", Fault::UnknownModelIs404, "has 404 for an unknown model", &["turn-unknown-model"]),
    variant(
        "unknown-model-bare",
        Fault::UnknownModelBare,
        "has an error of another shape for an unknown model",
        &["turn-unknown-model"],
    ),
    variant(
        "history-refused",
        Fault::HistoryRefused,
        "refuses a chat with a picture in its history",
        &["turn-history-picture"],
    ),
    variant("streams-always", Fault::StreamsAlways, "answers with a stream", NO_TURN),
    variant("streams-by-flag", Fault::StreamsByFlag, "streams where the body asks for it", &["turn-stream"]),
    variant("streams-by-accept", Fault::StreamsByAccept, "streams where the head asks for it", &["turn-stream"]),
    variant("stream-refused", Fault::StreamRefused, "refuses the wish for a stream", &["turn-stream"]),
    variant("blank", Fault::Blank, "answers with an empty text", NO_TURN),
    variant("parts", Fault::Parts, "answers with parts instead of a text", NO_TURN),
    variant("two-choices", Fault::TwoChoices, "answers with two choices", NO_TURN),
    variant("tool-calls", Fault::ToolCalls, "answers with tool calls", NO_TURN),
    variant("not-a-number", Fault::NotANumber, "writes NaN into an answer", NO_TURN),
    variant("reply-as-text", Fault::ReplyAsText, "calls an answer text", NO_TURN),
    variant("reply-201", Fault::ReplyIs201, "answers with 201", NO_TURN),
    variant("picture-dropped", Fault::PictureDropped, "answers as if there were no picture", &["turn-picture"]),
    variant(
        "picture-without-code",
        Fault::PictureWithoutCode,
        "declines a picture without the code",
        &["turn-picture"],
    ),
    only_here("small-cap", Fault::SmallCap, "takes no body over 1 MiB", &["body-50-mib"]),
    only_here("any-path", Fault::AnyPath, "answers on every path", &["path-unknown"]),
    only_here("any-method", Fault::AnyMethod, "answers to every method", &["method-wrong"]),
    only_here("malformed-500", Fault::MalformedIs500, "has 500 for a malformed body", &["body-malformed"]),
];

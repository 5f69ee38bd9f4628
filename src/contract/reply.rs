//! The one success answer: a single choice with non-empty text.

use serde::Serialize;

/// Why the model stopped, where the app gains from knowing it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// The model ended by itself.
    Stop,
    /// An output limit ended it; the app marks the answer as cut.
    Length,
    /// A filter of the backend ended it.
    ContentFilter,
}

impl FinishReason {
    /// The word on the wire and in logs.
    pub fn as_str(self) -> &'static str {
        match self {
            FinishReason::Stop => "stop",
            FinishReason::Length => "length",
            FinishReason::ContentFilter => "content_filter",
        }
    }
}

/// Tokens as the backend counted them. Absent counts stay absent: nothing is invented.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Usage {
    /// Tokens of the conversation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_tokens: Option<u64>,
    /// Tokens of the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_tokens: Option<u64>,
    /// Both together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_tokens: Option<u64>,
}

/// A whole, final, non-empty answer of one turn. `Debug` shows no text.
#[derive(Clone, PartialEq, Eq)]
pub struct Reply {
    /// The text; never blank.
    pub content: String,
    /// Why the model stopped, where the backend told it.
    pub finish_reason: Option<FinishReason>,
    /// The id of the model that answered, as it is advertised.
    pub model: String,
    /// The id that the backend gave the answer; at most 200 characters.
    pub id: Option<String>,
    /// Token counts, where the backend told them.
    pub usage: Option<Usage>,
}

impl std::fmt::Debug for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Reply({} bytes, {:?})", self.content.len(), self.finish_reason)
    }
}

impl Reply {
    /// The body of the 200: strict JSON, exactly one choice.
    pub fn to_json(&self) -> Vec<u8> {
        #[derive(Serialize)]
        struct Body<'a> {
            choices: [Choice<'a>; 1],
            object: &'static str,
            #[serde(skip_serializing_if = "Option::is_none")]
            id: Option<&'a str>,
            model: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            usage: Option<Usage>,
        }
        #[derive(Serialize)]
        struct Choice<'a> {
            message: Message<'a>,
            index: u8,
            #[serde(skip_serializing_if = "Option::is_none")]
            finish_reason: Option<FinishReason>,
        }
        #[derive(Serialize)]
        struct Message<'a> {
            role: &'static str,
            content: &'a str,
        }
        let message = Message { role: "assistant", content: &self.content };
        let body = Body {
            choices: [Choice { message, index: 0, finish_reason: self.finish_reason }],
            object: "chat.completion",
            id: self.id.as_deref(),
            model: &self.model,
            usage: self.usage,
        };
        serde_json::to_vec(&body).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_known_stands_in_the_body() {
        let reply = Reply {
            content: "a\u{2028}\"b\u{0}".into(),
            finish_reason: Some(FinishReason::Length),
            model: "m".into(),
            id: None,
            usage: None,
        };
        assert_eq!(
            String::from_utf8(reply.to_json()).unwrap(),
            "{\"choices\":[{\"message\":{\"role\":\"assistant\",\"content\":\"a\u{2028}\\\"b\\u0000\"},\"index\":0,\
             \"finish_reason\":\"length\"}],\"object\":\"chat.completion\",\"model\":\"m\"}"
        );
    }
}

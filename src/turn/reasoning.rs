//! Reasoning that stands in the text itself, because nobody at the server took it out: it is no part of the answer.

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";
const CHANNEL: &str = "<|channel|>";
const MESSAGE: &str = "<|message|>";

/// The answer without the reasoning before it. What only mentions these tags further on is left alone: a `<think>` later in
/// an answer is the answer's.
///
/// `may_reason` is false for a model that is known to have no reasoning; a lone closing tag is then its own text.
pub fn strip(text: &str, may_reason: bool) -> &str {
    let start = text.trim_start();
    // The harmony format opens its messages so, where the server left that in the text.
    let start = start.strip_prefix("<|start|>assistant").unwrap_or(start);
    if let Some(block) = start.strip_prefix(OPEN) {
        // A block that never closes is all there is: no answer followed.
        return block.split_once(CLOSE).map_or("", |(_, answer)| strip(answer.trim_start(), may_reason));
    }
    if start.strip_prefix(CHANNEL).is_some_and(|rest| !rest.trim_start().starts_with("final"))
        || start.starts_with(FINAL)
    {
        return final_channel(start);
    }
    match lone_close(text) {
        Some(answer) if may_reason => answer.trim_start(),
        _ => text,
    }
}

/// Whether a text shows nothing: white space, control characters and characters without width are no answer.
pub fn is_blank(text: &str) -> bool {
    let shows_nothing = |character: char| {
        character.is_whitespace()
            || character.is_control()
            || matches!(character, '\u{200b}'..='\u{200f}' | '\u{2060}' | '\u{feff}')
    };
    text.chars().all(shows_nothing)
}

const FINAL: &str = "<|channel|>final";

/// What the final channel says (the harmony format of gpt-oss); nothing if there is none.
fn final_channel(text: &str) -> &str {
    let Some((_, last)) = text.rsplit_once(FINAL) else { return "" };
    let Some((_, answer)) = last.split_once(MESSAGE) else { return "" };
    let end = ["<|return|>", "<|end|>"].iter().filter_map(|mark| answer.find(mark)).min();
    end.map_or(answer, |end| &answer[..end])
}

/// What follows a closing tag that stands alone on its line, before the first code fence. A chat template that opens the
/// block itself leaves only that tag in the text.
fn lone_close(text: &str) -> Option<&str> {
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let after = at + line.len();
        match line.trim() {
            CLOSE => return Some(&text[after..]),
            fence if fence.starts_with("```") || fence.starts_with("~~~") => return None,
            _ => at = after,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leading_block_is_no_part_of_the_answer() {
        assert_eq!(strip("<think>a</think>\n\nHello", true), "Hello");
        assert_eq!(strip("\n <think>\na\n</think>Hello ", true), "Hello ");
        assert_eq!(strip("<think></think><think>b</think> Hello", true), "Hello");
        assert_eq!(strip("<think>never closed", true), "");
    }

    #[test]
    fn a_closing_tag_alone_on_its_line_ends_what_the_template_opened() {
        assert_eq!(strip("I should greet.\n</think>\n\nHello!", true), "Hello!");
        assert_eq!(strip("</think>\nHello!", true), "Hello!");
        assert_eq!(strip("I should greet.\n</think>\n\nHello!", false), "I should greet.\n</think>\n\nHello!");
    }

    #[test]
    fn what_only_mentions_a_tag_is_left_alone() {
        for answer in [
            "Use <think> to open and </think> to close.",
            "```\n</think>\n```",
            "Look:\n```html\n<think>\n</think>\n```\ndone",
            "Hello <think>hm</think>",
            " leading space stays",
            "a</think>\nb",
        ] {
            assert_eq!(strip(answer, true), answer);
        }
    }

    #[test]
    fn a_text_that_shows_nothing_is_blank() {
        for text in ["", " \r\n\t\u{a0}", "\0", "\u{200b}\u{feff}"] {
            assert!(is_blank(text), "{text:?}");
        }
        assert!(!is_blank("\u{200b}."));
    }

    #[test]
    fn of_channels_only_the_final_one_is_the_answer() {
        let whole =
            "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>Hello<|return|>";
        assert_eq!(strip(whole, true), "Hello");
        assert_eq!(strip("<|channel|>final<|message|>Hello", true), "Hello");
        assert_eq!(strip(&format!("<|start|>assistant{whole}"), true), "Hello");
        assert_eq!(strip("<|channel|>analysis<|message|>hm", true), "");
    }
}

//! The cells: for each fault and dialect the status and the code that the phone gets, written down by hand.
use super::answers::*;
use super::connections::*;
use super::fault::Fault;
use super::speech::{Form, Speech};
use Form::{Plain, Stream};
use Request::{Large, Text};

/// What the phone gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// A refusal or failure: its status and its code.
    Error(u16, &'static str),
    /// The whole answer of the model.
    Answer,
    /// This dialect has no such thing.
    NoSuchCell,
}

/// What the turn carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// One line of text.
    Text,
    /// A text of 50 MiB.
    Large,
}

/// One fault, and what comes of it with OpenAI's, llama.cpp's, vLLM's and Ollama's dialect.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    pub name: &'static str,
    pub fault: fn(Speech) -> Fault,
    pub form: Form,
    pub request: Request,
    pub expected: [Expected; 4],
}

const FAIL: Expected = Expected::Error(502, "upstream_failure");
const TIME: Expected = Expected::Error(504, "upstream_timeout");
const BUSY: Expected = Expected::Error(503, "overloaded");
const LONG: Expected = Expected::Error(400, "context_too_long");
const GOOD: Expected = Expected::Answer;
const NONE: Expected = Expected::NoSuchCell;

macro_rules! rows {
    ($($fault:ident $form:ident $request:ident [$openai:ident $llamacpp:ident $vllm:ident $ollama:ident])*) => {
        &[$(Row {
            name: stringify!($fault),
            fault: $fault,
            form: $form,
            request: $request,
            expected: [$openai, $llamacpp, $vllm, $ollama],
        }),*]
    };
}

/// Faults that end by themselves, or that Weir ends before the deadline.
pub const QUICK: &[Row] = rows! {
    // fault                              form   request  openai llamacpp vllm ollama
    reset_at_first_byte                   Stream Text    [FAIL FAIL FAIL FAIL]
    close_at_accept                       Stream Text    [FAIL FAIL FAIL FAIL]
    garbage_at_accept                     Stream Text    [FAIL FAIL FAIL FAIL]
    reset_after_request_head              Stream Text    [FAIL FAIL FAIL FAIL]
    close_after_request_head              Stream Text    [FAIL FAIL FAIL FAIL]
    reset_before_head                     Stream Text    [FAIL FAIL FAIL FAIL]
    close_before_head                     Stream Text    [FAIL FAIL FAIL FAIL]
    half_a_status_line                    Stream Text    [FAIL FAIL FAIL FAIL]
    half_a_head                           Stream Text    [FAIL FAIL FAIL FAIL]
    reset_in_head                         Stream Text    [FAIL FAIL FAIL FAIL]
    one_endless_header                    Stream Text    [FAIL FAIL FAIL FAIL]
    endless_headers                       Stream Text    [FAIL FAIL FAIL FAIL]
    endless_status_line                   Stream Text    [FAIL FAIL FAIL FAIL]
    some_interims_then_an_answer          Stream Text    [GOOD GOOD GOOD GOOD]
    some_interims_then_an_answer          Plain  Text    [GOOD GOOD GOOD GOOD]
    interims_then_close                   Stream Text    [FAIL FAIL FAIL FAIL]
    switching_protocols                   Stream Text    [FAIL FAIL FAIL FAIL]
    garbage                               Stream Text    [FAIL FAIL FAIL FAIL]
    http_2_settings                       Stream Text    [FAIL FAIL FAIL FAIL]
    http_1_0_until_close                  Stream Text    [GOOD GOOD GOOD GOOD]
    http_1_0_until_close                  Plain  Text    [GOOD GOOD GOOD GOOD]
    half_until_close                      Stream Text    [FAIL FAIL FAIL FAIL]
    half_until_close                      Plain  Text    [FAIL FAIL FAIL FAIL]
    two_lengths                           Stream Text    [FAIL FAIL FAIL FAIL]
    two_lengths                           Plain  Text    [FAIL FAIL FAIL FAIL]
    negative_length                       Stream Text    [FAIL FAIL FAIL FAIL]
    negative_length                       Plain  Text    [FAIL FAIL FAIL FAIL]
    length_too_long_then_close            Stream Text    [FAIL FAIL FAIL FAIL]
    length_too_long_then_close            Plain  Text    [FAIL FAIL FAIL FAIL]
    whole_answer_in_a_length_too_long     Stream Text    [GOOD GOOD GOOD GOOD]
    whole_answer_in_a_length_too_long     Plain  Text    [GOOD GOOD GOOD GOOD]
    length_too_short                      Stream Text    [FAIL FAIL FAIL FAIL]
    length_too_short                      Plain  Text    [FAIL FAIL FAIL FAIL]
    a_second_answer_behind_the_first      Stream Text    [GOOD GOOD GOOD GOOD]
    a_second_answer_behind_the_first      Plain  Text    [GOOD GOOD GOOD GOOD]
    no_chunk_size                         Stream Text    [FAIL FAIL FAIL FAIL]
    no_chunk_size                         Plain  Text    [FAIL FAIL FAIL FAIL]
    overflowing_chunk_size                Stream Text    [FAIL FAIL FAIL FAIL]
    overflowing_chunk_size                Plain  Text    [FAIL FAIL FAIL FAIL]
    chunk_longer_than_its_size            Stream Text    [FAIL FAIL FAIL FAIL]
    chunk_longer_than_its_size            Plain  Text    [FAIL FAIL FAIL FAIL]
    endless_chunk_extension               Stream Text    [FAIL FAIL FAIL FAIL]
    endless_chunk_extension               Plain  Text    [FAIL FAIL FAIL FAIL]
    no_last_chunk_then_close              Stream Text    [FAIL FAIL FAIL FAIL]
    no_last_chunk_then_close              Plain  Text    [FAIL FAIL FAIL FAIL]
    endless_trailers                      Stream Text    [GOOD GOOD GOOD GOOD]
    endless_trailers                      Plain  Text    [GOOD GOOD GOOD GOOD]
    compressed_though_not_asked_for       Stream Text    [FAIL FAIL FAIL FAIL]
    reset_after_head                      Stream Text    [FAIL FAIL FAIL FAIL]
    close_after_head                      Stream Text    [FAIL FAIL FAIL FAIL]
    reset_between_events                  Stream Text    [FAIL FAIL FAIL FAIL]
    reset_between_events                  Plain  Text    [FAIL FAIL FAIL FAIL]
    reset_in_an_event                     Stream Text    [FAIL FAIL FAIL FAIL]
    ends_in_an_event                      Stream Text    [FAIL FAIL FAIL FAIL]
    ends_between_events                   Stream Text    [FAIL FAIL FAIL FAIL]
    ends_between_events                   Plain  Text    [FAIL FAIL FAIL FAIL]
    ends_in_a_character                   Stream Text    [FAIL FAIL FAIL FAIL]
    half_a_character_in_a_whole_answer    Stream Text    [GOOD GOOD GOOD GOOD]
    half_a_character_in_a_whole_answer    Plain  Text    [GOOD GOOD GOOD GOOD]
    hang_after_the_end                    Stream Text    [GOOD GOOD GOOD GOOD]
    lost_after_the_end                    Stream Text    [GOOD GOOD GOOD GOOD]
    html_200                              Stream Text    [FAIL FAIL FAIL FAIL]
    html_404                              Stream Text    [FAIL FAIL FAIL FAIL]
    html_502                              Stream Text    [FAIL FAIL FAIL FAIL]
    html_503                              Stream Text    [BUSY BUSY BUSY BUSY]
    html_504                              Stream Text    [TIME TIME TIME TIME]
    redirect                              Stream Text    [FAIL FAIL FAIL FAIL]
    not_modified                          Stream Text    [FAIL FAIL FAIL FAIL]
    no_content                            Stream Text    [FAIL FAIL FAIL FAIL]
    empty_200                             Stream Text    [FAIL FAIL FAIL FAIL]
    empty_200                             Plain  Text    [FAIL FAIL FAIL FAIL]
    garbage_body                          Stream Text    [FAIL FAIL FAIL FAIL]
    garbage_body                          Plain  Text    [FAIL FAIL FAIL FAIL]
    half_a_json                           Stream Text    [FAIL FAIL FAIL FAIL]
    done_mark_without_an_end              Stream Text    [FAIL FAIL FAIL NONE]
    done_mark_alone                       Stream Text    [FAIL FAIL FAIL NONE]
    aborted                               Stream Text    [FAIL FAIL FAIL FAIL]
    aborted                               Plain  Text    [FAIL FAIL FAIL FAIL]
    only_loaded                           Stream Text    [FAIL FAIL FAIL FAIL]
    only_loaded                           Plain  Text    [FAIL FAIL FAIL FAIL]
    blank                                 Stream Text    [FAIL FAIL FAIL FAIL]
    blank                                 Plain  Text    [FAIL FAIL FAIL FAIL]
    failure_first                         Stream Text    [FAIL FAIL FAIL FAIL]
    failure_first                         Plain  Text    [FAIL FAIL FAIL FAIL]
    failure_in_the_middle                 Stream Text    [FAIL FAIL FAIL FAIL]
    overflow_in_the_middle                Stream Text    [LONG LONG LONG LONG]
    failure_after_the_end                 Stream Text    [GOOD GOOD GOOD GOOD]
    endless_text                          Stream Text    [FAIL FAIL FAIL FAIL]
    endless_line                          Stream Text    [FAIL FAIL FAIL FAIL]
    endless_document                      Plain  Text    [FAIL FAIL FAIL FAIL]
    endless_refusal                       Stream Text    [FAIL FAIL FAIL FAIL]
    refusal_that_repeats_the_question     Stream Text    [LONG LONG LONG LONG]
    refusal_cut_off                       Stream Text    [BUSY BUSY BUSY BUSY]
    refusal_that_hangs                    Stream Text    [BUSY BUSY BUSY BUSY]
};

/// The same with a body of 50 MiB.
pub const QUICK_AND_LARGE: &[Row] = rows! {
    reset_at_first_byte                   Stream Large   [FAIL FAIL FAIL FAIL]
    close_at_accept                       Stream Large   [FAIL FAIL FAIL FAIL]
    reset_after_request_head              Stream Large   [FAIL FAIL FAIL FAIL]
    close_after_request_head              Stream Large   [FAIL FAIL FAIL FAIL]
    reset_in_request_body                 Stream Large   [FAIL FAIL FAIL FAIL]
    close_in_request_body                 Stream Large   [FAIL FAIL FAIL FAIL]
    reset_before_head                     Stream Large   [FAIL FAIL FAIL FAIL]
    early_answer_then_hang                Stream Large   [GOOD GOOD GOOD GOOD]
    early_answer_then_close               Stream Large   [GOOD GOOD GOOD GOOD]
    early_413_then_close                  Stream Large   [LONG LONG LONG LONG]
    early_503_then_hang                   Stream Large   [BUSY BUSY BUSY BUSY]
};

/// Faults that last until the deadline.
pub const HANGING: &[Row] = rows! {
    hang_at_accept                        Stream Text    [TIME TIME TIME TIME]
    hang_before_head                      Stream Text    [TIME TIME TIME TIME]
    hang_in_head                          Stream Text    [TIME TIME TIME TIME]
    dripped_head                          Stream Text    [TIME TIME TIME TIME]
    interim_flood                         Stream Text    [TIME TIME TIME TIME]
    hang_after_head                       Stream Text    [TIME TIME TIME TIME]
    hang_between_events                   Stream Text    [TIME TIME TIME TIME]
    hang_in_an_event                      Stream Text    [TIME TIME TIME TIME]
    dripped_answer                        Stream Text    [TIME TIME TIME TIME]
    length_too_long_then_hang             Stream Text    [TIME TIME TIME TIME]
    length_too_long_then_hang             Plain  Text    [TIME TIME TIME TIME]
    endless_reasoning                     Stream Text    [TIME TIME TIME TIME]
    endless_empty_steps                   Stream Text    [TIME TIME TIME TIME]
    endless_tool_call                     Stream Text    [TIME TIME TIME TIME]
    endless_pings                         Stream Text    [TIME TIME TIME TIME]
    // It never took the turn up, so this is no timeout.
    loading_for_ever                      Stream Text    [BUSY BUSY BUSY BUSY]
};

/// The same with a body of 50 MiB.
pub const HANGING_AND_LARGE: &[Row] = rows! {
    hang_after_request_head               Stream Large   [TIME TIME TIME TIME]
    hang_in_request_body                  Stream Large   [TIME TIME TIME TIME]
    slow_reading                          Stream Large   [TIME TIME TIME TIME]
    hang_before_head                      Stream Large   [TIME TIME TIME TIME]
};

/// A server that refuses connections: one that was there a moment ago, and one that nobody has ever seen.
pub const REFUSING: [[Expected; 4]; 2] = [[BUSY, BUSY, BUSY, BUSY], [FAIL, FAIL, FAIL, FAIL]];

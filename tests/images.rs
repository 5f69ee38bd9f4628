//! Chapter H: a picture is seen, or its absence is said.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::*;
use serde_json::{Value, json};

/// What arrived for these messages.
fn arrives(weir: &Weir, upstream: &ScriptedUpstream, messages: Vec<Value>) -> Vec<Value> {
    weir.chat(&turn(messages)).assert_reply(REPLY);
    upstream.last_chat().messages()
}

#[test]
fn row_083_a_picture_arrives_byte_for_byte_in_its_place() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::before(&upstream).sees_pictures().start();
    let (first, second) = (png_uri(7), jpeg_uri(8));
    let contents = [
        vec![text(&secret("look")), image(&first)],
        vec![image(&first), text("before")],
        vec![text("a"), image(&first), text("b"), image(&second), text("c")],
        vec![image(&data_uri("image/png", &png(9, 3_000_000))), text("a large one")],
    ];
    for content in contents {
        let sent = arrives(&weir, &upstream, vec![user(content.clone())]);
        assert!(sent == [user(content)], "the parts changed on the way");
    }
}

#[test]
fn row_084_a_current_picture_for_a_model_without_sight_is_declined() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::before(&upstream).override_model("m", "images = false").start();
    for content in [vec![text("look"), image(&png_uri(1))], vec![image(&jpeg_uri(2))]] {
        weir.chat(&say(content)).assert_error(400, "image_unsupported");
    }
    upstream.assert_no_chat();
    weir.ok("text still works").assert_reply(REPLY);
}

#[test]
fn row_084_llama_cpp_says_itself_whether_it_sees() {
    for vision in [false, true] {
        let upstream = ScriptedUpstream::llamacpp(vision);
        let weir = Weir::in_front_of(&upstream);
        let answer = weir.chat(&say(vec![text("look"), image(&png_uri(1))]));
        if vision {
            answer.assert_reply(REPLY);
        } else {
            answer.assert_error(400, "image_unsupported");
            upstream.assert_no_chat();
        }
    }
}

#[test]
fn row_085_a_turn_of_nothing_but_a_picture_is_valid() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::before(&upstream).sees_pictures().start();
    for content in [vec![text(""), image(&png_uri(1))], vec![image(&png_uri(1))]] {
        assert_eq!(arrives(&weir, &upstream, vec![user(content.clone())]), [user(content)]);
    }
}

#[test]
fn row_085_an_engine_that_refuses_the_empty_prompt_gets_the_sentence_for_it() {
    let sentence = "The user sent an image with no accompanying text.";
    let upstream = ScriptedUpstream::start();
    let weir = Weir::before(&upstream).sees_pictures().start();
    let picture = png_uri(1);
    upstream.next(Script::refusal(400, "Prompt cannot be empty"));
    let sent = arrives(&weir, &upstream, vec![user(vec![text(""), image(&picture)])]);
    assert_eq!(sent, [user(vec![text(sentence), image(&picture)])]);
    assert_eq!(upstream.chat_count(), 2);
}

#[test]
fn row_086_every_picture_of_a_turn_arrives_in_order() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::before(&upstream).sees_pictures().start();
    let mut content = vec![text("all of them")];
    content.extend((0..6).map(|shade| image(&png_uri(shade))));
    content.extend([image(&png_uri(2)), image(&png_uri(2))]);
    assert_eq!(arrives(&weir, &upstream, vec![user(content.clone())]), [user(content)]);
}

#[test]
fn row_087_an_earlier_picture_is_forwarded_to_a_model_that_sees() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::before(&upstream).sees_pictures().start();
    let conversation = vec![
        user(vec![text(&secret("A")), image(&png_uri(1)), text("B"), image(&jpeg_uri(2))]),
        assistant("I see."),
        user("and now?"),
    ];
    assert_eq!(arrives(&weir, &upstream, conversation.clone()), conversation);
}

#[test]
fn row_087_an_earlier_picture_is_disclosed_in_place_to_a_model_without_sight() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    let (first, second) = (image(&png_uri(1)), image(&jpeg_uri(2)));
    let sent = arrives(
        &weir,
        &upstream,
        vec![
            user(vec![text("A"), first.clone(), text("B")]),
            user(vec![first.clone(), second.clone()]),
            user(vec![text(""), first]),
            assistant("I see."),
            user("and now?"),
        ],
    );
    let expected = [
        user(format!("A\n{DISCLOSURE}\nB")),
        user(format!("{DISCLOSURE}\n{DISCLOSURE}")),
        user(format!("\n{DISCLOSURE}")),
        assistant("I see."),
        user("and now?"),
    ];
    assert_eq!(sent, expected);
}

#[test]
fn row_088_no_earlier_picture_however_bad_blocks_a_later_turn() {
    let remote = "https://example.org/x.png".to_owned();
    let parts = [
        image("data:image/png;base64,@@@not-base64@@@"),
        image("data:image/png;base64,"),
        image(&data_uri("image/heic", &heic())),
        image(&data_uri("image/svg+xml", &svg())),
        image(&remote),
        image("file:///etc/passwd"),
        image("data:image/png,%89PNG"),
        image("data:;base64,QUJD"),
        image(""),
        json!({"type": "image_url", "image_url": png_uri(1)}),
        json!({"type": "image_url", "image_url": remote}),
        json!({"type": "image_url", "image_url": {}}),
        json!({"type": "image_url", "image_url": {"url": 7}}),
        json!({"type": "image_url", "image_url": null}),
        json!({"type": "image_url"}),
    ];
    for sees in [false, true] {
        let upstream = ScriptedUpstream::start();
        let weir = Weir::before(&upstream).override_model("m", &format!("images = {sees}")).start();
        for part in &parts {
            let history = user(vec![text("A"), part.clone(), text("B")]);
            let answer = weir.chat(&turn(vec![history, user("go")]));
            assert_eq!(answer.status, 200, "sees: {sees}, {part:.80}");
            let sent = upstream.last_chat().messages();
            assert_eq!(sent, [user(format!("A\n{DISCLOSURE}\nB")), user("go")]);
        }
        let huge = user(vec![image(&data_uri("image/png", &png(1, 8_000_000)))]);
        weir.chat(&turn(vec![huge, user("go")])).assert_reply(REPLY);
    }
}

#[test]
fn row_089_pictures_both_earlier_and_now_are_declined_because_of_the_one_now() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::in_front_of(&upstream);
    let picture = user(vec![text("a"), image(&png_uri(1))]);
    weir.chat(&turn(vec![picture.clone(), picture])).assert_error(400, "image_unsupported");
    upstream.assert_no_chat();
}

#[test]
fn row_090_an_engine_that_refuses_earlier_pictures_gets_the_disclosure_instead() {
    let refusals = [
        "At most 1 image(s) may be provided in one prompt. Set `--limit-mm-per-prompt` to increase this limit.",
        "this model does not support image input",
    ];
    for words in refusals {
        let upstream = ScriptedUpstream::start();
        let weir = Weir::before(&upstream).sees_pictures().start();
        upstream.next(Script::refusal(400, words));
        let earlier = user(vec![text(&secret("A")), image(&png_uri(1)), text("B")]);
        let sent = arrives(&weir, &upstream, vec![earlier, assistant("ok"), user("and now?")]);
        let expected = [user(format!("{}\n{DISCLOSURE}\nB", secret("A"))), assistant("ok"), user("and now?")];
        assert_eq!(sent, expected);
        assert_eq!(upstream.chat_count(), 2);
    }
}

#[test]
fn row_090_the_current_picture_stays_when_earlier_ones_have_to_go() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::before(&upstream).sees_pictures().start();
    upstream.next(Script::refusal(400, "At most 1 image(s) may be provided in one prompt."));
    let now = user(vec![text("now"), image(&png_uri(2))]);
    let sent = arrives(&weir, &upstream, vec![user(vec![image(&png_uri(1))]), now.clone()]);
    assert_eq!(sent, [user(DISCLOSURE), now.clone()]);
    // A refusal that remains is about the current picture.
    upstream.always(Script::refusal(400, "At most 0 image(s) may be provided in one prompt."));
    let before = upstream.chat_count();
    weir.chat(&turn(vec![user(vec![image(&png_uri(1))]), now])).assert_error(400, "image_unsupported");
    assert!(upstream.chat_count() <= before + 2);
}

#[test]
fn row_091_a_picture_of_the_assistant_is_disclosed() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::before(&upstream).sees_pictures().start();
    let said = assistant(vec![text("here"), image(&png_uri(1))]);
    let sent = arrives(&weir, &upstream, vec![user("draw"), said, user("thanks")]);
    assert_eq!(sent, [user("draw"), assistant(format!("here\n{DISCLOSURE}")), user("thanks")]);
}

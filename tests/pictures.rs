//! Chapter H, second half: which pictures are taken, and what a model is said to see.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::*;
use serde_json::{Value, json};
use std::net::TcpListener;

/// In front of a model that sees, each of these parts in the current turn is declined, and in history disclosed.
fn assert_declined(parts: &[Value], code: Option<&str>) {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::before(&upstream).sees_pictures().start();
    for part in parts {
        for content in [vec![part.clone()], vec![text("a"), image(&png_uri(1)), part.clone()]] {
            let answer = weir.chat(&say(content));
            assert_eq!(answer.status, 400, "{part:.90}");
            answer.assert_error(400, code);
        }
        upstream.assert_no_chat();
    }
    for part in parts {
        weir.chat(&turn(vec![user(vec![part.clone()]), user("go")])).assert_reply(REPLY);
        assert_eq!(upstream.last_chat().messages(), [user(DISCLOSURE), user("go")], "{part:.90}");
    }
}

/// In front of a model that sees, this URL in the current turn arrives as that one.
fn assert_arrives_as(url: &str, expected: &str) {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::before(&upstream).sees_pictures().start();
    weir.chat(&say(vec![image(url)])).assert_reply(REPLY);
    assert_eq!(upstream.last_chat().messages(), [user(vec![image(expected)])], "{url:.60}");
}

#[test]
fn row_092_a_picture_as_a_plain_string_is_400_now_and_disclosed_later() {
    assert_declined(&[json!({"type": "image_url", "image_url": png_uri(1)})], None);
}

#[test]
fn row_093_a_remote_picture_is_neither_fetched_nor_forwarded() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let parts = [
        image(&format!("http://{address}/x.png")),
        image(&format!("https://{address}/x.png")),
        image(&format!("HTTP://{address}/x.png")),
        image(&format!("//{address}/x.png")),
        image(&format!("ftp://{address}/x.png")),
        image(&format!(" data:image/png;base64,QUJD http://{address}/x.png")),
        image("file:///etc/hostname"),
        image("/etc/hostname"),
        image("blob:1"),
    ];
    assert_declined(&parts, None);
    listener.set_nonblocking(true).unwrap();
    let visit = listener.accept().map(|_| ()).unwrap_err();
    assert_eq!(visit.kind(), std::io::ErrorKind::WouldBlock, "the picture was fetched");
}

#[test]
fn row_094_a_data_uri_without_base64_is_400() {
    let percent: String = png(1, 0).iter().map(|byte| format!("%{byte:02X}")).collect();
    let payload = base64(&png(1, 0));
    assert_declined(
        &[
            image(&format!("data:image/png,{percent}")),
            image(&format!("data:image/png;base64x,{payload}")),
            image(&format!("data:image/png,{payload}")),
            image(&format!("data:image/png;base64{payload}")),
            image("data:image/png;base64"),
            image("data:"),
        ],
        None,
    );
}

#[test]
fn row_095_scheme_type_and_token_are_accepted_in_any_case_and_sent_in_lower_case() {
    let payload = base64(&jpeg(1));
    let expected = format!("data:image/jpeg;base64,{payload}");
    assert_arrives_as(&format!("DATA:Image/JPEG;BASE64,{payload}"), &expected);
    assert_arrives_as(&format!("Data:image/Jpeg;Base64,{payload}"), &expected);
}

#[test]
fn row_096_parameters_are_dropped() {
    let payload = base64(&png(1, 0));
    let expected = format!("data:image/png;base64,{payload}");
    assert_arrives_as(&format!("data:image/png;name=x;base64,{payload}"), &expected);
    assert_arrives_as(&format!("data:image/png;charset=utf-8;name=a.png;base64,{payload}"), &expected);
}

#[test]
fn row_097_a_media_type_that_is_no_picture_is_400() {
    let payload = base64(&png(1, 0));
    let types = ["", "text/plain", "application/pdf", "application/octet-stream", "video/mp4", "image", "imagepng"];
    let parts: Vec<Value> = types.iter().map(|kind| image(&format!("data:{kind};base64,{payload}"))).collect();
    assert_declined(&parts, None);
}

#[test]
fn row_098_a_picture_that_no_backend_decodes_is_image_unsupported() {
    let pictures = [("heic", heic()), ("heif", heic()), ("avif", avif()), ("svg+xml", svg())];
    let mut parts: Vec<Value> =
        pictures.iter().map(|(kind, bytes)| image(&data_uri(&format!("image/{kind}"), bytes))).collect();
    // Its first bytes decide, not its label.
    parts.push(image(&data_uri("image/jpeg", &heic())));
    assert_declined(&parts, Some("image_unsupported"));
}

#[test]
fn row_098_jpeg_and_png_always_pass() {
    for url in [jpeg_uri(1), png_uri(1)] {
        assert_arrives_as(&url, &url);
    }
}

#[test]
fn row_099_bad_base64_is_400() {
    let good = base64(&jpeg(1));
    let url_safe = good.replace('/', "_").replace('+', "-");
    assert_ne!(good, url_safe);
    let padded = base64(&[&jpeg(1)[..], b"xx"].concat());
    assert!(padded.ends_with('='));
    let payloads = [
        String::new(),
        "=".to_owned(),
        "====".to_owned(),
        format!("{}!{}", &good[..40], &good[41..]),
        format!("{} {}", &good[..40], &good[41..]),
        format!("{}\n{}", &good[..40], &good[40..]),
        format!("{}\r\n{}", &good[..40], &good[40..]),
        format!("{good}\n"),
        url_safe,
        padded.trim_end_matches('=').to_owned(),
        format!("{padded}="),
        format!("{}=={}", &good[..40], &good[42..]),
        format!("{}\u{e9}", &good[..40]),
    ];
    let parts: Vec<Value> =
        payloads.iter().map(|payload| image(&format!("data:image/jpeg;base64,{payload}"))).collect();
    assert_declined(&parts, None);
}

#[test]
fn row_099_a_wrong_label_is_corrected() {
    let (png, jpeg) = (png(1, 0), jpeg(1));
    assert_arrives_as(&data_uri("image/jpeg", &png), &data_uri("image/png", &png));
    assert_arrives_as(&data_uri("image/webp", &jpeg), &data_uri("image/jpeg", &jpeg));
    assert_arrives_as(&data_uri("image/jpg", &jpeg), &data_uri("image/jpeg", &jpeg));
}

#[test]
fn row_100_an_image_part_needs_a_url() {
    assert_declined(
        &[
            json!({"type": "image_url"}),
            json!({"type": "image_url", "image_url": null}),
            json!({"type": "image_url", "image_url": {}}),
            json!({"type": "image_url", "image_url": {"url": 123}}),
            json!({"type": "image_url", "image_url": {"url": null}}),
            json!({"type": "image_url", "image_url": {"url": ""}}),
            json!({"type": "image_url", "image_url": ["x"]}),
            json!({"type": "image_url", "url": png_uri(1)}),
        ],
        None,
    );
}

#[test]
fn row_101_a_picture_over_the_cap_is_413_now_and_disclosed_later() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::before(&upstream).sees_pictures().limit("image = \"4 KiB\"").start();
    let (small, large) = (image(&data_uri("image/png", &png(1, 1_000))), image(&data_uri("image/png", &png(1, 9_000))));
    weir.chat(&say(vec![text("a"), large.clone()])).assert_error(413, "image_too_large");
    weir.chat(&say(vec![small.clone(), large.clone()])).assert_error(413, "image_too_large");
    upstream.assert_no_chat();
    weir.chat(&say(vec![small.clone()])).assert_reply(REPLY);
    weir.chat(&turn(vec![user(vec![large]), user(vec![small.clone()])])).assert_reply(REPLY);
    assert_eq!(upstream.last_chat().messages(), [user(DISCLOSURE), user(vec![small])]);
}

/// `conduck.input_modalities` of the one model, as it stands in the list.
fn modalities(weir: &Weir) -> Value {
    weir.get("/v1/models").json()["data"][0]["conduck"]["input_modalities"].clone()
}

#[test]
fn row_102_the_list_says_what_is_known_and_leaves_out_what_is_not() {
    let upstream = ScriptedUpstream::start();
    assert_eq!(modalities(&Weir::in_front_of(&upstream)), Value::Null);
    assert_eq!(modalities(&Weir::before(&upstream).sees_pictures().start()), json!(["text", "image"]));
    let blind = modalities(&Weir::before(&upstream).override_model("m", "images = false").start());
    assert!(blind == json!(["text"]) || blind.is_null(), "{blind}");
    let seeing = ScriptedUpstream::llamacpp(true);
    assert_eq!(modalities(&Weir::in_front_of(&seeing)), json!(["text", "image"]));
    let blind = modalities(&Weir::in_front_of(&ScriptedUpstream::llamacpp(false)));
    assert!(blind == json!(["text"]) || blind.is_null(), "{blind}");
}

#[test]
fn row_103_a_model_of_unknown_sight_gets_no_picture() {
    let upstream = ScriptedUpstream::start();
    let weir = Weir::before(&upstream).override_model("m", "images = \"auto\"").start();
    weir.chat(&say(vec![text("look"), image(&png_uri(1))])).assert_error(400, "image_unsupported");
    upstream.assert_no_chat();
    weir.chat(&turn(vec![user(vec![image(&png_uri(1))]), user("go")])).assert_reply(REPLY);
    assert_eq!(upstream.last_chat().messages(), [user(DISCLOSURE), user("go")]);
}

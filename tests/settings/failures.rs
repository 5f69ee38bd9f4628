//! The rules for `[[failures]]`.

use weir::settings::Meaning;

use crate::{good, refused, refused_variable};

/// A sound row, and one with these lines after it (from line 9 on).
fn second_row(lines: &str) -> String {
    format!("[[failures]]\nmeaning = \"busy\"\ncontains = [\"no seat\"]\n[[failures]]\n{lines}")
}

#[test]
fn rows_are_kept_in_their_order_with_all_that_they_say() {
    assert!(good("", "").failures.is_empty());
    let row = "type = [\"a\"]\ncode = [\"7\"]\nstatus = [400, 599]\nunless = [\"b\"]\nmeaning = \"context_too_long\"\n\
               seen = \"c 1\"\nexample = { status = 400, body = \"\" }";
    let settings = good("", &second_row(row));
    assert_eq!(settings.failures[0].meaning, Meaning::Busy);
    assert_eq!(settings.failures[0].contains, ["no seat"]);
    let second = &settings.failures[1];
    assert_eq!(second.meaning, Meaning::ContextTooLong);
    assert_eq!((&second.kind[..], &second.code[..]), (&["a".to_owned()][..], &["7".to_owned()][..]));
    assert_eq!((&second.status[..], &second.unless[..]), (&[400, 599][..], &["b".to_owned()][..]));
    assert_eq!(second.seen.as_deref(), Some("c 1"));
    assert_eq!(second.example.as_ref().map(|example| example.status), Some(400));
}

#[test]
fn a_row_says_what_it_means() {
    let row = "[[failures]], row 2, meaning: ";
    refused("", &second_row("contains = [\"a\"]"), &["line 9", row, "found no meaning", "\"context_too_long\""]);
    refused(
        "",
        &second_row("contains = [\"a\"]\nmeaning = \"buzy\""),
        &["line 10", row, "\"buzy\"", "\"output_limit_too_high\"", "Did you mean \"busy\"?"],
    );
    refused("", &second_row("contains = [\"a\"]\nmeaning = 5"), &["line 10", row, "found 5"]);
}

#[test]
fn every_meaning_has_its_word() {
    for word in [
        "context_too_long",
        "image_unsupported",
        "image_too_large",
        "too_many_images",
        "model_not_found",
        "busy",
        "loading",
        "timeout",
        "credentials",
        "body_too_large",
        "roles_must_alternate",
        "first_message_must_be_user",
        "empty_prompt",
        "system_prompt_unsupported",
        "output_limit_too_high",
        "failure",
    ] {
        let settings = good("", &format!("[[failures]]\nmeaning = \"{word}\"\ncode = [\"1\"]"));
        let as_read_elsewhere: Meaning = serde_json::from_str(&format!("\"{word}\"")).unwrap();
        assert_eq!(settings.failures[0].meaning, as_read_elsewhere);
    }
}

#[test]
fn a_row_has_a_condition() {
    for lines in ["meaning = \"busy\"", "meaning = \"busy\"\nunless = [\"a\"]\nseen = \"b\""] {
        refused("", &second_row(lines), &["line 9", "[[failures]], row 2, contains: ", "no condition", "status"]);
    }
}

#[test]
fn a_condition_is_a_list_that_says_something() {
    let refused_condition = |line: &str, parts: &[&str]| {
        let field = line.split(' ').next().unwrap();
        let named = format!("[[failures]], row 2, {field}: ");
        let parts: Vec<&str> = ["line 10", named.as_str()].into_iter().chain(parts.iter().copied()).collect();
        refused("", &second_row(&format!("meaning = \"busy\"\n{line}")), &parts);
    };
    for field in ["contains", "unless", "type", "code"] {
        refused_condition(&format!("{field} = \"too long\""), &["found a text", "a list of texts"]);
        refused_condition(&format!("{field} = []"), &["an empty list"]);
        refused_condition(&format!("{field} = [503]"), &["a list that holds a number", "in quotes"]);
        refused_condition(&format!("{field} = [\"a\", \"\"]"), &["an empty text or fragment"]);
        refused_condition(&format!("{field} = [\" -_\"]"), &["an empty text or fragment"]);
    }
    refused_condition("contains = [\"too long|\"]", &["an empty text or fragment"]);
    for (status, found) in [
        ("500", "found a number"),
        ("[]", "an empty list"),
        ("[42]", "a list that holds 42"),
        ("[600]", "a list that holds 600"),
        ("[\"500\"]", "a list that holds the text \"500\""),
    ] {
        refused_condition(&format!("status = {status}"), &[found, "from 100 to 599"]);
    }
}

#[test]
fn an_example_has_a_status_and_a_body() {
    for (example, found) in [
        ("\"a\"", "found a text"),
        ("{ status = 400 }", "no text as its body"),
        ("{ status = 4, body = \"a\" }", "no HTTP status"),
        ("{ body = \"a\" }", "no HTTP status"),
    ] {
        let lines = format!("meaning = \"busy\"\ncode = [\"1\"]\nexample = {example}");
        refused("", &second_row(&lines), &["line 11", "[[failures]], row 2, example: ", found, "status = 400, body"]);
    }
    let lines = "meaning = \"busy\"\ncode = [\"1\"]\nexample = { statue = 4 }";
    refused("", &second_row(lines), &["an unknown key \"statue\"", "status, body", "Did you mean status?"]);
}

#[test]
fn an_unknown_key_of_a_row_names_the_nearest() {
    let lines = "meaning = \"busy\"\ncontain = [\"a\"]";
    refused(
        "",
        &second_row(lines),
        &["line 10", "row 2, contain: ", "an unknown key \"contain\"", "Did you mean contains?"],
    );
}

#[test]
fn rows_stand_under_double_brackets_in_the_file_and_nowhere_else() {
    refused("", "[failures]\nmeaning = \"busy\"", &["failures: ", "found a table", "[[failures]]"]);
    refused("", "[[failure]]\nmeaning = \"busy\"", &["an unknown key", "Did you mean failures?"]);
    refused("failures = 5", "", &["line 2", "failures: ", "found a number", "[[failures]]"]);
    refused("failures = [5]", "", &["failures: ", "a list that holds a number"]);
    refused_variable("ADAPTER_FAILURES", "busy", &["holds a list", "[[failures]]"]);
}

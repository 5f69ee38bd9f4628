//! The rules for `[models]`.

use crate::{CANARY, good, refused, refused_variable};

#[test]
fn an_alias_names_a_model() {
    refused("", "[models.alias]\na = \"a\"", &["line 6: models.alias.a: ", "an alias for itself"]);
    refused("", "[models.alias]\na = \"b\"\nb = \"c\"", &["models.alias.a: ", "\"b\", which is an alias too"]);
    refused("", "[models.alias]\na = \"\"", &["models.alias.a: ", "an empty text"]);
    refused("", "[models.alias]\n\"\" = \"a\"", &["models.alias.\"\": ", "an empty name"]);
    refused("", "[models.alias]\na = 5", &["models.alias.a: ", "5"]);
}

#[test]
fn what_is_offered_is_a_list_of_patterns() {
    refused("", "[models]\nexpose = []", &["models.expose", "an empty list"]);
    refused("", "[models]\nexpose = \"a\"", &["models.expose", "\"a\"", "a list of"]);
    refused("", "[models]\nexpose = [\"a\", \"\"]", &["models.expose", "an empty text"]);
    refused("", "[models]\nexpose = [5]", &["models.expose", "a number"]);
    refused("", "[models]\ndefault = \"\"", &["models.default", "an empty text"]);
}

#[test]
fn what_is_known_better_about_a_model_is_one_of_the_words() {
    let table = |line: &str| format!("[models.override.\"a.b:c\"]\n{line}");
    let key = "models.override.\"a.b:c\".";
    for bad in ["\"yes\"", "1", "[]"] {
        refused(
            "",
            &table(&format!("images = {bad}")),
            &[&format!("line 6: {key}images: "), "\"auto\", true or false"],
        );
    }
    refused("", &table("context = 0"), &[&format!("{key}context: "), "1 to 4294967295"]);
    refused(
        "",
        &table("reasoning = \"max\""),
        &[&format!("{key}reasoning: "), "\"max\"", "\"default\", \"off\", \"low\", \"medium\", \"high\""],
    );
    refused("", &table("reasoning = true"), &[&format!("{key}reasoning: "), "true"]);
}

#[test]
fn a_temperature_is_a_number_from_0_to_2() {
    let table = |value: &str| format!("[models.override.m]\ntemperature = {value}");
    for (bad, found) in [
        ("2.1", "found 2.1"),
        ("-0.1", "found -0.1"),
        ("3", "found 3"),
        ("nan", "found NaN"),
        ("\"0.7\"", "found the text \"0.7\""),
        ("true", "found true"),
    ] {
        let parts = ["line 6: models.override.m.temperature: ", found, "a number from 0 to 2", "without quotes"];
        refused("", &table(bad), &parts);
    }
    for (value, temperature) in [("0", 0.0), ("0.0", 0.0), ("0.7", 0.7), ("2", 2.0)] {
        assert_eq!(good("", &table(value)).models.overrides["m"].temperature, Some(temperature));
    }
    let variable = "ADAPTER_MODELS__OVERRIDE__M__TEMPERATURE";
    refused_variable(variable, "hot", &["\"hot\"", "a number from 0 to 2", "Set ADAPTER_"]);
    refused_variable(variable, "inf", &["a number from 0 to 2"]);
}

#[test]
fn a_longest_answer_is_a_number_of_tokens_above_0() {
    let table = |value: &str| format!("[models.override.m]\nlongest_answer = {value}");
    for (bad, found) in [("0", "found 0"), ("-1", "found -1"), ("1.5", "found 1.5"), ("\"many\"", "\"many\"")] {
        let parts = ["line 6: models.override.m.longest_answer: ", found, "from 1 to 4294967295", "without quotes"];
        refused("", &table(bad), &parts);
    }
    assert_eq!(good("", &table("500")).models.overrides["m"].longest_answer, Some(500));
}

#[test]
fn a_system_prompt_is_a_text_that_says_something_and_is_never_shown() {
    let table = |value: &str| format!("[models.override.m]\nsystem_prompt = {value}");
    let listed = format!("[\"{CANARY}\"]");
    for (bad, found) in [
        ("\"\"", "found an empty text"),
        ("\" \\n\"", "found an empty text"),
        ("5", "found a number"),
        (listed.as_str(), "found a list"),
    ] {
        let key = "line 6: models.override.m.system_prompt: ";
        refused("", &table(bad), &[key, found, "a text in quotes", "remove the key"]);
    }
    let settings = good("", &table(&format!("\"\"\"\nSay \\\"{CANARY}\\\".\nBe brief.\"\"\"")));
    let prompt = settings.models.overrides["m"].system_prompt.as_ref().unwrap();
    assert_eq!(prompt.as_json(), format!("Say \\\"{CANARY}\\\".\\nBe brief.").as_bytes());
    assert!(!format!("{settings:?}").contains(CANARY), "the settings show it");
}

#[test]
fn the_model_for_pictures_is_named_by_its_id() {
    refused("", "[models]\npictures = true", &["line 6: models.pictures: ", "found true", "the id of a model"]);
    refused("", "[models]\npictures = \" \"", &["line 6: models.pictures: ", "the id of a model"]);
    assert_eq!(good("", "[models]\npictures = \"llava\"").models.pictures.as_deref(), Some("llava"));
}

#[test]
fn warming_up_is_switched_on_or_off() {
    for (bad, found) in [("\"yes\"", "found the text \"yes\""), ("1", "found 1"), ("[]", "found a list")] {
        let parts = ["line 6: models.warm_up: ", found, "true or false", "Write models.warm_up = true"];
        refused("", &format!("[models]\nwarm_up = {bad}"), &parts);
    }
    assert!(good("", "[models]\nwarm_up = true").models.warm_up);
    refused_variable("ADAPTER_MODELS__WARM_UP", "on", &["\"on\"", "true or false", "Set ADAPTER_MODELS__WARM_UP=true"]);
}

//! The rules for `[models]`.

use crate::refused;

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

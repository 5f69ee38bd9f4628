//! The text of a new `adapter.toml`.

use std::fmt::Write as _;

use super::Server;

/// The configuration for these servers, with the token file beside it.
pub(super) fn text(servers: &[Server], default: Option<&str>) -> String {
    let mut text = String::from(
        "# The configuration of Weir, made by `weir init`. README has every other key; unknown ones are errors.\n\n\
         # The file with the tokens that are let in, one a line. A relative path counts from the folder of this file.\n\
         token_file = \"adapter.token\"\n",
    );
    for server in servers {
        let url = quoted(server.looked.settings.url.as_str().trim_end_matches('/'));
        // Writing to a text cannot fail.
        let _ = write!(text, "\n# {}\n[upstream.{}]\nurl = {url}\n", server.describe(), server.name);
        if let Some(context) = server.looked.settings.context {
            let _ = write!(
                text,
                "# In tokens: how much of a chat the model reads. More takes more memory; another value than other clients of \
                 this\n# server ask for makes it load the model again.\ncontext = {context}\n"
            );
        }
    }
    if let Some(default) = default {
        let default = quoted(default);
        let _ = write!(text, "\n[models]\n# The model that answers when the app names none.\ndefault = {default}\n");
    }
    text
}

fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn whatever_a_model_is_called_the_file_says_so() {
        for name in ["qwen3:14b", "a \"b\" \\ c", "'''", "two\nlines"] {
            let table: toml::Table = text(&[], Some(name)).parse().unwrap();
            assert_eq!(table["models"]["default"].as_str(), Some(name));
        }
    }
}

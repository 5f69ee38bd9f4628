//! The failure classifier against what model servers really say.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use weir::upstream::classify::{Classifier, Meaning};

/// Wordings of many servers and versions, beside those of the recorded cases.
#[test]
fn wordings_of_other_servers_and_versions_mean_what_they_say() {
    use Meaning::*;
    let wordings: &[(u16, &str, Meaning)] = &[
        // context
        (
            400,
            "The decoder prompt (length 9000) is longer than the maximum model length of 8192. Make sure that `max_model_len` is no smaller than the number of text tokens plus multimodal tokens.",
            ContextTooLong,
        ),
        (
            400,
            "The prompt (total length 9000) plus the number of requested output tokens (at least 1) is longer than the maximum model length of 8192.",
            ContextTooLong,
        ),
        (
            400,
            "This model's maximum context length is 262144 tokens. However, you requested 0 output tokens and your prompt contains at least 262145 input tokens, for a total of at least 262145 tokens. Please reduce the length of the input prompt or the number of requested output tokens.",
            ContextTooLong,
        ),
        (400, "input length (9000 tokens) exceeds the model's maximum context length (8192 tokens)", ContextTooLong),
        (
            400,
            "Requested token count exceeds the model's maximum context length of 8192 tokens. You requested a total of 9000 tokens: 8000 tokens from the input messages and 1000 tokens for the completion.",
            ContextTooLong,
        ),
        (500, "the request exceeds the available context size, try increasing it", ContextTooLong),
        (500, "Input prompt is too big compared to KV size. Please try increasing KV size.", ContextTooLong),
        (
            200,
            "The number of tokens to keep from the initial prompt is greater than the context length. Try to load the model with a larger context length, or provide a shorter input",
            ContextTooLong,
        ),
        (
            400,
            "Initial job allocation requires 9216 cache tokens, which exceeds the available context size of 8192 tokens",
            ContextTooLong,
        ),
        (
            422,
            "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 9000 `inputs` tokens and 100 `max_new_tokens`",
            ContextTooLong,
        ),
        (
            500,
            "rpc error: code = Unknown desc = request (9000 tokens) exceeds the available context size (4096 tokens), try increasing it",
            ContextTooLong,
        ),
        (500, "Requested tokens (2285) exceed context window of 2048", ContextTooLong),
        (400, "prompt is too long: 208310 tokens > 200000 maximum", ContextTooLong),
        (
            400,
            "Your input exceeds the context window of this model. Please adjust your input and try again.",
            ContextTooLong,
        ),
        (
            400,
            "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
            ContextTooLong,
        ),
        (413, "Too many tokens: the conversation does not fit in the context window", ContextTooLong),
        (400, "larger than the max context size", ContextTooLong),
        (400, "prompt tokens (9000) exceed the model's token limit (8192)", ContextTooLong),
        (500, "the conversation doesn\u{2019}t fit the context window", ContextTooLong),
        (400, "input too long for this model", ContextTooLong),
        (
            400,
            "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 300000 tokens.",
            ContextTooLong,
        ),
        // our output limit
        (
            400,
            "'max_tokens' or 'max_completion_tokens' is too large: 20000. This model's maximum context length is 8192 tokens and your request has 100 input tokens (20000 > 8192 - 100).",
            OutputLimitTooHigh,
        ),
        (
            400,
            "max_tokens is too large: 20000. This model supports at most 4096 completion tokens, whereas you provided 20000.",
            OutputLimitTooHigh,
        ),
        (
            400,
            "`max_tokens` must be less than or equal to `8192`, the maximum value for `max_tokens` is less than the `context_window` for this model",
            OutputLimitTooHigh,
        ),
        (400, "Invalid max_tokens value, the valid range of max_tokens is [1, 8192]", OutputLimitTooHigh),
        // pictures
        (400, "Multimodal data provided, but model does not support multimodal requests.", ImageUnsupported),
        (400, "Qwen/Qwen3-8B is not a multimodal model", ImageUnsupported),
        (400, "Failed to load image or audio file", ImageUnsupported),
        (400, "invalid image input", ImageUnsupported),
        (400, "Non-base64 digit found", ImageUnsupported),
        (400, "uri must be base64 encoded", ImageUnsupported),
        (400, "Invalid uri-encoded base64 value", ImageUnsupported),
        (400, "file:// URLs are not allowed unless --media-path is specified", ImageUnsupported),
        (400, "The URL must be either a HTTP, data or file URL.", ImageUnsupported),
        (
            422,
            "Failed to fetch media from URL: HTTP 404 error (parameter=image_url, value=https://example.org/a.png)",
            ImageUnsupported,
        ),
        (422, "image modality is not supported", ImageUnsupported),
        (400, "'url' field must be a base64 encoded image.", ImageUnsupported),
        (
            400,
            "json: cannot unmarshal string into Alias.images.0 of type api.ImageData: illegal base64 data at input byte 0",
            ImageUnsupported,
        ),
        (400, "this model is missing data required for image input", ImageUnsupported),
        (400, "Content type 'image_url' is only supported by vision models", ImageUnsupported),
        (
            400,
            "Failed to deserialize the JSON body: messages[0]: unknown variant `image_url`, expected `text`",
            ImageUnsupported,
        ),
        (400, "This model doesn't support images", ImageUnsupported),
        (404, "No endpoints found that support image input", ImageUnsupported),
        (400, "Image inputs are not supported by this model", ImageUnsupported),
        (400, "Model 'm' does not support vision", ImageUnsupported),
        (400, "At most 1 image(s) may be provided in one prompt.", TooManyImages),
        (400, "At most 12 images may be provided in one request", TooManyImages),
        (400, "You may provide up to 5 images per request; got 10 images", TooManyImages),
        (400, "Too many images: the maximum is 8", TooManyImages),
        (500, "vision model only supports a single image per message", TooManyImages),
        (422, "Image size 20000x20000 exceeds maximum allowed size", ImageTooLarge),
        (
            400,
            "Image size (400000000 pixels) exceeds limit of 178956970 pixels, could be decompression bomb DOS attack.",
            ImageTooLarge,
        ),
        (400, "The image is too large", ImageTooLarge),
        // models
        (404, "model \"llama9\" not found, try pulling it first", ModelNotFound),
        (400, "invalid model name", ModelNotFound),
        (400, "model is required", ModelNotFound),
        (400, "\"nomic-embed-text\" does not support chat", ModelNotFound),
        (501, "The model does not support Chat Completions API", ModelNotFound),
        (404, "The model `foo` does not exist.", ModelNotFound),
        (404, "The model `llava-vision` does not exist or you do not have access to it.", ModelNotFound),
        (400, "model is not loaded", ModelNotFound),
        (500, "model `x` was not found", ModelNotFound),
        (400, "No such model: x", ModelNotFound),
        (400, "Model qwen3 is not available on this server", ModelNotFound),
        (400, "Unknown model: x", ModelNotFound),
        (
            404,
            "404 Client Error: Repository Not Found for url: https://huggingface.co/api/models/x/revision/main",
            ModelNotFound,
        ),
        // busy and loading
        (
            503,
            "The engine is currently busy and cannot accept new requests. Please try again later or on a different instance.",
            Busy,
        ),
        (503, "The engine has reached its prefill token backlog limit. Please try again later.", Busy),
        (503, "No models are currently loaded.", Busy),
        (429, "Rate limit reached for tokens: 9000 tokens exceed the limit of 6000 tokens per minute", Busy),
        (200, "The request queue is full.", Busy),
        (500, "Too many requests", Busy),
        (503, "upstream connect error", Busy),
        (500, "llm server is still loading", Loading),
        (503, "The model is warming up", Loading),
        (503, "Model x is currently loading", Loading),
        (503, "model not ready", Loading),
        // templates
        (
            400,
            "After the optional system message, conversation roles must alternate user/assistant/user/assistant/...",
            RolesMustAlternate,
        ),
        (400, "Unexpected role 'user' after role 'user'", RolesMustAlternate),
        (400, "Expected the first message to be from the user", FirstMessageMustBeUser),
        (400, "Conversation must start with a user prompt", FirstMessageMustBeUser),
        (400, "Prompt cannot be empty", EmptyPrompt),
        (400, "messages: text content blocks must be non-empty", EmptyPrompt),
        // credentials, timeouts, the body
        (401, "Please provide an API key", Credentials),
        (403, "", Credentials),
        (200, "Unauthorized", Credentials),
        (504, "", Timeout),
        (408, "", Timeout),
        (500, "Request timed out", Timeout),
        (413, "", BodyTooLarge),
        (500, "Payload is too big. Max payload size is 32MB.", BodyTooLarge),
        (400, "Failed to buffer the request body: length limit exceeded", BodyTooLarge),
        // failures that look like something else
        (404, "404 page not found", Failure),
        (404, "Not Found", Failure),
        (404, "<html><body>The requested URL /v1/models was not found on this server.</body></html>", Failure),
        (404, "The requested URL /v1/models was not found on this server.", Failure),
        (404, "{\"detail\":\"Not Found\"}", Failure),
        (404, "Cannot POST /v1/models", Failure),
        (500, "llama runner process no longer running: 2 model is loading", Failure),
        (500, "timed out waiting for llama-server to start - model loading", Failure),
        (500, "unable to load full model on GPU", Failure),
        (500, "model requires more system memory (9.1 GiB) than is available (6.2 GiB)", Failure),
        (500, "model requires 40 GiB but only 20 GiB are available (after 1 GiB overhead)", Failure),
        (500, "unable to load model: this model may be incompatible with your version of Ollama", Failure),
        (
            500,
            "model runner has unexpectedly stopped, this may be due to resource limitations or an internal error",
            Failure,
        ),
        (500, "EngineCore encountered an issue. See stack trace (above) for the root cause.", Failure),
        (500, "The server had an error while processing your request.", Failure),
        (500, "model name=x failed to load", Failure),
        (500, "Failed to tokenize prompt", Failure),
        (500, "failed to process mtmd chunk", Failure),
        (500, "decode() failed: Invalid input batch.", Failure),
        (500, "The model produced output that does not match the expected peg-native format", Failure),
        (500, "CUDA out of memory while encoding the image, which exceeds what fits", Failure),
        (400, "registry.ollama.ai/library/image-maker:2b does not support tools", Failure),
        (400, "\"llama3.2-vision\" does not support thinking", Failure),
        (400, "invalid message format", Failure),
        (400, "invalid message content type: <nil>", Failure),
        (400, "[] is too short - 'messages'", Failure),
        (400, "invalid reasoning value: \"x\" (must be \"minimal\", \"low\", \"medium\", \"high\")", Failure),
        (400, "System role not supported", Failure),
        (
            400,
            "Unable to generate parser for this template. Automatic parser generation failed: \n------------\nWhile executing CallExpression at line 4, column 5 in source:\n raise_exception('Conversation roles must alternate')\nError: Jinja Exception: System message must be at the beginning.",
            Failure,
        ),
        (
            400,
            "As of transformers v4.44, default chat template is no longer allowed, so you must provide a chat template if the tokenizer does not define one.",
            Failure,
        ),
        (400, "1 validation error:\n  Unsupported Media Type: Only 'application/json' is allowed", Failure),
        (
            400,
            "1 validation error:\n  {'type': 'string_type', 'loc': 'body.messages.0', 'msg': 'Input should be a valid string', 'input': 'the prompt is too long, image not supported, model not found'}",
            Failure,
        ),
        (
            422,
            "{\"detail\":[{\"type\":\"string_type\",\"loc\":[\"body\"],\"msg\":\"Input should be a valid string\",\"input\":\"maximum context length\"}]}",
            Failure,
        ),
        (
            400,
            "1 validation error for Request\nmessages\n  Input should be a valid list [type=list_type, input_value='maximum context length', input_type=str]",
            Failure,
        ),
        (502, "Post \"https://ollama.com:443/v1/chat/completions\": dial tcp: i/o timeout", Failure),
        (501, "Transfer-Encoding Not Implemented", Failure),
        (500, "", Failure),
    ];
    let classifier = Classifier::embedded();
    let wrong: Vec<String> = wordings
        .iter()
        .filter_map(|(status, body, expected)| {
            let meaning = classifier.classify(*status, body.as_bytes());
            (meaning != *expected).then(|| format!("{meaning:?}, not {expected:?}: {status} {body}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#!/usr/bin/env python3
"""Makes the tiny chat models that the tests against a real llama-server use (no training, no download).

    python make_tiny_models.py OUTDIR         # needs the packages gguf and numpy

Writes, byte-identical on every run:
    OUTDIR/tiny-chat.gguf      2 MB   text model, chat template baked in
    OUTDIR/tiny-mmproj.gguf  0.4 MB   llava-style vision projector for it: it tells colours apart
    OUTDIR/tiny-slow.gguf     79 MB   same answers at 40 to 90 tokens a second (zero layers slow it down)
    OUTDIR/tiny-big.gguf       2 GB   same answers; takes seconds to load

The weights are set by hand. Embeddings are one-hot, so the output matrix is a table "after token A comes
token B". Layer 0 has one attention head that looks for keyword tokens anywhere in the prompt and adds a "mode"
direction, which picks the first token of the answer. What it answers, by what the conversation contains (highest
first; nothing else about the prompt matters, and the history counts too):

    a tool result (<tool_response> from the template)   "It is sunny in Paris."
    an image (through tiny-mmproj)                      "I see a red picture."  red|green|blue|plain
    tools in the request (<tools> from the template)    a call of get_weather({"city": "Paris"})
    the word "think" or "Think"                         <think>...</think> and "The answer is 42."
    the word "count" or "Count"                         "one two three ... sixteen" for ever
    the word "emoji"                                    "Hi <party popper>!", the emoji one byte a token
    anything else                                       "pong"
"""
import argparse
import os

import numpy as np

D = 512            # residual width
HD = 64            # head width (one head)
CTX = 32768        # n_ctx_train
ROPE_BASE = 1e6    # the last rope pair turns by 1.5e-6 rad a token: as good as no position
EPS = 1e-6
CONST = 511        # residual dim that every token carries
MODE0 = 470        # residual dims MODE0.. are the modes

MODES = ["emoji", "count", "think", "tools", "image", "toolresult", "red", "green", "blue"]
SCORE = {"emoji": 13., "count": 15., "think": 17., "tools": 19., "image": 24., "toolresult": 22.}

# The keyword tokens. The template writes <tools> and <tool_response>.
KEYWORDS = {"emoji": "emoji", "count": "count", "Count": "count", "think": "think", "Think": "think",
            "<tools>": "tools", "<tool_response>": "toolresult"}

END = "<|im_end|>"
PARTY = [f"<0x{b:02X}>" for b in "\U0001F389".encode()]
COUNT = ["one ", "two ", "three ", "four ", "five ", "six ", "seven ", "eight ", "nine ", "ten ",
         "eleven ", "twelve ", "thirteen ", "fourteen ", "fifteen ", "sixteen "]
ANSWERS = {   # mode -> tokens; every token is used by one answer only (else the table is ambiguous)
    None: ["pong", END],
    "emoji": ["Hi "] + PARTY + [" !", END],
    "count": COUNT + [COUNT[0]],
    "think": ["<think>", "\nLet me", " reason", " about", " that.\n", "</think>",
              "\n\nThe", " answer", " is", " 42.", END],
    "tools": ["<tool_call>", "\n{\"name\": \"", "get_weather", "\", \"arguments\": ", "{\"city\": \"",
              "Paris", "\"}", "}\n", "</tool_call>", END],
    "toolresult": ["It", " is ", "sunny", " in", " Paris", ".", END],
    "image": ["I see", " a "],   # then one of the colours
}
COLOURS = {"red": "red", "green": "green", "blue": "blue", None: "plain"}
COLOUR_TAIL = [" picture.", END]
IMG = "<image>"    # a row that only tiny-mmproj writes

# Sent when the last token is none of the above (a raw completion, or a grammar at work): newline first,
# and the JSON marks well before anything else, so that JSON grammars close soon.
FALLBACK = {"\n": 2.4, "\"": 2.0, "}": 1.9, "]": 1.8, "{": 1.7, ":": 1.6, "[": 1.5, "1": 1.0, " ": 0.6, ",": 0.4}

TEMPLATE = r"""
{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\n\n' }}
    {%- endif %}
    {{- "# Tools\n\nYou may call one or more functions.\n\n<tools>" }}
    {%- for tool in tools %}
        {{- "\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\n</tools>\n\nFor each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call><|im_end|>\n" }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {%- set content = message.content or '' %}
        {{- '<|im_start|>' + message.role + '\n' }}
        {%- if message.reasoning_content %}
            {{- '<think>\n' + message.reasoning_content + '\n</think>\n\n' }}
        {%- endif %}
        {{- content }}
        {%- if message.tool_calls %}
            {%- for tool_call in message.tool_calls %}
                {%- if (loop.first and content) or (not loop.first) %}
                    {{- '\n' }}
                {%- endif %}
                {%- if tool_call.function %}
                    {%- set tool_call = tool_call.function %}
                {%- endif %}
                {{- '<tool_call>\n{"name": "' }}
                {{- tool_call.name }}
                {{- '", "arguments": ' }}
                {%- if tool_call.arguments is string %}
                    {{- tool_call.arguments }}
                {%- else %}
                    {{- tool_call.arguments | tojson }}
                {%- endif %}
                {{- '}\n</tool_call>' }}
            {%- endfor %}
        {%- endif %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == "tool" %}
        {{- '<|im_start|>user\n<tool_response>\n' + message.content + '\n</tool_response><|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\n\n</think>\n\n' }}
    {%- endif %}
{%- endif %}
""".lstrip("\n")

UNK, NORMAL, CONTROL, USER, BYTE = 2, 1, 3, 4, 6   # gguf token types (UNKNOWN is 2)


def vocabulary():
    toks = [("<unk>", UNK), ("<s>", CONTROL), ("</s>", CONTROL)]
    toks += [(f"<0x{b:02X}>", BYTE) for b in range(256)]
    toks += [("\u2581", NORMAL), ("<|im_start|>", CONTROL), (END, CONTROL), (IMG, CONTROL)]
    seen = {t for t, _ in toks}
    words = list(KEYWORDS) + [t for a in ANSWERS.values() for t in a] + list(COLOURS.values()) + COLOUR_TAIL
    # The template's own words, so that a grammar or a reader meets them as one token.
    words += ["</tools>", "</tool_response>"]
    for w in words:
        if w not in seen:
            seen.add(w)
            toks.append((w, USER))
    assert len(toks) <= MODE0, len(toks)
    while len(toks) % 32:
        toks.append((f"<|pad{len(toks)}|>", CONTROL))
    return toks


def build():
    toks = vocabulary()
    ids = {t: i for i, (t, _) in enumerate(toks)}

    def tid(s):                              # a token, or the byte or space that stands for one character
        if s in ids:
            return ids[s]
        return ids["\u2581"] if s == " " else ids[f"<0x{ord(s):02X}>"]

    V = len(toks)
    mode = {m: MODE0 + i for i, m in enumerate(MODES)}
    f4 = lambda *s: np.zeros(s, np.float32)
    emb = f4(V, D)
    emb[np.arange(V), np.arange(V)] = 1
    emb[:, CONST] = 1
    n2 = np.sqrt(D / 2)                      # what RMSNorm multiplies a two-component vector by (16)
    wq, wk, wv, wo = f4(HD, D), f4(HD, D), f4(HD, D), f4(D, HD)
    S = HD - 2                               # first dim of the slowest rope pair (interleaved layout)
    wq[S, CONST] = np.sqrt(HD) / n2          # q = 8, so that the score is k
    for i, m in enumerate(MODES):
        wo[mode[m], i] = 1
    for w, m in KEYWORDS.items():
        wk[S, tid(w)] = SCORE[m] / n2
        wv[MODES.index(m), tid(w)] = 1 / n2
    img = tid(IMG)                           # an image patch has IMG, CONST and perhaps a colour direction
    wk[S, img] = SCORE["image"] / n2
    wv[MODES.index("image"), img] = 1 / n2
    for c in ("red", "green", "blue"):       # the colour sits in its own mode dim of the embedding
        wv[MODES.index(c), mode[c]] = 1.3 / n2

    out = f4(V, D)
    chain = 5.0
    def follow(a, b, w=chain):
        assert out[tid(b), tid(a)] == 0, (a, b)
        out[tid(b), tid(a)] = w
    start = 3.0
    for m, seq in ANSWERS.items():
        follow("\n", seq[0], start + 0.5 if m is None else start)
        if m:
            out[tid(seq[0]), mode[m]] = 1.5
        for a, b in zip(seq, seq[1:]):
            follow(a, b)
    last = ANSWERS["image"][-1]
    for c, w in COLOURS.items():
        follow(last, w, chain + 0.3 if c is None else chain)
        if c:
            out[tid(w), mode[c]] = 1.5
        follow(w, COLOUR_TAIL[0])
    follow(*COLOUR_TAIL)
    for w, x in FALLBACK.items():
        out[tid(w), CONST] = x * 0.6
    out[tid("\n"), tid("\n")] = -4         # one newline at a time, or a grammar that allows space never ends
    return toks, ids, emb, (wq, wk, wv, wo), out


def text_gguf(path, name, layers, n_ff, dtype=np.float16):
    import gguf
    toks, ids, emb, (wq, wk, wv, wo), out = build()
    w = gguf.GGUFWriter(path, "llama")
    w.add_name(name)
    w.add_file_type(1 if dtype == np.float16 else 0)
    w.add_context_length(CTX)
    w.add_embedding_length(D)
    w.add_block_count(layers)
    w.add_feed_forward_length(n_ff)
    w.add_head_count(1)
    w.add_head_count_kv(1)
    w.add_key_length(HD)
    w.add_value_length(HD)
    w.add_rope_dimension_count(HD)
    w.add_rope_freq_base(ROPE_BASE)
    w.add_layer_norm_rms_eps(EPS)
    w.add_vocab_size(len(toks))
    w.add_tokenizer_model("llama")
    w.add_tokenizer_pre("default")
    w.add_token_list([t.encode() for t, _ in toks])
    w.add_token_scores([0.0] * len(toks))
    w.add_token_types([k for _, k in toks])
    w.add_bos_token_id(ids["<s>"])
    w.add_eos_token_id(ids[END])
    w.add_unk_token_id(ids["<unk>"])
    w.add_add_bos_token(False)
    w.add_add_space_prefix(False)
    w.add_chat_template(TEMPLATE)
    one = np.ones(D, np.float32)
    T = w.add_tensor
    T("token_embd.weight", emb.astype(dtype))
    T("output_norm.weight", one)
    T("output.weight", out.astype(dtype))
    for i in range(layers):
        z = 1.0 if i == 0 else 0.0
        T(f"blk.{i}.attn_norm.weight", one)
        for n, m in (("attn_q", wq), ("attn_k", wk), ("attn_v", wv), ("attn_output", wo)):
            T(f"blk.{i}.{n}.weight", (m * z).astype(dtype))
        T(f"blk.{i}.ffn_norm.weight", one)
        T(f"blk.{i}.ffn_gate.weight", np.zeros((n_ff, D), dtype))
        T(f"blk.{i}.ffn_up.weight", np.zeros((n_ff, D), dtype))
        T(f"blk.{i}.ffn_down.weight", np.zeros((D, n_ff), dtype))
    w.write_header_to_file(); w.write_kv_data_to_file(); w.write_tensors_to_file(); w.close()


def mmproj_gguf(path, image=56, patch=14, E=64, H=64):
    """llava 'mlp' projector. block_count 1 means that no encoder layer runs (llava takes the layer before the
    last), so a patch's embedding is its mean colour, and the two-layer projector turns that into IMG + colour."""
    import gguf
    _, ids, *_ = build()
    w = gguf.GGUFWriter(path, "clip")
    w.add_name("tiny-mmproj")
    w.add_file_type(0)
    w.add_bool("clip.has_vision_encoder", True)
    w.add_string("clip.projector_type", "mlp")
    for k, v in (("image_size", image), ("patch_size", patch), ("embedding_length", E), ("feed_forward_length", 64),
                 ("projection_dim", D), ("block_count", 1), ("attention.head_count", 1)):
        w.add_uint32(f"clip.vision.{k}", v)
    w.add_float32("clip.vision.attention.layer_norm_epsilon", 1e-5)
    w.add_array("clip.vision.image_mean", [0.5, 0.5, 0.5])
    w.add_array("clip.vision.image_std", [0.5, 0.5, 0.5])
    w.add_bool("clip.use_gelu", True)
    z = lambda *s: np.zeros(s, np.float32)
    n = (image // patch) ** 2
    pe = z(E, 3, patch, patch)
    for c in range(3):
        pe[c, c] = 1 / patch ** 2
    m0, b0, m2, b2 = z(H, E), z(H), z(D, H), z(D)
    for c in range(3):                       # pure colour: 5*2-5 = 5, anything grey: below -4, which gelu kills
        m0[c, :3] = -2.5
        m0[c, c] = 5
        b0[c] = -5
        m2[MODE0 + MODES.index(("red", "green", "blue")[c]), c] = 0.2
    b2[ids[IMG]] = 1
    b2[CONST] = 1
    T = w.add_tensor
    T("v.patch_embd.weight", pe)
    T("v.position_embd.weight", z(n, E))
    for i in range(1):
        for t in ("attn_q", "attn_k", "attn_v", "attn_out"):
            T(f"v.blk.{i}.{t}.weight", z(E, E)); T(f"v.blk.{i}.{t}.bias", z(E))
        T(f"v.blk.{i}.ln1.weight", z(E) + 1); T(f"v.blk.{i}.ln1.bias", z(E))
        T(f"v.blk.{i}.ln2.weight", z(E) + 1); T(f"v.blk.{i}.ln2.bias", z(E))
        T(f"v.blk.{i}.ffn_up.weight", z(64, E)); T(f"v.blk.{i}.ffn_up.bias", z(64))
        T(f"v.blk.{i}.ffn_down.weight", z(E, 64)); T(f"v.blk.{i}.ffn_down.bias", z(E))
    T("mm.0.weight", m0); T("mm.0.bias", b0); T("mm.2.weight", m2); T("mm.2.bias", b2)
    w.write_header_to_file(); w.write_kv_data_to_file(); w.write_tensors_to_file(); w.close()


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description="Makes the tiny models of the real-server tests.")
    arguments.add_argument("outdir")
    outdir = arguments.parse_args().outdir
    os.makedirs(outdir, exist_ok=True)
    text_gguf(os.path.join(outdir, "tiny-chat.gguf"), "tiny-chat", 2, 64)
    mmproj_gguf(os.path.join(outdir, "tiny-mmproj.gguf"))
    text_gguf(os.path.join(outdir, "tiny-slow.gguf"), "tiny-slow", 12, 2048)
    text_gguf(os.path.join(outdir, "tiny-big.gguf"), "tiny-big", 40, 16384)

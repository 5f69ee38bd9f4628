#!/usr/bin/env python3
"""Makes the tiny chat model of make_tiny_models.py once more as a Hugging Face folder, for vLLM.

    python make_tiny_hf.py OUTDIR         # needs the package numpy
"""
import json
import os
import struct
import sys

import numpy as np

from make_tiny_models import CTX, D, END, EPS, HD, CONTROL, ROPE_BASE, TEMPLATE, UNK, USER, build


def write_folder(path, layers=2, n_ff=64):
    toks, ids, emb, (wq, wk, wv, wo), out = build()
    os.makedirs(path, exist_ok=True)
    perm = np.r_[np.arange(0, HD, 2), np.arange(1, HD, 2)]     # interleaved rope pairs -> two halves
    t = {"model.embed_tokens.weight": emb, "lm_head.weight": out, "model.norm.weight": np.ones(D, np.float32)}
    for i in range(layers):
        z = 1.0 if i == 0 else 0.0
        p = f"model.layers.{i}."
        t |= {p + "self_attn.q_proj.weight": wq[perm] * z, p + "self_attn.k_proj.weight": wk[perm] * z,
              p + "self_attn.v_proj.weight": wv * z, p + "self_attn.o_proj.weight": wo * z,
              p + "input_layernorm.weight": np.ones(D, np.float32),
              p + "post_attention_layernorm.weight": np.ones(D, np.float32),
              p + "mlp.gate_proj.weight": np.zeros((n_ff, D)), p + "mlp.up_proj.weight": np.zeros((n_ff, D)),
              p + "mlp.down_proj.weight": np.zeros((D, n_ff))}
    head, blobs, off = {"__metadata__": {"format": "pt"}}, [], 0
    for k in sorted(t):
        b = np.ascontiguousarray(t[k], np.float32).tobytes()
        head[k] = {"dtype": "F32", "shape": list(t[k].shape), "data_offsets": [off, off + len(b)]}
        blobs.append(b); off += len(b)
    h = json.dumps(head, separators=(",", ":")).encode()
    h += b" " * (-len(h) % 8)
    with open(f"{path}/model.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(h)) + h + b"".join(blobs))
    J = lambda n, o: open(f"{path}/{n}", "w").write(json.dumps(o, indent=1, ensure_ascii=False))
    J("config.json", {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": D, "head_dim": HD,
        "intermediate_size": n_ff, "num_hidden_layers": layers, "num_attention_heads": 1, "num_key_value_heads": 1,
        "vocab_size": len(toks), "max_position_embeddings": CTX, "rms_norm_eps": EPS, "rope_theta": ROPE_BASE,
        "hidden_act": "silu", "tie_word_embeddings": False, "torch_dtype": "float32", "dtype": "float32",
        "attention_bias": False, "mlp_bias": False,
        "bos_token_id": ids["<s>"], "eos_token_id": ids[END], "pad_token_id": ids["</s>"]})
    J("generation_config.json", {"bos_token_id": ids["<s>"], "eos_token_id": [ids[END], ids["</s>"]]})
    added = [{"id": i, "content": s, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
              "special": k in (UNK, CONTROL)} for i, (s, k) in enumerate(toks) if k in (UNK, CONTROL, USER)]
    J("tokenizer.json", {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}, "pre_tokenizer": None,
        "post_processor": None,
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]},
        "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": True, "ignore_merges": False,
                  "vocab": {s: i for i, (s, _) in enumerate(toks)}, "merges": []}})
    J("tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": CTX, "bos_token": "<s>",
        "eos_token": END, "unk_token": "<unk>", "pad_token": "</s>", "add_bos_token": False,
        "clean_up_tokenization_spaces": False, "chat_template": TEMPLATE})


if __name__ == "__main__":
    write_folder(sys.argv[1])

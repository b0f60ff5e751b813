"""Writes tests/fixtures/gguf: block formats and small GGUF models.

    pip install gguf safetensors numpy torch transformers
    python tests/scripts/gguf_files.py             (gguf 0.19.0)

blocks.safetensors: for each type NAME, `NAME` u8 raw random blocks, `NAME.values` f32 what
`gguf.quants.dequantize` makes of them.
NAME.gguf and NAME.safetensors: a model as llama.cpp's `convert_hf_to_gguf.py` lays it out (its
names, the llama family's q and k rows interleaved by `LlamaModel.permute`, a tokenizer in the
metadata), and the tensors under Hugging Face names that loading must give.
"""

import json
import pathlib

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Q
from safetensors.numpy import load_file, save_file

FIXTURES = pathlib.Path(__file__).parent.parent / "fixtures"
OUT = FIXTURES / "gguf"
BLOCKS = [Q.F32, Q.F16, Q.BF16, Q.Q4_0, Q.Q4_1, Q.Q5_0, Q.Q5_1, Q.Q8_0, Q.Q4_K, Q.Q5_K, Q.Q6_K]
# Bytes of a block that are half-precision scales, kept finite.
HALVES = {Q.Q4_0: [0], Q.Q4_1: [0, 2], Q.Q5_0: [0], Q.Q5_1: [0, 2], Q.Q8_0: [0], Q.Q4_K: [0, 2], Q.Q5_K: [0, 2],
          Q.Q6_K: [208]}
PARTS = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
}


def blocks():
    rng = np.random.default_rng(5)
    out = {}
    for kind in BLOCKS:
        _, size = gguf.GGML_QUANT_SIZES[kind]
        count = 64 if size <= 4 else 5
        raw = rng.integers(0, 256, (count, size), dtype=np.uint8)
        if kind in HALVES:
            for at in HALVES[kind]:
                raw[:, at : at + 2] = rng.normal(0, 0.02, (count, 1)).astype(np.float16).view(np.uint8)
        elif size == 4:
            raw = rng.normal(0, 1, (count, 1)).astype(np.float32).view(np.uint8)
        elif kind == Q.F16:
            raw = rng.normal(0, 1, (count, 1)).astype(np.float16).view(np.uint8)
        else:
            raw[:, 1] = 0x3F  # a positive number near one
        # F32, F16 and BF16 rows would be a single value; dequantize wants whole rows.
        values = gguf.quants.dequantize(raw.reshape(1, -1) if kind not in (Q.F32, Q.F16) else
                                        raw.reshape(1, -1).view(np.float32 if kind == Q.F32 else np.float16), kind)
        out[kind.name] = raw.reshape(-1)
        out[kind.name + ".values"] = np.ascontiguousarray(values.reshape(-1).astype(np.float32))
    save_file(out, OUT / "blocks.safetensors")


def name_of(hf):
    """The converter's name of a Hugging Face tensor."""
    whole = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
             "lm_head.weight": "output.weight"}
    if hf in whole:
        return whole[hf]
    _, _, layer, rest = hf.split(".", 3)
    part, kind = rest.rsplit(".", 1)
    return f"blk.{layer}.{PARTS[part]}.{kind}"


def permute(weights, heads):
    """LlamaModel.permute."""
    return (
        weights.reshape(heads, 2, weights.shape[0] // heads // 2, *weights.shape[1:])
        .swapaxes(1, 2)
        .reshape(weights.shape)
    )


def unpermute(weights, heads):
    return (
        weights.reshape(heads, weights.shape[0] // heads // 2, 2, *weights.shape[1:])
        .swapaxes(1, 2)
        .reshape(weights.shape)
    )


def write(name, config, tensors, types, pre, tokenizer, extra=None):
    """`types` gives the ggml type of a tensor by its Hugging Face name."""
    arch = config["model_type"]
    writer = gguf.GGUFWriter(OUT / f"{name}.gguf", arch)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    if config["rope_parameters"]["rope_type"] == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(config["rope_parameters"]["factor"])
    if config.get("head_dim"):
        writer.add_rope_dimension_count(config["head_dim"])
        writer.add_key_length(config["head_dim"])
        writer.add_value_length(config["head_dim"])
    data = json.loads((FIXTURES / "tokenizers" / f"{tokenizer}.json").read_text())
    vocab = {text: id for text, id in data["model"]["vocab"].items()}
    kinds = {}
    for token in data["added_tokens"]:
        vocab[token["content"]] = token["id"]
        kinds[token["content"]] = gguf.TokenType.CONTROL if token["special"] else gguf.TokenType.USER_DEFINED
    texts = sorted(vocab, key=vocab.get)
    assert [vocab[t] for t in texts] == list(range(len(texts)))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(texts)
    writer.add_token_types([kinds.get(t, gguf.TokenType.NORMAL) for t in texts])
    writer.add_token_merges([" ".join(pair) for pair in data["model"]["merges"]])
    if pre == "llama-bpe":
        writer.add_bos_token_id(vocab["<|begin_of_text|>"])
    writer.add_eos_token_id(vocab["<|im_end|>"])
    writer.add_chat_template("{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}{{ eos_token }}")

    expected = {}
    for hf, value in tensors.items():
        heads = None
        if arch == "llama" and ".q_proj." in hf:
            heads = config["num_attention_heads"]
        elif arch == "llama" and ".k_proj." in hf:
            heads = config["num_key_value_heads"]
        stored = permute(value, heads) if heads else value
        kind = types(hf) if value.ndim > 1 else Q.F32
        raw = gguf.quants.quantize(np.ascontiguousarray(stored, dtype=np.float32), kind)
        writer.add_tensor(name_of(hf), raw, raw_dtype=kind)
        back = gguf.quants.dequantize(raw, kind).astype(np.float32).reshape(value.shape)
        expected[hf] = np.ascontiguousarray(unpermute(back, heads) if heads else back)
    for key, value in (extra or {}).items():
        writer.add_tensor(key, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    save_file(expected, OUT / f"{name}.safetensors")


def tiny(name):
    folder = FIXTURES / "tiny" / name
    config = json.loads((folder / "config.json").read_text())
    return config, load_file(folder / "model.safetensors")


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    blocks()
    f32 = lambda _: Q.F32
    config, tensors = tiny("llama-attention-bias")
    write("llama", config, tensors, f32, "llama-bpe", "llama3")
    config, tensors = tiny("qwen2-tied")
    write("qwen2", config, tensors, lambda hf: Q.F16 if "mlp" in hf else Q.BF16, "qwen2", "qwen2")

    # One layer wide enough for blocks, q and k of every block type that the package can quantise.
    rng = np.random.default_rng(11)
    config = json.loads((FIXTURES / "tiny" / "llama-gqa" / "config.json").read_text())
    config |= dict(hidden_size=64, intermediate_size=32, num_hidden_layers=1, vocab_size=32, head_dim=16,
                   num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True, max_position_embeddings=16384)
    config["rope_parameters"] = {"rope_type": "default", "rope_theta": 500000.0}
    shapes = {
        "model.embed_tokens.weight": (32, 64), "model.norm.weight": (64,),
        "model.layers.0.self_attn.q_proj.weight": (64, 64), "model.layers.0.self_attn.k_proj.weight": (32, 64),
        "model.layers.0.self_attn.v_proj.weight": (32, 64), "model.layers.0.self_attn.o_proj.weight": (64, 64),
        "model.layers.0.mlp.gate_proj.weight": (32, 64), "model.layers.0.mlp.up_proj.weight": (32, 64),
        "model.layers.0.mlp.down_proj.weight": (64, 32), "model.layers.0.input_layernorm.weight": (64,),
        "model.layers.0.post_attention_layernorm.weight": (64,),
    }
    kinds = dict(embed_tokens=Q.Q8_0, q_proj=Q.Q4_0, k_proj=Q.Q8_0, v_proj=Q.Q4_1, o_proj=Q.Q5_0, gate_proj=Q.Q5_1,
                 up_proj=Q.Q4_1, down_proj=Q.Q8_0)
    tensors = {k: rng.normal(0, 0.3, s).astype(np.float32) for k, s in shapes.items()}
    # What the converter stores for Llama 3.1 (factor 8): see Llama3 scaling in convert_hf_to_gguf.py.
    freqs = 1.0 / (500000.0 ** (np.arange(0, 16, 2, dtype=np.float32) / 16))
    factors = []
    for freq in freqs:
        wavelen = 2 * np.pi / freq
        if wavelen < 8192 / 4.0:
            factors.append(1)
        elif wavelen > 8192 / 1.0:
            factors.append(8)
        else:
            smooth = (8192 / wavelen - 1.0) / (4.0 - 1.0)
            factors.append(1 / ((1 - smooth) / 8 + smooth))
    extra = {"rope_freqs.weight": np.array(factors, dtype=np.float32)}
    write("quantised", config, tensors, lambda hf: kinds[hf.split(".")[-2]], "smollm", "qwen2", extra)
    for file in sorted(OUT.iterdir()):
        print(file.name, file.stat().st_size)


main()

"""Writes tests/fixtures/tiny/NAME: tiny random checkpoints and what transformers makes of them.

    pip install torch transformers safetensors
    python tests/scripts/tiny_models.py            (transformers 5.24.0, torch 2.15.0 on a CPU)

Each folder holds config.json and model.safetensors (or shards with an index) as
`save_pretrained` writes them, and
  expected.safetensors  logits     [batch, seq, vocab] f32 of `input_ids`
                        hidden     [batch, seq, hidden] f32, after the final norm
  expected.json         input_ids  [batch][seq]
                        prompts    ragged list of prompts
                        greedy     [prompt][16] tokens of greedy decoding, no stop token
                        margin     smallest gap between best and second-best logit on the way
Some hold the same config as transformers 4 spelled it in config-v4.json (rope_theta,
rope_scaling, torch_dtype). Weights are drawn wide enough that every part moves the logits, and the seed is
raised until greedy decoding has no close call.
"""

import json
import pathlib
import shutil

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

OUT = pathlib.Path(__file__).parent.parent / "fixtures" / "tiny"
BASE = dict(
    vocab_size=64,
    hidden_size=16,
    intermediate_size=24,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=128,
    rms_norm_eps=1e-5,
    tie_word_embeddings=False,
    bos_token_id=1,
    eos_token_id=2,
    pad_token_id=0,
)
DEFAULT_ROPE = {"rope_type": "default", "rope_theta": 10000.0}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


def qwen2(**kw):
    return Qwen2ForCausalLM, Qwen2Config(**(BASE | dict(rope_parameters=DEFAULT_ROPE, rms_norm_eps=1e-6) | kw))


def llama(**kw):
    return LlamaForCausalLM, LlamaConfig(**(BASE | dict(rope_parameters=DEFAULT_ROPE) | kw))


VARIANTS = {
    "qwen2-untied": qwen2(rope_parameters={"rope_type": "default", "rope_theta": 1000000.0}),
    "qwen2-tied": qwen2(tie_word_embeddings=True),
    # 61 token ids in use, 64 rows: the rows above are never trained and must never be sampled.
    "qwen2-padded-vocab": qwen2(tie_word_embeddings=True, vocab_size=61),
    "llama-gqa": llama(),
    "llama-mha": llama(num_key_value_heads=4),
    "llama-tied": llama(tie_word_embeddings=True, num_attention_heads=3, num_key_value_heads=1, hidden_size=24),
    "llama-attention-bias": llama(attention_bias=True),
    "llama-mlp-bias": llama(mlp_bias=True),
    "llama-head-dim": llama(head_dim=8),
    "llama-rope-linear": llama(rope_parameters={"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.5}),
    "llama-rope-llama3": llama(rope_parameters=LLAMA3_ROPE, head_dim=8),
    "llama-sharded": llama(),
    "qwen2-bf16": qwen2(),
}
# Also written as transformers 4 spelled them, in config-v4.json.
OLD_STYLE = ("qwen2-untied", "llama-gqa", "llama-rope-linear", "llama-rope-llama3")


def build(name, model_class, config, seed):
    torch.manual_seed(seed)
    model = model_class(config).to(torch.float32)
    with torch.no_grad():
        for key, value in model.named_parameters():
            if "norm" in key:
                value.copy_(1 + 0.2 * torch.randn_like(value))
            elif key.endswith("bias"):
                value.copy_(0.3 * torch.randn_like(value))
            elif "embed" in key or "lm_head" in key:
                value.copy_(0.7 * torch.randn_like(value))
            else:
                value.copy_(torch.randn_like(value) * (1.5 / value.shape[1] ** 0.5))
    if name == "qwen2-padded-vocab":
        model.resize_token_embeddings(64)
    if name.endswith("bf16"):
        # Stored in bf16, computed in f32: the expected values hold to f32 tolerance. Parameters
        # alone are rounded: `model.to` would round the rotary frequencies with them.
        with torch.no_grad():
            for value in model.parameters():
                value.copy_(value.to(torch.bfloat16))
    return model.eval()


def greedy(model, prompt, steps, limit):
    ids, margin = list(prompt), float("inf")
    for _ in range(steps):
        logits = model(torch.tensor([ids])).logits[0, -1, :limit]
        top = logits.topk(2)
        margin = min(margin, (top.values[0] - top.values[1]).item())
        ids.append(top.indices[0].item())
    return ids[len(prompt):], margin


def v4_config(folder, config):
    """The same configuration as transformers 4 wrote it."""
    data = json.loads((folder / "config.json").read_text())
    rope = data.pop("rope_parameters")
    data["rope_theta"] = rope.pop("rope_theta")
    kind = rope.pop("rope_type")
    # Linear scaling dates from when the key was called `type`.
    spelling = "type" if kind == "linear" else "rope_type"
    data["rope_scaling"] = None if kind == "default" else {spelling: kind} | rope
    data["torch_dtype"] = data.pop("dtype")
    data.pop("layer_types", None)
    if config.model_type == "qwen2":
        data |= {"use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 1}
        data.pop("head_dim", None)
    (folder / "config-v4.json").write_text(json.dumps(data, indent=2) + "\n")


@torch.no_grad()
def main():
    shutil.rmtree(OUT, ignore_errors=True)
    for name, (model_class, config) in VARIANTS.items():
        generator = torch.Generator().manual_seed(7)
        limit = 61 if name == "qwen2-padded-vocab" else 64
        draw = lambda n: torch.randint(3, limit, (n,), generator=generator).tolist()
        input_ids = [draw(40), draw(40)]
        prompts = [draw(n) for n in (1, 5, 9, 17)]
        for seed in range(1000):
            model = build(name, model_class, config, seed)
            model.config._attn_implementation = "eager"
            runs = [greedy(model, p, 16, limit) for p in prompts]
            margin = min(m for _, m in runs)
            # Repetition of one token would hide position errors.
            if margin > 0.02 and all(len(set(t)) > 5 for t, _ in runs):
                break
        else:
            raise SystemExit(f"{name}: no seed found")
        folder = OUT / name
        folder.mkdir(parents=True)
        out = model(torch.tensor(input_ids), output_hidden_states=True)
        save_file({"logits": out.logits, "hidden": out.hidden_states[-1]}, folder / "expected.safetensors")
        (folder / "expected.json").write_text(
            json.dumps(
                {
                    "input_ids": input_ids,
                    "prompts": prompts,
                    "greedy": [tokens for tokens, _ in runs],
                    "margin": round(margin, 4),
                    "vocab_used": limit,
                }
            )
            + "\n"
        )
        stored = model.to(torch.bfloat16) if name.endswith("bf16") else model
        stored.save_pretrained(folder, max_shard_size="12KB" if name == "llama-sharded" else "1GB")
        if name in OLD_STYLE:
            v4_config(folder, config)
        print(name, "seed", seed, "margin", round(margin, 3), "max logit", out.logits.abs().max().item())


main()

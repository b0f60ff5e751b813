"""A LoRA adapter written by PEFT on a tiny Qwen2, its base, and the logits of the two together.

Writes ../data/peft: base/ (config.json, model.safetensors), adapter/ (as PEFT saves it), case.json.
"""
import json
import pathlib
import shutil

import peft
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

torch.manual_seed(11)
out = pathlib.Path(__file__).parent.parent / "data" / "peft"
shutil.rmtree(out, ignore_errors=True)
config = Qwen2Config(
    vocab_size=29, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=64, tie_word_embeddings=True,
)
base = Qwen2ForCausalLM(config)
with torch.no_grad():
    for p in base.parameters():
        if p.ndim == 2:
            p.mul_(10)
base.save_pretrained(out / "base")
(out / "base" / "generation_config.json").unlink(missing_ok=True)
model = peft.get_peft_model(
    base,
    peft.LoraConfig(r=3, lora_alpha=5, target_modules=["down_proj", "q_proj"], task_type="CAUSAL_LM"),
)
initial = {n: (float(p.abs().max()), list(p.shape)) for n, p in model.named_parameters() if "lora_" in n}
with torch.no_grad():
    for n, p in model.named_parameters():
        if "lora_B" in n:
            p.normal_(0, 0.2)
model.save_pretrained(out / "adapter")
(out / "adapter" / "README.md").unlink(missing_ok=True)
ids = [3, 14, 15, 9, 2, 6]
with torch.no_grad():
    logits = model(torch.tensor([ids])).logits[0]
    merged = model.merge_and_unload()(torch.tensor([ids])).logits[0]
assert (logits - merged).abs().max() < 1e-4
case = {"ids": ids, "logits": logits.flatten().tolist(), "initial": initial}
(out / "case.json").write_text(json.dumps(case) + "\n")

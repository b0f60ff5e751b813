"""Writes tests/data/tiny-math-generate.json: greedy answers of `transformers` (f32, CPU) for the
model under manifests/models/tiny-math.

    python stages/tests/scripts/tiny_math_generate.py
"""

import json
import pathlib

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

root = pathlib.Path(__file__).parents[3]
folder = root / "manifests/models/tiny-math"
model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
tokenizer = AutoTokenizer.from_pretrained(folder)
cases = []
for prompt in ["Tom has 3 apples and buys 4 more. How many apples does he have?", "What is 12 + 7?", "Ann"]:
    ids = tokenizer(prompt, return_tensors="pt", add_special_tokens=False).input_ids
    out = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=24)
    new = out[0, ids.shape[1]:].tolist()
    cases.append({"prompt": prompt, "ids": new, "text": tokenizer.decode(new, skip_special_tokens=True)})
file = root / "stages/tests/data/tiny-math-generate.json"
file.write_text(json.dumps(cases, indent=1, ensure_ascii=False) + "\n")

"""Writes tests/data/reference.json: log-probabilities of demonstrated tokens under the model in
manifests/models/tiny-math, by `transformers` (f32, CPU), each sequence alone.

    python stages/tests/scripts/reference.py
"""

import json
import pathlib

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

root = pathlib.Path(__file__).parents[3]
folder = root / "manifests/models/tiny-math"
model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
tokenizer = AutoTokenizer.from_pretrained(folder)
end = json.load(open(folder / "generation_config.json"))["eos_token_id"]


def row(n):
    a, b = 3 + n, 2 + n % 3
    return (
        f"Amy has {a} bags of {b} pens and loses 1 pen. How many pens does Amy have?",
        f"To find it, {a} * {b} = {a * b}. {a * b} - 1 = {a * b - 1}. \\boxed{{{a * b - 1}}}",
    )


rows = []
for n in range(8):
    problem, solution = row(n)
    encode = lambda text: tokenizer(text, add_special_tokens=False).input_ids
    prompt, answer = encode(f"Question: {problem}\nAnswer:"), encode(f" {solution}") + [end]
    ids = torch.tensor([prompt + answer])
    with torch.no_grad():
        log_probs = model(ids).logits[0].double().log_softmax(-1)
    targets = range(len(prompt), ids.shape[1])
    rows.append([log_probs[i - 1, ids[0, i]].item() for i in targets])
file = root / "stages/tests/data/reference.json"
file.write_text(json.dumps(rows) + "\n")
print(file, sum(map(len, rows)))

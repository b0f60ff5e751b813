"""A checkpoint of the SmolLM2-135M shape with random weights, and longer rows of the prepared data.

    python3 prepare.py PREPARED [--small]

PREPARED is what `prepare.toml` published. Writes `model/`, `train.jsonl` and `test.jsonl` here; four
word problems make a row, so that sequences have about 300 tokens. `--small` is for trying the script.
"""

import json
import pathlib
import shutil
import sys

import torch
import transformers

prepared, small = pathlib.Path(sys.argv[1]), "--small" in sys.argv
for name in ["train", "test"]:
    rows = [json.loads(line) for line in open(prepared / "data" / f"{name}.jsonl")]
    with open(f"{name}.jsonl", "w") as out:
        for four in zip(*[iter(rows)] * 4):
            text = lambda key: " ".join(row[key] for row in four)
            row = {"problem": text("problem"), "solution": text("solution"), "answer": four[-1]["answer"]}
            out.write(json.dumps(row) + "\n")
config = transformers.LlamaConfig(
    vocab_size=1024 if small else 49152, hidden_size=72 if small else 576,
    intermediate_size=192 if small else 1536, num_hidden_layers=3 if small else 30, num_attention_heads=9,
    num_key_value_heads=3, max_position_embeddings=8192, tie_word_embeddings=True, rms_norm_eps=1e-5,
    rope_theta=100000.0, bos_token_id=None, eos_token_id=0)
torch.manual_seed(0)
model = transformers.AutoModelForCausalLM.from_config(config)
model.to(torch.float32 if small else torch.bfloat16).save_pretrained("model")
written = json.load(open("model/config.json"))
written.setdefault("rope_theta", 100000.0)
json.dump(written, open("model/config.json", "w"))
for name in ["tokenizer.json", "tokenizer_config.json"]:
    shutil.copy(prepared / "tokenizer" / name, f"model/{name}")

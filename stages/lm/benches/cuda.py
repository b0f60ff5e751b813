"""Generation on a GPU beside transformers' `generate`: random weights of one shape in bf16, greedy,
random prompts of equal length, never stopping early, both on the same card in one run.

    cargo build --release --features cuda -p pipeline
    python stages/lm/benches/cuda.py target/release/pipeline
"""

import argparse
import json
import os
import subprocess
import threading
import time

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

# Qwen2.5-7B
SHAPE = dict(
    hidden_size=3584, intermediate_size=18944, num_hidden_layers=28, num_attention_heads=28,
    num_key_value_heads=4, vocab_size=152064, max_position_embeddings=32768, rope_theta=1e6,
    rms_norm_eps=1e-6, tie_word_embeddings=False,
)
# A single new token measures the prompts alone.
CASES = [(64, 128, 256), (64, 128, 1024), (1, 128, 128), (256, 128, 128), (64, 512, 1)]


class Memory:
    """The most memory in use on the card, MiB, sampled by nvidia-smi."""

    def __enter__(self):
        self.peak, self.stop = 0, False
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()
        return self

    def watch(self):
        gpu = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
        query = ["nvidia-smi", "-i", gpu, "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
        while not self.stop:
            out = subprocess.run(query, capture_output=True, text=True).stdout
            self.peak = max(self.peak, int(out.split()[0]))
            time.sleep(0.2)

    def __exit__(self, *_):
        self.stop = True
        self.thread.join()


def ours(binary, batch, prompt, new):
    with Memory() as memory:
        command = [binary, "bench", "generate", "--batch", batch, "--prompt", prompt, "--new", new, "--repeats", 1]
        out = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if out.returncode:
        return {"error": out.stderr[-500:]}
    result = json.loads(out.stdout)
    cold, warm = result["runs"][0], result["runs"][-1]
    return {
        "start_to_first_token_s": round(cold["first_token_after_start_s"], 2),
        "path": result["path"], "prefill_s": round(warm["prefill_s"], 4),
        "step_ms": round(warm["step_ms_median"], 3) if new > 1 else None, "tokens_per_s": round(warm["tokens_per_s"]), "graphs": result["graphs"], "peak_mib": memory.peak,
    }


@torch.no_grad()
def theirs(model, batch, prompt, new):
    ids = torch.randint(3, SHAPE["vocab_size"], (batch, prompt), device="cuda")
    times = []
    for count in (1, 1, new):  # the first of a shape is cold
        torch.cuda.synchronize()
        begin = time.perf_counter()
        model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, min_new_tokens=count,
                       max_new_tokens=count, pad_token_id=0, eos_token_id=None)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    step = round((times[2] - times[1]) / (new - 1) * 1e3, 2) if new > 1 else None
    return {"prefill_s": round(times[1], 4), "step_ms": step}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--steps", type=int, default=32, help="steps of transformers to measure, at most")
    args = parser.parse_args()
    for case in CASES:
        print(json.dumps({"case": case, "engine": ours(args.binary, *case)}), flush=True)
    with torch.device("cuda"):
        torch.set_default_dtype(torch.bfloat16)
        model = Qwen2ForCausalLM(Qwen2Config(**SHAPE)).eval()
    theirs(model, 1, 16, 2)
    for batch, prompt, new in CASES:
        result = theirs(model, batch, prompt, min(new, args.steps))
        print(json.dumps({"case": (batch, prompt, new), "transformers": result}), flush=True)


if __name__ == "__main__":
    main()

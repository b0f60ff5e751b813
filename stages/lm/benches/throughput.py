"""Generation on a CPU beside transformers' `generate`: same weights, shapes and threads, f32, greedy,
random prompts of equal length, never stopping early. The two take turns, the fastest turn counts.
Wall time, and processor time of all threads: on a shared machine the second is the steadier figure.

    cargo build --release -p lm --example throughput
    python stages/lm/benches/throughput.py target/release/examples/throughput \
        --model FOLDER --threads 2          # SmolLM2-135M: a GGUF file, or a folder of safetensors
"""

import argparse
import json
import os
import pathlib
import subprocess
import tempfile
import time

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM


def tiny(folder):
    """About a million parameters, what the quickstart trains."""
    config = LlamaConfig(
        vocab_size=512, hidden_size=128, intermediate_size=384, num_hidden_layers=4,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=1024,
        tie_word_embeddings=True,
    )
    torch.manual_seed(0)
    LlamaForCausalLM(config).save_pretrained(folder)


@torch.no_grad()
def reference(model, batch, prompt, new):
    ids = torch.randint(3, model.config.vocab_size, (batch, prompt))
    options = dict(do_sample=False, pad_token_id=0, eos_token_id=None)
    times = []
    for count in (1, new):
        begin, cpu = time.perf_counter(), time.process_time()
        out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=count,
                             min_new_tokens=count, **options)
        times.append((time.perf_counter() - begin, time.process_time() - cpu))
        assert out.shape[1] == prompt + count
    return times


def ours(binary, path, batch, prompt, new, threads):
    out = subprocess.run([binary, path, str(batch), str(prompt), str(new), "1"], check=True,
                         capture_output=True, text=True,
                         env=os.environ | {"RAYON_NUM_THREADS": str(threads)})
    return json.loads(out.stdout)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--model", type=pathlib.Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--turns", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    folder = tempfile.mkdtemp()
    tiny(folder)
    models = [("tiny 1M", folder, AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32),
               [(8, 64, 128), (64, 64, 64)])]
    if args.model:
        path = args.model
        where = dict(gguf_file=path.name) if path.suffix == ".gguf" else {}
        folder = path.parent if where else path
        model = AutoModelForCausalLM.from_pretrained(folder, **where, dtype=torch.float32)
        models.append(("SmolLM2-135M", str(path), model, [(1, 128, 64), (8, 128, 64)]))
    print("| model | batch | prompt | new | | prefill s | step ms | prefill CPU s | step CPU ms |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name, path, model, shapes in models:
        for batch, prompt, new in shapes:
            theirs, mine = [], []
            for _ in range(args.turns):
                first, total = reference(model.eval(), batch, prompt, new)
                steps = [(t - f) / (new - 1) for f, t in zip(first, total)]
                theirs.append((first[0], steps[0], first[1], steps[1]))
                result = ours(args.binary, path, batch, prompt, new, args.threads)
                mine.append([result[k] for k in ("prefill_s", "step_s", "prefill_cpu_s", "step_cpu_s")])
            for who, runs in (("transformers", theirs), ("ours", mine)):
                p, s, pc, sc = (min(x) for x in zip(*runs))
                print(f"| {name} | {batch} | {prompt} | {new} | {who} | {p:.3f} | {s * 1e3:.1f} | "
                      f"{pc:.3f} | {sc * 1e3:.1f} |", flush=True)


main()

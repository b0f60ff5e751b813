"""SmolLM2-135M on GSM8K's test set, greedy: transformers and the engine on the same weights and prompts,
both in f32 and in bf16. Both are graded by `pipeline grade`. Prints accuracy, wall time, and how far f32
answers agree question by question.

    cargo build --release --features cuda -p pipeline
    python stages/lm/benches/gsm8k.py target/release/pipeline SmolLM2-135M-Instruct.Q4_1.gguf test.jsonl

The weights are a GGUF file. `transformers` reads what the engine's own writer makes of it (the `convert`
kind, f32), so that a writer's mistake would show too. The engine runs f32 on the CPU, beside the others,
unless `--f32-device` says otherwise. Answers are graded and written as they come.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import tempfile
import time

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def run(command, **kwargs):
    out = subprocess.run([str(c) for c in command], capture_output=True, text=True, **kwargs)
    if out.returncode:
        raise SystemExit(f"{' '.join(map(str, command))[:300]}\n{out.stderr[-3000:]}")
    return out


def export(binary, gguf, folder):
    """The weights as a safetensors folder in f32."""
    manifest = folder / "export.toml"
    manifest.write_text(f"""name = "export"

[stage.convert]
kind = "convert"
model = "{gguf.resolve()}"
dtype = "f32"
serving = "f32"
publish = "model"
""")
    run([binary, "run", manifest, "--device", "cpu", "--cache", folder / "cache"], cwd=folder)
    found = [p.parent for p in folder.rglob("config.json") if (p.parent / "model.safetensors").exists()]
    return found[0]


@torch.no_grad()
def theirs(folder, prompts, tokenizer, dtype, device, args):
    """Yields batches as they are done: indices of questions, their answers' ids, seconds."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="sdpa").to(device).eval()
    stops = model.generation_config.eos_token_id
    stops = set(stops if isinstance(stops, list) else [stops]) | {tokenizer.eos_token_id}
    # Prompts of like length side by side, so that little is padded; in batches of about equal size.
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    batch = -(-len(order) // -(-len(order) // args.their_batch))
    pad = min(stops)
    warm = torch.tensor([prompts[0]], device=device)
    model.generate(warm, attention_mask=torch.ones_like(warm), do_sample=False, max_new_tokens=2, pad_token_id=pad)
    for start in range(0, len(order), batch):
        begin = time.perf_counter()
        rows = order[start:start + batch]
        width = max(len(prompts[i]) for i in rows)
        ids = torch.tensor([[pad] * (width - len(prompts[i])) + prompts[i] for i in rows], device=device)
        mask = torch.tensor([[0] * (width - len(prompts[i])) + [1] * len(prompts[i]) for i in rows], device=device)
        out = model.generate(ids, attention_mask=mask, do_sample=False, repetition_penalty=1.0, pad_token_id=pad,
                             max_new_tokens=args.new, eos_token_id=sorted(stops))
        answers = []
        for row in out[:, width:].tolist():
            end = next((n + 1 for n, token in enumerate(row) if token in stops), len(row))
            answers.append(row[:end])
        yield rows, answers, time.perf_counter() - begin


def ours(binary, folder, questions, precision, device, args, work):
    file = work / f"questions-{precision}.txt"
    file.write_text("\n".join(questions) + "\n")
    # Two cores are left to those that run beside.
    threads = {} if device != "cpu" else {"RAYON_NUM_THREADS": str(max(1, os.cpu_count() - 2))}
    begin = time.perf_counter()
    out = run([binary, "generate", folder, "--file", file, "--template", "chat", "--max-tokens", args.new,
               "--batch", args.batch, "--precision", precision, "--device", device, "--json"],
              env={**os.environ, **threads})
    total = time.perf_counter() - begin
    rows = [json.loads(line) for line in out.stdout.splitlines()]
    said = out.stderr.strip().splitlines()[-1]
    seconds = float(re.search(r"tokens in ([\d.]+) s", said).group(1))
    return rows, seconds, total, said


def grade(binary, texts, golds, work):
    file = work / "answers.jsonl"
    with file.open("w") as out:
        for text, gold in zip(texts, golds):
            out.write(json.dumps({"text": text, "gold": gold, "data_name": "gsm8k"}) + "\n")
    return [json.loads(line) for line in run([binary, "grade", file]).stdout.splitlines()]


def common(a, b):
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))


def compare(name, a, b):
    """How far two runs agree, question by question."""
    same = [x["ids"] == y["ids"] for x, y in zip(a, b)]
    agreed = sum(common(x["ids"], y["ids"]) for x, y in zip(a, b))
    print(json.dumps({
        "compare": name, "questions": len(a), "same_tokens": sum(same),
        "tokens_before_the_first_difference": agreed, "tokens": sum(len(x["ids"]) for x in a),
        "same_extracted_answer": sum(x["extracted"] == y["extracted"] for x, y in zip(a, b)),
        "same_verdict": sum(x["qwen"] == y["qwen"] for x, y in zip(a, b)),
        "only_first_right": sum(x["qwen"] and not y["qwen"] for x, y in zip(a, b)),
        "only_second_right": sum(y["qwen"] and not x["qwen"] for x, y in zip(a, b)),
    }), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", type=lambda p: str(pathlib.Path(p).resolve()))
    parser.add_argument("gguf", type=pathlib.Path)
    parser.add_argument("questions", type=pathlib.Path, help="JSON lines with question and answer")
    parser.add_argument("--limit", type=int, help="the first so many questions")
    parser.add_argument("--new", type=int, default=512, help="tokens of an answer, at most")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--f32-device", default="cpu", help="where the engine runs in f32")
    parser.add_argument("--their-batch", type=int, default=660, help="of transformers, at most")
    parser.add_argument("--out", type=pathlib.Path, help="a file for every answer, as JSON lines")
    parser.add_argument("--runs", default="engine-f32,engine-bf16,transformers-f32,transformers-bf16")
    args = parser.parse_args()
    data = [json.loads(line) for line in args.questions.open()][:args.limit]
    # The engine takes a question a line.
    questions = [" ".join(row["question"].split()) for row in data]
    golds = [row["answer"].split("####")[-1].strip().replace(",", "") for row in data]
    results = {}
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        begin = time.perf_counter()
        folder = export(args.binary, args.gguf, work)
        print(json.dumps({"export_s": round(time.perf_counter() - begin, 2), "questions": len(data),
                          "new_tokens": args.new, "batch": args.batch}), flush=True)
        tokenizer = AutoTokenizer.from_pretrained(folder)
        chats = [[{"role": "user", "content": question}] for question in questions]
        prompts = [tokenizer.apply_chat_template(c, add_generation_prompt=True, tokenize=False) for c in chats]
        prompts = [tokenizer(p, add_special_tokens=False)["input_ids"] for p in prompts]
        aside = concurrent.futures.ThreadPoolExecutor(1)
        waiting = {}
        names = args.runs.split(",")
        if "engine-f32" in names and args.f32_device != args.device:
            waiting["engine-f32"] = aside.submit(
                ours, args.binary, folder, questions, "f32", args.f32_device, args, work)
            names = [name for name in names if name not in waiting] + list(waiting)
        for name in names:
            who, precision = name.split("-")
            rows = [None] * len(data)

            def keep(indices, ids, texts):
                """Grades answers and writes them."""
                graded = grade(args.binary, texts, [golds[i] for i in indices], work)
                for index, row, answer in zip(indices, graded, ids):
                    rows[index] = dict(row, ids=answer)
                if args.out:
                    with args.out.open("a") as out:
                        for index in indices:
                            kept = {key: rows[index][key] for key in ("ids", "extracted", "qwen", "strict")}
                            out.write(json.dumps({"run": name, "question": index, **kept}) + "\n")

            if who == "engine":
                device = args.f32_device if precision == "f32" else args.device
                if name in waiting:
                    made, seconds, total, said = waiting[name].result()
                else:
                    made, seconds, total, said = ours(args.binary, folder, questions, precision, device, args, work)
                keep(range(len(data)), [row["ids"] for row in made], [row["text"] for row in made])
            else:
                dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[precision]
                device, said, seconds, done, begin = args.device, "", 0, 0, time.perf_counter()
                at = device.replace("cuda:0", "cuda")
                for indices, ids, took in theirs(folder, prompts, tokenizer, dtype, at, args):
                    keep(indices, ids, tokenizer.batch_decode(ids, skip_special_tokens=True))
                    seconds, done = seconds + took, done + len(indices)
                    print(json.dumps({"run": name, "done": done, "generate_s": round(seconds, 2)}), flush=True)
                total = time.perf_counter() - begin
            results[name] = rows
            ids = [row["ids"] for row in rows]
            right = sum(row["qwen"] for row in rows)
            print(json.dumps({
                "run": name, "device": device, "right": right, "accuracy": round(right / len(data), 4),
                "strict": sum(row["strict"] for row in rows), "generate_s": round(seconds, 2),
                "with_loading_s": round(total, 2), "tokens": sum(map(len, ids)),
                "unfinished": sum(len(i) >= args.new for i in ids), "said": said,
            }), flush=True)
    for a, b in (("engine-f32", "transformers-f32"), ("engine-bf16", "transformers-bf16"),
                 ("engine-bf16", "engine-f32"), ("transformers-bf16", "transformers-f32")):
        if a in results and b in results:
            compare(f"{a} / {b}", results[a], results[b])


if __name__ == "__main__":
    main()

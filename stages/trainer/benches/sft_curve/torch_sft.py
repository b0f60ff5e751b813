"""The SFT arm of `sft-curve.toml` in torch, and both curves side by side.

    python3 torch_sft.py RESULTS OUT.json [--device cuda] [--steps 701 --batch 32 …]

RESULTS is what `pipeline run sft-curve.toml` published (`results/sft-curve`): the model, the rows and, if
the SFT arm has run, its metrics. The order of rows and the tokens are made anew here, from their
definitions (`lm::rng`, `trainer::data::Order`, the model's chat template), and the trained tokens of every
update are compared with the trainer's: where they differ this is not the same training, and it says so.

As the trainer: bf16 weights with f32 masters, gradients summed in f32, clipped by their global norm, AdamW
with decay on matrices only, cosine after a linear warm-up, losses divided by the tokens of the update.
Different: sequences are padded on the right, not packed, and attention and layers are transformers' own.
"""

import argparse
import json
import math
import pathlib
import time

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def mix(z):
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def stream(seed, number):
    key = mix((seed + GOLDEN) & MASK) ^ mix((number * GOLDEN + 1) & MASK)
    return lambda counter: mix((mix((key + counter * GOLDEN) & MASK) + key) & MASK)


def named(seed, name):
    number = 0xCBF29CE484222325
    for byte in name.encode():
        number = ((number ^ byte) * 0x100000001B3) & MASK
    return stream(seed, number)


def order(count, seed, epoch):
    rows, bits = list(range(count)), stream(named(seed, "data order")(0), epoch)
    for i in range(count - 1, 0, -1):
        j = bits(i) % (i + 1)
        rows[i], rows[j] = rows[j], rows[i]
    return rows


def sequences(file, tokenizer):
    """Token ids of each row, and how many of them are the prompt's."""
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    for line in open(file):
        row = json.loads(line)
        turn = [{"role": "user", "content": row["problem"]}]
        text = tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True)
        prompt = tokenizer(text, add_special_tokens=False).input_ids
        yield prompt + tokenizer(row["solution"], add_special_tokens=False).input_ids + [end], len(prompt)


def batches(rows, micro_tokens, device):
    """Rows of like length side by side, padded on the right: ids, places of the head, targets."""
    rows = sorted(rows, key=lambda row: -len(row[0]))
    while rows:
        width = len(rows[0][0])
        now, rows = rows[: max(1, micro_tokens // width)], rows[max(1, micro_tokens // width):]
        ids = torch.tensor([ids + [0] * (width - len(ids)) for ids, _ in now], device=device)
        places = [r * width + i - 1 for r, (ids, prompt) in enumerate(now) for i in range(prompt, len(ids))]
        targets = [id for ids, prompt in now for id in ids[prompt:]]
        yield ids, torch.tensor(places, device=device), torch.tensor(targets, device=device)


def loss_sum(model, batch):
    ids, places, targets = batch
    hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state
    logits = model.lm_head(hidden.flatten(0, 1)[places]).float()
    return torch.nn.functional.cross_entropy(logits, targets, reduction="sum")


@torch.no_grad()
def held_out_loss(model, rows, args):
    total = sum(loss_sum(model, batch).item() for batch in batches(rows, args.micro_tokens, args.device))
    return total / sum(len(ids) - prompt for ids, prompt in rows)


def rate(step, total, args):
    if step < args.warmup:
        return args.lr * step / args.warmup
    return args.lr * 0.5 * (1 + math.cos(math.pi * (step - args.warmup) / max(1, total - args.warmup)))


def ours(results):
    file = results / "train/sft/metrics.jsonl"
    return [json.loads(line) for line in open(file)] if file.exists() else []


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("results", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--device", default="cuda")
    for name, default in [
        ("--steps", 701), ("--batch", 32), ("--lr", 1e-4), ("--warmup", 21), ("--beta2", 0.95),
        ("--weight-decay", 0.1), ("--seed", 3), ("--eval-every", 50), ("--micro-tokens", 16384)]:
        parser.add_argument(name, type=type(default), default=default)
    parser.add_argument("--eval-at", default="0,10,25")
    args = parser.parse_args()
    dtype = torch.bfloat16 if args.device.startswith("cuda") else torch.float32
    folder = args.results / "export/smollm2/model"
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).to(args.device)
    train = list(sequences(args.results / "data/smollm2/train.jsonl", tokenizer))
    held_out = list(sequences(args.results / "held/smollm2/train.jsonl", tokenizer))
    names, weights = zip(*model.named_parameters())
    masters = [weight.detach().float().clone() for weight in weights]
    groups = [{"params": [m for m in masters if m.dim() > 1], "weight_decay": args.weight_decay},
              {"params": [m for m in masters if m.dim() == 1], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=args.lr, betas=(0.9, args.beta2), eps=1e-8,
                                  fused=args.device.startswith("cuda"))
    total = args.steps
    visits = total * args.batch
    epochs = [order(len(train), args.seed, e) for e in range(math.ceil(visits / len(train)))]
    members = [row for epoch in epochs for row in epoch][:visits]
    at = {int(step) for step in args.eval_at.split(",") if step}
    due = lambda step: step in at or step == total or (args.eval_every and step % args.eval_every == 0)
    curve, losses, tokens_of, seconds, evaluating = {}, [], [], 0.0, 0.0

    def measure(step):
        nonlocal evaluating
        start = time.perf_counter()
        curve[step] = held_out_loss(model, held_out, args)
        evaluating += time.perf_counter() - start

    if 0 in at:
        measure(0)
    for step in range(total):
        start = time.perf_counter()
        rows = [train[m] for m in members[step * args.batch:(step + 1) * args.batch]]
        tokens = sum(len(ids) - prompt for ids, prompt in rows)
        loss = 0.0
        for master in masters:
            master.grad = None
        for batch in batches(rows, args.micro_tokens, args.device):
            part = loss_sum(model, batch)
            (part / tokens).backward()
            loss += part.detach()
            for master, weight in zip(masters, weights):
                grad = weight.grad.float()
                master.grad = grad if master.grad is None else master.grad + grad
                weight.grad = None
        torch.nn.utils.clip_grad_norm_(masters, 1.0)
        for group in optimizer.param_groups:
            group["lr"] = rate(step, total, args)
        optimizer.step()
        with torch.no_grad():
            torch._foreach_copy_(list(weights), masters)
        losses.append(float(loss) / tokens)
        tokens_of.append(tokens)
        seconds += time.perf_counter() - start
        if due(step + 1):
            measure(step + 1)
            print(step + 1, losses[-1], curve[step + 1], f"{seconds:.1f} s", flush=True)
    result = {
        "torch": torch.__version__, "updates": total, "seconds_of_updates": seconds,
        "seconds_of_evaluations": evaluating, "tokens": sum(len(train[m][0]) for m in members),
        "peak_gigabytes": torch.cuda.max_memory_reserved() / 1e9 if dtype == torch.bfloat16 else None,
        "losses": losses, "held_out_loss": curve,
    }
    compare(result, ours(args.results), tokens_of)
    args.out.write_text(json.dumps(result) + "\n")


def compare(result, lines, tokens):
    """Adds the trainer's curve and the largest differences to `result`, and prints both."""
    if not lines:
        return
    if [line["tokens"] for line in lines] != tokens:
        raise SystemExit("not the same updates: the trained tokens differ")
    curve = {line["step"]: line["held_out_loss"] for line in lines if "held_out_loss" in line}
    curve |= {0: line["initial_held_out_loss"] for line in lines if "initial_held_out_loss" in line}
    assert sorted(curve) == sorted(result["held_out_loss"]), "evaluations differ"
    worst = 0.0
    print("update  held-out CE: ours, torch, difference")
    for step, theirs in sorted(result["held_out_loss"].items()):
        difference = curve[step] / theirs - 1
        worst = max(worst, abs(difference))
        print(f"{step:6}  {curve[step]:.5f}  {theirs:.5f}  {100 * difference:+.3f} %")
    result |= {"ours": curve, "largest_difference": worst}
    pairs = zip((line["loss"] for line in lines), result["losses"])
    result["largest_loss_difference"] = max(abs(a / b - 1) for a, b in pairs)
    print(f"largest difference {100 * worst:.3f} %, of training losses {100 * result['largest_loss_difference']:.3f} %")


main()

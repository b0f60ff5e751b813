"""Gradients of whole models and short trainings by torch, transformers and PEFT, in float64; writes trainings.json.

The model is ../data/peft/base, the adapter ../data/peft/adapter. Of the gradient of each parameter the norm and
the product with cos(0), cos(1), ... are kept, which tell one gradient from another in two numbers.
"""
import json
import math
import pathlib

import peft
import torch
from transformers import Qwen2ForCausalLM

HERE = pathlib.Path(__file__).parent
DATA = HERE.parent / "data" / "peft"
torch.set_default_dtype(torch.float64)
stream = torch.Generator().manual_seed(5)
# prompts and completions; a completion of one token, a prompt of one token, unequal lengths
LENGTHS = [(3, 6), (1, 9), (5, 1), (2, 4), (7, 3), (4, 8), (3, 2)]
rows = [
    (torch.randint(29, (p,), generator=stream).tolist(), torch.randint(29, (c,), generator=stream).tolist())
    for p, c in LENGTHS
]
held_out = [(torch.randint(29, (4,), generator=stream).tolist(), torch.randint(29, (7,), generator=stream).tolist())]
advantages = [1.0, -0.5, 0.25, 2.0, -1.0, 0.0, 0.75]


def trained(kind):
    """The model, and what trains on it by its name."""
    model = Qwen2ForCausalLM.from_pretrained(DATA / "base", dtype=torch.float64, attn_implementation="eager")
    if kind == "full":
        return model, dict(model.named_parameters())
    model.requires_grad_(False)
    if kind == "lora":
        model = peft.PeftModel.from_pretrained(model, DATA / "adapter", is_trainable=True).double()
        return model, {n.replace(".default", ""): p for n, p in model.named_parameters() if "lora_" in n}
    biases = {}
    for i, layer in enumerate(model.model.layers):
        down = layer.mlp.down_proj
        down.bias = torch.nn.Parameter(torch.zeros(down.out_features))
        biases[f"model.layers.{i}.mlp.down_proj.bias"] = down.bias
    return model, biases


def logits(model, prompt, completion, temperature=1.0):
    """At every position; row i is the distribution of token i + 1."""
    return model(torch.tensor([prompt + completion])).logits[0] / temperature


def log_probs(model, prompt, completion, temperature=1.0):
    at = logits(model, prompt, completion, temperature)[len(prompt) - 1 : -1]
    return torch.log_softmax(at, -1).gather(1, torch.tensor(completion)[:, None])[:, 0]


def entropies(model, prompt, completion, reference, temperature):
    first = len(prompt) - (0 if reference else 1)
    at = logits(model, prompt, completion, temperature)[first : first + len(completion)]
    p = torch.softmax(at, -1)
    return -(p * torch.log_softmax(at, -1)).sum(-1)


def psft(lp, ref):
    ratio = torch.exp(torch.clamp(lp - ref, -20, 20))
    return -torch.minimum(ratio, torch.clamp(ratio, 0.8, 1.28)).sum()


def spft(lp, ref):
    return -((lp.exp() * torch.sigmoid(-(lp - ref))).detach() * lp).sum()


def loss_of(name, model, members, references):
    """Sum over the tokens of these rows."""
    total = 0.0
    for m in members:
        if name in ("entropy_causal", "entropy_reference"):
            total = total + entropies(model, *rows[m], name == "entropy_reference", 0.5).sum()
        elif name == "rloo":
            total = total - advantages[m] * log_probs(model, *rows[m], 0.7).sum()
        else:
            lp = log_probs(model, *rows[m])
            total = total + {"sft": lambda: -lp.sum(), "psft": lambda: psft(lp, references[m]),
                             "spft": lambda: spft(lp, references[m])}[name]()
    return total


def tokens_of(members):
    return sum(len(rows[m][1]) for m in members)


def gradients(kind, name):
    model, parameters = trained(kind)
    members = range(len(rows))
    loss = loss_of(name, model, members, None) / tokens_of(members)
    loss.backward()
    sums = {}
    for key, p in parameters.items():
        g = p.grad.flatten()
        sums[key] = [g.norm().item(), (g * torch.cos(torch.arange(len(g), dtype=g.dtype))).sum().item()]
    return {"loss": loss.item(), "gradients": sums}


def training(kind, name, steps=6, batch=3, warmup=1, lr=5e-3):
    model, parameters = trained(kind)
    with torch.no_grad():
        references = [log_probs(model, *row) for row in rows]
    groups = [{"params": [p for p in parameters.values() if p.ndim > 1], "weight_decay": 0.1},
              {"params": [p for p in parameters.values() if p.ndim == 1], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW([g for g in groups if g["params"]], lr=lr, betas=(0.9, 0.95), eps=1e-8)
    out = {"loss": [], "grad_norm": [], "lr": [], "tokens": [], "held_out_loss": []}
    for step in range(steps):
        members = [(step * batch + i) % len(rows) for i in range(batch)]
        rate = lr * step / warmup if step < warmup else lr * 0.5 * (
            1 + math.cos(math.pi * (step - warmup) / (steps - warmup)))
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad()
        loss = loss_of(name, model, members, references) / tokens_of(members)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(list(parameters.values()), 1.0)
        optimizer.step()
        with torch.no_grad():
            held = -torch.cat([log_probs(model, *row) for row in held_out]).mean()
        for key, value in [("loss", loss.item()), ("grad_norm", norm.item()), ("lr", rate),
                           ("tokens", tokens_of(members)), ("held_out_loss", held.item())]:
            out[key].append(value)
    return out


KINDS = ["full", "bias", "lora"]
result = {
    "rows": rows, "held_out": held_out, "advantages": advantages,
    "gradients": {k: {n: gradients(k, n) for n in ("sft", "rloo", "entropy_causal", "entropy_reference")} for k in KINDS},
    "trainings": {k: {n: training(k, n) for n in ("sft", "psft", "spft")} for k in KINDS},
}
(HERE / "trainings.json").write_text(json.dumps(result, indent=1) + "\n")

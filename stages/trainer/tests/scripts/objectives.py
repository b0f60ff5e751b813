"""Losses and gradients of the objectives by PyTorch's autograd, in float64; writes objectives.json.

`head` holds whole vocabulary losses: hidden states and head weights in, gradients of both out.
"""
import json
import pathlib

import torch

torch.manual_seed(7)
torch.set_default_dtype(torch.float64)
N = 8


def rounded(t):
    """float32 inputs, so that both sides start from the same numbers."""
    return t.float().double()


log_prob = rounded(-torch.rand(N) * 4 - 0.01)
reference = rounded(log_prob + torch.randn(N) * 0.5).clamp(max=-1e-3)
reference = rounded(reference)


def gradient(function, *inputs):
    leaves = [t.clone().requires_grad_() for t in inputs]
    loss = function(*leaves)
    loss.backward()
    return loss.item(), [leaf.grad for leaf in leaves]


def case(function):
    loss, (by_log_prob,) = gradient(function, log_prob)
    return {"loss": loss, "by_log_prob": by_log_prob.tolist()}


def psft(lp, ref=reference):
    ratio = torch.exp(torch.clamp(lp - ref, -20, 20))
    return -torch.minimum(ratio, torch.clamp(ratio, 0.8, 1.28)).sum()


def logit(lp):
    lp = lp.clamp(max=-1e-6)
    return lp - torch.log(-torch.expm1(lp))


def spft(distance, stop):
    def loss(lp):
        delta = lp - reference if distance == "log_prob" else logit(lp) - logit(reference)
        weight = lp.exp() * torch.sigmoid(-0.7 * delta)
        return -((weight.detach() if stop else weight) * lp).sum()

    return loss


def psft_sums():
    """Sums over the tokens: clipped ones, ratios, the k3 estimate of the KL divergence."""
    ratio = torch.exp(torch.clamp(log_prob - reference, -20, 20))
    return {
        "clip_fraction": (ratio > 1.28).double().sum().item(),
        "ratio": ratio.sum().item(),
        "approx_kl": (ratio - 1 - ratio.log()).sum().item(),
    }


def spft_sums(distance):
    delta = log_prob - reference if distance == "log_prob" else logit(log_prob) - logit(reference)
    return {
        "weight": (log_prob.exp() * torch.sigmoid(-0.7 * delta)).sum().item(),
        "distance": delta.sum().item(),
    }


rewards = torch.tensor([1.0, -1, -1, 1, -1, -1, -1, 1])
baseline = (rewards.sum() - rewards) / (N - 1)
advantages = rewards - baseline

out = {
    "log_prob": log_prob.tolist(),
    "reference": reference.tolist(),
    "sft": case(lambda lp: -lp.sum()),
    "psft": {**case(psft), "sums": psft_sums()},
    "spft": {
        f"{d}_{'stop' if s else 'through'}": {**case(spft(d, s)), "sums": spft_sums(d)}
        for d in ("log_prob", "log_odds")
        for s in (True, False)
    },
    "rloo": {
        "rewards": rewards.tolist(),
        "advantages": advantages.tolist(),
        **case(lambda lp: -(advantages * lp).sum()),
    },
}

# the vocabulary head: 5 rows, hidden 4, vocabulary 7
hidden, weight = rounded(torch.randn(5, 4) * 2), rounded(torch.randn(7, 4))
targets = torch.tensor([3, 0, 6, 2, 2])
head_reference = rounded(-torch.rand(5) * 2 - 0.5)


def picked(h, w, temperature):
    logits = h @ w.T / temperature
    return torch.log_softmax(logits, -1).gather(1, targets[:, None])[:, 0], logits


def head(function, temperature):
    loss, (by_hidden, by_weight) = gradient(
        lambda h, w: function(*picked(h, w, temperature)), hidden, weight
    )
    return {
        "temperature": temperature,
        "loss": loss,
        "by_hidden": by_hidden.flatten().tolist(),
        "by_weight": by_weight.flatten().tolist(),
    }


def entropy(_, logits):
    p = torch.softmax(logits, -1)
    return -(p * torch.log(p + 1e-12)).sum()


lp, _ = picked(hidden, weight, 1.0)
out["head"] = {
    "hidden": hidden.flatten().tolist(),
    "weight": weight.flatten().tolist(),
    "targets": targets.tolist(),
    "reference": head_reference.tolist(),
    "log_prob": lp.tolist(),
    "sft": head(lambda lp, _: -lp.sum(), 1.0),
    "psft": head(lambda lp, _: psft(lp, head_reference), 1.0),
    "entropy": head(entropy, 0.5),
    "both": head(lambda lp, z: -lp.sum() + 0.3 * entropy(lp, z), 0.8),
}
pathlib.Path(__file__).with_suffix(".json").write_text(json.dumps(out, indent=1) + "\n")

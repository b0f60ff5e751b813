"""Five updates by torch.optim.AdamW after clip_grad_norm_(1.0); writes adamw.json."""
import json
import pathlib

import torch

torch.manual_seed(3)
matrix, vector = torch.nn.Parameter(torch.randn(2, 3)), torch.nn.Parameter(torch.randn(3))
out = {"matrix": matrix.flatten().tolist(), "vector": vector.tolist(), "steps": []}
optimizer = torch.optim.AdamW(
    [{"params": [matrix], "weight_decay": 0.1}, {"params": [vector], "weight_decay": 0.0}],
    betas=(0.9, 0.95),
    eps=1e-8,
)
for step in range(5):
    lr = 0.01 * (step + 1)
    for group in optimizer.param_groups:
        group["lr"] = lr
    # from far above the clipping norm to far below
    matrix.grad = torch.randn(2, 3) * 10.0 ** (1 - step)
    vector.grad = torch.randn(3) * 10.0 ** (1 - step)
    record = {
        "lr": lr,
        "matrix_grad": matrix.grad.flatten().tolist(),
        "vector_grad": vector.grad.tolist(),
    }
    record["norm"] = torch.nn.utils.clip_grad_norm_([matrix, vector], 1.0).item()
    optimizer.step()
    record |= {"matrix": matrix.flatten().tolist(), "vector": vector.tolist()}
    out["steps"].append(record)
pathlib.Path(__file__).with_suffix(".json").write_text(json.dumps(out, indent=1) + "\n")

"""Learning rates of transformers' schedules; writes schedule.in, which src/schedule.rs includes."""
import pathlib

import torch
from transformers import (
    get_constant_schedule_with_warmup,
    get_cosine_schedule_with_warmup,
    get_cosine_with_min_lr_schedule_with_warmup,
    get_linear_schedule_with_warmup,
)


def rates(make):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = make(optimizer)
    values = []
    for _ in range(10):
        values.append(scheduler.get_last_lr()[0])
        optimizer.step()
        scheduler.step()
    return values


cases = {
    "schedule(Shape::Constant, 0.0)": lambda o: get_constant_schedule_with_warmup(o, 3),
    "schedule(Shape::Linear, 0.0)": lambda o: get_linear_schedule_with_warmup(o, 3, 10),
    "schedule(Shape::Cosine, 0.0)": lambda o: get_cosine_schedule_with_warmup(o, 3, 10),
    "schedule(Shape::Cosine, 0.25)": lambda o: get_cosine_with_min_lr_schedule_with_warmup(
        o, 3, 10, min_lr_rate=0.25
    ),
}
lines = ["["]
for name, make in cases.items():
    lines.append(f"    ({name}, {[float(v) for v in rates(make)]}),")
lines.append("]")
pathlib.Path(__file__).with_suffix(".in").write_text("\n".join(lines) + "\n")

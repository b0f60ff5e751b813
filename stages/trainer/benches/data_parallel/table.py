"""The table of a measurement: `python3 table.py OUT RANKS…`, as `run.sh` calls it at its end."""

import json
import pathlib
import re
import statistics
import sys

out, ranks = pathlib.Path(sys.argv[1]), [int(n) for n in sys.argv[2:]]


def lines(name):
    file = out / name
    return [json.loads(line) for line in open(file)] if file.exists() else []


def memory(name):
    """The most memory of each GPU while the part ran, GB."""
    if not (out / "memory").exists():
        return "–"
    log = (out / "log").read_text()
    begin = re.search(rf"^## (\S+) {name}: ", log, re.M)
    end = re.search(rf"^## (\S+) {name} ended", log, re.M)
    peaks = {}
    for line in open(out / "memory"):
        if begin and end and begin[1] <= line.split()[-1] <= end[1]:
            for index, used in re.findall(r"(\d+), (\d+)", line):
                peaks[index] = max(peaks.get(index, 0), int(used) * 1.048576e-3)
    return ", ".join(f"{peak:.1f}" for _, peak in sorted(peaks.items()))


def psft(part):
    """The rows of a part on each number of ranks."""
    print("| ranks | step-0 held-out CE | later | s an update (median) | trained tokens/s | efficiency | memory, GB |")
    first, shares = None, []
    for n in ranks:
        metrics, timing = lines(f"{part}{n}.metrics"), lines(f"{part}{n}.timing")
        if not metrics:
            print(f"| {n} | did not finish: see {part}{n}.out |")
            continue
        start = next((m["initial_held_out_loss"] for m in metrics if "initial_held_out_loss" in m), None)
        later = ", ".join(f"{m['held_out_loss']:.6f}" for m in metrics if "held_out_loss" in m)
        seconds = statistics.median(t["update"] for t in timing[1:])
        speed = statistics.median(m["tokens"] / t["update"] for m, t in zip(metrics[1:], timing[1:]))
        first = first or (n, speed)
        efficiency = speed / n / (first[1] / first[0])
        peak = memory(f"{part}{n}")
        print(f"| {n} | {start!r} | {later} | {seconds:.3f} | {speed:.0f} | {efficiency:.3f} | {peak} |")
        parts = {key: statistics.median(t.get(key, 0) for t in timing[1:]) for key in timing[-1] if "." in key}
        named = ", ".join(f"{key.split('.')[1]} {seconds:.4f}" for key, seconds in parts.items())
        shares.append(f"| {n} | {named} |")
    print("| ranks | parts of an update, s (medians) |", *shares, sep="\n")


print("micro-batches of 16,384 tokens")
psft("psft")
print("micro-batches of about four sequences")
psft("four")
print("| RLOO on | rollout, grading, update: s of each step | reward, length, mean log-probability difference |")
for name in sorted(file.stem for file in out.glob("rloo*.metrics")):
    seconds = "; ".join(
        ", ".join(f"{t.get(part, 0):.2f}" for part in ("rollout", "grading", "update")) for t in lines(f"{name}.timing"))
    values = "; ".join(
        ", ".join(f"{m.get(key, float('nan')):.4g}" for key in ("reward", "length", "logprob_difference"))
        for m in lines(f"{name}.metrics"))
    print(f"| {name[4:]} | {seconds} | {values} |")

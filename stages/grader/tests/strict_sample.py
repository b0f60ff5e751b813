"""Draws tests/data/strict_pairs.jsonl from a pairs file of the grader's reference data.

    python tests/strict_sample.py PAIRS.jsonl path/to/strict_agreement

Up to PER pairs of every category whose intended answer is known, from sources with clear terms
first. `expect` is the strict mode's verdict at the time of drawing; where it is not what the
pair's maker intended, the script prints the pair: look at each before committing the file.
"""

import collections
import hashlib
import json
import subprocess
import sys

PER = 10
# MIT or made up; the others only for categories that have nothing else.
FIRST = {"math", "math500", "gsm8k", "synthetic", "choice", "mathverify_tests"}


def main(pairs, binary):
    rows = [json.loads(line) for line in open(pairs, encoding="utf-8")]
    verdicts = subprocess.run([binary, pairs, "--verdicts"], capture_output=True, text=True, check=True)
    verdicts = [v == "true" for v in verdicts.stdout.split()]
    assert len(verdicts) == len(rows)
    groups = collections.defaultdict(list)
    for row, verdict in zip(rows, verdicts):
        if row["intended"] is None or len(row["pred"]) + len(row["gold"]) > 400:
            continue
        data, category = row["source"].split(":", 1)
        order = (data not in FIRST, hashlib.sha256(row["id"].encode()).hexdigest())
        groups[category, row["intended"]].append((order, row, verdict))
    out = []
    for (category, intended), found in sorted(groups.items()):
        found.sort(key=lambda f: f[0])
        for _, row, verdict in found[:PER]:
            out.append(
                {"category": category, "pred": row["pred"], "gold": row["gold"], "intended": intended, "expect": verdict}
            )
            if verdict != intended:
                print(category, repr(row["pred"]), repr(row["gold"]), "intended", intended)
    with open("tests/data/strict_pairs.jsonl", "w", encoding="utf-8") as f:
        for row in out:
            f.write(json.dumps(row, ensure_ascii=False) + "\n")
    print(len(out), "pairs")


if __name__ == "__main__":
    main(*sys.argv[1:])

#!/usr/bin/env python3
"""Draws the test data of this folder from the full witness files.

    python3 draw.py PAIRS.jsonl EXTRACT.jsonl VECTORS.jsonl

The full files hold verdicts of the real Python graders (Qwen2.5-Math's parser.py and grader.py with
sympy 1.12 and latex2sympy2 1.9.0; Math-Verify 0.9.0), made by running them. The draw is by the
rows' hashes, so it is the same every time. Left out: sources without a licence, benchmarks whose
licence is non-commercial or not stated, and long texts. See README.md here.
"""
import json
import sys
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
DATA_SETS = {"math", "math500", "gsm8k", "synthetic", "choice", "mathverify_tests"}
NO_LICENCE = ("cr-math", "cr-agent", "reasoneval", "abel")
PAIRS_PER_KIND = 12
REAL_PAIRS = 400
TEXTS_PER_SOURCE = 14
LONGEST_TEXT = 1000


def rows(path):
    with open(path, encoding="utf-8") as file:
        found = [json.loads(line) for line in file]
    return sorted(found, key=lambda row: row["id"])


def write(name, kept, fields):
    with open(HERE / name, "w", encoding="utf-8") as file:
        for row in kept:
            small = {f: row[f] for f in fields if f in row}
            file.write(json.dumps(small, ensure_ascii=False, separators=(",", ":")) + "\n")
    print(name, len(kept), (HERE / name).stat().st_size)


def allowed(row):
    data_set, _, rest = row["source"].partition(":")
    origin = rest + " " + str(row.get("origin", ""))
    return data_set in DATA_SETS and not any(name in origin for name in NO_LICENCE)


def main(pairs, extract, vectors):
    kept, count = [], Counter()
    for row in rows(pairs):
        kind = row["source"].partition(":")[2]
        limit = REAL_PAIRS if kind == "real" else PAIRS_PER_KIND
        if allowed(row) and count[kind] < limit:
            count[kind] += 1
            kept.append(row)
    fields = ["id", "source", "pred", "gold", "data_name", "pred_stripped", "gold_stripped"]
    write("pairs.jsonl", kept, fields + ["qwen_raw", "qwen_pipeline", "math_verify", "intended"])

    kept, count = [], Counter()
    for row in rows(extract):
        source = row["source"] if row["kind"] != "edge_case" else "edge"
        fits = row["kind"] == "edge_case" or (allowed(row) and len(row["text"]) <= LONGEST_TEXT)
        limit = 400 if source == "edge" else TEXTS_PER_SOURCE
        if fits and count[source] < limit:
            count[source] += 1
            kept.append(row)
    fields = ["id", "source", "kind", "data_name", "text", "gold_raw", "extracted", "pred"]
    write("extract.jsonl", kept, fields + ["gold_parsed", "verdict"])

    with open(vectors, encoding="utf-8") as file:
        (HERE / "vectors.jsonl").write_text(file.read(), encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])

#!/usr/bin/env python3
"""Writes the seeds of the fuzz targets, corpus/TARGET/*, from the witnesses in ../tests/data and
from further files of pairs or outputs named on the command line."""

import hashlib
import json
import pathlib
import sys

here = pathlib.Path(__file__).parent
files = [here / "../tests/data" / n for n in ("pairs.jsonl", "strict_pairs.jsonl", "extract.jsonl")]
files += map(pathlib.Path, sys.argv[1:])


def write(target, text):
    data = text.encode()
    folder = here / "corpus" / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / hashlib.sha1(data).hexdigest()).write_bytes(data)


for file in files:
    for line in file.read_text().splitlines():
        row = json.loads(line)
        if "text" in row:
            write("extract", row["text"])
            continue
        sides = [row["pred"], row["gold"]]
        for side in sides + [row.get("pred_stripped"), row.get("gold_stripped")]:
            if side:
                write("parse", side)
                write("strict_parse", side)
        # The first line break parts the answer from the gold.
        pair = sides[0].replace("\n", " ") + "\n" + sides[1]
        write("equal", pair)
        write("strict_equal", pair)

#!/usr/bin/env python3
"""Makes katex.js and katex.css beside this file from the npm package `katex`.

    npm pack katex@0.19.1 && tar xzf katex-0.19.1.tgz && python3 bundle.py package

katex.js is katex.min.js as it comes. katex.css is katex.min.css with the fonts that mathematics
commonly needs inlined as WOFF2, and without the others (Fraktur, script, sans serif, typewriter),
for which the browser's own fonts stand in.
"""

import base64
import pathlib
import re
import shutil
import sys

FONTS = {
    "AMS-Regular", "Caligraphic-Regular", "Main-Bold", "Main-Italic", "Main-Regular", "Math-Italic",
    "Size1-Regular", "Size2-Regular", "Size3-Regular", "Size4-Regular",
}

dist = pathlib.Path(sys.argv[1]) / "dist"
here = pathlib.Path(__file__).parent


def face(match):
    name = re.search(r"fonts/KaTeX_([\w-]+)\.woff2", match[0])[1]
    if name not in FONTS:
        return ""
    data = base64.b64encode((dist / f"fonts/KaTeX_{name}.woff2").read_bytes()).decode()
    return re.sub(r"src:.*?(?=[;}])", f"src:url(data:font/woff2;base64,{data}) format(\"woff2\")", match[0], count=1)


css = re.sub(r"@font-face\{[^}]*\}", face, (dist / "katex.min.css").read_text())
(here / "katex.css").write_text(css)
shutil.copyfile(dist / "katex.min.js", here / "katex.js")
shutil.copyfile(dist.parent / "LICENSE", here / "LICENSE")

"use strict";
// Text with mathematics in LaTeX, typeset by KaTeX, with one span of it marked. What KaTeX cannot
// read stays as it was written.
const typesetter = (() => {
  const PAIRS = [["$$", "$$", true], ["\\[", "\\]", true], ["\\(", "\\)", false], ["$", "$", false]];
  const ENVIRONMENT = /^\\begin\{((?:align|equation|gather|multline|eqnarray)\*?)\}/;

  // End of the group that opens at `open`, just after its closing brace; -1 if there is none.
  const groupEnd = (text, open) => {
    let depth = 0;
    for (let at = open; at < text.length; at++) {
      if (text[at] === "\\") at++;
      else if (text[at] === "{") depth++;
      else if (text[at] === "}" && --depth === 0) return at + 1;
    }
    return -1;
  };

  // One dollar sign opens mathematics only as in Pandoc: no space inside, no digit behind, so that
  // prices stay prices; and not over an empty line.
  const plausible = (text, start, end) => {
    const body = text.slice(start, end);
    return body.length > 0 && !/^\s|\s$|\n\s*\n/.test(body) && !/\d/.test(text[end + 1] ?? "");
  };

  // The formula that begins at `at`: its end and what KaTeX is given, or null.
  const formulaAt = (text, at) => {
    for (const [open, close, display] of PAIRS) {
      if (!text.startsWith(open, at)) continue;
      const start = at + open.length;
      const end = text.indexOf(close, start);
      if (end < 0 || (open === "$" && !plausible(text, start, end))) return null;
      return { end: end + close.length, start, stop: end, display };
    }
    const environment = text.slice(at, at + 24).match(ENVIRONMENT);
    if (environment) {
      const close = `\\end{${environment[1]}}`;
      const end = text.indexOf(close, at);
      if (end >= 0) return { end: end + close.length, start: at, stop: end + close.length, display: true };
    }
    // A box outside of mathematics, as models write it.
    if (text.startsWith("\\boxed{", at)) {
      const end = groupEnd(text, at + 6);
      if (end >= 0) return { end, start: at, stop: end, display: false };
    }
    return null;
  };

  const trust = ({ command, class: name }) => command === "\\htmlClass" && name === "hit";
  const render = (source, display) => {
    const node = document.createElement("span");
    katex.render(source, node, { displayMode: display, throwOnError: true, strict: "ignore", trust, maxExpand: 500 });
    return node;
  };

  // A formula with the marked part of it, or null if KaTeX cannot read it.
  const formula = (text, { start, stop, display }, span) => {
    const body = text.slice(start, stop);
    const [from, to] = span ? [Math.max(span[0], start) - start, Math.min(span[1], stop) - start] : [0, 0];
    try {
      if (to > from) {
        try {
          return render(`${body.slice(0, from)}\\htmlClass{hit}{${body.slice(from, to)}}${body.slice(to)}`, display);
        } catch { /* the span cuts through a command: mark the whole */ }
      }
      const node = render(body, display);
      if (to > from) node.classList.add("hit");
      return node;
    } catch {
      return null;
    }
  };

  const plain = (text, from, to, span) => {
    const parts = [];
    const cuts = span ? [from, Math.min(Math.max(span[0], from), to), Math.min(Math.max(span[1], from), to), to]
      : [from, to];
    cuts.slice(1).forEach((end, place) => {
      const piece = text.slice(cuts[place], end);
      if (piece && place === 1) {
        const mark = document.createElement("mark");
        mark.append(piece);
        parts.push(mark);
      } else if (piece) parts.push(piece);
    });
    return parts;
  };

  // Nodes for a text; `span` is the marked part of it, `math` whether to typeset.
  return (text, span = null, math = true) => {
    if (!math || typeof katex === "undefined") return plain(text, 0, text.length, span);
    const nodes = [];
    let from = 0;
    for (let at = 0; at < text.length; at++) {
      if (text[at] !== "$" && text[at] !== "\\") continue;
      if (text.startsWith("\\$", at)) { at++; continue; }
      const found = formulaAt(text, at);
      const node = found && formula(text, found, span);
      if (!node) {
        if (text.startsWith("$$", at) || text[at] === "\\") at++;
        continue;
      }
      // A formula on a line of its own brings its own line breaks.
      const before = found.display && text[at - 1] === "\n" && at - 1 >= from ? at - 1 : at;
      nodes.push(...plain(text, from, before, span), node);
      from = found.display && text[found.end] === "\n" ? found.end + 1 : found.end;
      at = from - 1;
    }
    nodes.push(...plain(text, from, text.length, span));
    return nodes;
  };
})();

// The sample browser. State lives in the address (#samples?arm=…&show=…), so that every number in
// the tables is a plain link to the samples behind it. Only visible list entries are in the page.
(async () => {
  // Large parts of the page are compressed.
  const unpack = async (id) => {
    const bytes = Uint8Array.from(atob(document.getElementById(id).textContent), (c) => c.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  };
  const { runs, prompts, questions } = JSON.parse(await unpack("data"));
  if (document.getElementById("katex-script")) {
    for (const [name, id] of [["style", "katex-style"], ["script", "katex-script"]]) {
      const node = document.createElement(name);
      node.textContent = await unpack(id);
      document.head.append(node);
    }
  }
  const HOLE = "\u0000";
  const ROW = 58; // height of a list entry in pixels, as in the style sheet
  const form = document.querySelector(".filters");
  const list = document.querySelector(".list");
  const spacer = list.querySelector(".spacer");
  const detail = document.querySelector(".detail");
  const count = form.querySelector("output");
  const fields = ["benchmark", "arm", "show", "found", "level", "subject", "search", "math"]
    .filter((name) => form.elements[name]);
  const typeset = (text, span) => typesetter(text, span, form.elements.math?.value !== "source");

  let shown = []; // questions that pass the filters
  let chosen = null; // the question in the detail pane
  let drawn = new Map(); // the entries of the list that are in the page

  const element = (name, attributes = {}, ...children) => {
    const node = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.append(...children);
    return node;
  };

  // --- filters ---------------------------------------------------------------------------------

  const first = (question, run) => question.answers[run]?.[0];
  const flips = (question, run, from, to) => {
    const before = runs[run].base === null ? undefined : first(question, runs[run].base);
    const after = first(question, run);
    return before !== undefined && after !== undefined && before.correct === from && after.correct === to;
  };
  const before = (question, run) => (runs[run].base === null ? [] : question.answers[runs[run].base] ?? []);
  const changed = (question, run) => question.answers[run]
    .some((answer, at) => before(question, run)[at] !== undefined && before(question, run)[at].text !== answer.text);
  // Texts that a run gives for several questions of a benchmark, made when first asked for.
  let repeated;
  const copied = (question, run) => {
    if (!repeated) {
      repeated = new Map();
      for (const q of questions) {
        q.answers.forEach((answers, at) => answers.forEach(({ text }) => {
          const key = JSON.stringify([q.benchmark, at, text.trim()]);
          repeated.set(key, (repeated.get(key) ?? new Set()).add(q.id));
        }));
      }
    }
    return question.answers[run]
      .some(({ text }) => repeated.get(JSON.stringify([question.benchmark, run, text.trim()])).size > 1);
  };
  const any = (test) => (question, run) => question.answers[run].some(test);
  const tests = {
    all: () => true,
    flipped: (q, run) => flips(q, run, false, true) || flips(q, run, true, false),
    gained: (q, run) => flips(q, run, false, true),
    lost: (q, run) => flips(q, run, true, false),
    changed,
    copied,
    right: any((answer) => answer.correct),
    wrong: any((answer) => !answer.correct),
    truncated: any((answer) => answer.truncated),
    repetitive: any((answer) => answer.repetitive),
    looping: any((answer) => answer.looping),
    empty: any((answer) => answer.text.trim() === ""),
    unanswered: any((answer) => answer.method === "none" || answer.extracted === ""),
    disagree: any((answer) => answer.qwen !== answer.strict),
  };

  const methodName = (answer) => answer.method.replaceAll("_", " ");
  const passes = (question, state, selected) => {
    if (state.benchmark && question.benchmark !== state.benchmark) return false;
    if (state.level && question.level !== state.level) return false;
    if (state.subject && question.subject !== state.subject) return false;
    const test = tests[state.show] ?? tests.all;
    const found = (run) => !state.found
      || question.answers[run].some((answer) => methodName(answer) === state.found);
    if (!selected.some((run) => test(question, run) && found(run))) return false;
    if (!state.search) return true;
    if (state.search.startsWith("=")) {
      const answer = state.search.slice(1).trim();
      return selected.some((run) => question.answers[run].some((a) => a.extracted.trim() === answer));
    }
    const text = state.search.toLowerCase();
    const has = (value) => value.toLowerCase().includes(text);
    return has(question.problem) || has(question.id) || has(question.gold)
      || selected.some((run) => question.answers[run].some((a) => has(a.text) || has(a.extracted)));
  };

  const selectedRuns = (arm) => runs.map((_, i) => i).filter((i) => !arm || runs[i].arm === arm);

  const fill = (name, options, all) => {
    const select = form.elements[name];
    select.replaceChildren(element("option", { value: "" }, all));
    for (const [value, text] of options) select.append(element("option", { value }, text));
    select.parentElement.hidden = options.length < 2;
  };
  const distinct = (values) => [...new Set(values)].filter((v) => v !== null && v !== "")
    .sort((a, b) => a.localeCompare(b, undefined, { numeric: true })).map((v) => [v, v]);
  fill("benchmark", distinct(questions.map((q) => q.benchmark)), "all benchmarks");
  const labels = new Map();
  for (const run of runs) labels.set(run.arm, labels.get(run.arm) ?? run.label.replace(/ · seed .*$/, ""));
  fill("arm", [...labels], "any arm");
  fill("found", distinct(questions.flatMap((q) => q.answers.flat().map(methodName))), "any rule");
  fill("level", distinct(questions.map((q) => q.level)), "all levels");
  fill("subject", distinct(questions.map((q) => q.subject)), "all subjects");

  // --- state in the address --------------------------------------------------------------------

  const readState = () => Object.fromEntries(fields.map((name) => [name, form.elements[name].value]));

  const fromAddress = () => {
    const [anchor, query] = location.hash.split("?");
    if (anchor !== "#samples" || query === undefined) return;
    const wanted = new URLSearchParams(query);
    for (const name of fields) {
      const fallback = name === "show" ? "all" : "";
      form.elements[name].value = wanted.get(name) ?? fallback;
      if (form.elements[name].selectedIndex === -1) form.elements[name].value = fallback;
    }
    const id = wanted.get("id");
    update(questions.find((q) => q.id === id && passes(q, readState(), selectedRuns(readState().arm))));
    document.getElementById("samples").scrollIntoView();
  };

  const toAddress = () => {
    const query = new URLSearchParams();
    for (const [name, value] of Object.entries(readState())) {
      if (value && value !== "all") query.set(name, value);
    }
    if (chosen) query.set("id", chosen.id);
    history.replaceState(null, "", `#samples?${query}`);
  };

  // --- list ------------------------------------------------------------------------------------

  const mark = (answers) => {
    if (!answers?.length) return element("span", { class: "mark none" }, "·");
    const right = answers.filter((a) => a.correct).length;
    const text = answers.length > 1 ? `${right}/${answers.length}` : right ? "✓" : "✗";
    return element("span", { class: `mark ${2 * right > answers.length ? "ok" : "no"}` }, text);
  };

  // The first line or so; a formula that the cut leaves open stays as written.
  const preview = (text) => text.slice(0, 140).replace(/\s+/g, " ");

  const entry = (question) => {
    const marks = element("div", { class: question.answers.length > 8 ? "marks many" : "marks" });
    question.answers.forEach((answers, run) => {
      const one = mark(answers);
      one.title = runs[run].label;
      marks.append(one);
    });
    marks.append(element("span", {}, question.id));
    const item = element("div", { class: "item", role: "option" },
      element("p", {}, ...(question.problem ? typeset(preview(question.problem)) : [question.id])), marks);
    item.onclick = () => choose(question);
    return item;
  };

  const drawList = () => {
    const from = Math.max(0, Math.floor(list.scrollTop / ROW) - 4);
    const to = Math.min(shown.length, Math.ceil((list.scrollTop + list.clientHeight) / ROW) + 4);
    const items = new Map();
    for (let place = from; place < to; place++) {
      const question = shown[place];
      const item = drawn.get(question) ?? entry(question);
      item.style.top = `${place * ROW}px`;
      item.setAttribute("aria-selected", question === chosen);
      items.set(question, item);
    }
    drawn = items;
    spacer.style.height = `${shown.length * ROW}px`;
    spacer.replaceChildren(...items.values());
  };

  const choose = (question) => {
    chosen = question;
    const place = shown.indexOf(question);
    if (place >= 0) {
      const top = place * ROW;
      if (top < list.scrollTop) list.scrollTop = top;
      if (top + ROW > list.scrollTop + list.clientHeight) list.scrollTop = top + ROW - list.clientHeight;
    }
    drawList();
    drawDetail();
    toAddress();
  };

  // --- detail ----------------------------------------------------------------------------------

  const textWithSpan = (answer) =>
    element("div", { class: "output" }, ...(answer.text ? typeset(answer.text, answer.span) : ["(nothing)"]));

  const card = (question, run, answer, number) => {
    const title = element("h4", {}, mark([answer]), runs[run].label);
    if (number !== null) title.append(element("span", { class: "flag" }, `sample ${number + 1}`));
    if (flips(question, run, false, true)) title.append(element("span", { class: "flag" }, "wrong → right"));
    if (flips(question, run, true, false)) title.append(element("span", { class: "flag" }, "right → wrong"));
    if (answer.truncated) title.append(element("span", { class: "flag" }, "truncated"));
    if (answer.repetitive) title.append(element("span", { class: "flag" }, "repetitive"));
    if (answer.looping) title.append(element("span", { class: "flag" }, "ends in a loop"));
    const verdict = (name, right, reason) => `${name} ${right ? "right" : "wrong"} (${reason})`;
    const found = answer.method === "none" ? "no answer found"
      : `answer ${answer.extracted || "(empty)"} by ${methodName(answer)}`;
    const facts = `${found} · ${verdict("Qwen", answer.qwen, answer.reasons[0])} · `
      + `${verdict("strict", answer.strict, answer.reasons[1])} · ${answer.tokens} tokens`;
    const prompt = element("details", {}, element("summary", {}, "Prompt"),
      element("pre", {}, prompts[answer.prompt].replaceAll(HOLE, () => question.problem)));
    const arm = readState().arm;
    const node = element("div", { class: `answer${arm && runs[run].arm === arm ? " chosen" : ""}` },
      title, element("p", { class: "facts" }, facts), textWithSpan(answer), prompt);
    return node;
  };

  const drawDetail = () => {
    if (!chosen) {
      detail.replaceChildren(element("p", { class: "empty" }, "No question passes these filters."));
      return;
    }
    // A gold answer is a number or formula; a whole solution is cut.
    const facts = [`gold ${chosen.gold.length > 200 ? `${chosen.gold.slice(0, 200)}…` : chosen.gold}`,
      chosen.benchmark, chosen.level && `level ${chosen.level}`, chosen.subject, chosen.id];
    const cards = chosen.answers.flatMap((answers, run) =>
      answers.map((answer, number) => card(chosen, run, answer, answers.length > 1 ? number : null)));
    detail.replaceChildren(element("p", { class: "problem" }, ...typeset(chosen.problem)),
      element("p", { class: "facts" }, facts.filter(Boolean).join(" · ")),
      element("div", { class: "answers" }, ...cards));
    detail.scrollTop = 0;
  };

  // --- life ------------------------------------------------------------------------------------

  const update = (wanted) => {
    const state = readState();
    const selected = selectedRuns(state.arm);
    shown = questions.filter((question) => passes(question, state, selected));
    count.textContent = `${shown.length} of ${questions.length}`;
    list.scrollTop = 0;
    chosen = wanted ?? (shown.includes(chosen) ? chosen : shown[0] ?? null);
    drawList();
    drawDetail();
  };

  form.oninput = (event) => {
    if (event.target.name === "math") drawn = new Map();
    update();
    toAddress();
  };
  list.onscroll = drawList;
  window.onresize = drawList;
  window.onhashchange = fromAddress;
  list.onkeydown = (event) => {
    const step = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1 }[event.key];
    if (!step || !shown.length) return;
    event.preventDefault();
    const place = shown.indexOf(chosen) + step;
    choose(shown[Math.max(0, Math.min(shown.length - 1, place))]);
  };
  update();
  fromAddress();
  document.documentElement.dataset.ready = "true";
})();

// The critical path: what the time consisted of, what would shorten it most, and the list of steps.
(() => {
  const { el } = Report;
  const LISTED = 200;
  // What gains less, of the whole run, is not worth a line.
  const GAIN_MIN = 0.0005;

  class PathView {
    constructor(run) { this.run = run; }

    element() {
      const { run } = this;
      if (!run.timed) return Report.untimed("No critical path in time");
      return el("div", { class: "view" },
        el("p", { class: "lead" }, Report.marked(run.limit)),
        el("section", {}, el("h2", {}, "What the time consisted of"),
          el("p", { class: "note" }, `The steps below follow one another without gap or overlap: together they are the ${Report.time(run.makespan)} of the run.`),
          Report.composition(run),
          this.forced()),
        this.gains(),
        this.steps());
    }

    /** What data forces, apart from what lanes happened to do. */
    forced() {
      const { run } = this, [data, lane] = run.path.by_link, times = run.pathTimes();
      const parts = [
        ["followed by what needed its result", data, "var(--accent)"],
        ["followed because the lane was busy", lane, "var(--gap-lane)"],
        ["stalls", times[2], "var(--gap-dispatch)"], ["lateness", times[3], "var(--gap-nothing)"],
      ].filter(([, ns]) => ns);
      return el("div", { style: "margin-top:18px" },
        el("p", { class: "note" }, `The longest chain that data forces takes ${Report.time(run.chain.time)}, ${Report.percent(run.chain.time, run.makespan)} of the run: more lanes cannot go below that, faster kernels can. On the path as it ran, by why the next step came after:`),
        el("div", { style: "margin-top:10px" }, Report.partsBar(parts, run.makespan)));
    }

    gains() {
      const { run } = this;
      const heading = el("h2", {}, "What would shorten the run most");
      const worthwhile = run.scenarios.filter(([, makespan]) => run.makespan - makespan >= run.makespan * GAIN_MIN);
      if (!worthwhile.length) return el("section", {}, heading, el("p", { class: "note" }, "No single change that was tried would."));
      const most = run.makespan - worthwhile[0][1];
      return el("section", {}, heading,
        el("p", { class: "note" }, `Estimates, with one thing changed at a time: the same order on the same lanes, or, with other lanes, each ready task on the first lane that is free.${run.outliers.op.length ? " Outliers count as the median of their name." : ""}`),
        el("ul", { class: "gains card" }, worthwhile.map(([change, makespan]) => {
          const less = run.makespan - makespan;
          return el("li", {}, el("span", {}, Report.marked(change)),
            el("span", { class: "track", "aria-hidden": "true" }, el("i", { style: `width:${(100 * less) / most}%` })),
            el("span", { class: "n" }, el("strong", {}, `\u2212${Report.percent(less, run.makespan)}`), el("span", { class: "faint" }, `  to ${Report.time(makespan)}`)));
        })));
    }

    steps() {
      const { run } = this, { path } = run;
      const order = Array.from(path.op.keys()), { chain } = run;
      const card = el("div", { class: "card" }), count = el("h2", {});
      const choice = el("select", { onchange: () => fill() }, el("option", { value: "time" }, "in order of time"), el("option", { value: "length" }, "longest first"), el("option", { value: "chain" }, "the chain that data forces"));
      const fill = () => {
        count.textContent = Report.plural(choice.value === "chain" ? chain.op.length : order.length, "step");
        card.replaceChildren();
        if (choice.value === "chain") return Report.paged(card, Array.from(chain.op.keys()), (items) => this.chainTable(items), LISTED);
        const sorted = choice.value === "time" ? order : order.slice().sort((a, b) => path.length[b] - path.length[a]);
        return Report.paged(card, sorted, (items) => this.table(items), LISTED);
      };
      fill();
      return el("section", {}, el("div", { class: "controls" }, count, el("span", { class: "space" }), el("label", {}, "Listed ", choice)), card);
    }

    chainTable(steps) {
      const { run } = this, { op, edge } = run.chain;
      return Report.table("Steps of the chain that data forces", [
        ["Took", (step) => Report.time(run.ops.length[op[step]]), true],
        ["Share", (step) => Report.percent(run.ops.length[op[step]], run.makespan), true],
        ["Step", (step) => this.button(op[step])],
        ["Needs of the one before", (step) => (edge[step] < 0 ? el("span", { class: "faint" }, "first") : this.because(edge[step]))],
        ["Lane", (step) => (run.timedOp(op[step]) ? run.laneName(run.ops.lane[op[step]]) : "")],
      ], steps, (step) => Report.app.select(op[step]));
    }

    button(op) {
      const { run } = this;
      return [Report.dot(Report.opColour(run, op)), el("button", { class: "link", type: "button", onclick: (event) => { event.stopPropagation(); Report.app.select(op); } }, run.label(op))];
    }

    because(edge) {
      const { run } = this;
      return [run.hazards(edge).map((kind) => el("span", { class: "tag" }, kind)), el("code", { class: "soft" }, run.region(edge))];
    }

    table(steps) {
      const { run } = this, { path } = run;
      const what = (step) => {
        const op = path.op[step];
        if (!Report.ran(path.kind[step])) return [Report.dot("var(--gap-dispatch)"), el("span", { class: "soft" }, `${Report.STEPS[path.kind[step]]} before `), run.label(op)];
        return this.button(op);
      };
      const why = (step) => {
        const link = path.link[step];
        if (path.kind[step] === 2) return el("span", { class: "faint" }, "ready, not yet started");
        if (path.kind[step] === 3) return el("span", { class: "faint" }, "waited for nothing, not yet started");
        if (link === -1) return el("span", { class: "soft" }, "the lane was busy");
        if (link < 0) return el("span", { class: "faint" }, "first");
        return this.because(link);
      };
      return Report.table("Steps of the critical path", [
        ["Start", (step) => Report.time(path.start[step]), true],
        ["Took", (step) => Report.time(path.length[step]), true],
        ["Share", (step) => Report.percent(path.length[step], run.makespan), true],
        ["Kind", (step) => el("span", { class: "soft" }, Report.STEPS[path.kind[step]])],
        ["Step", what],
        ["Why after the one before", why],
        ["Lane", (step) => (!Report.ran(path.kind[step]) ? "" : run.laneName(run.ops.lane[path.op[step]]))],
      ], steps, (step) => Report.app.select(path.op[step]));
    }
  }

  /** One bar: each kernel's part of the critical path, copies, and stalls. */
  Report.composition = (run) => {
    const parts = run.kernels.filter((kernel) => kernel.path > 0).sort((a, b) => b.path - a.path)
      .map((kernel) => [run.strings[kernel.name], kernel.path, Report.colourOf(run, kernel.name, kernel.copy)]);
    const [, , stalls, late] = run.pathTimes();
    if (parts.length > 9) {
      const rest = parts.splice(8);
      parts.push([`${rest.length} others`, rest.reduce((sum, part) => sum + part[1], 0), "#8b8378"]);
    }
    if (stalls) parts.push(["stalls", stalls, "var(--gap-dispatch)"]);
    if (late) parts.push(["lateness", late, "var(--gap-nothing)"]);
    return Report.partsBar(parts, run.makespan);
  };

  /** A bar of parts `[name, time, colour]` of a whole, with its legend. */
  Report.partsBar = (parts, whole) => el("div", {},
    el("div", { class: "track tall", role: "img", "aria-label": parts.map(([name, ns]) => `${name} ${Report.percent(ns, whole)}`).join(", ") },
      parts.map(([name, ns, colour]) => el("i", { title: name, style: `width:${(100 * ns) / Math.max(whole, 1)}%;background:${colour}` }))),
    el("ul", { class: "legend", style: "margin-top:8px" }, parts.map(([name, ns, colour]) => el("li", {}, Report.dot(colour), `${name} ${Report.percent(ns, whole)}`))));

  /** What the causes of idle time mean. */
  Report.causesExplained = (causes) => el("dl", { class: "causes" }, causes.map((cause) => [
    el("dt", {}, Report.dot(`var(${Report.causeVariable(cause)})`), Report.CAUSES[cause]),
    el("dd", {}, Report.CAUSES_ABOUT[cause])]));

  /** Appends `make(items)` a page at a time, so that a long list costs what is looked at. */
  Report.paged = (card, items, make, size) => {
    let shown = size;
    const table = make(items.slice(0, size));
    card.append(table);
    // A table that is wider than the page scrolls, for keys too.
    card.tabIndex = 0;
    card.setAttribute("role", "region");
    card.setAttribute("aria-label", table.caption.textContent);
    if (items.length <= size) return;
    const more = el("button", { class: "more", type: "button", onclick: () => {
      const next = make(items.slice(shown, shown + size));
      table.tBodies[0].append(...next.tBodies[0].rows);
      shown += size;
      say();
    } });
    const say = () => {
      more.hidden = shown >= items.length;
      more.textContent = `Show ${Report.count(Math.min(size, items.length - shown))} more of ${Report.count(items.length)}`;
    };
    say();
    card.append(more);
  };

  Report.PathView = PathView;
})();

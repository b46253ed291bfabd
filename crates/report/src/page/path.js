// The critical path: what the time consisted of, what would shorten it most, and the list of steps.
(() => {
  const { el } = Report;
  const KINDS = ["compute", "copy", "stall"];
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
          Report.composition(run)),
        this.gains(),
        this.steps());
    }

    gains() {
      const { run } = this;
      const heading = el("h2", {}, "What would shorten the run most");
      const worthwhile = run.scenarios.filter(([, makespan]) => run.makespan - makespan >= run.makespan * GAIN_MIN);
      if (!worthwhile.length) return el("section", {}, heading, el("p", { class: "note" }, "No single change that was tried would."));
      const most = run.makespan - worthwhile[0][1];
      return el("section", {}, heading,
        el("p", { class: "note" }, "Estimates: the same order on the same lanes, with one thing changed at a time."),
        el("ul", { class: "gains card" }, worthwhile.map(([change, makespan]) => {
          const less = run.makespan - makespan;
          return el("li", {}, el("span", {}, Report.marked(change)),
            el("span", { class: "track", "aria-hidden": "true" }, el("i", { style: `width:${(100 * less) / most}%` })),
            el("span", { class: "n" }, el("strong", {}, `\u2212${Report.percent(less, run.makespan)}`), el("span", { class: "faint" }, `  to ${Report.time(makespan)}`)));
        })));
    }

    steps() {
      const { run } = this, { path } = run;
      const order = Array.from(path.op.keys());
      const card = el("div", { class: "card" });
      const choice = el("select", { onchange: () => fill() }, el("option", { value: "time" }, "in order of time"), el("option", { value: "length" }, "longest first"));
      const fill = () => {
        const sorted = choice.value === "time" ? order : order.slice().sort((a, b) => path.length[b] - path.length[a]);
        card.replaceChildren();
        Report.paged(card, sorted, (items) => this.table(items), LISTED);
      };
      fill();
      return el("section", {}, el("div", { class: "controls" }, el("h2", {}, Report.plural(order.length, "step")), el("span", { class: "space" }), el("label", {}, "Listed ", choice)), card);
    }

    table(steps) {
      const { run } = this, { path } = run;
      const what = (step) => {
        const op = path.op[step];
        if (path.kind[step] === 2) return [Report.dot("var(--gap-dispatch)"), el("span", { class: "soft" }, "stall before "), run.label(op)];
        return [Report.dot(Report.opColour(run, op)), el("button", { class: "link", type: "button", onclick: (event) => { event.stopPropagation(); Report.app.select(op); } }, run.label(op))];
      };
      const why = (step) => {
        const link = path.link[step];
        if (path.kind[step] === 2) return el("span", { class: "faint" }, "ready, not yet started");
        if (link === -1) return el("span", { class: "soft" }, "the lane was busy");
        if (link < 0) return el("span", { class: "faint" }, "first");
        return [run.hazards(link).map((kind) => el("span", { class: "tag" }, kind)), el("code", { class: "soft" }, run.region(link))];
      };
      return Report.table("Steps of the critical path", [
        ["Start", (step) => Report.time(path.start[step]), true],
        ["Took", (step) => Report.time(path.length[step]), true],
        ["Share", (step) => Report.percent(path.length[step], run.makespan), true],
        ["", (step) => el("span", { class: "soft" }, KINDS[path.kind[step]])],
        ["Step", what],
        ["Why after the one before", why],
        ["Lane", (step) => (path.kind[step] === 2 ? "" : run.laneName(run.ops.lane[path.op[step]]))],
      ], steps, (step) => Report.app.select(path.op[step]));
    }
  }

  /** One bar: each kernel's part of the critical path, copies, and stalls. */
  Report.composition = (run) => {
    const parts = run.kernels.filter((kernel) => kernel.path > 0).sort((a, b) => b.path - a.path)
      .map((kernel) => [run.strings[kernel.name], kernel.path, Report.colourOf(run, kernel.name, kernel.copy)]);
    const stalls = run.path.kind.reduce((sum, kind, step) => sum + (kind === 2 ? run.path.length[step] : 0), 0);
    if (parts.length > 9) {
      const rest = parts.splice(8);
      parts.push([`${rest.length} others`, rest.reduce((sum, part) => sum + part[1], 0), "#8b8378"]);
    }
    if (stalls) parts.push(["stalls", stalls, "var(--gap-dispatch)"]);
    return el("div", {},
      el("div", { class: "track tall", role: "img", "aria-label": parts.map(([name, ns]) => `${name} ${Report.percent(ns, run.makespan)}`).join(", ") },
        parts.map(([name, ns, colour]) => el("i", { title: name, style: `width:${(100 * ns) / Math.max(run.makespan, 1)}%;background:${colour}` }))),
      el("ul", { class: "legend", style: "margin-top:8px" }, parts.map(([name, ns, colour]) => el("li", {}, Report.dot(colour), `${name} ${Report.percent(ns, run.makespan)}`))));
  };

  /** Appends `make(items)` a page at a time, so that a long list costs what is looked at. */
  Report.paged = (card, items, make, size) => {
    let shown = size;
    const table = make(items.slice(0, size));
    card.append(table);
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

// The summary: the numbers of a run, fit to be printed.
(() => {
  const { el, CAUSES } = Report;

  class SummaryView {
    constructor(run) { this.run = run; }

    element() {
      const { run } = this;
      return el("div", { class: "view" },
        el("p", { class: "lead" }, Report.marked(run.limit)),
        this.numbers(),
        run.timed && run.makespan ? el("section", {}, el("h2", {}, "Critical path"), Report.composition(run)) : null,
        run.outliers.op.length ? this.outliers() : null,
        run.timed ? this.lanes() : null,
        this.kernels(),
        run.places.length ? this.memory() : null,
        run.provenance.length ? el("section", {}, el("h2", {}, "Where it comes from"), Report.card(
          Report.table("Where it comes from", [["What", ([name]) => name], ["Value", ([, value]) => value]], run.provenance))) : null,
        run.facts.length ? el("section", {}, el("h2", {}, "About this run"), Report.card(
          Report.table("About this run", [["What", ([name]) => name], ["Value", ([, value]) => value]], run.facts))) : null);
    }

    numbers() {
      const { run } = this;
      const shown = run.edges.hidden.length - run.edges.hidden.reduce((sum, one) => sum + one, 0);
      const timed = run.ops.lane.filter((lane) => lane >= 0).length;
      const moved = run.kernels.reduce((sum, kernel) => sum + (kernel.copy ? kernel.bytes : 0), 0);
      const copies = run.kernels.reduce((sum, kernel) => sum + (kernel.copy ? kernel.count : 0), 0);
      const path = run.pathTimes();
      const peak = run.places.reduce((sum, place) => sum + Report.reserved(place), 0);
      const entries = [
        run.timed && ["Time", Report.time(run.makespan), "first start to last end"],
        ["Tasks", Report.count(run.count), timed < run.count && timed ? `${Report.count(timed)} of them timed` : `longest chain ${Report.count(run.depth)}`],
        ["Edges", Report.count(shown), `and ${Report.count(run.edges.hidden.length - shown)} implied by them${run.edges_decided ? "" : ", at least"}`],
        run.timed && ["Parallelism", (run.work / Math.max(run.makespan, 1)).toFixed(2), `ops at a time, on ${Report.plural(run.lanes.length, "lane")}`],
        run.timed && ["Path: stalls", Report.percent(path[2] + path[3], run.makespan), `compute ${Report.percent(path[0], run.makespan)}, copies ${Report.percent(path[1], run.makespan)}`],
        run.timed && ["Chain of data", Report.time(run.chain.time), `${Report.percent(run.chain.time, run.makespan)} of the run: what no lane can save`],
        copies > 0 && ["Moved", moved ? Report.bytes(moved) : "–", `in ${Report.plural(copies, "copy").replace("copys", "copies")}`],
        peak > 0 && ["Peak memory", Report.bytes(peak), run.places.length > 1 ? `in ${Report.plural(run.places.length, "place")}` : run.places[0].name],
      ].filter(Boolean);
      return el("dl", { class: "numbers" }, entries.map(([name, value, more]) => el("div", {}, el("dt", {}, name), el("dd", {}, value, el("small", {}, more)))));
    }

    outliers() {
      const { run } = this, { op: ops, median, why } = run.outliers;
      const card = el("div", { class: "card" });
      Report.paged(card, Array.from(ops.keys()), (items) => Report.table("Outliers", [
        ["Task", (i) => el("button", { class: "link", type: "button" }, Report.dot(Report.opColour(run, ops[i])), run.label(ops[i]))],
        ["Took", (i) => Report.time(run.ops.length[ops[i]]), true],
        ["Median", (i) => Report.time(median[i]), true],
        ["Times", (i) => `${Math.round(run.ops.length[ops[i]] / Math.max(median[i], 1))}\u00d7`, true],
        ["At", (i) => Report.time(run.ops.start[ops[i]]), true],
        ["Likely", (i) => why[i].replace(/^likely /, "")],
      ], items, (i) => { Report.app.open("lanes"); Report.app.select(ops[i], true); }), 8);
      return el("section", {}, el("h2", {}, Report.plural(ops.length, "outlier")),
        el("p", { class: "note" }, "Tasks that took far longer than others of their name. What would help is judged as if they had taken the median."), card);
    }

    lanes() {
      const { run } = this;
      const bar = (lane) => el("div", { class: "track", "aria-hidden": "true" },
        el("i", { style: `width:${(100 * lane.busy) / Math.max(run.makespan, 1)}%;background:var(--accent)` }),
        lane.idle.map((ns, cause) => (ns ? el("i", { title: CAUSES[cause], style: `width:${(100 * ns) / Math.max(run.makespan, 1)}%;background:var(${Report.causeVariable(cause)})` }) : null)));
      const card = el("div", { class: "card" });
      const numbered = run.lanes.map((lane, number) => ({ ...lane, number }));
      Report.paged(card, numbered, (items) => Report.table("Lanes", [
        ["Lane", (lane) => run.laneName(lane.number)],
        ["Tasks", (lane) => Report.count(lane.ops), true],
        ["Busy", (lane) => Report.percent(lane.busy, run.makespan), true],
        ["Over the run", bar],
        ...CAUSES.map((cause, i) => [`Idle: ${cause}`, (lane) => (lane.idle[i] ? Report.percent(lane.idle[i], run.makespan) : el("span", { class: "faint" }, "–")), true]),
      ], items), 64);
      const met = CAUSES.map((_, cause) => cause).filter((cause) => run.lanes.some((lane) => lane.idle[cause]));
      return el("section", {}, el("h2", {}, "Lanes"), card, met.length ? Report.causesExplained(met) : null);
    }

    kernels() {
      const { run } = this;
      const columns = [
        ["Name", (kernel) => [Report.dot(Report.colourOf(run, kernel.name, kernel.copy)), run.strings[kernel.name]]],
        ["Count", (kernel) => Report.count(kernel.count), true],
      ];
      if (run.timed) {
        columns.push(
          ["Time", (kernel) => Report.time(kernel.total), true],
          ["Of all work", (kernel) => Report.percent(kernel.total, run.work), true],
          ["Median", (kernel) => Report.time(kernel.median), true],
          ["Mean", (kernel) => Report.time(kernel.total / kernel.count), true],
          ["95th percentile", (kernel) => Report.time(kernel.p95), true],
          ["Longest", (kernel) => Report.time(kernel.max), true],
          ["On the critical path", (kernel) => Report.percent(kernel.path, run.makespan), true]);
      }
      if (run.kernels.some((kernel) => kernel.bytes)) columns.push(["Moved", (kernel) => (kernel.bytes ? Report.bytes(kernel.bytes) : ""), true]);
      const card = el("div", { class: "card" });
      Report.paged(card, run.kernels, (items) => Report.table("Kernels and copies", columns, items), 40);
      return el("section", {}, el("h2", {}, "Kernels and copies"), card);
    }

    memory() {
      const { run } = this;
      return el("section", {}, el("h2", {}, "Memory"), Report.card(Report.table("Memory", [
        ["Where", (place) => place.name || "memory"],
        ["Buffers", (place) => Report.count(place.bytes.length), true],
        ["Reserved", (place) => Report.bytes(Report.reserved(place)), true],
        ["Peak", (place) => Report.bytes(place.peak), true],
        ["At", (place) => Report.time(place.peak_at), true],
      ], run.places)));
    }
  }

  Report.SummaryView = SummaryView;
})();

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
        run.timed ? this.lanes() : null,
        this.kernels(),
        run.places.length ? this.memory() : null,
        run.facts.length ? el("section", {}, el("h2", {}, "About this run"), el("div", { class: "card" },
          Report.table("About this run", [["", ([name]) => name], ["", ([, value]) => value]], run.facts))) : null);
    }

    numbers() {
      const { run } = this;
      const shown = run.edges.hidden.length - run.edges.hidden.reduce((sum, one) => sum + one, 0);
      const timed = run.ops.lane.filter((lane) => lane >= 0).length;
      const moved = run.kernels.reduce((sum, kernel) => sum + (kernel.copy ? kernel.bytes : 0), 0);
      const copies = run.kernels.reduce((sum, kernel) => sum + (kernel.copy ? kernel.count : 0), 0);
      const path = [0, 0, 0];
      run.path.kind.forEach((kind, step) => { path[kind] += run.path.length[step]; });
      const peak = run.places.reduce((sum, place) => sum + Report.reserved(place), 0);
      const entries = [
        run.timed && ["Time", Report.time(run.makespan), "first start to last end"],
        ["Tasks", Report.count(run.count), timed < run.count && timed ? `${Report.count(timed)} of them timed` : `longest chain ${Report.count(run.depth)}`],
        ["Edges", Report.count(shown), `and ${Report.count(run.edges.hidden.length - shown)} implied by them${run.edges_decided ? "" : ", at least"}`],
        run.timed && ["Parallelism", (run.work / Math.max(run.makespan, 1)).toFixed(2), `ops at a time, on ${Report.plural(run.lanes.length, "lane")}`],
        run.timed && ["Path: stalls", Report.percent(path[2], run.makespan), `compute ${Report.percent(path[0], run.makespan)}, copies ${Report.percent(path[1], run.makespan)}`],
        copies > 0 && ["Moved", moved ? Report.bytes(moved) : "–", `in ${Report.plural(copies, "copy").replace("copys", "copies")}`],
        peak > 0 && ["Peak memory", Report.bytes(peak), run.places.length > 1 ? `in ${Report.plural(run.places.length, "place")}` : run.places[0].name],
      ].filter(Boolean);
      return el("dl", { class: "numbers" }, entries.map(([name, value, more]) => el("div", {}, el("dt", {}, name), el("dd", {}, value, el("small", {}, more)))));
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
        ["", bar],
        ...CAUSES.map((cause, i) => [`Idle: ${cause}`, (lane) => (lane.idle[i] ? Report.percent(lane.idle[i], run.makespan) : el("span", { class: "faint" }, "–")), true]),
      ], items), 64);
      return el("section", {}, el("h2", {}, "Lanes"), card);
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
          ["Mean", (kernel) => Report.time(kernel.total / kernel.count), true],
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
      return el("section", {}, el("h2", {}, "Memory"), el("div", { class: "card" }, Report.table("Memory", [
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

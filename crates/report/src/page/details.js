// The panel about the selected task: when and where it ran, what it waits for and why, who waits for it.
(() => {
  const { el } = Report;
  const LISTED = 60;

  function edgeItem(run, edge, other) {
    const region = run.region(edge);
    return el("li", {},
      el("button", { class: "link", type: "button", "data-op": other, onclick: () => Report.app.select(other, true) },
        Report.dot(Report.opColour(run, other)), run.label(other)),
      run.pathEdges[edge] ? [" ", el("span", { class: "tag path" }, "critical")] : null,
      el("span", { class: "why" },
        run.hazards(edge).map((kind) => el("span", { class: "tag" }, kind)),
        region ? el("code", {}, region) : null,
        run.edges.hidden[edge] ? el("span", { class: "faint" }, " implied by others") : null));
  }

  function edgeList(run, heading, edges, otherEnd, id) {
    // What is not implied by others comes first: it is what the task really waited for.
    const sorted = Array.from(edges).sort((a, b) => run.edges.hidden[a] - run.edges.hidden[b]);
    const items = sorted.slice(0, LISTED).map((edge) => edgeItem(run, edge, otherEnd[edge]));
    return el("section", { id },
      el("h3", {}, `${heading} (${Report.count(sorted.length)})`),
      sorted.length ? el("ul", {}, items) : el("p", { class: "faint" }, "nothing"),
      sorted.length > LISTED ? el("p", { class: "faint" }, `and ${Report.count(sorted.length - LISTED)} more`) : null);
  }

  function facts(run, op) {
    const { ops } = run;
    const rows = [];
    if (run.timedOp(op)) {
      rows.push(["Lane", run.laneName(ops.lane[op])], ["Start", Report.time(ops.start[op])], ["Took", Report.time(ops.length[op])]);
      const ready = Array.from(run.waitsFor(op)).reduce((latest, edge) => Math.max(latest, run.end(run.edges.pred[edge])), 0);
      if (run.outlierText(op)) rows.push(["Outlier", run.outlierText(op)]);
      if (ops.start[op] > ready) rows.push(["Ready before start", Report.time(ops.start[op] - ready)]);
    }
    if (ops.bytes[op]) rows.push(["Moved", Report.bytes(ops.bytes[op])]);
    return el("dl", {}, rows.map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
  }

  Report.details = (run, op) => {
    const panel = document.getElementById("details");
    panel.hidden = op < 0;
    if (op < 0) return panel.replaceChildren();
    const args = run.args(op);
    const show = (view, text) => el("button", { type: "button", onclick: () => Report.app.open(view, true) }, text);
    panel.replaceChildren(
      el("header", {},
        el("h2", {}, Report.dot(Report.opColour(run, op)), run.name(op), el("span", { class: "faint" }, ` #${run.ops.task[op]}`)),
        el("button", { class: "close", type: "button", "aria-label": "Close the details", onclick: () => Report.app.select(-1) }, "×")),
      run.onPath[op] ? el("p", {}, el("span", { class: "tag path" }, "on the critical path")) : "",
      facts(run, op),
      el("div", { class: "actions" }, show("graph", "In the graph"), run.timedOp(op) ? show("lanes", "In time") : null),
      edgeList(run, "Waits for", run.waitsFor(op), run.edges.pred, "waits-for"),
      edgeList(run, "Waited on by", run.waitedOnBy(op), run.edges.succ, "waited-on-by"),
      args.length ? el("h3", {}, "Arguments") : "",
      args.length ? el("ul", {}, args.map((arg) => el("li", {}, el("code", {}, arg)))) : "");
    panel.scrollTop = 0;
    return undefined;
  };
})();

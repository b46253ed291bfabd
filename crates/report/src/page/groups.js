// Large graphs from afar: tasks of one name in one phase are one box, and their edges one line.
(() => {
  // From this many tasks on, a graph opens as groups.
  const GROUPED_FROM = 3000;
  const PHASES = [8, 16, 32, 64];
  const COLUMN = 210, ROW = 96, WIDE = 180, HIGH = 58;
  const EDGES_MAX = 1500;

  /** Phases divide the graph by depth, from top to bottom; a group is a name in a phase. */
  class Groups {
    constructor(run, phases) {
      this.run = run;
      const { ops, edges } = run, rows = Math.max(run.rows, 1);
      this.phases = Math.min(phases, rows);
      const phaseOf = (op) => Math.min(this.phases - 1, Math.floor((ops.row[op] * this.phases) / rows));
      this.names = [...new Set(run.kernels.map(({ name }) => name))];
      const column = new Map(this.names.map((name, i) => [name, i]));
      const keys = new Map();
      this.of = new Int32Array(run.count);
      this.all = [];
      for (let op = 0; op < run.count; op++) {
        const phase = phaseOf(op), key = phase * this.names.length + column.get(ops.name[op]);
        if (!keys.has(key)) {
          keys.set(key, this.all.length);
          this.all.push({ phase, column: column.get(ops.name[op]), name: ops.name[op], copy: ops.copy[op], ops: [], time: 0, path: 0 });
        }
        const group = this.all[(this.of[op] = keys.get(key))];
        group.ops.push(op);
        group.time += run.timedOp(op) ? ops.length[op] : 0;
        group.path += run.onPath[op];
      }
      const counts = new Map();
      for (let edge = 0; edge < edges.pred.length; edge++) {
        if (edges.hidden[edge]) continue;
        const pred = this.of[edges.pred[edge]], succ = this.of[edges.succ[edge]];
        if (pred !== succ) counts.set(pred * this.all.length + succ, (counts.get(pred * this.all.length + succ) || 0) + 1);
      }
      this.edges = [...counts].map(([key, count]) => ({ pred: Math.floor(key / this.all.length), succ: key % this.all.length, count }));
      this.edges.sort((a, b) => b.count - a.count);
    }
  }

  /** The groups as boxes: a column for each name, a row for each phase. */
  class GroupsView {
    constructor(run, open) {
      Object.assign(this, { run, open, at: -1 });
      this.choose(PHASES[0]);
      this.plot = new Report.Plot(this, { label: "Groups of tasks by name and phase. Arrow keys move, plus and minus zoom, 0 shows everything, shift with arrows goes from group to group, enter opens one.", zoomMax: 2 });
    }

    choose(phases) {
      this.groups = new Groups(this.run, phases);
      this.at = -1;
      if (this.plot) this.plot.fit();
    }

    bounds() { return { x0: -0.6 * COLUMN, x1: (this.groups.names.length - 0.4) * COLUMN, y0: -0.7 * ROW, y1: (this.groups.phases - 0.3) * ROW }; }
    x(group) { return group.column * COLUMN; }
    y(group) { return group.phase * ROW; }

    draw(context, plot) {
      this.drawEdges(context, plot);
      for (const group of this.groups.all) this.drawGroup(context, plot, group);
      this.status.textContent = `${Report.plural(this.groups.all.length, "group")} of ${Report.plural(this.run.count, "task")} in ${Report.plural(this.groups.phases, "phase")}: press one to open it`;
    }

    drawEdges(context, plot) {
      const { all, edges } = this.groups, colours = Report.theme(), most = edges.length ? edges[0].count : 1;
      const selected = all[this.at];
      for (const { pred, succ, count } of edges.slice(0, EDGES_MAX)) {
        const a = all[pred], b = all[succ], near = selected && (a === selected || b === selected);
        context.strokeStyle = near ? colours.accent : colours.edge;
        context.globalAlpha = near ? 0.9 : selected ? 0.12 : 0.35;
        context.lineWidth = Math.max(0.6, 5 * Math.sqrt(count / most) * Math.min(plot.zoom, 1));
        const level = a.phase === b.phase;
        const x0 = plot.toX(this.x(a) + (level ? Math.sign(b.column - a.column) * (WIDE / 2) : 0)), x1 = plot.toX(this.x(b) - (level ? Math.sign(b.column - a.column) * (WIDE / 2) : 0));
        const y0 = plot.toY(this.y(a) + (level ? 0 : HIGH / 2)), y1 = plot.toY(this.y(b) - (level ? 0 : HIGH / 2)), bend = level ? 0 : Math.max((y1 - y0) / 2, 8);
        context.beginPath();
        context.moveTo(x0, y0);
        context.bezierCurveTo(x0, y0 + bend, x1, y1 - bend, x1, y1);
        context.stroke();
      }
      context.globalAlpha = 1;
    }

    drawGroup(context, plot, group) {
      const { run } = this, colours = Report.theme(), { zoom } = plot;
      const wide = WIDE * zoom, high = HIGH * zoom, x = plot.toX(this.x(group)) - wide / 2, y = plot.toY(this.y(group)) - high / 2;
      if (x > plot.width || y > plot.height || x + wide < 0 || y + high < 0) return;
      context.beginPath();
      context.roundRect(x, y, wide, high, 8 * zoom);
      context.fillStyle = colours.node;
      context.fill();
      const chosen = this.groups.all[this.at] === group;
      context.strokeStyle = chosen ? colours.accent : group.path ? colours.path : colours["line-strong"];
      context.lineWidth = chosen ? 3 : group.path ? 1.8 : 1;
      context.stroke();
      // How full the bar is says how much of all work the group is.
      const share = run.work ? group.time / run.work : group.ops.length / run.count;
      context.fillStyle = Report.colourOf(run, group.name, group.copy);
      context.fillRect(x + 8 * zoom, y + high - 12 * zoom, Math.max((wide - 16 * zoom) * Math.sqrt(share), 2), 6 * zoom);
      if (zoom < 0.32) return;
      const size = Math.max(9, 13 * Math.min(zoom, 1));
      context.textBaseline = "middle";
      context.font = `600 ${size}px ${colours.sans}`;
      context.fillStyle = colours.ink;
      context.fillText(Report.clip(context, `${run.strings[group.name]} \u00d7 ${Report.count(group.ops.length)}`, wide - 18 * zoom), x + 9 * zoom, y + 15 * zoom);
      context.font = `${size * 0.88}px ${colours.sans}`;
      context.fillStyle = colours.soft;
      const text = run.timed ? `${Report.time(group.time)}, ${Report.percent(share, 1)}` : `phase ${group.phase + 1}`;
      context.fillText(Report.clip(context, text, wide - 18 * zoom), x + 9 * zoom, y + 32 * zoom);
    }

    hit(px, py) {
      const { plot } = this, x = plot.fromX(px), y = plot.fromY(py);
      const at = this.groups.all.findIndex((group) => Math.abs(this.x(group) - x) <= WIDE / 2 && Math.abs(this.y(group) - y) <= HIGH / 2);
      return at < 0 ? null : { at };
    }

    tip({ at }) {
      const group = this.groups.all[at], { run } = this;
      const lines = [`${run.strings[group.name]}, phase ${group.phase + 1} of ${this.groups.phases}`, Report.plural(group.ops.length, "task")];
      if (run.timed) lines.push(`${Report.time(group.time)} together, ${Report.time(group.time / group.ops.length)} on average`);
      if (group.path) lines.push(`${Report.count(group.path)} on the critical path`);
      return lines.join("\n");
    }

    pick(hit) { if (hit) { this.at = hit.at; this.enter(); } }
    /** Opens the chosen group. */
    enter() { if (this.at >= 0) this.open(this.groups.all[this.at]); }

    /** To the nearest group in a direction. */
    step(dx, dy) {
      const { all } = this.groups, from = all[this.at] || all[0];
      const ahead = all.filter((group) => (dx ? group.phase === from.phase && Math.sign(group.column - from.column) === dx : Math.sign(group.phase - from.phase) === dy));
      const distance = (group) => Math.abs(group.phase - from.phase) * 100 + Math.abs(group.column - from.column);
      ahead.sort((a, b) => distance(a) - distance(b));
      this.at = this.at < 0 ? 0 : all.indexOf(ahead[0] || from);
      const group = all[this.at];
      if (!group) return;
      document.getElementById("live").textContent = this.tip({ at: this.at }).replace(/\n/g, ", ");
      this.plot.show(this.x(group), this.x(group), this.y(group), this.plot.zoom);
    }
  }

  /** The graph of tasks, and of groups where there are too many to see. */
  class GraphTab {
    constructor(run) {
      this.run = run;
      this.tasks = new Report.GraphView(run);
      this.groups = new GroupsView(run, (group) => this.show("tasks", group));
      this.groups.status = Report.el("span", { class: "status" });
      this.shown = run.count >= GROUPED_FROM ? "groups" : "tasks";
    }

    get view() { return this[this.shown]; }
    get plot() { return this.view.plot; }

    element() {
      const { el } = Report;
      const phases = el("label", {}, "Phases ", el("select", { onchange: (event) => this.groups.choose(Number(event.target.value)) },
        PHASES.map((count) => el("option", { value: count, selected: count === PHASES[0] }, String(count)))));
      this.groupsElement = el("div", { class: "view full" },
        el("div", { class: "controls" }, this.groups.plot.buttons(), this.choice("groups"), phases, el("span", { class: "space" }), this.groups.status),
        this.groups.plot.stage, Report.legend(this.run, false));
      this.tasksElement = this.tasks.element(this.choice("tasks"));
      this.host = el("div", { class: "host" }, this[`${this.shown}Element`]);
      return this.host;
    }

    choice(here) {
      const { el } = Report;
      return el("div", { class: "group", role: "group", "aria-label": "What the boxes are" }, ["groups", "tasks"].map((what) => el("button", {
        type: "button", "aria-pressed": what === here ? "true" : "false", onclick: () => this.show(what) }, what === "groups" ? "Groups" : "Tasks")));
    }

    /** Shows groups or tasks; of tasks, those of one group from end to end. */
    show(what, group = null) {
      this.shown = what;
      this.tasks.only = group ? { has: (op) => this.groups.groups.of[op] === this.groups.groups.of[group.ops[0]], group } : null;
      this.host.replaceChildren(this[`${what}Element`]);
      this.plot.resize();
      if (what === "tasks") this.tasks.showOnly();
    }

    reveal(op) {
      if (this.shown === "groups") this.show("tasks");
      this.plot.resize();
      this.tasks.reveal(op);
    }
  }

  Report.GraphTab = GraphTab;
})();

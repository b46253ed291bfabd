// The graph: rows of tasks from top to bottom, every edge pointing down.
(() => {
  const { el } = Report;
  const COLUMN = 160, ROW = 88, WIDE = 136, HIGH = 36;
  // Past this many edges a picture shows texture, not edges: nodes then take turns.
  const EDGES_MAX = 4000;
  // Tasks nearer to each other than this many pixels are drawn as one.
  const CELL = 3.2;
  // Of a task's edges that lead out of sight, this many are begun on either side.
  const STUBS = 4;
  // Of the selected task's edges, this many are drawn.
  const SELECTED_MAX = 400;

  /** Strokes lines a few at a time: one path of thousands is far slower to fill than many short ones. */
  class Pen {
    constructor(context) { this.context = context; this.lines = 0; context.beginPath(); }
    next() { if (this.lines === 32) this.done(); this.lines++; }
    done() { if (this.lines) this.context.stroke(); this.context.beginPath(); this.lines = 0; }
  }

  class GraphView {
    constructor(run) {
      this.run = run;
      this.all = false;
      this.path = run.timed;
      this.index();
      this.plot = new Report.Plot(this, { label: "Task graph. Arrow keys move, plus and minus zoom, 0 shows everything, shift with arrows follows edges.", zoomMax: 2.5 });
      this.status = el("span", { class: "status", id: "graph-status" });
    }

    /** Ops of each row from left to right. */
    index() {
      const { ops, count, rows } = this.run;
      this.rows = Array.from({ length: rows }, () => []);
      for (let op = 0; op < count; op++) this.rows[ops.row[op]].push(op);
      this.rows = this.rows.map((row) => Int32Array.from(row).sort((a, b) => ops.x[a] - ops.x[b]));
      this.places = this.rows.map((row) => Float64Array.from(row, (op) => ops.x[op]));
      let [low, high] = [Infinity, -Infinity];
      for (const places of this.places) {
        if (!places.length) continue;
        low = Math.min(low, places[0]);
        high = Math.max(high, places[places.length - 1]);
      }
      if (low > high) [low, high] = [0, 0];
      this.box = { x0: (low - 0.7) * COLUMN, x1: (high + 0.7) * COLUMN, y0: -0.7 * ROW, y1: (rows - 0.3) * ROW };
    }

    bounds() { return this.box; }
    x(op) { return this.run.ops.x[op] * COLUMN; }
    y(op) { return this.run.ops.row[op] * ROW; }

    /** With the controls, `choice` between groups and tasks. */
    element(choice = null) {
      const box = (label, name) => el("label", {},
        el("input", { type: "checkbox", checked: this[name], onchange: (event) => { this[name] = event.target.checked; this.plot.ask(); } }), label);
      const hidden = this.run.edges.hidden.reduce((sum, one) => sum + one, 0);
      return el("div", { class: "view full" },
        el("div", { class: "controls" },
          this.plot.buttons(), choice, this.back = el("span", { class: "soft", hidden: true }),
          hidden ? box(`Edges that others imply (${Report.count(hidden)})`, "all") : null,
          this.run.timed ? box("Critical path", "path") : null,
          el("span", { class: "space" }), this.status),
        this.plot.stage, Report.legend(this.run, false));
    }

    /** Brings the tasks of the one opened group into sight, and names it. */
    showOnly() {
      const { only, run } = this;
      this.back.hidden = !only;
      if (!only) return this.plot.fit();
      const { ops, name, phase } = only.group;
      this.back.textContent = `${run.strings[name]}, phase ${phase + 1}`;
      const xs = ops.map((op) => this.x(op)), ys = ops.map((op) => this.y(op));
      const least = (all) => all.reduce((a, b) => Math.min(a, b)), most = (all) => all.reduce((a, b) => Math.max(a, b));
      const { plot } = this, [x0, x1, y0, y1] = [least(xs) - COLUMN, most(xs) + COLUMN, least(ys) - ROW, most(ys) + ROW];
      const zoom = Math.min(plot.width / (x1 - x0), plot.height / (y1 - y0), 1);
      return plot.show(x0, x1, (y0 + y1) / 2, zoom);
    }

    draw(context, plot) {
      const zoom = plot.zoom;
      const seen = this.visible(plot);
      this.drawEdges(context, plot, seen);
      this.drawSelectedEdges(context, plot);
      this.drawNodes(context, plot, seen, zoom);
      if (this.only) this.fadeOthers(context, plot, seen);
      this.markSelected(context, plot);
      const drawn = seen.merged ? "Tasks drawn as blocks" : `${Report.plural(seen.ops.length, "task")} in sight`;
      const edges = seen.step > 1 ? `, edges of one in ${seen.step}` : "";
      const path = this.path && this.run.timed && !this.marksPath(seen) ? ", no critical path" : "";
      this.status.textContent = drawn + edges + path + (seen.merged || seen.step > 1 ? ": zoom in for more" : "");
    }

    /** Everything but the opened group. */
    fadeOthers(context, plot, seen) {
      context.fillStyle = Report.theme().card;
      context.globalAlpha = 0.72;
      const wide = Math.max(WIDE * plot.zoom, 2) + 4, high = Math.max(HIGH * plot.zoom, 2) + 4;
      for (const op of seen.ops) {
        if (!this.only.has(op)) context.fillRect(plot.toX(this.x(op)) - wide / 2, plot.toY(this.y(op)) - high / 2, wide, high);
      }
      context.globalAlpha = 1;
    }

    /** What is in sight: at most one op in a cell of a few pixels. */
    visible(plot) {
      const ops = [];
      const top = Math.max(0, Math.floor(plot.fromY(plot.top - HIGH) / ROW)), bottom = Math.min(this.rows.length - 1, Math.ceil(plot.fromY(plot.height + HIGH) / ROW));
      const left = plot.fromX(-WIDE * plot.zoom) / COLUMN, right = plot.fromX(plot.width + WIDE * plot.zoom) / COLUMN;
      const cell = CELL / plot.zoom / COLUMN, rowStep = Math.max(1, Math.floor(1 / plot.zoom / ROW));
      const dense = cell > 1;
      for (let row = top; row <= bottom; row += rowStep) {
        const places = this.places[row], items = this.rows[row];
        let at = Report.lowerBound(places, left);
        while (at < places.length && places[at] <= right) {
          ops.push(items[at]);
          at = dense ? Report.lowerBound(places, places[at] + cell, at + 1) : at + 1;
        }
      }
      return { ops, dense, merged: dense || rowStep > 1, rowStep, top, bottom, left, right, step: 1 };
    }

    drawEdges(context, plot, seen) {
      const { run } = this, { edges, ops } = run, colours = Report.theme();
      let total = 0;
      for (const op of seen.ops) total += run.fanin.starts[op + 1] - run.fanin.starts[op];
      seen.step = Math.max(1, Math.ceil(total / EDGES_MAX));
      const curved = plot.zoom > 0.22 && total < 1500;
      const inSight = (op) => ops.row[op] >= seen.top && ops.row[op] <= seen.bottom && ops.x[op] >= seen.left && ops.x[op] <= seen.right;
      context.lineWidth = plot.zoom > 0.5 ? 1.2 : 0.8;
      context.strokeStyle = colours.edge;
      context.globalAlpha = Math.max(total < 2500 ? 0.32 : 0.16, Math.min(0.75, 0.2 + plot.zoom * 0.7));
      const pen = new Pen(context);
      for (let i = 0; i < seen.ops.length; i += seen.step) {
        const op = seen.ops[i];
        let stubs = 0;
        for (const edge of run.waitsFor(op)) {
          if (edges.hidden[edge] && !this.all) continue;
          const whole = seen.merged || inSight(edges.pred[edge]);
          if (!whole && ++stubs > STUBS) continue;
          pen.next();
          if (whole) this.trace(context, plot, edges.pred[edge], op, curved);
          else this.stub(context, plot, op, edges.pred[edge], -1);
        }
        stubs = 0;
        for (const edge of run.waitedOnBy(op)) {
          if ((edges.hidden[edge] && !this.all) || inSight(edges.succ[edge])) continue;
          if (++stubs > STUBS) break;
          pen.next();
          this.stub(context, plot, op, edges.succ[edge], 1);
        }
      }
      pen.done();
      context.globalAlpha = 1;
      if (this.marksPath(seen)) this.drawPath(context, plot, inSight);
    }

    /** Where tasks are drawn as one, marks on some of them would be noise. */
    marksPath(seen) { return this.path && this.run.timed && !(seen.merged && this.run.pathLinks.length > 400); }

    /** The beginning of an edge that leads out of sight: where it leads, without crossing the picture. */
    stub(context, plot, op, other, side) {
      const x = plot.toX(this.x(op)), y = plot.toY(this.y(op)) + side * (HIGH / 2) * plot.zoom;
      const long = ROW * 0.42 * plot.zoom, aside = Math.max(-long, Math.min(long, plot.toX(this.x(other)) - x));
      context.moveTo(x, y);
      context.quadraticCurveTo(x, y + side * long * 0.6, x + aside, y + side * long);
    }

    /** The critical path is drawn whole, however few of the other edges are; dashed where the lane's order made it. */
    drawPath(context, plot, inSight) {
      const { run } = this, near = plot.zoom > 0.2;
      const pen = new Pen(context);
      context.strokeStyle = Report.theme().path;
      context.lineWidth = near ? 2.2 : 0.9;
      for (const [byEdge, dash] of [[true, []], [false, [4, 4]]]) {
        // The order on lanes has little to do with the graph's: from afar, only the tasks are marked.
        if (!byEdge && plot.zoom < 0.45) break;
        context.setLineDash(dash);
        if (!byEdge) context.lineWidth = 1.3;
        for (const { pred, succ, edge } of run.pathLinks) {
          if (edge >= 0 !== byEdge) continue;
          const here = [!near || inSight(pred), !near || inSight(succ)];
          if (!here[0] && !here[1]) continue;
          pen.next();
          if (here[0] && here[1]) this.trace(context, plot, pred, succ, near);
          else if (here[0]) this.stub(context, plot, pred, succ, 1);
          else this.stub(context, plot, succ, pred, -1);
        }
        pen.done();
      }
      context.setLineDash([]);
    }

    trace(context, plot, pred, succ, curved) {
      const half = plot.zoom > 0.12 ? (HIGH / 2) * plot.zoom : 0;
      const x0 = plot.toX(this.x(pred)), y0 = plot.toY(this.y(pred)) + half, x1 = plot.toX(this.x(succ)), y1 = plot.toY(this.y(succ)) - half;
      context.moveTo(x0, y0);
      if (!curved) context.lineTo(x1, y1);
      else { const bend = Math.max((y1 - y0) * 0.45, 6 * plot.zoom); context.bezierCurveTo(x0, y0 + bend, x1, y1 - bend, x1, y1); }
    }

    drawNodes(context, plot, seen, zoom) {
      const { run } = this, colours = Report.theme();
      const wide = Math.max(WIDE * zoom, seen.dense ? CELL : 1.5), high = Math.max(HIGH * zoom * (seen.rowStep > 1 ? seen.rowStep * 1.5 : 1), 1.5);
      if (zoom < 0.3) {
        this.drawBlocks(context, plot, seen, wide, high);
        if (this.marksPath(seen)) this.frameCritical(context, plot, wide, high);
        return;
      }
      context.textBaseline = "middle";
      const size = Math.max(9, Math.min(13, 13 * zoom));
      for (const op of seen.ops) {
        const x = plot.toX(this.x(op)) - wide / 2, y = plot.toY(this.y(op)) - high / 2;
        const colour = Report.opColour(run, op), radius = 7 * zoom, critical = this.path && run.onPath[op];
        context.beginPath();
        context.roundRect(x, y, wide, high, radius);
        context.fillStyle = colours.node;
        context.fill();
        context.strokeStyle = critical ? colours.path : colours["line-strong"];
        context.lineWidth = critical ? 1.8 : 1;
        context.stroke();
        context.beginPath();
        context.roundRect(x + 5 * zoom, y + 8 * zoom, 4 * zoom, high - 16 * zoom, 2 * zoom);
        context.fillStyle = colour;
        context.fill();
        if (zoom > 0.45) this.drawLabel(context, op, x + 16 * zoom, y, wide - 22 * zoom, high, size);
      }
    }

    /** Tasks from afar: blocks of colour, written as pixels. Filling a rectangle for each takes ten times as long. */
    drawBlocks(context, plot, seen, wide, high) {
      const { density } = plot, { pixels, canvas, screen } = this.sheet(plot.canvas.width, plot.canvas.height);
      const { paint, colours } = this.painted();
      const across = Math.max(1, Math.round(wide * density)), tall = Math.max(1, Math.round(high * density));
      pixels.fill(0);
      for (const op of seen.ops) {
        const left = Math.round((plot.toX(this.x(op)) - wide / 2) * density), top = Math.round((plot.toY(this.y(op)) - high / 2) * density);
        const from = Math.max(0, left), until = Math.min(canvas.width, left + across), bottom = Math.min(canvas.height, top + tall);
        if (from >= until) continue;
        for (let y = Math.max(0, top); y < bottom; y++) pixels.fill(colours[paint[op]], y * canvas.width + from, y * canvas.width + until);
      }
      canvas.getContext("2d").putImageData(screen, 0, 0);
      context.drawImage(canvas, 0, 0, plot.width, plot.height);
    }

    /** Pixels of the canvas's size, kept from frame to frame. */
    sheet(width, height) {
      if (!this.blank || this.blank.canvas.width !== width || this.blank.canvas.height !== height) {
        const canvas = Object.assign(document.createElement("canvas"), { width, height });
        const screen = new ImageData(width, height);
        this.blank = { canvas, screen, pixels: new Uint32Array(screen.data.buffer) };
      }
      return this.blank;
    }

    /** By op the number of its colour among those that there are; these as words of four bytes, red first in memory. */
    painted() {
      if (!this.paint) {
        const numbers = new Map();
        this.paint = Uint8Array.from({ length: this.run.count }, (_, op) => {
          const colour = Report.opColour(this.run, op);
          if (!numbers.has(colour)) numbers.set(colour, numbers.size);
          return numbers.get(colour);
        });
        const bytes = [...numbers.keys()].flatMap((colour) => [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16)).concat(255));
        this.colours = new Uint32Array(Uint8Array.from(bytes).buffer);
      }
      return this;
    }

    frameCritical(context, plot, wide, high) {
      const { run } = this, { op: ops, kind } = run.path;
      context.fillStyle = Report.theme().path;
      ops.forEach((op, step) => {
        if (!Report.ran(kind[step])) return;
        const x = plot.toX(this.x(op)), y = plot.toY(this.y(op));
        if (x < -wide || y < -high || x > plot.width + wide || y > plot.height + high) return;
        context.fillRect(x - wide / 2, y + high / 2 - Math.max(1.5, high * 0.22), wide, Math.max(1.5, high * 0.22));
      });
    }

    drawLabel(context, op, x, y, room, high, size) {
      const { run } = this, colours = Report.theme();
      const timed = run.timedOp(op) && high > 26;
      const shift = timed ? high * 0.18 : 0;
      context.font = `600 ${size}px ${colours.sans}`;
      context.fillStyle = colours.ink;
      const id = ` #${run.ops.task[op]}`;
      const name = Report.clip(context, run.name(op), room - id.length * size * 0.58);
      context.fillText(name, x, y + high / 2 - shift);
      const after = context.measureText(name).width;
      context.font = `${size * 0.88}px ${colours.sans}`;
      context.fillStyle = colours.faint;
      context.fillText(id, x + after, y + high / 2 - shift);
      if (timed) context.fillText(Report.time(run.ops.length[op]), x, y + high / 2 + high * 0.24);
    }

    /** Under the nodes: an edge that passes one does not strike out its name. */
    drawSelectedEdges(context, plot) {
      const { run } = this, op = Report.app.selected;
      if (op < 0) return;
      context.strokeStyle = Report.theme().accent;
      context.lineWidth = 1.8;
      for (const [list, dash] of [[run.waitsFor(op), []], [run.waitedOnBy(op), [5, 4]]]) {
        context.setLineDash(dash);
        context.beginPath();
        for (const edge of Array.from(list).slice(0, SELECTED_MAX)) this.trace(context, plot, run.edges.pred[edge], run.edges.succ[edge], true);
        context.stroke();
      }
      context.setLineDash([]);
    }

    markSelected(context, plot) {
      const { run } = this, op = Report.app.selected;
      if (op < 0) return;
      const zoom = plot.zoom, wide = Math.max(WIDE * zoom, 7), high = Math.max(HIGH * zoom, 7);
      const mark = (other, width) => {
        context.lineWidth = width;
        context.beginPath();
        context.roundRect(plot.toX(this.x(other)) - wide / 2 - 2, plot.toY(this.y(other)) - high / 2 - 2, wide + 4, high + 4, 8 * zoom + 1);
        context.stroke();
      };
      context.strokeStyle = Report.theme().accent;
      for (const edge of Array.from(run.waitsFor(op)).slice(0, SELECTED_MAX)) mark(run.edges.pred[edge], 1.4);
      mark(op, 3);
    }

    hit(px, py) {
      const { plot } = this;
      const row = Math.round(plot.fromY(py) / ROW);
      if (row < 0 || row >= this.rows.length) return null;
      const slackX = Math.max(WIDE / 2, 4 / plot.zoom), slackY = Math.max(HIGH / 2, 4 / plot.zoom);
      if (Math.abs(plot.fromY(py) - row * ROW) > slackY) return null;
      const x = plot.fromX(px) / COLUMN, places = this.places[row];
      const at = Report.lowerBound(places, x);
      const near = [at - 1, at].filter((i) => i >= 0 && i < places.length && Math.abs(places[i] - x) * COLUMN <= slackX);
      if (!near.length) return null;
      near.sort((a, b) => Math.abs(places[a] - x) - Math.abs(places[b] - x));
      return { op: this.rows[row][near[0]] };
    }

    tip({ op }) { return Report.opTip(this.run, op); }
    pick(hit) { Report.app.select(hit ? hit.op : -1); }

    /** Follows an edge up or down, or goes to the neighbour in the row. */
    step(dx, dy) {
      const { run } = this, op = Report.app.selected;
      if (op < 0) return Report.app.select(this.rows.length ? this.rows[0][0] : -1, true);
      const edges = dy < 0 ? run.waitsFor(op) : run.waitedOnBy(op);
      const row = this.rows[run.ops.row[op]];
      const next = dy ? Array.from(edges, (edge) => (dy < 0 ? run.edges.pred : run.edges.succ)[edge])[0] : row[row.indexOf(op) + dx];
      return next === undefined ? undefined : Report.app.select(next, true);
    }

    reveal(op) { this.plot.show(this.x(op), this.x(op), this.y(op), Math.max(this.plot.zoom, 0.9)); }
  }

  /** As much of `text` as fits. */
  Report.clip = (context, text, room) => {
    if (room <= 0) return "";
    if (context.measureText(text).width <= room) return text;
    let [low, high] = [0, text.length];
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (context.measureText(text.slice(0, middle) + "…").width <= room) low = middle; else high = middle - 1;
    }
    return low ? text.slice(0, low) + "…" : "";
  };

  Report.opTip = (run, op) => {
    const lines = [run.label(op)];
    if (run.timedOp(op)) lines.push(`${Report.time(run.ops.length[op])} from ${Report.time(run.ops.start[op])} on ${run.laneName(run.ops.lane[op])}`);
    lines.push(`waits for ${Report.count(run.waitsFor(op).length)}, waited on by ${Report.count(run.waitedOnBy(op).length)}`);
    if (run.outlierText(op)) lines.push(run.outlierText(op));
    if (run.onPath[op]) lines.push("on the critical path");
    return lines.join("\n");
  };

  Report.GraphView = GraphView;
})();

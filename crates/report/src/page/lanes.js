// The swimlane: lanes over time, the critical path through them, and gaps coloured by cause.
(() => {
  const { el, CAUSES } = Report;
  const LEFT = 128, TOP = 30, ROOM = 8;

  class LanesView {
    constructor(run) {
      this.run = run;
      this.gaps = true;
      this.path = true;
      this.high = Math.max(18, Math.min(68, Math.floor(600 / Math.max(run.lanes.length, 1)) - ROOM));
      this.plot = new Report.Plot(this, { label: "Lanes over time. Arrow keys move, plus and minus zoom, 0 shows everything, shift with arrows goes from task to task.", timeOnly: true, left: LEFT, top: TOP, zoomMax: 4 });
      this.status = el("span", { class: "status", id: "lanes-status" });
    }

    bounds() { return { x0: 0, x1: Math.max(this.run.makespan, 1) * 1.005, y0: 0, y1: this.run.lanes.length * (this.high + ROOM) + ROOM }; }
    laneY(lane) { return this.plot.toY(lane * (this.high + ROOM) + ROOM); }

    element() {
      if (!this.run.timed) return Report.untimed("Nothing to show over time");
      const box = (label, name) => el("label", {},
        el("input", { type: "checkbox", checked: true, onchange: (event) => { this[name] = event.target.checked; this.plot.ask(); } }), label);
      this.plot.stage.style.maxHeight = `${this.bounds().y1 + TOP + 4}px`;
      return el("div", { class: "view full" },
        el("div", { class: "controls" }, this.plot.buttons(), box("Critical path", "path"), box("Gaps", "gaps"), el("span", { class: "space" }), this.status),
        this.plot.stage,
        el("ul", { class: "legend", "aria-label": "Colours" },
          el("li", { class: "soft" }, "Idle for"),
          CAUSES.map((cause, i) => el("li", {}, Report.dot(`var(${Report.causeVariable(i)})`), cause)),
          this.run.kernels.slice(0, 8).map((kernel) => el("li", {}, Report.dot(Report.colourOf(this.run, kernel.name, kernel.copy)), this.run.strings[kernel.name]))));
    }

    draw(context, plot) {
      const { run } = this, colours = Report.theme();
      const first = Math.max(0, Math.floor(plot.fromY(TOP) / (this.high + ROOM)) - 1);
      const last = Math.min(run.lanes.length - 1, Math.ceil(plot.fromY(plot.height) / (this.high + ROOM)));
      context.save();
      context.beginPath();
      context.rect(LEFT, TOP, plot.width - LEFT, plot.height - TOP);
      context.clip();
      for (let lane = first; lane <= last; lane++) {
        context.fillStyle = colours.lane;
        context.fillRect(LEFT, this.laneY(lane), plot.width - LEFT, this.high);
        if (this.gaps) this.drawGaps(context, plot, lane);
        this.drawOps(context, plot, lane);
      }
      if (this.path) this.drawPath(context, plot);
      this.drawSelection(context);
      context.restore();
      this.drawAxis(context, plot);
      this.drawNames(context, plot, first, last);
      this.status.textContent = `${Report.time(plot.fromX(plot.width) - plot.fromX(LEFT))} in sight`;
    }

    /** Calls `paint(item, x, width)` for what is in sight of a track, one item a pixel at most. */
    sweep(track, paint) {
      const { plot } = this, until = plot.fromX(plot.width), pixel = 1 / plot.zoom;
      let at = track.firstEnding(plot.fromX(LEFT));
      while (at < track.items.length && track.starts[at] <= until) {
        const x = Math.max(plot.toX(track.starts[at]), LEFT - 2), end = Math.min(plot.toX(track.ends[at]), plot.width + 2);
        if (end >= LEFT) paint(track.items[at], x, end - x);
        at = end - x >= 1 ? at + 1 : track.past(at, pixel);
      }
    }

    drawGaps(context, plot, lane) {
      const y = this.laneY(lane), { gaps } = this.run, colours = Report.theme();
      this.sweep(this.run.gapTracks[lane], (gap, x, width) => {
        context.fillStyle = colours.gaps[gaps.cause[gap]];
        context.fillRect(x, y, Math.max(width, 0.5), this.high);
      });
    }

    drawOps(context, plot, lane) {
      const { run } = this, y = this.laneY(lane), high = this.high, colours = Report.theme();
      const labels = [];
      let colour = "";
      this.sweep(run.tracks[lane], (op, x, width) => {
        const next = Report.opColour(run, op);
        if (next !== colour) context.fillStyle = colour = next;
        context.fillRect(x, y + 1, Math.max(width - (width > 4 ? 1 : 0), 1), high - 2);
        if (width > 34 && high >= 16) labels.push([op, x, width]);
      });
      context.font = `12px ${colours.sans}`;
      context.textBaseline = "middle";
      context.fillStyle = "#fff";
      for (const [op, x, width] of labels) {
        const inset = Math.max(x, LEFT) + 6;
        context.fillText(Report.clip(context, width > 90 ? run.label(op) : run.name(op), x + width - inset - 5), inset, y + high / 2 + 0.5);
      }
    }

    drawPath(context, plot) {
      const { run } = this, { path } = run, colours = Report.theme();
      const from = plot.fromX(LEFT), until = plot.fromX(plot.width), pixel = 2 / plot.zoom;
      context.strokeStyle = colours.path;
      context.lineWidth = 2;
      context.lineJoin = "round";
      context.beginPath();
      let step = Math.max(0, Report.lowerBound(path.start, from) - 2), before = null;
      while (step < path.op.length && path.start[step] <= until) {
        if (path.kind[step] < 2) {
          const lane = run.ops.lane[path.op[step]], y = this.laneY(lane) + this.high - 2;
          const x0 = plot.toX(path.start[step]), x1 = plot.toX(path.start[step] + path.length[step]);
          if (before) { context.lineTo(x0, before.y); context.lineTo(x0, y); } else context.moveTo(x0, y);
          context.lineTo(x1, y);
          before = { y };
        }
        // Steps narrower than two pixels are told apart by zooming in.
        step = path.length[step] >= pixel ? step + 1 : Math.max(step + 1, Report.lowerBound(path.start, path.start[step] + pixel, step) - 1);
      }
      context.stroke();
    }

    drawSelection(context) {
      const { run, plot } = this, op = Report.app.selected, colours = Report.theme();
      if (op < 0 || !run.timedOp(op)) return;
      const box = (other, width) => {
        const x = plot.toX(run.ops.start[other]), end = Math.max(plot.toX(run.end(other)), x + 3);
        context.lineWidth = width;
        context.strokeRect(x - 1, this.laneY(run.ops.lane[other]) - 1, end - x + 2, this.high + 2);
      };
      context.strokeStyle = colours.ink;
      context.setLineDash([3, 3]);
      for (const edge of Array.from(run.waitsFor(op)).slice(0, 200)) {
        const pred = run.edges.pred[edge];
        if (!run.timedOp(pred)) continue;
        box(pred, 1.2);
        // Near the top of the lanes, where it does not strike out names.
        const drop = Math.min(8, this.high / 3);
        context.beginPath();
        context.moveTo(plot.toX(run.end(pred)), this.laneY(run.ops.lane[pred]) + drop);
        context.lineTo(plot.toX(run.ops.start[op]), this.laneY(run.ops.lane[op]) + drop);
        context.stroke();
      }
      context.setLineDash([]);
      box(op, 2.5);
    }

    drawAxis(context, plot) {
      const colours = Report.theme();
      context.fillStyle = colours.card;
      context.fillRect(0, 0, plot.width, TOP);
      context.font = `12px ${colours.sans}`;
      context.textBaseline = "middle";
      context.textAlign = "center";
      const ticks = Report.ticks(plot.fromX(LEFT), plot.fromX(plot.width), plot.width / 130);
      for (const tick of ticks) {
        const x = plot.toX(tick);
        context.fillStyle = colours.line;
        context.fillRect(x, TOP - 7, 1, 7);
        context.fillStyle = colours.soft;
        if (x > LEFT + 20 && x < plot.width - 26) context.fillText(Report.tickTime(tick, ticks.step), x, TOP / 2 - 1);
      }
      context.textAlign = "left";
      context.fillStyle = colours.line;
      context.fillRect(0, TOP, plot.width, 1);
    }

    drawNames(context, plot, first, last) {
      const { run } = this, colours = Report.theme();
      context.save();
      context.beginPath();
      context.rect(0, TOP + 1, LEFT, plot.height);
      context.clip();
      context.fillStyle = colours.card;
      context.fillRect(0, TOP + 1, LEFT - 1, plot.height);
      context.textBaseline = "middle";
      for (let lane = first; lane <= last; lane++) {
        const y = this.laneY(lane) + this.high / 2, two = this.high >= 32;
        context.font = `500 13px ${colours.sans}`;
        context.fillStyle = colours.ink;
        context.fillText(Report.clip(context, run.laneName(lane), LEFT - 22), 14, two ? y - 8 : y);
        if (!two) continue;
        context.font = `12px ${colours.sans}`;
        context.fillStyle = colours.faint;
        context.fillText(`${Report.percent(run.lanes[lane].busy, run.makespan)} busy`, 14, y + 9);
      }
      context.restore();
    }

    hit(px, py) {
      const { run, plot } = this;
      const lane = Math.floor((plot.fromY(py) - ROOM) / (this.high + ROOM));
      if (px < LEFT || py < TOP || lane < 0 || lane >= run.lanes.length) return null;
      if (plot.fromY(py) - ROOM - lane * (this.high + ROOM) > this.high) return null;
      const op = this.at(run.tracks[lane], px);
      if (op !== null) return { op };
      const gap = this.at(run.gapTracks[lane], px);
      return gap === null || !this.gaps ? null : { gap };
    }

    at(track, px) {
      const { plot } = this, time = plot.fromX(px), slack = 1.5 / plot.zoom;
      for (let at = track.firstEnding(time - slack); at < track.items.length && track.starts[at] <= time + slack; at++) {
        if (track.ends[at] >= time - slack) return track.items[at];
      }
      return null;
    }

    tip({ op, gap }) {
      const { run } = this;
      if (op !== undefined) return Report.opTip(run, op);
      const { cause, length, before, on } = run.gaps;
      const lines = [`Idle for ${Report.time(length[gap])}: ${CAUSES[cause[gap]]}`];
      if (on[gap] >= 0) lines.push(`while ${run.label(on[gap])} ran on ${run.laneName(run.ops.lane[on[gap]])}`);
      if (before[gap] >= 0) lines.push(`before ${run.label(before[gap])}`);
      return lines.join("\n");
    }

    pick(hit) {
      if (!hit) return Report.app.select(-1);
      const op = hit.op !== undefined ? hit.op : this.run.gaps.before[hit.gap];
      return op >= 0 ? Report.app.select(op) : undefined;
    }

    /** The task before or after on the lane, or the one nearest in time on the next lane. */
    step(dx, dy) {
      const { run } = this, op = Report.app.selected;
      if (op < 0 || !run.timedOp(op)) {
        const track = run.tracks.find((one) => one.items.length);
        return track ? Report.app.select(track.items[0], true) : undefined;
      }
      const lane = run.ops.lane[op] + dy, track = run.tracks[lane];
      if (!track || !track.items.length) return undefined;
      const at = dy ? Math.min(track.firstStarting(run.ops.start[op]), track.items.length - 1) : track.items.indexOf(op) + dx;
      return at >= 0 && at < track.items.length ? Report.app.select(track.items[at], true) : undefined;
    }

    reveal(op) {
      const { run, plot } = this;
      if (!run.timedOp(op)) return;
      const readable = 140 / Math.max(run.ops.length[op], run.makespan * 1e-7, 1);
      plot.show(run.ops.start[op], run.end(op), run.ops.lane[op] * (this.high + ROOM), Math.max(plot.zoom, Math.min(readable, plot.zoomMin * 4000)));
    }
  }

  Report.untimed = (heading) => el("div", { class: "view full" }, el("div", { class: "empty" },
    el("h2", {}, heading), el("p", {}, "This trace has no timings. A capture of a run has them.")));
  Report.LanesView = LanesView;
})();

// The swimlane: lanes over time, the critical path through them, gaps coloured by cause, and above the lanes of each device how
// busy they were.
(() => {
  const { el, CAUSES } = Report;
  const TOP = 30, ROOM = 8;
  // The track of a device above its lanes.
  const TRACK = 34;
  const HIGH_MIN = 18, HIGH_MAX = 120;

  class LanesView {
    constructor(run) {
      this.run = run;
      this.gaps = true;
      this.path = true;
      // On a narrow page names give way to time.
      this.left = innerWidth < 560 ? 72 : 128;
      this.plot = new Report.Plot(this, { label: "Lanes over time. Arrow keys move, plus and minus zoom, 0 shows everything, shift with arrows goes from task to task, r selects the range in sight.", timeOnly: true, left: this.left, top: TOP, zoomMax: 4 });
      this.place(0);
      this.status = el("span", { class: "status", id: "lanes-status" });
    }

    /** Gives every lane its place: as high as the stage allows. */
    place(height) {
      if (this.placedIn === height) return;
      this.placedIn = height;
      const devices = this.run.timed ? Report.devicesOf(this.run) : [], count = Math.max(this.run.lanes.length, 1);
      const room = height - TOP - devices.length * (TRACK + ROOM) - ROOM;
      this.high = Math.max(HIGH_MIN, Math.min(HIGH_MAX, Math.floor(room / count) - ROOM));
      this.tops = new Float64Array(this.run.lanes.length);
      this.tracks = [];
      let y = ROOM;
      for (const device of devices) {
        this.tracks.push({ device, top: y });
        y += TRACK + ROOM;
        for (const lane of device.lanes) { this.tops[lane] = y; y += this.high + ROOM; }
      }
      this.end = y;
      this.byTop = Array.from(this.tops.keys()).sort((a, b) => this.tops[a] - this.tops[b]);
      this.sortedTops = Float64Array.from(this.byTop, (lane) => this.tops[lane]);
    }

    bounds() {
      this.place(this.plot ? this.plot.height : 0);
      return { x0: 0, x1: Math.max(this.run.makespan, 1) * 1.005, y0: 0, y1: this.end };
    }
    laneY(lane) { return this.plot.toY(this.tops[lane]); }
    /** Lanes of which something is in sight. */
    inSight() {
      const { plot } = this, low = plot.fromY(TOP) - this.high, high = plot.fromY(plot.height);
      return this.byTop.slice(Report.lowerBound(this.sortedTops, low), Report.lowerBound(this.sortedTops, high));
    }

    element() {
      if (!this.run.timed) return Report.untimed("Nothing to show over time");
      const box = (label, name) => el("label", {},
        el("input", { type: "checkbox", checked: true, onchange: (event) => { this[name] = event.target.checked; this.plot.ask(); } }), label);
      this.overview = new Report.Overview(this.run, this.plot, this.left);
      return el("div", { class: "view full" },
        el("div", { class: "controls" }, this.plot.buttons(), box("Critical path", "path"), box("Gaps", "gaps"),
          el("button", { type: "button", title: "Or drag along the axis", onclick: () => this.range(...this.plot.span()) }, "Select the range in sight"),
          el("span", { class: "space" }), this.status),
        this.overview.stage,
        this.plot.stage,
        Report.legend(this.run, true));
    }

    /** Selects a range of time. */
    range(from, until) { Report.app.selectRange([Math.max(0, from), Math.min(until, this.run.makespan)]); }

    draw(context, plot) {
      const { left } = this, colours = Report.theme(), lanes = this.inSight();
      context.save();
      context.beginPath();
      context.rect(left, TOP, plot.width - left, plot.height - TOP);
      context.clip();
      for (const lane of lanes) {
        context.fillStyle = colours.lane;
        context.fillRect(left, this.laneY(lane), plot.width - left, this.high);
        if (this.gaps) this.drawGaps(context, plot, lane);
        this.drawOps(context, plot, lane);
      }
      this.drawTracks(context, plot);
      if (this.path) this.drawPath(context, plot);
      this.drawSelection(context);
      this.drawRange(context, plot);
      context.restore();
      this.drawAxis(context, plot);
      this.drawNames(context, plot, lanes);
      this.status.textContent = `${Report.time(plot.fromX(plot.width) - plot.fromX(left))} in sight`;
      if (this.overview) this.overview.draw();
    }

    /** Above the lanes of each device: the share of them at work, and the bandwidth of its copies. */
    drawTracks(context, plot) {
      const { left } = this, colours = Report.theme();
      for (const { device, top } of this.tracks) {
        const y = plot.toY(top), bottom = y + TRACK;
        if (bottom < TOP || y > plot.height) continue;
        context.fillStyle = colours.accent;
        context.globalAlpha = 0.4;
        context.beginPath();
        context.moveTo(left, bottom);
        for (let px = left; px < plot.width; px++) context.lineTo(px, bottom - device.share(plot.fromX(px), plot.fromX(px + 1)) * TRACK);
        context.lineTo(plot.width, bottom);
        context.fill();
        context.globalAlpha = 1;
        context.fillStyle = colours.line;
        context.fillRect(left, bottom, plot.width - left, 1);
        if (!device.bytes) continue;
        context.strokeStyle = colours.copy;
        context.lineWidth = 1.2;
        context.beginPath();
        for (let px = left; px < plot.width; px++) {
          const rate = device.bytes.mean(plot.fromX(px), plot.fromX(px + 1));
          context.lineTo(px, bottom - (rate / device.bytes.most) * (TRACK - 2) - 1);
        }
        context.stroke();
      }
    }

    drawRange(context, plot) {
      const { range } = Report.app;
      if (!range) return;
      const [x0, x1] = range.map((time) => plot.toX(time));
      context.fillStyle = Report.theme().ink;
      context.globalAlpha = 0.07;
      context.fillRect(x0, TOP, x1 - x0, plot.height);
      context.globalAlpha = 0.7;
      for (const x of [x0, x1]) context.fillRect(x - 0.5, TOP, 1, plot.height);
      context.globalAlpha = 1;
    }

    /** Calls `paint(item, x, width)` for what is in sight of a track, one item a pixel at most. */
    sweep(track, paint) {
      const { plot } = this, until = plot.fromX(plot.width), pixel = 1 / plot.zoom;
      let at = track.firstEnding(plot.fromX(this.left));
      while (at < track.items.length && track.starts[at] <= until) {
        const x = Math.max(plot.toX(track.starts[at]), this.left - 2), end = Math.min(plot.toX(track.ends[at]), plot.width + 2);
        if (end >= this.left) paint(track.items[at], x, end - x);
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
        const inset = Math.max(x, this.left) + 6;
        const bytes = run.ops.bytes[op];
        const text = bytes && width > 90 ? `${run.name(op)}  ${Report.bytes(bytes)} at ${Report.rate(bytes, run.ops.length[op])}` : width > 90 ? run.label(op) : run.name(op);
        context.fillText(Report.clip(context, text, x + width - inset - 5), inset, y + high / 2 + 0.5);
      }
    }

    drawPath(context, plot) {
      const { run } = this, { path } = run, colours = Report.theme();
      const from = plot.fromX(this.left), until = plot.fromX(plot.width), pixel = 2 / plot.zoom;
      context.strokeStyle = colours.path;
      context.lineWidth = 2;
      context.lineJoin = "round";
      context.beginPath();
      let step = Math.max(0, Report.lowerBound(path.start, from) - 2), before = null;
      while (step < path.op.length && path.start[step] <= until) {
        if (Report.ran(path.kind[step])) {
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
      const colours = Report.theme(), { left } = this;
      context.fillStyle = colours.card;
      context.fillRect(0, 0, plot.width, TOP);
      Report.drawTimeAxis(context, plot, left, TOP);
    }

    drawNames(context, plot, lanes) {
      const { run, left } = this, colours = Report.theme();
      context.save();
      context.beginPath();
      context.rect(0, TOP + 1, left, plot.height);
      context.clip();
      context.fillStyle = colours.card;
      context.fillRect(0, TOP + 1, left - 1, plot.height);
      context.textBaseline = "middle";
      const inset = left > 100 ? 14 : 6, room = left - inset - 8;
      const write = (text, y, font, colour) => {
        context.font = font;
        context.fillStyle = colour;
        context.fillText(Report.clip(context, text, room), inset, y);
      };
      for (const lane of lanes) {
        const y = this.laneY(lane) + this.high / 2, two = this.high >= 32;
        write(run.lanes[lane].name || `lane ${lane}`, two ? y - 8 : y, `500 13px ${colours.sans}`, colours.ink);
        const busy = Report.percent(run.lanes[lane].busy, run.makespan);
        if (two) write(left > 100 ? `${busy} busy` : busy, y + 9, `12px ${colours.sans}`, colours.faint);
      }
      for (const { device, top } of this.tracks) {
        const y = plot.toY(top) + TRACK / 2, [from, until] = plot.span();
        write(device.name || "lanes", y - 8, `600 13px ${colours.sans}`, colours.ink);
        const busy = Report.percent(device.share(Math.max(from, 0), Math.min(until, run.makespan)), 1), share = left > 100 ? `${busy} at work` : busy;
        write(device.bytes && left > 100 ? `\u2264 ${Report.rate(device.bytes.most, 1)}` : share, y + 8, `12px ${colours.sans}`, colours.faint);
      }
      context.restore();
    }

    hit(px, py) {
      const { run, plot } = this;
      if (px < this.left || py < TOP) return null;
      const y = plot.fromY(py), track = this.tracks.find(({ top }) => y >= top && y <= top + TRACK);
      if (track) return { device: track.device, px };
      const lane = this.byTop[Report.lowerBound(this.sortedTops, y + 1e-9) - 1];
      if (lane === undefined || y - this.tops[lane] > this.high) return null;
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

    tip({ op, gap, device, px }) {
      const { run } = this;
      if (device) {
        const [from, until] = [this.plot.fromX(px), this.plot.fromX(px + 1)];
        const lines = [`${device.name || "lanes"}: ${Report.percent(device.share(from, until), 1)} of ${Report.plural(device.computing, "lane")} at work`];
        if (device.bytes) lines.push(`copies at ${Report.rate(device.bytes.mean(from, until), 1)}`);
        return lines.join("\n");
      }
      if (op !== undefined) return Report.opTip(run, op);
      const { cause, length, before, on } = run.gaps;
      const lines = [`Idle for ${Report.time(length[gap])}: ${CAUSES[cause[gap]]}`, Report.CAUSES_ABOUT[cause[gap]]];
      if (on[gap] >= 0) lines.push(`while ${run.label(on[gap])} ran on ${run.laneName(run.ops.lane[on[gap]])}`);
      if (before[gap] >= 0) lines.push(`before ${run.label(before[gap])}`);
      return lines.join("\n");
    }

    pick(hit) {
      if (!hit || hit.device) return Report.app.select(-1);
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
      const lane = this.byTop[this.byTop.indexOf(run.ops.lane[op]) + dy], track = run.tracks[lane];
      if (!track || !track.items.length) return undefined;
      const at = dy ? Math.min(track.firstStarting(run.ops.start[op]), track.items.length - 1) : track.items.indexOf(op) + dx;
      return at >= 0 && at < track.items.length ? Report.app.select(track.items[at], true) : undefined;
    }

    reveal(op) {
      const { run, plot } = this;
      if (!run.timedOp(op)) return;
      const readable = 140 / Math.max(run.ops.length[op], run.makespan * 1e-7, 1);
      plot.show(run.ops.start[op], run.end(op), this.tops[run.ops.lane[op]], Math.max(plot.zoom, Math.min(readable, plot.zoomMin * 4000)));
    }
  }

  Report.untimed = (heading) => el("div", { class: "view full" }, el("div", { class: "empty" },
    el("h2", {}, heading), el("p", {}, "This trace has no timings. A capture of a run has them.")));
  Report.LanesView = LanesView;
})();

// Memory over time: the curve of bytes in use, and each buffer for as long as it was needed.
(() => {
  const { el } = Report;
  const LEFT = 84, TOP = 30, CURVE = 150, GAP = 22;

  class MemoryView {
    constructor(run) {
      this.run = run;
      this.plot = new Report.Plot(this, { label: "Memory over time. Arrow keys move, plus and minus zoom, 0 shows everything.", timeOnly: true, left: LEFT, top: TOP, zoomMax: 4 });
      // What comes and goes says more than what is there all the time.
      if (run.places.length) this.choose(Math.max(0, run.places.findIndex(Report.isArena)));
    }

    choose(number) {
      const place = this.place = this.run.places[number];
      this.number = number;
      this.inArena = Report.isArena(place);
      this.extent = this.inArena
        ? Math.max(1, Report.reserved(place))
        : place.row.reduce((most, row) => Math.max(most, row + 1), 1);
      const rows = Array.from({ length: this.inArena ? 1 : this.extent }, () => []);
      place.row.forEach((row, i) => rows[this.inArena ? 0 : row].push(i));
      this.rows = rows.map((row) => new Report.Track(row, place.start, place.length));
      this.curve = this.live(place);
      this.end = place.start.reduce((end, start, i) => Math.max(end, start + place.length[i]), this.run.makespan);
      this.begin = place.start.reduce((first, start) => Math.min(first, start), 0);
    }

    /** Times at which the bytes in use change, and the bytes from then on. */
    live(place) {
      const events = [];
      place.start.forEach((start, i) => { if (place.length[i] > 0) events.push([start, place.bytes[i]], [start + place.length[i], -place.bytes[i]]); });
      events.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
      const times = [], bytes = [];
      let sum = 0;
      for (const [time, change] of events) {
        sum += change;
        if (times[times.length - 1] === time) bytes[bytes.length - 1] = sum;
        else { times.push(time); bytes.push(sum); }
      }
      return { times, bytes };
    }

    rowHigh() {
      const room = Math.max(this.plot.height - TOP - CURVE - GAP - 12, 60);
      return this.inArena ? room : Math.max(9, Math.min(26, room / this.extent));
    }
    bounds() { return { x0: this.begin, x1: Math.max(this.end, this.begin + 1), y0: 0, y1: CURVE + GAP + (this.inArena ? this.rowHigh() : this.extent * this.rowHigh()) + 12 }; }

    element() {
      const { run } = this;
      if (!run.places.length) {
        return el("div", { class: "view full" }, el("div", { class: "empty" }, el("h2", {}, "No memory recorded"), el("p", {}, run.timed ? "This run names no buffers." : "This trace has no timings, so that no buffer has a lifetime.")));
      }
      this.list = el("div", {});
      this.fill();
      const choice = run.places.length > 1
        ? el("label", {}, "In ", el("select", { onchange: (event) => { this.choose(+event.target.value); this.fill(); this.plot.fit(); } }, run.places.map((place, i) => el("option", { value: i }, place.name || "memory"))))
        : el("strong", {}, run.places[0].name || "memory");
      const select = choice.querySelector("select");
      if (select) select.value = this.number;
      this.plot.stage.style.cssText = "flex:none;height:max(420px, 62vh)";
      return el("div", { class: "view full", style: "height:auto" }, el("div", { class: "controls" }, this.plot.buttons(), choice, el("span", { class: "space" })), this.plot.stage, this.list, Report.bufferTable(run));
    }

    fill() {
      const { place, run } = this;
      const total = place.peak || 1;
      const there = Array.from(place.bytes.keys()).filter((i) => place.length[i] > 0 && place.start[i] <= place.peak_at && place.peak_at < place.start[i] + place.length[i]);
      there.sort((a, b) => place.bytes[b] - place.bytes[a]);
      const card = el("div", { class: "card" });
      Report.paged(card, there, (items) => Report.table("Buffers in use at the peak", [
        ["Buffer", (i) => el("code", {}, run.strings[place.label[i]])],
        ["Size", (i) => Report.bytes(place.bytes[i]), true],
        ["Share", (i) => Report.percent(place.bytes[i], total), true],
        ["From", (i) => Report.time(place.start[i]), true],
        ["For", (i) => Report.time(place.length[i]), true],
      ], items), 50);
      this.list.replaceChildren(el("section", { style: "margin-top:12px" },
        el("h2", {}, `At the peak: ${Report.bytes(place.peak)}${this.inArena ? ` of ${Report.bytes(Report.reserved(place))} reserved,` : ""} in ${Report.plural(there.length, "buffer")}, at ${Report.time(place.peak_at)}`), card));
    }

    draw(context, plot) {
      const colours = Report.theme();
      context.save();
      context.beginPath();
      context.rect(LEFT, TOP, plot.width - LEFT, plot.height - TOP);
      context.clip();
      this.drawBuffers(context, plot);
      context.fillStyle = colours.card;
      context.fillRect(LEFT, TOP, plot.width - LEFT, CURVE + GAP / 2);
      this.drawCurve(context, plot);
      context.restore();
      this.drawAxes(context, plot);
    }

    /** The most in use within each pixel: a short peak is seen from afar. */
    drawCurve(context, plot) {
      const { times, bytes } = this.curve, colours = Report.theme();
      const y = (value) => TOP + CURVE - (value / Math.max(this.place.peak, 1)) * (CURVE - 16);
      const until = plot.fromX(plot.width);
      context.beginPath();
      context.moveTo(LEFT, y(0));
      let at = Math.max(0, Report.lowerBound(times, plot.fromX(LEFT)) - 1), level = 0;
      while (at < times.length && times[at] <= until) {
        const next = Math.max(at + 1, Report.lowerBound(times, times[at] + 1 / plot.zoom, at));
        let most = bytes[at];
        for (let i = at; i < next; i++) most = Math.max(most, bytes[i]);
        const x = Math.max(plot.toX(times[at]), LEFT);
        context.lineTo(x, y(level));
        context.lineTo(x, y(most));
        if (next > at + 1) context.lineTo(x + 1, y(most));
        level = bytes[next - 1];
        at = next;
      }
      const edge = at < times.length ? plot.width + 2 : Math.max(plot.toX(times[times.length - 1] || 0), LEFT);
      context.lineTo(edge, y(level));
      context.lineTo(edge, y(0));
      context.closePath();
      context.fillStyle = colours["accent-soft"];
      context.fill();
      context.strokeStyle = colours.accent;
      context.lineWidth = 1.5;
      context.stroke();
    }

    /** Where a buffer is drawn: at its offset in an arena, else in a row of its own. */
    box(i) {
      const { place, plot } = this, high = this.rowHigh();
      const top = plot.toY(CURVE + GAP);
      if (!this.inArena) return [top + place.row[i] * high, high - 1];
      return [top + (place.offset[i] / this.extent) * high, Math.max((place.bytes[i] / this.extent) * high - 1, 1)];
    }

    drawBuffers(context, plot) {
      const { place, run } = this, colours = Report.theme(), until = plot.fromX(plot.width), pixel = 1 / plot.zoom;
      const high = this.rowHigh(), labels = [];
      const first = this.inArena ? 0 : Math.max(0, Math.floor((plot.fromY(TOP) - CURVE - GAP) / high));
      const last = this.inArena ? 0 : Math.min(this.rows.length - 1, Math.ceil((plot.fromY(plot.height) - CURVE - GAP) / high));
      for (let row = first; row <= last; row++) {
        const track = this.rows[row];
        for (let at = track.firstEnding(plot.fromX(LEFT)); at < track.items.length && track.starts[at] <= until;) {
          const i = track.items[at], [y, tall] = this.box(i);
          const x = Math.max(plot.toX(track.starts[at]), LEFT - 2), end = Math.min(plot.toX(track.ends[at]), plot.width + 2);
          context.fillStyle = Report.nameColour(run.strings[place.label[i]]);
          if (end >= LEFT) context.fillRect(x, y, Math.max(end - x - 1, 1), tall);
          if (end - x > 40 && tall >= 12) labels.push([i, x, end, y, tall]);
          at = this.inArena || end - x >= 1 ? at + 1 : track.past(at, pixel);
        }
      }
      context.font = `12px ${colours.sans}`;
      context.textBaseline = "middle";
      context.fillStyle = "#fff";
      for (const [i, x, end, y, tall] of labels) {
        const inset = Math.max(x, LEFT) + 6;
        context.fillText(Report.clip(context, `${run.strings[place.label[i]]}  ${Report.bytes(place.bytes[i])}`, end - inset - 5), inset, y + tall / 2);
      }
    }

    drawAxes(context, plot) {
      const colours = Report.theme();
      context.fillStyle = colours.card;
      context.fillRect(0, 0, plot.width, TOP);
      context.fillRect(0, TOP, LEFT, plot.height);
      Report.drawTimeAxis(context, plot, LEFT, TOP);
      context.textAlign = "right";
      for (const value of [0, this.place.peak]) {
        const y = TOP + CURVE - (value ? CURVE - 16 : 0);
        context.fillStyle = colours.soft;
        context.fillText(Report.bytes(value), LEFT - 10, y);
        context.fillStyle = colours.line;
        context.fillRect(LEFT, y, plot.width - LEFT, 1);
      }
      context.textAlign = "left";
      context.fillStyle = colours.soft;
      context.fillText(this.inArena ? "arena" : "buffers", 14, TOP + CURVE + GAP + 8);
    }

    hit(px, py) {
      const { place, plot } = this, time = plot.fromX(px), slack = 1.5 / plot.zoom;
      if (px < LEFT || py < TOP + CURVE + GAP / 2) return null;
      const row = this.inArena ? 0 : Math.floor((plot.fromY(py) - CURVE - GAP) / this.rowHigh());
      const track = this.rows[row];
      if (!track) return null;
      for (let at = track.firstEnding(time - slack); at < track.items.length && track.starts[at] <= time + slack; at++) {
        const [y, tall] = this.box(track.items[at]);
        if (track.ends[at] >= time - slack && py >= y && py <= y + tall) return { buffer: track.items[at] };
      }
      return null;
    }

    tip({ buffer }) {
      const { place, run } = this;
      return `${run.strings[place.label[buffer]]}\n${Report.bytes(place.bytes[buffer])} for ${Report.time(place.length[buffer])} from ${Report.time(place.start[buffer])}`;
    }

    pick() {}
    reveal() {}
  }

  Report.MemoryView = MemoryView;
})();

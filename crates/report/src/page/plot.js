// A canvas that zooms and pans by mouse, touch and keyboard. Views say what to draw; this says which part of it.
(() => {
  const ZOOM_STEP = 1.3;

  class Plot {
    /**
     * `view` has `draw(context, plot)`, `bounds()` in world units, `hit(x, y)` in pixels, `tip(hit)`, `pick(hit)`; and may have
     * `step(dx, dy)`, which moves the selection by arrow keys. With `timeOnly`, only x zooms, and y scrolls in pixels.
     */
    constructor(view, { label, timeOnly = false, left = 0, top = 0, zoomMax = 4 }) {
      Object.assign(this, { view, timeOnly, left, top, zoomMax });
      Object.assign(this, { x: 0, y: 0, zoom: 1, width: 0, height: 0, frames: [] });
      this.canvas = Report.el("canvas", { tabindex: 0, role: "application", "aria-label": label });
      this.context = this.canvas.getContext("2d");
      this.stage = Report.el("div", { class: "stage" }, this.canvas);
      this.fitted = true;
      this.listen();
      new ResizeObserver(() => this.resize()).observe(this.stage);
    }

    resize() {
      const { clientWidth: width, clientHeight: height } = this.stage;
      if (!width || !height) return;
      const density = Math.min(window.devicePixelRatio || 1, 2);
      if (this.canvas.width !== Math.round(width * density)) this.canvas.width = Math.round(width * density);
      if (this.canvas.height !== Math.round(height * density)) this.canvas.height = Math.round(height * density);
      Object.assign(this, { width, height, density });
      if (this.fitted) this.fit(); else this.clamp();
      this.draw();
    }

    /** Shows everything. */
    fit() {
      const { x0, x1, y0, y1 } = this.view.bounds();
      const wide = Math.max(this.width - this.left, 10), high = Math.max(this.height - this.top, 10);
      this.zoomMin = wide / Math.max(x1 - x0, 1e-9);
      if (!this.timeOnly) this.zoomMin = Math.min(this.zoomMin, high / Math.max(y1 - y0, 1e-9));
      this.zoom = this.timeOnly ? this.zoomMin : Math.min(this.zoomMin, 1);
      this.zoomMin = Math.min(this.zoomMin, this.zoom);
      this.x = (x0 + x1) / 2 - wide / 2 / this.zoom;
      this.y = this.timeOnly ? y0 : (y0 + y1) / 2 - high / 2 / this.zoom;
      this.fitted = true;
      this.ask();
    }

    /** The part of x that is in sight. */
    span() { return [this.fromX(this.left), this.fromX(this.width)]; }

    /** Brings `from` to `until` into sight, as near to it as the plot goes. */
    showSpan(from, until) {
      if (!this.width) return;
      this.zoom = Math.max(this.zoomMin, Math.min((this.width - this.left) / Math.max(until - from, 1e-9), this.zoomMax));
      this.x = (from + until) / 2 - (this.width - this.left) / 2 / this.zoom;
      this.fitted = false;
      this.clamp();
      this.ask();
    }

    toX(x) { return this.left + (x - this.x) * this.zoom; }
    toY(y) { return this.top + (y - this.y) * (this.timeOnly ? 1 : this.zoom); }
    fromX(px) { return this.x + (px - this.left) / this.zoom; }
    fromY(py) { return this.y + (py - this.top) / (this.timeOnly ? 1 : this.zoom); }

    clamp() {
      const { x0, x1, y0, y1 } = this.view.bounds();
      const wide = (this.width - this.left) / this.zoom, high = (this.height - this.top) / (this.timeOnly ? 1 : this.zoom);
      // Part of the drawing always stays in sight; time ends where it ends.
      const slackX = this.timeOnly ? 0 : wide * 0.7, slackY = this.timeOnly ? 0 : high * 0.7;
      this.x = Math.max(x0 - slackX, Math.min(this.x, Math.max(x1 - wide + slackX, x0 - slackX)));
      this.y = Math.max(y0 - slackY, Math.min(this.y, Math.max(y1 - high + slackY, y0 - slackY)));
    }

    panBy(dx, dy) {
      this.x -= dx / this.zoom;
      this.y -= dy / (this.timeOnly ? 1 : this.zoom);
      this.fitted = false;
      this.clamp();
      this.ask();
    }

    zoomBy(factor, px = this.left + (this.width - this.left) / 2, py = this.top + (this.height - this.top) / 2) {
      const x = this.fromX(px), y = this.fromY(py);
      this.zoom = Math.max(this.zoomMin * 0.8, Math.min(this.zoom * factor, this.zoomMax));
      if (this.timeOnly) this.zoom = Math.max(this.zoom, this.zoomMin);
      this.x = x - (px - this.left) / this.zoom;
      if (!this.timeOnly) this.y = y - (py - this.top) / this.zoom;
      this.fitted = false;
      this.clamp();
      this.ask();
    }

    /** Brings a box of the world into the middle, near enough to read. */
    show(x0, x1, y, zoom) {
      if (!this.width) return;
      this.zoom = Math.max(this.zoomMin, Math.min(zoom, this.zoomMax));
      this.x = (x0 + x1) / 2 - (this.width - this.left) / 2 / this.zoom;
      const high = (this.height - this.top) / (this.timeOnly ? 1 : this.zoom);
      if (!this.timeOnly || y < this.y || y > this.y + high - 30) this.y = y - high / 2;
      this.fitted = false;
      this.clamp();
      this.ask();
    }

    ask() {
      if (this.asked) return;
      this.asked = requestAnimationFrame(() => { this.asked = 0; this.draw(); });
    }

    draw() {
      if (!this.width) return;
      const { context, density } = this;
      context.setTransform(density, 0, 0, density, 0, 0);
      context.clearRect(0, 0, this.width, this.height);
      this.view.draw(context, this);
    }

    listen() {
      const { canvas } = this, touches = new Map();
      let moved = 0, spread = 0, ranging = null;
      const place = (event) => { const box = canvas.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
      canvas.addEventListener("wheel", (event) => {
        event.preventDefault();
        const [px, py] = place(event);
        const unit = event.deltaMode === 1 ? 20 : 1;
        if (event.shiftKey) this.panBy(-(event.deltaX || event.deltaY) * unit, 0);
        else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.panBy(-event.deltaX * unit, 0);
        else if (this.timeOnly && px < this.left) this.panBy(0, -event.deltaY * unit);
        else this.zoomBy(Math.exp(-event.deltaY * unit * 0.0022), px, py);
      }, { passive: false });
      canvas.addEventListener("pointerdown", (event) => {
        canvas.setPointerCapture(event.pointerId);
        touches.set(event.pointerId, place(event));
        moved = 0; spread = 0;
        // On the axis, or with shift, dragging selects a range.
        const [px, py] = place(event);
        ranging = this.view.range && px >= this.left && (event.shiftKey || py < this.top) ? this.fromX(px) : null;
      });
      canvas.addEventListener("pointermove", (event) => {
        const [px, py] = place(event), last = touches.get(event.pointerId);
        if (!last) return this.hover(px, py, event);
        touches.set(event.pointerId, [px, py]);
        const points = [...touches.values()];
        if (points.length === 2) {
          const apart = Math.hypot(points[0][0] - points[1][0], points[0][1] - points[1][1]);
          if (spread) this.zoomBy(apart / spread, (points[0][0] + points[1][0]) / 2, (points[0][1] + points[1][1]) / 2);
          spread = apart; moved = 99;
          return undefined;
        }
        moved += Math.abs(px - last[0]) + Math.abs(py - last[1]);
        if (ranging !== null) {
          const at = this.fromX(Math.max(px, this.left));
          if (moved > 4) this.view.range(Math.min(ranging, at), Math.max(ranging, at));
          return undefined;
        }
        if (moved > 4) { Report.tip(); this.panBy(px - last[0], py - last[1]); }
        return undefined;
      });
      const release = (event) => {
        if (touches.delete(event.pointerId) && moved <= 4 && event.type === "pointerup") {
          const hit = this.view.hit(...place(event));
          this.view.pick(hit);
        }
      };
      canvas.addEventListener("pointerup", release);
      canvas.addEventListener("pointercancel", release);
      canvas.addEventListener("pointerleave", () => Report.tip());
      canvas.addEventListener("dblclick", (event) => this.zoomBy(2.5, ...place(event)));
      canvas.addEventListener("keydown", (event) => this.key(event));
    }

    hover(px, py, event) {
      const hit = this.view.hit(px, py);
      this.canvas.style.cursor = hit ? "pointer" : "";
      Report.tip(hit && this.view.tip(hit), event);
    }

    key(event) {
      const move = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] }[event.key];
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (move && event.shiftKey && this.view.step) this.view.step(-Math.sign(move[0]), -Math.sign(move[1]));
      else if (move) this.panBy(...move);
      else if (event.key === "+" || event.key === "=") this.zoomBy(ZOOM_STEP);
      else if (event.key === "-") this.zoomBy(1 / ZOOM_STEP);
      else if (event.key === "0" || event.key === "Home") this.fit();
      else if (event.key === "r" && this.view.range) this.view.range(...this.span());
      else if (event.key === "Enter" && this.view.enter) this.view.enter();
      else return;
      event.preventDefault();
    }

    /** Buttons for what the wheel does. */
    buttons() {
      const button = (text, label, action) => Report.el("button", { type: "button", "aria-label": label, title: label, onclick: action }, text);
      return Report.el("div", { class: "group", role: "group", "aria-label": "Zoom" },
        button("\u2212", "Zoom out", () => this.zoomBy(1 / ZOOM_STEP / ZOOM_STEP)),
        button("+", "Zoom in", () => this.zoomBy(ZOOM_STEP * ZOOM_STEP)),
        button("Fit", "Fit: show everything", () => this.fit()));
    }
  }

  /** Ticks and times above what is drawn from `left` on; the first tick has its label to the right. */
  Report.drawTimeAxis = (context, plot, left, top) => {
    const colours = Report.theme();
    context.font = `12px ${colours.sans}`;
    context.textBaseline = "middle";
    const ticks = Report.ticks(plot.fromX(left), plot.fromX(plot.width), (plot.width - left) / 120);
    for (const tick of ticks) {
      const x = plot.toX(tick), text = Report.tickTime(tick, ticks.step), wide = context.measureText(text).width;
      context.fillStyle = colours.line;
      context.fillRect(x, top - 7, 1, 7);
      context.fillStyle = colours.soft;
      // Labels stay whole at both ends.
      const at = Math.max(left + 2, Math.min(x - wide / 2, plot.width - wide - 2));
      context.fillText(text, at, top / 2 - 1);
    }
    context.fillStyle = colours.line;
    context.fillRect(0, top, plot.width, 1);
  };

  Report.Plot = Plot;
})();

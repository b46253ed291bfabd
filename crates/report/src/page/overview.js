// The whole run in a strip: how many lanes were at work, and which part of it a view shows.
(() => {
  const { el } = Report;
  const HIGH = 40;

  class Overview {
    /** `plot` is the one whose window is shown and moved; `left` its margin. */
    constructor(run, plot, left) {
      Object.assign(this, { run, plot, left });
      this.canvas = el("canvas", { "aria-hidden": "true" });
      this.stage = el("div", { class: "overview" }, this.canvas);
      this.listen();
      new ResizeObserver(() => this.resize()).observe(this.stage);
    }

    resize() {
      const { clientWidth: width } = this.stage;
      if (!width) return;
      const density = Math.min(window.devicePixelRatio || 1, 2);
      Object.assign(this.canvas, { width: Math.round(width * density), height: Math.round(HIGH * density) });
      Object.assign(this, { width, density });
      this.draw();
    }

    toX(time) { return this.left + (time / Math.max(this.run.makespan, 1)) * (this.width - this.left); }
    toTime(px) { return Math.max(0, Math.min(1, (px - this.left) / Math.max(this.width - this.left, 1))) * this.run.makespan; }

    draw() {
      if (!this.width) return;
      const context = this.canvas.getContext("2d"), colours = Report.theme(), { run, left, width } = this;
      context.setTransform(this.density, 0, 0, this.density, 0, 0);
      context.clearRect(0, 0, width, HIGH);
      const all = Report.devicesOf(run), computing = all.filter((device) => !device.onlyCopies);
      const devices = computing.length ? computing : all, lanes = devices.reduce((sum, device) => sum + device.computing, 0);
      context.fillStyle = colours.lane;
      context.fillRect(left, 0, width - left, HIGH);
      context.fillStyle = colours.accent;
      context.globalAlpha = 0.45;
      context.beginPath();
      context.moveTo(left, HIGH);
      for (let px = left; px < width; px++) {
        const from = this.toTime(px), until = Math.max(this.toTime(px + 1), from + 1e-9);
        const share = devices.reduce((sum, device) => sum + device.share(from, until) * device.computing, 0) / Math.max(lanes, 1);
        context.lineTo(px, HIGH - share * (HIGH - 4));
      }
      context.lineTo(width, HIGH);
      context.fill();
      context.globalAlpha = 1;
      context.font = `12px ${colours.sans}`;
      context.textBaseline = "middle";
      context.fillStyle = colours.soft;
      context.fillText(Report.clip(context, "whole run", left - 22), 14, HIGH / 2);
      this.drawWindow(context, colours);
    }

    drawWindow(context, colours) {
      const { plot, left, width } = this;
      const [from, until] = plot.span().map((time) => Math.max(left, Math.min(this.toX(time), width)));
      context.fillStyle = colours.card;
      context.globalAlpha = 0.6;
      context.fillRect(left, 0, from - left, HIGH);
      context.fillRect(until, 0, width - until, HIGH);
      context.globalAlpha = 1;
      context.strokeStyle = colours.accent;
      context.lineWidth = 1.5;
      context.strokeRect(from + 0.75, 0.75, Math.max(until - from - 1.5, 2), HIGH - 1.5);
      const { range } = Report.app;
      if (!range) return;
      context.fillStyle = colours.ink;
      context.fillRect(this.toX(range[0]), HIGH - 3, Math.max(this.toX(range[1]) - this.toX(range[0]), 2), 3);
    }

    listen() {
      const { canvas, plot } = this;
      const time = (event) => this.toTime(event.clientX - canvas.getBoundingClientRect().left);
      const centre = (event) => { const [from, until] = plot.span(), half = (until - from) / 2; plot.showSpan(time(event) - half, time(event) + half); };
      canvas.addEventListener("wheel", (event) => {
        event.preventDefault();
        plot.zoomBy(Math.exp(-event.deltaY * (event.deltaMode === 1 ? 20 : 1) * 0.0022), plot.toX(time(event)));
      }, { passive: false });
      canvas.addEventListener("pointerdown", (event) => { canvas.setPointerCapture(event.pointerId); centre(event); });
      canvas.addEventListener("pointermove", (event) => { if (event.buttons) centre(event); });
    }
  }

  Report.Overview = Overview;
})();

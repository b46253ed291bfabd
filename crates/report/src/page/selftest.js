// The page checks itself when it is opened with `#selftest`, and writes the outcome into itself for a test to read.
(() => {
  if (Report.asked !== "selftest") return;
  const checks = [];
  const check = (name, holds, seen) => checks.push({ name, holds: Boolean(holds), seen: String(seen) });
  const { app } = Report, { run } = app;
  const byId = (id) => document.getElementById(id);

  const eye = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  /** Draws and waits for the pixels: a canvas only notes what to draw until someone looks. */
  const frame = (plot) => {
    const began = performance.now();
    plot.draw();
    eye.drawImage(plot.canvas, 0, 0, 1, 1);
    eye.getImageData(0, 0, 1, 1);
    return performance.now() - began;
  };

  /** From all to one task and back, with a pan at each depth. */
  const fly = (view) => {
    const { plot } = view;
    const times = [];
    plot.fit();
    const far = plot.zoom;
    view.reveal(run.count >> 1);
    const near = Math.max(plot.zoom, far * 2);
    for (let i = 0; i < 60; i++) {
      const depth = Math.pow(near / far, 1 - Math.abs(i - 30) / 30);
      plot.zoomBy((far * depth) / plot.zoom);
      plot.panBy(i % 2 ? 37 : -53, i % 3 ? 11 : -23);
      times.push(frame(plot));
    }
    times.sort((a, b) => a - b);
    return { median_ms: times[30], worst_ms: times[59] };
  };

  const key = (target, name) => target.dispatchEvent(new KeyboardEvent("keydown", { key: name, bubbles: true }));

  const search = () => {
    const wanted = run.count - 1, input = byId("search");
    input.focus();
    input.value = run.label(wanted);
    input.dispatchEvent(new Event("input"));
    check("search lists the task", byId("found").textContent.includes(run.label(wanted)), byId("found").textContent.slice(0, 80));
    key(input, "Enter");
    check("search selects the task", app.selected === wanted, app.selected);
    check("the details name it", byId("details").textContent.includes(run.name(wanted)), byId("details").textContent.slice(0, 80));
  };

  const follow = () => {
    const op = run.ops.task.findIndex((_, i) => run.waitsFor(i).length > 0);
    if (op < 0) return;
    app.open("graph");
    app.select(op, true);
    const edge = run.waitsFor(op)[0];
    const why = byId("waits-for").textContent;
    check("the hazard is named", run.hazards(edge).every((kind) => why.includes(kind)), why.slice(0, 80));
    check("the region is named", why.includes(run.region(edge)), why.slice(0, 80));
    const button = byId("waits-for").querySelector("button");
    const target = Number(button.dataset.op);
    button.click();
    check("following an edge selects its other end", app.selected === target, app.selected);
    const { plot } = app.made.graph.view, view = app.made.graph.view;
    const px = plot.toX(view.x(target)), py = plot.toY(view.y(target));
    check("and brings it into sight", px > 0 && px < plot.width && py > 0 && py < plot.height, `${px}, ${py}`);
    const hit = view.hit(px, py);
    check("and it is under the pointer there", hit && hit.op === target, hit && hit.op);
  };

  const zoom = (id) => {
    app.open(id);
    const { plot } = app.made[id].view;
    if (!plot || !plot.width) return null;
    plot.fit();
    const before = plot.zoom;
    plot.canvas.dispatchEvent(new WheelEvent("wheel", { deltaY: -200, clientX: 600, clientY: 300, cancelable: true }));
    check(`the wheel zooms in: ${id}`, plot.zoom > before, `${before} to ${plot.zoom}`);
    key(plot.canvas, "0");
    check(`0 shows everything: ${id}`, Math.abs(plot.zoom - before) < before * 1e-9, plot.zoom);
    return fly(app.made[id].view);
  };

  /** Steps of the critical path end where the next begins. */
  const tiles = () => {
    const { start, length } = run.path;
    let at = 0, whole = true;
    start.forEach((from, i) => { whole = whole && from === at; at = from + length[i]; });
    check("the critical path tiles the run", whole && at === run.makespan, `${at} of ${run.makespan}`);
  };

  const run_all = () => {
    const frames = {};
    search();
    follow();
    if (run.timed) tiles();
    frames.graph = zoom("graph");
    if (run.timed) frames.lanes = zoom("lanes");
    if (run.places.length) {
      frames.memory = zoom("memory");
      check("an arena is shown first", app.made.memory.view.inArena === run.places.some(Report.isArena), app.made.memory.view.place.name);
    }
    for (const tab of document.querySelectorAll(".tabs button")) {
      tab.click();
      check(`the tab opens: ${tab.textContent}`, tab.getAttribute("aria-selected") === "true" && byId("main").textContent.length > 3, byId("main").textContent.length);
      // Views and panel scroll in themselves: a second scrollbar for the page would be one too many.
      const { scrollHeight, clientHeight } = document.documentElement;
      check(`the page itself does not scroll: ${tab.textContent}`, scrollHeight <= clientHeight, `${scrollHeight} of ${clientHeight}`);
    }
    app.select(0);
    app.setTheme("dark");
    check("dark is dark", getComputedStyle(document.body).backgroundColor === "rgb(18, 21, 28)", getComputedStyle(document.body).backgroundColor);
    return frames;
  };

  const result = { start_ms: Report.startMs, tasks: run.count };
  try { result.frames = run_all(); } catch (error) { check("no exception", false, error.stack || error); }
  result.checks = checks;
  document.body.append(Report.el("pre", { id: "selftest", hidden: true }, JSON.stringify(result)));
})();

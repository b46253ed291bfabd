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
    const view = app.made.graph.view.tasks, { plot } = view;
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

  const buffers = () => {
    const all = Report.buffersOf(run), stays = run.places.reduce((sum, place) => sum + place.bytes.length, 0);
    check("every stay of a buffer is told once", all.reduce((sum, one) => sum + one.stays.length, 0) === stays, stays);
    const made = Report.buffersOf({ places: [
      { name: "cpu", label: [0, 0, 1], bytes: [8, 8, 4], start: [0, 50, 0], length: [20, 50, 100] },
      { name: "gpu", label: [0, 1], bytes: [8, 4], start: [10, 30], length: [90, 10] },
    ] });
    const [first, second] = made;
    check("replicas are counted at once", first.most === 16 && first.replicas === 2 && second.replicas === 2, JSON.stringify(made));
    check("what comes back was dropped", first.returns === 1 && second.returns === 0, JSON.stringify(made));
  };

  /** Steps of the critical path end where the next begins. */
  const tiles = () => {
    const { start, length } = run.path;
    let at = 0, whole = true;
    start.forEach((from, i) => { whole = whole && from === at; at = from + length[i]; });
    check("the critical path tiles the run", whole && at === run.makespan, `${at} of ${run.makespan}`);
    const [compute, copy] = run.pathTimes(), [data, lane] = run.path.by_link;
    check("what ran on it was forced by data or followed on a lane", compute + copy === data + lane, `${compute} + ${copy}, ${data} + ${lane}`);
    check("no chain of data is longer than the run", run.chain.time <= run.makespan, `${run.chain.time} of ${run.makespan}`);
  };

  const groups = (tab) => {
    const { groups: model, plot } = tab.groups;
    plot.resize();
    check("every task is in one group", model.all.reduce((sum, group) => sum + group.ops.length, 0) === run.count, model.all.length);
    const across = new Set();
    for (let edge = 0; edge < run.edges.pred.length; edge++) {
      const pair = [run.edges.pred[edge], run.edges.succ[edge]].map((op) => model.of[op]);
      if (!run.edges.hidden[edge] && pair[0] !== pair[1]) across.add(pair.join());
    }
    check("edges between groups are those between their tasks", across.size === model.edges.length, `${across.size}, ${model.edges.length}`);
    const group = model.all[model.all.length - 1];
    const hit = tab.groups.hit(plot.toX(tab.groups.x(group)), plot.toY(tab.groups.y(group)));
    check("a group is under the pointer where it is drawn", hit && model.all[hit.at] === group, hit && hit.at);
    frame(plot);
    tab.groups.pick(hit);
    check("a group opens", tab.shown === "tasks" && tab.tasks.only.group === group, tab.shown);
    frame(tab.plot);
    check("and only its tasks are not faded", group.ops.every((op) => tab.tasks.only.has(op)) && !run.ops.row.every((_, op) => model.all.length > 1 && tab.tasks.only.has(op)), group.ops.length);
    tab.show("tasks");
  };

  const links = () => {
    const op = run.count - 1, view = run.timed ? "lanes" : "graph";
    app.open(view);
    app.select(op);
    if (run.timed) app.range = [0, Math.max(1, Math.floor(run.makespan / 2))];
    const link = app.link(), range = app.range;
    app.range = null;
    app.select(-1);
    app.open("summary");
    app.follow(link);
    check("a link leads back to its view and task", app.view === view && app.selected === op, `${link}: ${app.view}, ${app.selected}`);
    check("and to its range", !range || (app.range && app.range.every((time, i) => time === range[i])), `${link}: ${app.range}`);
    check("the address says the same", location.hash.slice(1) === app.link(), location.hash);
    app.follow("lanes&task=no-such-task&range=9-3");
    check("a link to nothing selects nothing", app.selected === -1 && app.range === null, app.link());
  };

  /** Against sums over all ops, one by one. */
  const ranges = () => {
    for (const [a, b] of [[0, 1], [0.2, 0.5], [0.499, 0.5], [0.9, 1]]) {
      const from = a * run.makespan, until = b * run.makespan, found = Report.rangeNumbers(run, from, until);
      let time = 0, idle = 0;
      const within = (start, length) => Math.max(0, Math.min(start + length, until) - Math.max(start, from));
      for (let op = 0; op < run.count; op++) if (run.timedOp(op)) time += within(run.ops.start[op], run.ops.length[op]);
      run.gaps.start.forEach((start, gap) => { idle += within(start, run.gaps.length[gap]); });
      const sum = (all) => all.reduce((total, one) => total + one, 0), near = (x, y) => Math.abs(x - y) <= 1e-6 * run.makespan + 1e-9;
      check(`what ran in ${a} to ${b} adds up`, near(sum(found.kernels.map((kernel) => kernel.time)), time), time);
      check(`what was idle in ${a} to ${b} adds up`, near(sum(found.idle), idle), idle);
      for (const [device, share] of found.devices) {
        let busy = 0, lanes = 0;
        for (const lane of device.lanes) {
          const { items } = run.tracks[lane];
          if (device.computing < device.lanes.length && items.length && items.every((op) => run.ops.copy[op])) continue;
          lanes++;
          let reached = from;
          for (const op of items) {
            const start = Math.max(run.ops.start[op], reached), end = Math.min(run.end(op), until);
            if (end > start) { busy += end - start; reached = end; }
          }
        }
        check(`${device.name} is at work in ${a} to ${b} as its lanes are`, near(share * (until - from) * lanes, busy), `${share} of ${lanes}`);
      }
    }
    app.open("lanes");
    app.selectRange([0, run.makespan / 2]);
    check("the panel tells of the range", byId("details").textContent.includes("Share of the run") && !byId("details").hidden, byId("details").textContent.slice(0, 60));
    app.selectRange(null);
    check("and closes", byId("details").hidden, byId("details").hidden);
  };

  const run_all = () => {
    const frames = {};
    search();
    follow();
    if (run.timed) tiles();
    app.made.graph.view.show("tasks");
    frames.graph = zoom("graph");
    app.made.graph.view.show("groups");
    groups(app.made.graph.view);
    links();
    if (run.timed) ranges();
    if (run.timed) frames.lanes = zoom("lanes");
    if (run.places.length) {
      buffers();
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

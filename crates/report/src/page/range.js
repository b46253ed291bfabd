// A range of time: what ran in it, on which lanes, and what stood idle.
(() => {
  const { el, CAUSES } = Report;

  /** Numbers of what lies between two times. */
  Report.rangeNumbers = (run, from, until) => {
    const kernels = new Map();
    let bytes = 0, tasks = 0;
    const within = (start, length) => Math.max(0, Math.min(start + length, until) - Math.max(start, from));
    run.tracks.forEach((track) => {
      for (let at = track.firstEnding(from); at < track.items.length && track.starts[at] < until; at++) {
        const op = track.items[at], length = run.ops.length[op];
        if (track.ends[at] < from || (length > 0 && track.ends[at] === from)) continue;
        const key = 2 * run.ops.name[op] + run.ops.copy[op];
        const sum = kernels.get(key) || { name: run.ops.name[op], copy: run.ops.copy[op], count: 0, time: 0, bytes: 0 };
        const inside = within(run.ops.start[op], length), moved = run.ops.bytes[op] * (length > 0 ? inside / length : 1);
        sum.count++;
        sum.time += inside;
        sum.bytes += moved;
        bytes += moved;
        tasks++;
        kernels.set(key, sum);
      }
    });
    const idle = CAUSES.map(() => 0);
    run.gapTracks.forEach((track) => {
      for (let at = track.firstEnding(from); at < track.items.length && track.starts[at] < until; at++) {
        idle[run.gaps.cause[track.items[at]]] += within(track.starts[at], track.ends[at] - track.starts[at]);
      }
    });
    const sorted = [...kernels.values()].sort((a, b) => b.time - a.time || b.count - a.count);
    return { kernels: sorted, bytes, tasks, idle, devices: Report.devicesOf(run).map((device) => [device, device.share(from, until)]) };
  };

  /** The panel about the selected range. */
  Report.rangeDetails = (run, [from, until]) => {
    const panel = document.getElementById("details"), length = until - from;
    const found = Report.rangeNumbers(run, from, until);
    const row = (name, value) => [el("dt", {}, name), el("dd", {}, value)];
    const lanes = run.lanes.length || 1;
    panel.hidden = false;
    panel.setAttribute("aria-label", "The selected range");
    panel.replaceChildren(
      el("header", {},
        el("h2", {}, `${Report.time(length)} from ${Report.time(from)}`),
        el("button", { class: "close", type: "button", "aria-label": "Close the range", onclick: () => Report.app.selectRange(null) }, "×")),
      el("dl", {}, row("Share of the run", Report.percent(length, run.makespan)), row("Tasks and copies", Report.count(found.tasks)),
        found.devices.map(([device, share]) => row(`${device.name || "lanes"} at work`, Report.percent(share, 1))),
        found.bytes ? row("Moved", Report.bytes(found.bytes)) : null, found.bytes ? row("Mean bandwidth", Report.rate(found.bytes, length)) : null),
      el("div", { class: "actions" }, el("button", { type: "button", onclick: () => Report.app.zoomToRange() }, "Zoom to it")),
      el("h3", {}, "What ran"),
      found.kernels.length ? el("ul", {}, found.kernels.slice(0, 40).map((kernel) => el("li", {},
        Report.dot(Report.colourOf(run, kernel.name, kernel.copy)), run.strings[kernel.name],
        el("span", { class: "why" }, `${Report.count(kernel.count)}, ${Report.time(kernel.time)}, ${Report.percent(kernel.time, length * lanes)} of the lanes`,
          kernel.bytes ? `, ${Report.bytes(kernel.bytes)} at ${Report.rate(kernel.bytes, kernel.time)}` : "")))) : el("p", { class: "faint" }, "nothing"),
      el("h3", {}, "Idle for"),
      el("dl", {}, found.idle.map((ns, cause) => (ns ? row(CAUSES[cause], `${Report.time(ns)}, ${Report.percent(ns, length * lanes)}`) : null))));
    panel.scrollTop = 0;
  };
})();

// Memory by buffer: where each one lay and when, how many replicas it had, and how often it was dropped and brought back.
(() => {
  const { el } = Report;

  /** Buffers by name, over all places; the ones with most bytes at a time first. */
  Report.buffersOf = (run) => {
    const byName = new Map();
    run.places.forEach((place) => place.label.forEach((label, i) => {
      if (!byName.has(label)) byName.set(label, { label, stays: [] });
      byName.get(label).stays.push({ place: place.name, bytes: place.bytes[i], start: place.start[i], end: place.start[i] + place.length[i] });
    }));
    const buffers = [...byName.values()];
    for (const buffer of buffers) {
      buffer.stays.sort((a, b) => a.start - b.start);
      const lastEnd = new Map();
      buffer.returns = 0;
      for (const { place, start, end } of buffer.stays) {
        // It was there before, and had gone: dropped to make room, and needed again.
        if (lastEnd.has(place) && start > lastEnd.get(place)) buffer.returns++;
        lastEnd.set(place, Math.max(end, lastEnd.get(place) ?? -Infinity));
      }
      buffer.places = lastEnd.size;
      const events = buffer.stays.flatMap(({ start, end, bytes }) => (end > start ? [[start, 1, bytes], [end, -1, bytes]] : []));
      events.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
      let bytes = 0, count = 0;
      Object.assign(buffer, { most: 0, replicas: 0 });
      for (const [, sign, size] of events) {
        bytes += sign * size;
        count += sign;
        buffer.most = Math.max(buffer.most, bytes);
        buffer.replicas = Math.max(buffer.replicas, count);
      }
    }
    return buffers.sort((a, b) => b.most - a.most || a.label - b.label);
  };

  /** The table of all buffers. */
  Report.bufferTable = (run) => {
    const buffers = Report.buffersOf(run), card = el("div", { class: "card" });
    const stay = ({ place, start, end }) => `${place || "memory"} ${Report.time(start)} to ${Report.time(end)}`;
    Report.paged(card, buffers, (items) => Report.table("Memory by buffer", [
      ["Buffer", (one) => [Report.dot(Report.nameColour(run.strings[one.label])), el("code", {}, run.strings[one.label])]],
      ["At most", (one) => Report.bytes(one.most), true],
      ["Replicas at once", (one) => Report.count(one.replicas), true],
      ["Brought back", (one) => (one.returns ? Report.count(one.returns) : el("span", { class: "faint" }, "never")), true],
      ["Where and when", (one) => one.stays.slice(0, 4).map(stay).join("; ") + (one.stays.length > 4 ? ` and ${one.stays.length - 4} more` : "")],
    ], items), 50);
    const several = buffers.filter((one) => one.replicas > 1).length, back = buffers.filter((one) => one.returns).length;
    return el("section", {}, el("h2", {}, "By buffer"),
      el("p", { class: "note" }, `${Report.plural(buffers.length, "buffer")}, ${Report.count(several)} with replicas in several places at once, ${Report.count(back)} dropped somewhere and brought back.`), card);
  };
})();

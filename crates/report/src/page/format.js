// Numbers as people read them, elements, and colours.
(() => {
  const KERNEL_COLOURS = ["#4472ca", "#218c7f", "#b96f1f", "#8459bd", "#b84a72", "#55863a", "#2f86ad", "#9b6b3b", "#6a70c9", "#82822e"];
  const OTHER = "#8b8378", COPY = "#64748b";

  const digits = (value) => (value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2));
  const scaled = (value, units, step) => {
    let unit = 0;
    while (Math.abs(value) >= step * 0.9995 && unit < units.length - 1) { value /= step; unit++; }
    return `${unit === 0 ? Math.round(value) : digits(value)}\u202f${units[unit]}`;
  };
  Report.time = (ns) => (ns < 0 ? "\u2212" + Report.time(-ns) : ns < 60e9 ? scaled(ns, ["ns", "µs", "ms", "s"], 1000) : `${digits(ns / 60e9)}\u202fmin`);
  Report.bytes = (bytes) => scaled(bytes, ["B", "KiB", "MiB", "GiB", "TiB"], 1024);
  Report.percent = (part, whole) => {
    if (!(whole > 0)) return "–";
    const share = part / whole;
    if (share > 0 && share < 0.0005) return "<0.1%";
    return `${(100 * share).toFixed(share < 0.0995 && share > 0 ? 1 : 0)}%`;
  };
  Report.count = (number) => number.toLocaleString("en");
  Report.plural = (number, noun) => `${Report.count(number)} ${noun}${number === 1 ? "" : "s"}`;

  /** An element: attributes by name, listeners by `onname`, and children, texts among them. */
  Report.el = (tag, attributes = {}, ...children) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (value === undefined || value === null || value === false) continue;
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else if (name === "style") element.style.cssText = value;
      else element.setAttribute(name, value === true ? "" : value);
    }
    element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
    return element;
  };

  /** A table in a card. Columns are `[heading, cell(item), isNumber]`; a row leads where `go(item)` goes. */
  Report.table = (caption, columns, items, go) => {
    const el = Report.el;
    const row = (item) => el("tr", { class: go && "go", onclick: go && (() => go(item)) },
      columns.map(([, cell, number]) => el("td", { class: number && "n" }, cell(item))));
    return el("table", {},
      el("caption", { class: "unseen" }, caption),
      el("thead", {}, el("tr", {}, columns.map(([heading, , number]) => el("th", { scope: "col", class: number && "n" }, heading)))),
      el("tbody", {}, items.map(row)));
  };

  /** Texts with `code` between backquotes. */
  Report.marked = (text) => text.split("`").map((part, odd) => (odd % 2 ? Report.el("code", {}, part) : part));

  Report.colourOf = (run, name, copy) => (copy ? COPY : KERNEL_COLOURS[run.rank.get(name)] || OTHER);
  Report.opColour = (run, op) => Report.colourOf(run, run.ops.name[op], run.ops.copy[op]);
  Report.dot = (colour) => Report.el("span", { class: "dot", style: `background:${colour}`, "aria-hidden": "true" });
  Report.causeVariable = (cause) => ["--gap-data", "--gap-transfer", "--gap-lane", "--gap-dispatch", "--gap-nothing"][cause];

  let colours = {};
  /** The theme's colours for canvases; read once a theme. */
  Report.theme = () => colours;
  Report.readTheme = () => {
    const style = getComputedStyle(document.documentElement);
    const names = ["page", "card", "ink", "soft", "faint", "line", "line-strong", "accent", "accent-soft", "path", "node", "edge", "lane", "sans",
      "gap-data", "gap-transfer", "gap-lane", "gap-dispatch", "gap-nothing"];
    colours = Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
    colours.gaps = [0, 1, 2, 3, 4].map((cause) => colours[Report.causeVariable(cause).slice(2)]);
  };

  /** A round time: with as many digits after the point as tell it from one `step` before, and no zeros at the end. */
  Report.tickTime = (ns, step) => {
    const [size, unit] = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]].find(([size]) => ns >= size) || [1, "ns"];
    const places = Math.max(0, Math.ceil(Math.log10(size / step) - 1e-9));
    return `${Number((ns / size).toFixed(Math.min(places, 12)))}\u202f${unit}`;
  };

  /** Round places that divide what is between into about `parts`, with the `step` from one to the next. */
  Report.ticks = (from, until, parts, base = 10) => {
    const rough = (until - from) / Math.max(parts, 1);
    const power = Math.pow(base, Math.floor(Math.log(rough) / Math.log(base)));
    const factors = base === 10 ? [1, 2, 5, 10] : [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];
    const step = power * (factors.find((factor) => power * factor >= rough) || base);
    const ticks = Object.assign([], { step });
    if (!(step > 0)) return ticks;
    for (let tick = Math.ceil(from / step) * step; tick <= until && ticks.length < 200; tick += step) ticks.push(tick);
    return ticks;
  };

  /** Whether all buffers of a place have an offset in it. */
  Report.isArena = (place) => place.offset.length > 0 && place.offset.every((offset) => offset >= 0);

  /** The bytes that a place takes: an arena is as long as it must be at any time, and stays so. */
  Report.reserved = (place) => (Report.isArena(place) ? place.offset.reduce((end, offset, i) => Math.max(end, offset + place.bytes[i]), 0) : place.peak);
})();

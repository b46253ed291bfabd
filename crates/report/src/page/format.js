// Numbers as people read them, elements, and colours.
(() => {
  // Names in a legend before the rest is folded.
  const LEGEND_MAX = 24;
  const COPY = "#64748b";

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

  /** A table in a card that scrolls where the page is narrow. */
  Report.card = (table) => Report.el("div", { class: "card", tabindex: 0, role: "region", "aria-label": table.caption.textContent }, table);

  /** Texts with `code` between backquotes. */
  Report.marked = (text) => text.split("`").map((part, odd) => (odd % 2 ? Report.el("code", {}, part) : part));

  /** A colour as canvases take it, from lightness, chroma and hue as eyes see them (OKLCH). */
  const oklch = (lightness, chroma, hue) => {
    const a = chroma * Math.cos((hue * Math.PI) / 180), b = chroma * Math.sin((hue * Math.PI) / 180);
    const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3, m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
    const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
    const linear = [4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s, -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
      -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s];
    const byte = (x) => Math.round(255 * Math.max(0, Math.min(1, x <= 0.0031308 ? 12.92 * x : 1.055 * Math.max(x, 0) ** (1 / 2.4) - 0.055)));
    return `#${linear.map((x) => byte(x).toString(16).padStart(2, "0")).join("")}`;
  };
  // All are dark enough for white letters. The seed gives names that often meet in one program colours that are far apart.
  const HUES = 20, SEED = 126220;
  const PALETTE = Array.from({ length: 2 * HUES }, (_, i) => (i < HUES ? oklch(0.535, 0.13, i * 18 + 10) : oklch(0.44, 0.11, (i - HUES) * 18 + 10)));

  /** One colour a name, in every page and run: it follows from the name alone. */
  Report.nameColour = (name) => {
    let hash = SEED;
    for (const letter of name) hash = Math.imul(hash ^ letter.codePointAt(0), 16777619) >>> 0;
    hash = Math.imul(hash ^ (hash >>> 15), 0x2c1b3c6d) >>> 0;
    return PALETTE[((hash ^ (hash >>> 12)) >>> 0) % PALETTE.length];
  };
  Report.colourOf = (run, name, copy) => {
    // Where nothing computes, copies are told apart by their names.
    run.computes ??= run.kernels.some((kernel) => !kernel.copy);
    if (copy && run.computes) return COPY;
    run.colours ??= run.strings.map(() => null);
    return (run.colours[name] ??= Report.nameColour(run.strings[name]));
  };

  /** Every colour of a drawing and what it stands for. */
  Report.legend = (run, idle) => {
    const el = Report.el, seen = new Set(), computes = run.kernels.some((kernel) => !kernel.copy);
    const named = (kernel) => !kernel.copy || !computes;
    const kernels = run.kernels.filter((kernel) => { const key = named(kernel) ? kernel.name : "copies"; return !seen.has(key) && seen.add(key); });
    const item = (kernel) => el("li", {}, Report.dot(Report.colourOf(run, kernel.name, kernel.copy)), named(kernel) ? run.strings[kernel.name] : "copies");
    const rest = kernels.slice(LEGEND_MAX);
    return el("ul", { class: "legend", "aria-label": "Colours" },
      kernels.slice(0, LEGEND_MAX).map(item),
      rest.length ? el("li", {}, el("details", {}, el("summary", {}, `${Report.count(rest.length)} more`), el("ul", { class: "legend" }, rest.map(item)))) : null,
      run.timed ? el("li", {}, Report.dot("var(--path)"), "critical path") : null,
      idle ? Report.CAUSES.map((cause, i) => el("li", { title: Report.CAUSES_ABOUT[i] }, Report.dot(`var(${Report.causeVariable(i)})`), `idle: ${cause}`)) : null);
  };
  Report.opColour = (run, op) => Report.colourOf(run, run.ops.name[op], run.ops.copy[op]);
  Report.dot = (colour) => Report.el("span", { class: "dot", style: `background:${colour}`, "aria-hidden": "true" });
  Report.causeVariable = (cause) => ["--gap-data", "--gap-transfer", "--gap-lane", "--gap-dispatch", "--gap-nothing"][cause];

  let colours = {};
  /** The theme's colours for canvases; read once a theme. */
  Report.theme = () => colours;
  Report.readTheme = () => {
    const style = getComputedStyle(document.documentElement);
    const names = ["page", "card", "ink", "soft", "faint", "line", "line-strong", "accent", "accent-soft", "path", "node", "edge", "lane", "copy", "sans",
      "gap-data", "gap-transfer", "gap-lane", "gap-dispatch", "gap-nothing"];
    colours = Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
    colours.gaps = [0, 1, 2, 3, 4].map((cause) => colours[Report.causeVariable(cause).slice(2)]);
  };

  /** A round time: with as many digits after the point as tell it from one `step` before, and no zeros at the end. */
  Report.tickTime = (ns, step) => {
    if (ns === 0) return "0";
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

// The page: tabs, search, selection, links and colours.
(() => {
  const { el } = Report;
  const FOUND_MAX = 50;
  const byId = (id) => document.getElementById(id);

  const VIEWS = [
    ["summary", "Summary", (app) => new Report.SummaryView(app.run)],
    ["graph", "Graph", (app) => new Report.GraphTab(app.run)],
    ["lanes", "Swimlane", (app) => new Report.LanesView(app.run)],
    ["path", "Critical path", (app) => new Report.PathView(app.run)],
    ["memory", "Memory", (app) => new Report.MemoryView(app.run)],
    ["compare", "Compare", (app) => new Report.CompareView(app.runs, app.compare)],
  ];

  class App {
    constructor(data) {
      this.runs = data.runs.map((raw) => new Report.Run(raw));
      this.compare = data.compare;
      this.selected = -1;
      this.range = null;
      this.number = -1;
    }

    start() {
      this.startTheme();
      this.startTabs();
      this.startSearch();
      const choice = byId("run");
      byId("run-choice").hidden = this.runs.length < 2;
      choice.append(...this.runs.map((run, i) => el("option", { value: i }, `${"AB"[i]}: ${run.title}`)));
      choice.addEventListener("change", () => this.useRun(+choice.value));
      this.useRun(this.runs.length - 1);
      this.follow(Report.asked);
      byId("help").addEventListener("click", () => byId("keys").showModal());
      addEventListener("hashchange", () => this.follow(location.hash.slice(1)));
      document.addEventListener("keydown", (event) => this.key(event));
    }

    /** Opens what a link names: `lanes&run=A&task=17&range=1000-2500`, times in nanoseconds. */
    follow(link) {
      const [view, ...parts] = link.split("&");
      const named = new Map(parts.map((part) => part.split("=").map(decodeURIComponent)));
      const known = VIEWS.some(([id]) => id === view && (id !== "compare" || this.compare));
      if (!known && this.view) return;
      const run = "AB".indexOf(named.get("run"));
      if (named.has("run") && run >= 0 && run < this.runs.length) this.useRun(run);
      const range = (named.get("range") || "").split("-").map(Number);
      this.range = range.length === 2 && range[0] < range[1] ? range : null;
      const op = named.has("op") ? Number(named.get("op")) : this.run.ops.task.findIndex((task) => String(task) === named.get("task"));
      this.selected = Number.isInteger(op) && op >= 0 && op < this.run.count ? op : -1;
      this.open(known ? view : this.compare ? "compare" : "summary");
      if (this.range) this.zoomToRange();
      this.select(this.selected, !this.range);
    }

    /** The link to what is shown, without what goes without saying. */
    link() {
      const parts = [this.view], { run, selected } = this;
      if (this.runs.length > 1 && this.number !== this.runs.length - 1) parts.push(`run=${"AB"[this.number]}`);
      if (selected >= 0) {
        const task = String(run.ops.task[selected]), first = run.ops.task.findIndex((other) => String(other) === task);
        parts.push(first === selected ? `task=${task}` : `op=${selected}`);
      }
      if (this.range) parts.push(`range=${this.range.map(Math.round).join("-")}`);
      return parts.join("&");
    }

    note() {
      const link = this.link();
      if (this.view && location.hash.slice(1) !== link) history.replaceState(null, "", `#${link}`);
    }

    useRun(number) {
      if (number === this.number) return;
      this.number = number;
      this.run = this.runs[number];
      this.made = {};
      byId("run").value = number;
      byId("title").textContent = this.run.title;
      this.range = null;
      this.select(-1);
      if (this.view) this.open(this.view);
    }

    startTabs() {
      const tabs = document.querySelector(".tabs");
      for (const [id, title] of VIEWS) {
        if (id === "compare" && !this.compare) continue;
        tabs.append(el("button", { role: "tab", id: `tab-${id}`, type: "button", "aria-controls": "main", onclick: () => this.open(id) }, title));
      }
      tabs.addEventListener("keydown", (event) => {
        const all = [...tabs.children], at = all.indexOf(document.activeElement);
        const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: all.length - 1 }[event.key];
        if (to === undefined || at < 0) return;
        all[(to + all.length) % all.length].focus();
        all[(to + all.length) % all.length].click();
        event.preventDefault();
      });
    }

    /** Shows a view; with `reveal`, brings the selected task into sight. */
    open(id, reveal = false) {
      this.view = id;
      Report.tip();
      for (const tab of document.querySelectorAll(".tabs button")) {
        const chosen = tab.id === `tab-${id}`;
        tab.setAttribute("aria-selected", chosen);
        tab.tabIndex = chosen ? 0 : -1;
      }
      if (!this.made[id]) {
        const view = VIEWS.find(([name]) => name === id)[2](this);
        this.made[id] = { view, element: view.element() };
      }
      const { view, element } = this.made[id];
      const main = byId("main");
      main.replaceChildren(element);
      main.setAttribute("aria-labelledby", `tab-${id}`);
      main.scrollTop = 0;
      if (view.plot) view.plot.resize();
      if (reveal && this.selected >= 0 && view.reveal) view.reveal(this.selected);
      this.note();
    }

    /** Selects a task everywhere; with `reveal`, brings it into sight where that means something. */
    select(op, reveal = false) {
      this.selected = op;
      this.panel();
      this.note();
      const shown = this.made[this.view];
      if (shown && shown.view.plot) {
        if (reveal && op >= 0) { shown.view.plot.resize(); shown.view.reveal(op); }
        shown.view.plot.ask();
      }
      if (op >= 0) byId("live").textContent = `${this.run.label(op)}: waits for ${this.run.waitsFor(op).length}, waited on by ${this.run.waitedOnBy(op).length}`;
    }

    /** The panel at the side: the selected task, or else the selected range. */
    panel() {
      if (this.selected < 0 && this.range) return Report.rangeDetails(this.run, this.range);
      return Report.details(this.run, this.selected);
    }

    /** Selects a range of time, or none. */
    selectRange(range) {
      this.range = range && range[1] > range[0] ? range : null;
      this.select(-1);
      if (this.range) byId("live").textContent = `${Report.time(range[1] - range[0])} selected from ${Report.time(range[0])}`;
    }

    zoomToRange() {
      if (!this.range) return;
      if (this.view !== "lanes") this.open("lanes");
      const { plot } = this.made.lanes.view, [from, until] = this.range, room = (until - from) * 0.06;
      plot.resize();
      plot.showSpan(from - room, until + room);
    }

    startSearch() {
      const input = byId("search"), list = byId("found");
      let found = [], at = 0;
      const close = () => { list.hidden = true; input.setAttribute("aria-expanded", "false"); input.removeAttribute("aria-activedescendant"); };
      const mark = () => {
        [...list.children].forEach((item, i) => { if (item.id) item.setAttribute("aria-selected", i === at); });
        if (found.length) { input.setAttribute("aria-activedescendant", `found-${at}`); list.children[at].scrollIntoView({ block: "nearest" }); }
      };
      const take = (op) => {
        close();
        if (!["graph", "lanes"].includes(this.view)) this.open("graph");
        this.select(op, true);
      };
      const show = () => {
        const result = this.run.find(input.value, FOUND_MAX);
        found = result.ops;
        at = 0;
        if (!input.value.trim()) return close();
        const items = found.map((op, i) => el("li", { role: "option", id: `found-${i}`, onpointerdown: (event) => { event.preventDefault(); take(op); } },
          Report.dot(Report.opColour(this.run, op)), this.run.label(op), el("span", { class: "faint mono" }, (this.run.args(op).pop() || ""))));
        const rest = result.total - found.length;
        list.replaceChildren(...items, el("li", { class: "count", "aria-disabled": "true" }, found.length ? (rest > 0 ? `and ${Report.count(rest)} more` : Report.plural(result.total, "task")) : "No task has that in its name, id or arguments"));
        list.hidden = false;
        input.setAttribute("aria-expanded", "true");
        byId("live").textContent = Report.plural(result.total, "task found").replace("task founds", "tasks found");
        return mark();
      };
      input.addEventListener("input", show);
      input.addEventListener("focus", () => { if (input.value) show(); });
      input.addEventListener("blur", close);
      input.addEventListener("keydown", (event) => {
        if (event.key === "Escape") { if (list.hidden) input.blur(); close(); return; }
        if (!found.length || list.hidden) return;
        if (event.key === "ArrowDown") at = (at + 1) % found.length;
        else if (event.key === "ArrowUp") at = (at + found.length - 1) % found.length;
        else if (event.key === "Enter") { take(found[at]); return; }
        else return;
        event.preventDefault();
        mark();
      });
    }

    startTheme() {
      const button = byId("theme"), system = matchMedia("(prefers-color-scheme: dark)");
      const order = ["auto", "light", "dark"];
      let wish = "auto";
      // A page opened from a file may be denied storage: then the choice lasts as long as the page.
      try { wish = localStorage.getItem("syncline-theme") || "auto"; } catch { /* as it is */ }
      const apply = () => {
        document.documentElement.dataset.theme = wish === "auto" ? (system.matches ? "dark" : "light") : wish;
        button.textContent = { auto: "◐ Auto", light: "○ Light", dark: "● Dark" }[wish];
        button.setAttribute("aria-label", `Colours: ${wish}; press to change`);
        Report.readTheme();
        for (const { view } of Object.values(this.made || {})) if (view.plot) view.plot.ask();
      };
      button.addEventListener("click", () => {
        wish = order[(order.indexOf(wish) + 1) % order.length];
        try { localStorage.setItem("syncline-theme", wish); } catch { /* as it is */ }
        apply();
      });
      system.addEventListener("change", apply);
      this.setTheme = (theme) => { wish = theme; apply(); };
      apply();
    }

    key(event) {
      const typing = event.target.closest("input, select, textarea");
      if (event.key === "/" && !typing) { byId("search").focus(); event.preventDefault(); }
      if (event.key === "Escape" && !typing) { if (this.selected >= 0) this.select(-1); else if (this.range) this.selectRange(null); }
      const number = Number(event.key) - 1, tabs = document.querySelectorAll(".tabs button");
      const plain = !typing && !event.ctrlKey && !event.metaKey && !event.altKey;
      // 0 is for plots: everything in sight.
      if (plain && number >= 0 && number < tabs.length) { tabs[number].focus(); tabs[number].click(); }
      if (plain && event.key === "?") byId("keys").showModal();
    }
  }

  /** Shows a tooltip beside the pointer, or none. */
  Report.tip = (text, event) => {
    const tip = byId("tip");
    tip.hidden = !text;
    if (!text) return;
    tip.textContent = text;
    const { innerWidth: wide, innerHeight: high } = window, { offsetWidth, offsetHeight } = tip;
    tip.style.left = `${Math.min(event.clientX + 14, wide - offsetWidth - 8)}px`;
    tip.style.top = `${event.clientY + 18 + offsetHeight > high ? event.clientY - offsetHeight - 10 : event.clientY + 18}px`;
  };

  const began = performance.now();
  Report.app = new App(JSON.parse(byId("data").textContent));
  Report.app.start();
  Report.startMs = performance.now() - began;
})();

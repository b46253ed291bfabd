// Two runs: what got slower, by kernel and by task.
(() => {
  const { el } = Report;

  // Less than half a percent is no news.
  const colour = (before, after) => (Math.abs(after - before) < before * 0.005 ? "faint" : after > before ? "worse" : "better");
  const change = (before, after) => {
    const sign = after >= before ? "+" : "\u2212";
    const text = before > 0 ? `${sign}${Math.abs((100 * (after - before)) / before).toFixed(1)}%` : "new";
    return el("span", { class: colour(before, after) }, after === before ? "=" : text);
  };
  const difference = (before, after) => el("span", { class: colour(before, after) },
    after === before ? "=" : `${after > before ? "+" : ""}${Report.time(after - before)}`);

  const GROWTH = ["work", "copies", "stalls", "lateness"];
  const signed = (ns) => `${ns > 0 ? "+" : ""}${Report.time(ns)}`;

  class CompareView {
    constructor(runs, compare) { Object.assign(this, { runs, compare }); }

    element() {
      const [before, after] = this.runs, { kernels, tasks, matched, unmatched } = this.compare;
      const kernelCard = el("div", { class: "card" }), taskCard = el("div", { class: "card" });
      Report.paged(kernelCard, kernels, (items) => Report.table("Change by kernel", [
        ["Name", ([name]) => name],
        ["Count before", ([, count]) => Report.count(count[0]), true], ["after", ([, count]) => Report.count(count[1]), true],
        ["Time before", ([, , ns]) => Report.time(ns[0]), true], ["after", ([, , ns]) => Report.time(ns[1]), true],
        ["Change", ([, , ns]) => difference(ns[0], ns[1]), true], ["in percent", ([, , ns]) => change(ns[0], ns[1]), true],
      ], items), 40);
      Report.paged(taskCard, tasks, (items) => Report.table("Change by task", [
        ["Task", ([ops]) => el("button", { class: "link", type: "button" }, Report.dot(Report.opColour(after, ops[1])), after.label(ops[1]))],
        ["Before", ([, ns]) => Report.time(ns[0]), true], ["After", ([, ns]) => Report.time(ns[1]), true],
        ["Change", ([, ns]) => difference(ns[0], ns[1]), true], ["in percent", ([, ns]) => change(ns[0], ns[1]), true],
      ], items, ([ops]) => { Report.app.useRun(1); Report.app.select(ops[1]); }), 50);
      const labels = [...new Set([...before.provenance, ...after.provenance].map(([label]) => label))];
      const said = (run, label) => (run.provenance.find(([name]) => name === label) || [label, "\u2013"])[1];
      const missing = unmatched[0] + unmatched[1];
      return el("div", { class: "view" },
        el("p", { class: "lead" }, this.verdict(before, after)),
        this.numbers(before, after),
        before.timed && after.timed ? this.grown(before, after) : null,
        el("section", {}, el("h2", {}, "By kernel"), el("p", { class: "note" }, "All tasks of a name together, what lost most time first."), kernelCard),
        el("section", {}, el("h2", {}, "By task"),
          el("p", { class: "note" }, `${Report.plural(matched, "task")} in both${missing ? `, ${Report.count(unmatched[0])} only before, ${Report.count(unmatched[1])} only after` : ""}. Those that changed most are listed, what lost most time first.`),
          tasks.length ? taskCard : el("p", { class: "faint" }, "No task took longer or shorter.")),
        labels.length ? el("section", {}, el("h2", {}, "Where they come from"), Report.card(Report.table("Where they come from", [
          ["What", (label) => label],
          ["Before", (label) => said(before, label)],
          ["After", (label) => (said(before, label) === said(after, label) ? el("span", { class: "faint" }, "the same") : el("strong", {}, said(after, label)))],
        ], labels))) : null);
    }

    verdict(before, after) {
      if (!before.timed || !after.timed) return "One of the two has no timings: only the tasks can be compared.";
      const same = after.makespan === before.makespan;
      const text = [`“${after.title}” took ${Report.time(after.makespan)}, “${before.title}” ${Report.time(before.makespan)}: `,
        same ? "no difference" : `${Report.percent(Math.abs(after.makespan - before.makespan), before.makespan)} ${after.makespan > before.makespan ? "more" : "less"}`, "."];
      if (this.compare.culprit) {
        const [, , [was, is]] = this.compare.culprit;
        text.push(` On the critical path, most time was ${is > was ? "lost" : "gained"} in `, this.spentOn(this.compare.culprit), `: ${Report.time(Math.abs(is - was))}.`);
        const parts = this.compare.growth.map((ns, i) => [ns, GROWTH[i]]).filter(([ns]) => ns);
        text.push(` The difference is ${parts.map(([ns, what]) => `${what} ${signed(ns)}`).join(", ")}.`);
      }
      return text;
    }

    spentOn([kind, name]) { return [el("code", {}, name), "copies", "stalls", "lateness"][kind]; }

    /** What the critical paths consisted of, and the sum: the difference between the runs. */
    grown(before, after) {
      const card = el("div", { class: "card" });
      const sum = { sum: true, part: [0, "", [before.makespan, after.makespan]] };
      const rows = this.compare.path.map((part) => ({ part }));
      const cell = (side) => ({ part }) => Report.time(part[2][side]);
      Report.paged(card, [...rows, sum], (items) => Report.table("What the difference consists of", [
        ["On the critical path", ({ part, sum: isSum }) => (isSum ? el("strong", {}, "together: the run") : this.spentOn(part))],
        ["Before", cell(0), true], ["After", cell(1), true],
        ["Change", ({ part }) => difference(part[2][0], part[2][1]), true],
      ], items), 60);
      return el("section", {}, el("h2", {}, "What the difference consists of"),
        el("p", { class: "note" }, "Time on the critical path: the parts add up to each run, and their changes to the difference between the runs. A stall is a task that could have started and had not; lateness is time before a task that waited for nothing."),
        card);
    }

    numbers(before, after) {
      const stalls = (run) => run.pathTimes()[2] + run.pathTimes()[3];
      const peak = (run) => run.places.reduce((most, place) => Math.max(most, place.peak), 0);
      const entries = [["Time", before.makespan, after.makespan, Report.time], ["Work", before.work, after.work, Report.time],
        ["Path: stalls", stalls(before), stalls(after), Report.time], ["Peak memory", peak(before), peak(after), Report.bytes]];
      return el("dl", { class: "numbers" }, entries.map(([name, was, is, format]) => el("div", {}, el("dt", {}, name),
        el("dd", {}, format(is), " ", el("small", {}, `before ${format(was)}, `, change(was, is))))));
    }
  }

  Report.CompareView = CompareView;
})();

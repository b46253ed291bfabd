// The run as the page carries it, with what drawing needs: edges by either end, ops by lane, names by number.
"use strict";
// Noted before the page replaces it by the view that it opens.
const Report = { asked: location.hash.slice(1) };
(() => {
  const KINDS = ["creator", "raw", "war", "waw", "commutative", "explicit", "barrier"];
  const CAUSES = ["data", "transfer", "lane busy", "dispatch", "nothing ready"];
  const CAUSES_ABOUT = [
    "the next task waited for a result that was computed elsewhere",
    "the next task waited for bytes to arrive",
    "what the next task waited for was queued behind other work on its lane",
    "the next task was ready and had not started: waking, launching, submitting",
    "there was no work left for this lane",
  ];
  // What a step of the critical path is: an op that ran, or time before one.
  const STEPS = ["compute", "copy", "stall", "late"];

  /** For each op the positions of its edges: those of op `i` are `list[starts[i]]` up to `list[starts[i + 1]]`. */
  function byEnd(count, ends) {
    const starts = new Int32Array(count + 1);
    for (const op of ends) starts[op + 1]++;
    for (let op = 0; op < count; op++) starts[op + 1] += starts[op];
    const next = starts.slice();
    const list = new Int32Array(ends.length);
    for (let edge = 0; edge < ends.length; edge++) list[next[ends[edge]]++] = edge;
    return { starts, list };
  }

  /** Items of one lane or row by start, searchable by time even where they overlap. */
  class Track {
    constructor(items, start, length) {
      this.items = Int32Array.from(items).sort((a, b) => start[a] - start[b] || a - b);
      this.starts = Float64Array.from(this.items, (item) => start[item]);
      this.ends = Float64Array.from(this.items, (item) => start[item] + length[item]);
      // The latest end so far never falls, so that the first item still to be seen can be searched for.
      this.reach = this.ends.slice();
      for (let i = 1; i < this.reach.length; i++) this.reach[i] = Math.max(this.reach[i], this.reach[i - 1]);
    }
    /** The first item that may end at `time` or later. */
    firstEnding(time) { return Report.lowerBound(this.reach, time); }
    /** The first item that starts at `time` or later. */
    firstStarting(time) { return Report.lowerBound(this.starts, time); }
    /** After item `at`, which is narrower than `width`: the next that reaches beyond it. */
    past(at, width) {
      const until = this.starts[at] + width;
      const next = Report.lowerBound(this.starts, until, at + 1);
      // Of all that start within the width, the last may be long.
      return next - 1 > at && this.ends[next - 1] > until ? next - 1 : next;
    }
  }

  Report.lowerBound = (sorted, value, from = 0, until = sorted.length) => {
    while (from < until) {
      const middle = (from + until) >>> 1;
      if (sorted[middle] < value) from = middle + 1; else until = middle;
    }
    return from;
  };

  class Run {
    constructor(raw) {
      Object.assign(this, raw);
      const { ops, edges, gaps, path } = this;
      this.count = ops.task.length;
      ops.start = Float64Array.from(ops.start);
      ops.length = Float64Array.from(ops.length);
      ops.x = Float64Array.from(ops.x, (x) => x / 100);
      ops.row = Int32Array.from(ops.row);
      edges.pred = Int32Array.from(edges.pred);
      edges.succ = Int32Array.from(edges.succ);
      this.fanin = byEnd(this.count, edges.succ);
      this.fanout = byEnd(this.count, edges.pred);
      this.tracks = this.split(this.count, ops.lane, ops.start, ops.length);
      this.gapTracks = this.split(gaps.lane.length, gaps.lane, gaps.start, gaps.length);
      this.onPath = new Uint8Array(this.count);
      this.pathEdges = new Uint8Array(edges.pred.length);
      // Pairs of ops that follow one another on the critical path, by an edge or by their lane's order.
      this.pathLinks = [];
      let before = -1;
      path.kind.forEach((kind, step) => {
        if (!Report.ran(kind)) return;
        const op = path.op[step], edge = path.link[step];
        this.onPath[op] = 1;
        if (edge >= 0) this.pathEdges[edge] = 1;
        if (before >= 0) this.pathLinks.push({ pred: before, succ: op, edge });
        before = op;
      });
      this.outlierOf = new Map(this.outliers.op.map((op, i) => [op, i]));
    }
    split(count, lane, start, length) {
      const items = this.lanes.map(() => []);
      for (let item = 0; item < count; item++) if (lane[item] >= 0) items[lane[item]].push(item);
      return items.map((list) => new Track(list, start, length));
    }
    name(op) { return this.strings[this.ops.name[op]]; }
    label(op) { return `${this.name(op)} #${this.ops.task[op]}`; }
    end(op) { return this.ops.start[op] + this.ops.length[op]; }
    timedOp(op) { return this.ops.lane[op] >= 0; }
    laneName(lane) {
      const { name, device } = this.lanes[lane];
      return [device, name].filter(Boolean).join(" ") || `lane ${lane}`;
    }
    args(op) {
      const { args, arg_starts: starts } = this.ops;
      return args.slice(starts[op], starts[op + 1]).map((text) => this.strings[text]);
    }
    waitsFor(op) { return this.fanin.list.subarray(this.fanin.starts[op], this.fanin.starts[op + 1]); }
    waitedOnBy(op) { return this.fanout.list.subarray(this.fanout.starts[op], this.fanout.starts[op + 1]); }
    hazards(edge) { return KINDS.filter((_, bit) => (this.edges.kinds[edge] >> bit) & 1); }
    region(edge) { return this.strings[this.edges.region[edge]]; }
    /** Time of the critical path by kind of step. */
    pathTimes() {
      const times = STEPS.map(() => 0);
      this.path.kind.forEach((kind, step) => { times[kind] += this.path.length[step]; });
      return times;
    }
    /** What makes an op an outlier, or nothing. */
    outlierText(op) {
      const at = this.outlierOf.get(op);
      if (at === undefined) return null;
      const times = this.ops.length[op] / Math.max(this.outliers.median[at], 1);
      return `${Math.round(times)} times the median of ${Report.time(this.outliers.median[at])}: ${this.outliers.why[at]}`;
    }
    /** Positions of the ops that `text` names: by id, by name, or by one of their arguments. */
    find(text, most) {
      const wanted = text.trim().toLowerCase();
      const found = { ops: [], total: 0 };
      if (!wanted) return found;
      const id = wanted.replace(/^#/, "");
      const names = this.strings.map((string) => string.toLowerCase().includes(wanted));
      const exact = [];
      for (let op = 0; op < this.count; op++) {
        const isId = String(this.ops.task[op]) === id;
        let hit = isId || names[this.ops.name[op]] || this.label(op).toLowerCase() === wanted;
        for (let i = this.ops.arg_starts[op]; !hit && i < this.ops.arg_starts[op + 1]; i++) hit = names[this.ops.args[i]];
        if (!hit) continue;
        found.total++;
        if (isId || this.label(op).toLowerCase() === wanted) exact.push(op);
        else if (found.ops.length < most) found.ops.push(op);
      }
      found.ops = exact.concat(found.ops).slice(0, most);
      return found;
    }
  }

  Report.CAUSES = CAUSES;
  Report.CAUSES_ABOUT = CAUSES_ABOUT;
  Report.STEPS = STEPS;
  /** Whether an op ran in a step of this kind; in others none did. */
  Report.ran = (kind) => kind < 2;
  Report.Track = Track;
  Report.Run = Run;
})();

// How much went on until any time: lanes at work, or bytes that had moved.
(() => {
  /** A sum over intervals, each of which adds `weight` a nanosecond while it lasts; asked for in logarithmic time. */
  class Busy {
    constructor(starts, ends, weights = null) {
      const count = starts.length;
      const marks = new Float64Array(2 * count), steps = new Float64Array(2 * count);
      if (weights) {
        const order = Array.from({ length: 2 * count }, (_, i) => i);
        const at = (i) => (i < count ? starts[i] : ends[i - count]);
        order.sort((a, b) => at(a) - at(b));
        order.forEach((i, place) => { marks[place] = at(i); steps[place] = i < count ? weights[i] : -weights[i - count]; });
      } else {
        // Numbers sort many times as fast as what they stand for.
        const from = Float64Array.from(starts).sort(), until = Float64Array.from(ends).sort();
        for (let place = 0, a = 0, b = 0; place < 2 * count; place++) {
          const isStart = a < count && from[a] <= until[b];
          marks[place] = isStart ? from[a++] : until[b++];
          steps[place] = isStart ? 1 : -1;
        }
      }
      Object.assign(this, { marks, sums: new Float64Array(2 * count), slopes: new Float64Array(2 * count), most: 0 });
      for (let place = 0, slope = 0, sum = 0; place < 2 * count; place++) {
        if (place) sum += slope * (marks[place] - marks[place - 1]);
        slope += steps[place];
        this.sums[place] = sum;
        this.slopes[place] = slope;
        const lasts = place + 1 < 2 * count && marks[place + 1] > marks[place];
        if (lasts) this.most = Math.max(this.most, slope);
      }
    }

    /** All until `time`. */
    until(time) {
      const place = Report.lowerBound(this.marks, time) - 1;
      return place < 0 ? 0 : this.sums[place] + this.slopes[place] * (time - this.marks[place]);
    }

    /** What was added between two times, a nanosecond. */
    mean(from, until) { return until > from ? (this.until(until) - this.until(from)) / (until - from) : 0; }
  }

  /** Lanes of one device, which need not stand side by side, with what they did over time. */
  class Device {
    constructor(run, name, lanes) {
      Object.assign(this, { run, name, lanes });
      const ops = lanes.map((lane) => run.tracks[lane]);
      const moves = (track) => track.items.length > 0 && track.items.every((op) => run.ops.copy[op]);
      const computing = ops.filter((track) => !moves(track));
      this.computing = computing.length || lanes.length;
      this.onlyCopies = computing.length === 0;
      const joined = (computing.length ? computing : ops).map(merged);
      this.busy = new Busy(joined.flatMap(([starts]) => starts), joined.flatMap(([, ends]) => ends));
      const copies = ops.flatMap((track) => Array.from(track.items)).filter((op) => run.ops.bytes[op] > 0);
      const long = (op) => Math.max(run.ops.length[op], 1);
      this.bytes = copies.length
        ? new Busy(copies.map((op) => run.ops.start[op]), copies.map((op) => run.ops.start[op] + long(op)), copies.map((op) => run.ops.bytes[op] / long(op)))
        : null;
    }
    /** The share of its lanes that computed. */
    share(from, until) { return Math.min(1, this.busy.mean(from, until) / this.computing); }
  }

  /** Intervals of a track without their overlaps. */
  function merged(track) {
    const starts = [], ends = [];
    for (let at = 0; at < track.items.length; at++) {
      const last = ends.length - 1;
      if (last >= 0 && track.starts[at] <= ends[last]) ends[last] = Math.max(ends[last], track.ends[at]);
      else { starts.push(track.starts[at]); ends.push(track.ends[at]); }
    }
    return [starts, ends];
  }

  /** The devices of a run in the order of their lanes. */
  Report.devicesOf = (run) => {
    if (run.devices) return run.devices;
    const byName = new Map();
    run.lanes.forEach((lane, number) => {
      if (!byName.has(lane.device)) byName.set(lane.device, []);
      byName.get(lane.device).push(number);
    });
    run.devices = [...byName].map(([name, lanes]) => new Device(run, name, lanes));
    return run.devices;
  };

  /** Bytes in so many nanoseconds, as people read them. */
  Report.rate = (bytes, ns) => {
    const rate = bytes / Math.max(ns, 1);
    return rate >= 0.9995 ? `${rate.toFixed(rate < 9.995 ? 2 : rate < 99.95 ? 1 : 0)}\u202fGB/s` : `${(rate * 1000).toFixed(rate * 1000 < 9.995 ? 2 : rate * 1000 < 99.95 ? 1 : 0)}\u202fMB/s`;
  };

  Report.Busy = Busy;
})();

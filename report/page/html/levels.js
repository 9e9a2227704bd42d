// Levels of detail: which points of a series are drawn, and their values by columns of pixels.

const LEVEL_JOIN = 4; // points of a level are one of the next: levelJoin of page/course.go

// Curve is the minimum and maximum of one value in each column of pixels.
class Curve {
  constructor(size) {
    this.least = new Float64Array(size);
    this.most = new Float64Array(size);
  }

  reset() {
    this.least.fill(Infinity);
    this.most.fill(-Infinity);
  }

  put(from, to, least, most) {
    for (let i = from; i <= to; i++) {
      if (least < this.least[i]) this.least[i] = least;
      if (most > this.most[i]) this.most[i] = most;
    }
  }
}

// Course is what a device had, in columns of pixels: requested (t), provided (c), that and pending (busy), reserved (r), and what was
// read of the device (used). What lies between two of the first four is internal, pending and free.
class Course {
  constructor(device, columns) {
    this.device = device;
    this.columns = columns;
    for (const name of ['t', 'c', 'busy', 'r', 'used']) this[name] = new Curve(columns);
  }

  // measure fills the curves for a stretch of time.
  measure(from, to) {
    const { t, c, busy, r, used, columns } = this;
    for (const curve of [t, c, busy, r, used]) curve.reset();
    const scale = columns / (to - from);
    const column = (time) => Math.max(0, Math.min(columns - 1, Math.floor((time - from) * scale)));
    eachPoint(this.device.levels, from, to, columns, (level, i) => {
      const first = column(level.start[i]);
      const last = column(level.end[i]);
      // The last values hold until the next point begins.
      const until = i + 1 < level.start.length ? column(level.start[i + 1]) : columns - 1;
      if (level.end[i] >= from) {
        t.put(first, last, level.minT[i], level.maxT[i]);
        c.put(first, last, level.minC[i], level.maxC[i]);
        r.put(first, last, level.minR[i], level.maxR[i]);
      }
      t.put(last, until, level.t[i], level.t[i]);
      c.put(last, until, level.c[i], level.c[i]);
      r.put(last, until, level.r[i], level.r[i]);
      const begin = level.end[i] >= from ? first : last;
      const sum = level.c[i] + level.pending[i];
      busy.put(begin, until, sum, sum);
    });
    const read = this.device.used;
    if (!read) return;
    for (let i = Math.max(0, lastAtOrBefore(read.start, from)); i < read.start.length && read.start[i] <= to; i++) {
      // A reading holds until the next one.
      const next = i + 1 < read.start.length ? read.start[i + 1] : read.end[i];
      if (next < from) continue;
      used.put(column(read.start[i]), column(next), read.min[i], read.max[i]);
    }
  }
}

// eachPoint visits the points of a span of time: those of the finest level with at most four points to a column. Instead
// of a point that is wider than two columns it visits those that the point was joined from, so that times with few
// events are drawn as sharply as busy ones.
function eachPoint(levels, from, to, columns, visit) {
  const wide = 2 * (to - from) / columns;
  const see = (depth, i) => {
    const level = levels[depth];
    if (level.start[i] > to || i + 1 < level.start.length && level.start[i + 1] < from) return;
    if (depth === 0 || level.end[i] - level.start[i] <= wide) {
      visit(level, i);
      return;
    }
    const end = Math.min((i + 1) * LEVEL_JOIN, levels[depth - 1].start.length);
    for (let k = i * LEVEL_JOIN; k < end; k++) see(depth - 1, k);
  };
  for (let depth = 0; depth < levels.length; depth++) {
    const first = Math.max(0, lastAtOrBefore(levels[depth].start, from));
    const last = lastAtOrBefore(levels[depth].start, to);
    if (last - first > 4 * columns && depth < levels.length - 1) continue;
    for (let i = first; i <= last; i++) see(depth, i);
    return;
  }
}

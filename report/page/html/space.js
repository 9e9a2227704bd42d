// The address space at an instant, put together from stretches: see keyframesData in page/keyframes.go.

const LIVE = 0;
const SLACK = 1;
const PENDING = 2;
const RESERVE = 3;
const REUSABLE = 4;
const EXTERNAL = 5;
const NOT_REQUESTED = 6;
const UNMAPPED = 7;

// Space has the stretches of all instants of a device that a table knows, stored instants or exact events. A row is a
// stretch that is there at the instants from `from` to `to`, and has a shape: a line of the table.
class Space {
  constructor(device, table, rows) {
    this.device = device;
    this.frames = table;
    this.arenas = table.arenas || device.arenas;
    Object.assign(this, rows || storedRows(table));
    this.stacks = [];
  }

  // at lays out each arena that has mapped memory at a stored instant.
  at(frame) {
    const k = this.frames;
    const arenas = new Map();
    for (let i = 0; i < this.shape.length; i++) {
      if (frame < this.from[i] || frame >= this.to[i]) continue;
      const shape = this.shape[i];
      const index = k.arena[shape];
      let arena = arenas.get(index);
      if (!arena) arenas.set(index, arena = { index, mapped: [], within: [] });
      (k.kind[shape] === 0 || k.kind[shape] === 4 ? arena.mapped : arena.within).push(shape);
    }
    const byAddress = (a, b) => k.addr[a] - k.addr[b];
    const layouts = [];
    for (const arena of arenas.values()) {
      if (arena.mapped.length === 0) continue;
      arena.mapped.sort(byAddress);
      arena.within.sort(byAddress);
      layouts.push(this.layout(arena));
    }
    return layouts.sort((a, b) => a.index - b.index);
  }

  // layout divides the mapped memory of an arena into spans, in the order of addresses. A span of an allocation
  // has its shape. Adjacent free spans are one free chunk. Of the largest free chunk, what was handed out before
  // is reusable; of the others it is external.
  layout(arena) {
    const k = this.frames;
    const info = this.arenas[arena.index];
    const out = {
      index: arena.index, info, spans: [], base: k.addr[arena.mapped[0]], end: 0, reserved: 0, requested: 0, live: 0, free: 0, blocks: 0,
      largest: 0, largestAt: 0, rounding: 0, pending: 0, untouched: 0, reusable: 0,
    };
    let at = out.base;
    let run = 0;
    const put = (to, kind, shape) => {
      if (to <= at) return;
      const spans = out.spans;
      const last = spans[spans.length - 1];
      const free = kind === EXTERNAL || kind === RESERVE;
      const shown = free && info.native ? NOT_REQUESTED : kind;
      if (last && shape < 0 && last.shape < 0 && last.kind === shown && last.at + last.bytes === at) last.bytes += to - at;
      else spans.push({ at, bytes: to - at, kind: shown, shape });
      if (free) {
        run += to - at;
        out.free += to - at;
        if (run > out.largest) {
          out.largest = run;
          out.largestAt = to - run;
        }
      } else {
        run = 0;
      }
      at = to;
    };
    let next = 0;
    for (const mapping of arena.mapped) {
      const end = k.addr[mapping] + k.bytes[mapping];
      out.reserved += k.bytes[mapping];
      put(k.addr[mapping], UNMAPPED, -1);
      if (k.kind[mapping] === 4) run = 0; // a chunk does not cross the start of a region
      for (; next < arena.within.length && k.addr[arena.within[next]] < end; next++) {
        const shape = arena.within[next];
        put(k.addr[shape], EXTERNAL, -1);
        this.block(out, put, shape);
      }
      put(end, EXTERNAL, -1);
      out.end = Math.max(out.end, end);
    }
    this.reuse(out);
    return out;
  }

  // reuse has the external spans of the largest free chunk be reusable, and others that a region's start
  // divides be two.
  reuse(out) {
    const from = out.largestAt;
    const to = from + out.largest;
    const spans = [];
    for (const span of out.spans) {
      const end = span.at + span.bytes;
      if (span.kind !== EXTERNAL || end <= from || span.at >= to) {
        spans.push(span);
        continue;
      }
      const part = (at, until, kind) => {
        if (kind === REUSABLE) out.reusable += Math.max(0, until - at);
        if (until > at) spans.push({ at, bytes: until - at, kind, shape: -1 });
      };
      part(span.at, Math.max(span.at, from), EXTERNAL);
      part(Math.max(span.at, from), Math.min(end, to), REUSABLE);
      part(Math.min(end, to), end, EXTERNAL);
    }
    out.spans = spans;
  }

  block(out, put, shape) {
    const k = this.frames;
    const end = k.addr[shape] + k.bytes[shape];
    switch (k.kind[shape]) {
      case 1:
        out.untouched += k.bytes[shape];
        put(end, RESERVE, -1);
        return;
      case 2:
        out.pending += k.bytes[shape];
        put(end, PENDING, shape);
        return;
    }
    out.blocks++;
    out.live += k.bytes[shape];
    const requested = k.bytes[shape] - k.excess[shape];
    out.requested += requested;
    out.rounding += Math.min(Math.ceil(requested / 256) * 256, k.bytes[shape]) - requested;
    put(end - k.excess[shape], LIVE, shape);
    put(end, out.info.native ? NOT_REQUESTED : SLACK, shape);
  }

  // terms are the terms of R of laid out arenas, as requests of the one with the most reserved see free memory.
  terms(layouts) {
    const sum = { t: 0, c: 0, r: 0, rounding: 0, slack: 0, pending: 0, stranded: 0, reserve: 0, reusable: 0, external: 0, not_requested: 0, live: 0, paused: 0 };
    let view = null;
    for (const layout of layouts) {
      sum.t += layout.requested;
      sum.r += layout.reserved;
      sum.live += layout.blocks;
      sum.pending += layout.pending;
      if (view === null || layout.reserved > view.reserved) view = layout;
      if (layout.info.native) {
        sum.not_requested += layout.reserved - layout.requested - layout.pending;
        continue;
      }
      sum.c += layout.live;
      sum.rounding += layout.rounding;
      sum.slack += layout.live - layout.requested - layout.rounding;
      sum.stranded += layout.free;
    }
    if (this.device.native) sum.c = -1;
    if (view === null || view.info.native) return sum;
    sum.stranded -= view.free;
    sum.reserve = view.untouched;
    sum.reusable = view.reusable;
    sum.external = view.free - view.untouched - view.reusable;
    return sum;
  }

  // stack returns the frames of a node, outermost first.
  stack(node) {
    if (node < 0) return [];
    if (!this.stacks[node]) {
      const k = this.frames;
      this.stacks[node] = [...this.stack(k.parent[node]), k.strings[k.frame[node]]];
    }
    return this.stacks[node];
  }

  // groups returns the live allocations of an instant, grouped by origin, size and arena.
  groups(frame) {
    return this.grouped((i) => (frame < this.from[i] || frame >= this.to[i] ? 0 : 1));
  }

  // grouped returns live allocations, each row with a weight and with 0 not at all, grouped by origin, size and arena.
  grouped(weight) {
    const k = this.frames;
    const found = new Map();
    for (let i = 0; i < this.shape.length; i++) {
      const shape = this.shape[i];
      if (k.kind[shape] !== 3) continue;
      const share = weight(i);
      if (share === 0) continue;
      const requested = k.bytes[shape] - k.excess[shape];
      const key = k.origin[shape] + '/' + requested + '/' + k.arena[shape];
      let group = found.get(key);
      if (!group) {
        group = { space: this, origin: k.origin[shape], size: requested, arena: k.arena[shape], blocks: 0, requested: 0, provided: 0 };
        found.set(key, group);
      }
      group.blocks++;
      group.requested += requested * share;
      group.provided += k.bytes[shape] * share;
    }
    return [...found.values()];
  }
}

// storedRows are the rows of the stored instants.
function storedRows(k) {
  let count = 0;
  for (const times of k.times) count += times;
  const rows = { shape: new Uint32Array(count), from: new Uint32Array(count), to: new Uint32Array(count) };
  let at = 0;
  for (let shape = 0; shape < k.times.length; shape++) {
    let last = 0;
    for (let n = k.times[shape]; n > 0; n--, at++) {
      rows.shape[at] = shape;
      rows.from[at] = last + k.from[at];
      rows.to[at] = last = rows.from[at] + k.to[at];
    }
  }
  return rows;
}

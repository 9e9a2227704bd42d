// The address space at a stored instant, put together from stretches: see keyframesData in page/keyframes.go.

const LIVE = 0;
const SLACK = 1;
const PENDING = 2;
const RESERVE = 3;
const REUSABLE = 4;
const EXTERNAL = 5;
const NOT_REQUESTED = 6;
const UNMAPPED = 7;

// Space has the stretches of all stored instants of a device.
class Space {
  constructor(device) {
    const k = device.keyframes;
    this.device = device;
    this.frames = k;
    let count = 0;
    for (const times of k.times) count += times;
    this.shape = new Uint32Array(count);
    this.from = new Uint32Array(count);
    this.to = new Uint32Array(count);
    let at = 0;
    for (let shape = 0; shape < k.times.length; shape++) {
      let last = 0;
      for (let n = k.times[shape]; n > 0; n--, at++) {
        this.shape[at] = shape;
        this.from[at] = last + k.from[at];
        this.to[at] = last = this.from[at] + k.to[at];
      }
    }
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
    const info = this.device.arenas[arena.index];
    const out = {
      index: arena.index, info, spans: [], base: k.addr[arena.mapped[0]], end: 0, reserved: 0, requested: 0, live: 0, free: 0, blocks: 0,
      largest: 0, largestAt: 0,
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
        put(end, RESERVE, -1);
        return;
      case 2:
        put(end, PENDING, shape);
        return;
    }
    out.blocks++;
    out.live += k.bytes[shape];
    out.requested += k.bytes[shape] - k.excess[shape];
    put(end - k.excess[shape], LIVE, shape);
    put(end, out.info.native ? NOT_REQUESTED : SLACK, shape);
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

  // groups returns the live allocations of a stored instant, grouped by origin, size and arena.
  groups(frame) {
    const k = this.frames;
    const found = new Map();
    for (let i = 0; i < this.shape.length; i++) {
      const shape = this.shape[i];
      if (frame < this.from[i] || frame >= this.to[i] || k.kind[shape] !== 3) continue;
      const requested = k.bytes[shape] - k.excess[shape];
      const key = k.origin[shape] + '/' + requested + '/' + k.arena[shape];
      let group = found.get(key);
      if (!group) {
        group = { origin: k.origin[shape], size: requested, arena: k.arena[shape], blocks: 0, requested: 0, provided: 0 };
        found.set(key, group);
      }
      group.blocks++;
      group.requested += requested;
      group.provided += k.bytes[shape];
    }
    return [...found.values()];
  }
}

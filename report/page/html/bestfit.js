// Where allocations lie, predicted as page/bestfit.go does: by best fit in the ranges that are free then.

class Placing {
  constructor(rows, positions) {
    this.arenas = new Map();
    this.addr = new Float64Array(rows);
    this.bytes = new Float64Array(rows); // 0 for a row that took no free memory
    this.owner = new Int32Array(rows);
    this.firstEnd = new Int32Array(positions + 1).fill(-1); // of each position: a row that ends there
    this.nextEnd = new Int32Array(rows); // another one that ends where the row does
    this.position = 0;
  }

  // begin frees what ended up to a position, and returns the free ranges of an arena.
  begin(arena, position) {
    while (this.position < position) {
      for (let row = this.firstEnd[++this.position]; row >= 0; row = this.nextEnd[row]) {
        this.arenas.get(this.owner[row]).free(this.addr[row], this.bytes[row]);
      }
    }
    let free = this.arenas.get(arena);
    if (!free) this.arenas.set(arena, free = new FreeRanges());
    return free;
  }

  // put takes a row: a stretch of a kind of keyframesData.
  put(row, arena, kind, addr, bytes, to) {
    const free = this.arenas.get(arena);
    if (kind === 0 || kind === 4) {
      free.grow(addr, bytes, kind === 4);
      return;
    }
    if (kind === 1 || !free.take(addr, bytes)) return;
    this.addr[row] = addr;
    this.bytes[row] = bytes;
    this.owner[row] = arena;
    this.nextEnd[row] = this.firstEnd[to];
    this.firstEnd[to] = row;
  }
}

// FreeRanges are the ranges of an arena that are free.
class FreeRanges {
  constructor() {
    this.bySize = new Pairs(); // bytes, at
    this.byAt = new Pairs(); // at, bytes
    this.mapped = new Pairs(); // at, bytes of what was ever mapped
    this.walls = new Set(); // starts of regions, which no free range crosses
  }

  // bestFit is where best fit places so many bytes, and the bytes of the chunk.
  bestFit(needed) {
    const bySize = this.bySize;
    bySize.seek(needed, 0);
    const bytes = bySize.first();
    const rest = bytes - needed;
    return { at: bySize.second(), bytes: rest >= needed || rest >= 134217728 ? needed : bytes };
  }

  grow(at, bytes, region) {
    if (region) this.walls.add(at);
    const end = at + bytes;
    const mapped = this.mapped;
    if (mapped.seekLast(at)) at = Math.max(at, mapped.first() + mapped.second());
    while (at < end) {
      const known = mapped.seek(at, 0) && mapped.first() < end;
      const until = known ? mapped.first() : end;
      const next = known ? until + mapped.second() : end;
      if (at < until) {
        mapped.add(at, until - at);
        this.free(at, until - at);
      }
      at = next;
    }
  }

  // take has a range be free no more. It says whether all of it was in one free range.
  take(at, bytes) {
    const byAt = this.byAt;
    if (!byAt.seekLast(at)) return false;
    const start = byAt.first();
    const size = byAt.second();
    const rest = start + size - at - bytes;
    if (rest < 0) return false;
    this.bySize.drop(size, start);
    if (at > start) {
      byAt.set(start, at - start);
      this.bySize.add(at - start, start);
      if (rest > 0) this.add(at + bytes, rest);
    } else if (rest > 0) {
      byAt.set(at + bytes, rest); // still after the one before and before the one after
      this.bySize.add(rest, at + bytes);
    } else {
      byAt.remove();
    }
    return true;
  }

  // free has a range be free, and joins it with the free ranges that it touches.
  free(at, bytes) {
    const byAt = this.byAt;
    if (byAt.seek(at + bytes, 0) && byAt.first() === at + bytes && !this.walls.has(at + bytes)) {
      this.bySize.drop(byAt.second(), at + bytes);
      bytes += byAt.second();
      byAt.remove();
    }
    if (byAt.seekLast(at) && byAt.first() + byAt.second() === at && !this.walls.has(at)) {
      at = byAt.first();
      this.bySize.drop(byAt.second(), at);
      bytes += byAt.second();
      byAt.set(at, bytes);
      this.bySize.add(bytes, at);
      return;
    }
    this.add(at, bytes);
  }

  add(at, bytes) {
    this.bySize.add(bytes, at);
    this.byAt.add(at, bytes);
  }
}

const MOST_PAIRS = 256; // in a run

// Pairs are pairs of numbers in order, in runs that are short enough to insert into. A seek leaves it at a pair.
class Pairs {
  constructor() {
    this.runs = [{ count: 0, first: new Float64Array(MOST_PAIRS), second: new Float64Array(MOST_PAIRS) }];
    this.run = this.runs[0];
    this.index = 0; // of the run
    this.at = 0; // within it
  }

  first() { return this.run.first[this.at]; }
  second() { return this.run.second[this.at]; }

  // seek goes to the first pair that is not before one. It says whether there is such a pair.
  seek(first, second) {
    const runs = this.runs;
    let low = 0;
    let high = runs.length - 1;
    while (low < high) { // the first run that does not end before
      const middle = (low + high) >> 1;
      const run = runs[middle];
      const last = run.first[run.count - 1];
      if (last < first || last === first && run.second[run.count - 1] < second) low = middle + 1;
      else high = middle;
    }
    const run = runs[low];
    this.index = low;
    low = 0;
    high = run.count;
    while (low < high) {
      const middle = (low + high) >> 1;
      const value = run.first[middle];
      if (value < first || value === first && run.second[middle] < second) low = middle + 1;
      else high = middle;
    }
    this.run = run;
    this.at = low;
    return low < run.count;
  }

  // seekLast goes to the last pair whose first number is not above one.
  seekLast(first) {
    this.seek(first, Infinity);
    if (this.at > 0) {
      this.at--;
      return true;
    }
    if (this.index === 0) return false;
    this.run = this.runs[--this.index];
    this.at = this.run.count - 1;
    return true;
  }

  // set changes the pair at hand, whose place stays the same.
  set(first, second) {
    this.run.first[this.at] = first;
    this.run.second[this.at] = second;
  }

  add(first, second) {
    this.seek(first, second);
    const run = this.run;
    for (const column of [run.first, run.second]) column.copyWithin(this.at + 1, this.at, run.count);
    this.set(first, second);
    if (++run.count < MOST_PAIRS) return;
    const half = MOST_PAIRS / 2;
    const upper = { count: half, first: new Float64Array(MOST_PAIRS), second: new Float64Array(MOST_PAIRS) };
    upper.first.set(run.first.subarray(half));
    upper.second.set(run.second.subarray(half));
    run.count = half;
    this.runs.splice(this.index + 1, 0, upper);
  }

  // remove removes the pair at hand.
  remove() {
    const run = this.run;
    for (const column of [run.first, run.second]) column.copyWithin(this.at, this.at + 1, run.count);
    if (--run.count === 0 && this.runs.length > 1) this.runs.splice(this.index, 1);
  }

  drop(first, second) {
    this.seek(first, second);
    this.remove();
  }
}

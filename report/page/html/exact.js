// Every event of some spans: see exactData in page/exact.go. A position numbers these events from 0.

const SLICE = 8; // ms of work between two looks at what else the page has to do

class Exact {
  constructor(device, process, data) {
    this.spans = process.spans;
    this.time = process.time; // µs
    this.data = data;
    this.device = device;
  }

  // decode makes the stretches of exactData. It leaves the page room to be drawn meanwhile.
  static async decode(device, process, data, names) {
    const exact = new Exact(device, process, data);
    const count = data.sort.length;
    const rows = { shape: new Uint32Array(count), from: new Uint32Array(count), to: new Uint32Array(count) };
    const table = { ...names, kind: new Uint8Array(count), arena: new Uint32Array(count), origin: new Int32Array(count),
      addr: new Float64Array(count), bytes: new Float64Array(count), excess: new Float64Array(count) };
    const positions = exact.time.length;
    const lastAddr = new Float64Array(data.arena.length);
    const lastExtra = new Float64Array(data.arena.length);
    let sorts = 0;
    let pause = performance.now() + SLICE;
    for (let i = 0; i < count; i++) {
      if (i % 512 === 0 && performance.now() > pause) {
        await new Promise((done) => setTimeout(done));
        pause = performance.now() + SLICE;
      }
      const sort = data.sort[i] === 0 ? sorts++ : data.sort[i] - 1;
      const requested = data.requested[sort];
      const rounded = Math.ceil(requested / 256) * 256;
      const addr = lastAddr[sort] + data.addr[i] * data.unit;
      const bytes = rounded + lastExtra[sort] + data.extra[i];
      lastAddr[sort] = addr;
      lastExtra[sort] = bytes - rounded;
      rows.shape[i] = i;
      rows.from[i] = data.from[i];
      rows.to[i] = data.events[i] === 0 ? positions : data.from[i] + data.events[i];
      table.kind[i] = data.kind[sort];
      table.arena[i] = data.arena[sort];
      table.origin[i] = data.origin[sort];
      table.addr[i] = addr;
      table.bytes[i] = bytes;
      table.excess[i] = bytes - requested;
    }
    exact.space = new Space(device, table, rows);
    return exact;
  }

  // positionOf is the position of an event, -1 if it is in no span.
  positionOf(seq) {
    let base = 0;
    for (const [from, to] of this.spans) {
      if (seq >= from && seq < to) return base + seq - from;
      base += to - from;
    }
    return -1;
  }

  seqOf(position) {
    for (const [from, to] of this.spans) {
      if (position < to - from) return from + position;
      position -= to - from;
    }
    return -1;
  }

  // positionAt is that of the last event at a time or before, -1 if a span does not reach there.
  positionAt(time) {
    let base = 0;
    for (const [from, to] of this.spans) {
      const times = this.time.subarray(base, base + to - from);
      const at = lastAtOrBefore(times, time / 1000);
      const whole = this.spans.length === 1 && this.complete;
      if (at >= 0 && (at + 1 < times.length || whole || times[at] + 1 >= time / 1000)) return base + at;
      base += to - from;
    }
    return -1;
  }

  timeOf(position) {
    return this.time[position] * 1000;
  }

  // instant is the state after the event of a position.
  instant(position) {
    const layouts = this.space.at(position);
    const values = this.space.terms(layouts);
    const paused = lastAtOrBefore(this.data.pausedFrom, position);
    if (paused >= 0) values.paused = this.data.paused[paused];
    return { seq: this.seqOf(position), time: this.timeOf(position), why: 0, stored: -1, space: this.space, at: position, layouts, values };
  }

  // range are the positions from one time to another.
  range(from, to) {
    const first = this.positionAt(from);
    const last = this.positionAt(to);
    return first < 0 || last < first || last - first !== this.seqOf(last) - this.seqOf(first) ? null : [first, last];
  }
}

// Instants finds states of a device: stored ones, exact ones, and those of the server behind the page.
class Instants {
  constructor(view) {
    this.view = view;
    this.frames = view.device.keyframes;
    this.space = new Space(view.device, this.frames);
    this.exact = null;
    this.asked = 0;
  }

  // stored is the stored instant of an index.
  stored(at) {
    const f = this.frames;
    const values = {};
    for (const name of ['t', 'c', 'r', 'rounding', 'slack', 'pending', 'stranded', 'reserve', 'reusable', 'external', 'not_requested', 'live', 'paused']) values[name] = f[name][at];
    return { seq: f.seq[at], time: f.time[at], why: f.why[at], stored: at, space: this.space, at, layouts: this.space.at(at), values };
  }

  // storedAt is the index of the stored instant of an event, -1 for none.
  storedAt(seq) {
    const at = nearest(this.frames.seq, seq);
    return this.frames.seq[at] === seq ? at : -1;
  }

  // has reports whether the page has the instant of an event.
  has(seq) {
    return this.storedAt(seq) >= 0 || this.exact !== null && this.exact.positionOf(seq) >= 0;
  }

  // nearEvent is the instant of an event, or else the stored one that is nearest to it.
  nearEvent(seq) {
    const at = this.storedAt(seq);
    if (at >= 0) return this.stored(at);
    const position = this.exact ? this.exact.positionOf(seq) : -1;
    return position >= 0 ? this.exact.instant(position) : this.stored(nearest(this.frames.seq, seq));
  }

  // nearTime is the instant of the last event at a time or before, or else the stored one that is nearest, counted in
  // events, because nothing changes between two events.
  nearTime(time) {
    const position = this.exact ? this.exact.positionAt(time) : -1;
    if (position >= 0) return this.nearEvent(this.exact.seqOf(position));
    return this.stored(nearest(this.frames.seq, this.view.seqAt(time)));
  }

  // ask has the server send the events around one, named by its number or its time, and calls done with the instant;
  // answers to earlier questions are passed over.
  async ask(what, done, failed) {
    const number = ++this.asked;
    try {
      const answer = await fetch('events?process=' + this.view.process.index + '&device=' + this.view.device.device + '&' + what);
      if (!answer.ok) throw new Error((await answer.text()).trim());
      const data = await unpack(new Uint8Array(await answer.arrayBuffer()));
      if (number !== this.asked) return;
      const exact = await Exact.decode(this.view.device, data, data.device, { ...data.names, arenas: data.arenas }); // those of the part
      if (number !== this.asked) return;
      this.exact = exact;
      done(exact.instant(exact.positionOf(data.event)));
    } catch (error) {
      if (number === this.asked) failed(error);
    }
  }
}

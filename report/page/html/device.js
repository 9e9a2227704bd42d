// DeviceView is a device of a process: its parts show the pinned instant.

const REASONS = ['first event', 'last event', 'peak of the run', 'iteration peak', 'iteration trough', 'before a growth', 'request failed', 'local maximum', 'local minimum'];

class DeviceView {
  constructor(report, process, device) {
    this.report = report;
    this.process = process;
    this.device = device;
    this.frames = device.keyframes;
    this.pends = !device.native && device.levels[0].pending.some((bytes) => bytes > 0);
    this.strands = !device.native && device.levels[0].stranded.some((bytes) => bytes > 0);
    this.frame = -1;
    this.coloring = 'category';
    this.classes = null;
    this.root = element('div', { class: 'device' });
    const [from, ...findings] = device.first;
    this.root.append(element('div', { class: 'provenance' }, ...noteLines(from.before)), this.tiles(),
      element('div', { class: 'findings' }, ...findings.map(sectionCard)));
    if (device.empty) {
      this.root.append(card('Timeline', 'timeline', element('p', { class: 'empty', text: 'No memory was allocated on this device.' })));
      this.root.append(...sectionCards(device.sections));
      return;
    }
    const story = oomStory(this);
    if (story) this.root.append(story);
    this.timeline = new Timeline(this);
    this.root.append(this.timelineCard());
    if (this.frames) this.pinParts();
    this.iterations = iterationList(this);
    this.growths = growthList(this);
    this.root.append(this.iterations.root, this.growths.root, ...sectionCards(device.sections));
    theme.listeners.push(() => this.recolor());
    if (this.frames) this.pinFirst();
  }

  tiles() {
    return element('div', { class: 'tiles' }, ...this.device.tiles.map((tile) => element('div', { class: 'tile' + (tile.tone ? ' tone-' + tile.tone : '') },
      element('span', { class: 'tile-name', text: tile.name }), element('span', { class: 'tile-value', text: tile.value }),
      element('span', { class: 'tile-note', text: tile.note }))));
  }

  timelineCard() {
    const t = this.timeline;
    const middle = () => (t.from + t.to) / 2;
    const fit = element('button', { type: 'button', class: 'quiet', 'aria-pressed': 'false', text: 'Fit height', click: () => {
      t.fit = !t.fit;
      fit.setAttribute('aria-pressed', String(t.fit));
      t.schedule();
    } });
    const button = (text, title, click) => element('button', { type: 'button', class: 'quiet', text, title, 'aria-label': title, click });
    const legend = [['requested', 'requested'], ['internal', 'internal'], ['external', 'external'], ['reusable', 'reusable'], ['reserve', 'reserve'], ['reserved', 'reserved']];
    if (this.strands) legend.splice(3, 0, ['stranded', 'stranded']);
    if (this.pends) legend.splice(2, 0, ['pending', 'pending']);
    if (this.device.native) legend.splice(1, legend.length - 2, ['reserve', 'not requested']);
    if (this.device.used) legend.push(['used', 'device used, all processes']);
    const swatches = legend.map(([color, name]) => {
      const swatch = element('i', { class: 'swatch' });
      swatch.style.background = 'var(--' + color + ')';
      return element('span', {}, swatch, name);
    });
    this.inView = element('span', { class: 'faint in-view' });
    return card('Timeline', 'timeline', element('div', { class: 'tools' },
      element('div', { class: 'legend' }, ...swatches, element('span', {}, element('i', { class: 'mark' }), 'growth')),
      this.inView, element('div', { class: 'buttons' }, fit, button('−', 'Zoom out', () => t.zoom(2, middle())), button('+', 'Zoom in', () => t.zoom(0.5, middle())),
        button('All', 'Show all of the recording', () => t.show(t.start, t.end)))),
    t.canvas, t.overview.canvas,
    element('p', { class: 'hint', text: 'Click: pin an instant · wheel: zoom · drag: pan · shift and drag: zoom to a span of time · ← and →: previous and next stored instant' }));
  }

  viewChanged() {
    const t = this.timeline;
    if (!this.inView) return;
    this.inView.textContent = t.from <= t.start && t.to >= t.end ? '' : formatDuration(t.to - t.from) + ' of ' + formatDuration(t.end - t.start) + ' in view';
  }

  pinParts() {
    this.space = new Space(this.device);
    this.title = element('strong');
    this.reasons = element('span', { class: 'chips' });
    this.snap = element('p', { class: 'note snap' });
    this.command = element('code', {});
    const differ = (column) => this.frames[column].some((name, _, all) => name !== all[0]);
    this.coloring = differ('category') ? 'category' : differ('name') ? 'name' : 'size';
    this.map = new SpaceMap(this);
    this.allocations = new Allocations(this);
    // Parts that follow the pin: each has a root element, and show(at) draws the stored instant of an index.
    this.parts = [new SplitBar(this), this.map, this.allocations];
    const button = (text, title, click) => element('button', { type: 'button', class: 'quiet', text, title, 'aria-label': title, click });
    const bar = element('div', { class: 'pin', id: 'pin', role: 'status' },
      element('div', { class: 'pin-line' }, element('i', { class: 'pin-dot' }), this.title, this.reasons,
        element('div', { class: 'buttons' }, button('←', 'Previous stored instant', () => this.step(-1)), button('→', 'Next stored instant', () => this.step(1)),
          ...(this.device.ooms.length > 0 ? [button('Failure', 'Pin the first request that failed', () => this.pinFirst())] : []),
          button('Peak', 'Pin the peak of the run', () => this.pin(this.frames.why.findIndex((why) => why & 4))))),
      this.snap,
      element('p', { class: 'note exact' }, 'Exact report on any event: ', this.command, copyButton(() => this.command.textContent)));
    this.root.append(bar, ...this.parts.map((part) => part.root));
  }

  // pinFirst pins what the page opens at: the first request that failed, else the peak.
  pinFirst() {
    const of = (reason) => this.frames.why.findIndex((why) => why & reason);
    const failed = of(64);
    this.pin(failed >= 0 ? failed : Math.max(0, of(4)));
  }

  // pinNear pins the stored instant nearest to a time and says how far away it is. Nearest is counted in
  // events, because nothing changes between two events.
  pinNear(time) {
    if (!this.frames) return;
    this.pin(nearest(this.frames.seq, this.seqAt(time)), time);
  }

  // pinEvent pins the stored instant of an event, or the one nearest to it.
  pinEvent(seq, time) {
    if (!this.frames) return;
    const at = nearest(this.frames.seq, seq);
    this.pin(at, this.frames.seq[at] === seq ? undefined : time);
    this.timeline.reveal(this.frames.time[at]);
    this.timeline.canvas.scrollIntoView({ block: 'nearest' });
  }

  step(by) {
    if (!this.frames) return;
    this.pin(Math.max(0, Math.min(this.frames.seq.length - 1, this.frame + by)));
    this.timeline.reveal(this.frames.time[this.frame]);
  }

  pin(frame, clicked) {
    const f = this.frames;
    this.frame = Math.max(0, frame);
    const at = this.frame;
    const parts = ['event ' + formatCount(f.seq[at]), formatTime(f.time[at], 1e4)];
    const iteration = this.iterationAt(f.time[at]);
    if (iteration !== '') parts.push('iteration ' + iteration);
    const phase = this.phaseAt(f.time[at]);
    if (phase !== '') parts.push(phase);
    this.title.textContent = 'Pinned: ' + parts.join(' · ');
    this.reasons.replaceChildren(...this.reasonsOf(at).map((text) => element('span', { class: 'tag', text })));
    let wanted = f.seq[at];
    if (clicked === undefined) {
      this.snap.textContent = 'Stored instant ' + (at + 1) + ' of ' + formatCount(f.seq.length) + '.' + this.storedNote();
    } else {
      wanted = Math.max(0, this.seqAt(clicked));
      const away = f.time[at] - clicked;
      const events = Math.abs(f.seq[at] - wanted);
      this.snap.textContent = 'You clicked at ' + formatTime(clicked, Math.max(1, Math.abs(away) / 2)) + ': ' +
        (events === 0 ? 'no event lies between it and this stored instant, ' + formatDuration(Math.abs(away)) + ' away' :
          'the nearest stored instant is ' + formatDuration(Math.abs(away)) + ' (about ' + plural(events, 'event') + ') ' + (away < 0 ? 'earlier' : 'later')) +
        ', ' + (at + 1) + ' of ' + formatCount(f.seq.length) + '.' + this.storedNote();
    }
    this.command.textContent = 'memprof report --at ' + wanted + ' ' + shellQuote(this.process.path);
    this.layouts = this.space.at(at);
    for (const part of this.parts) part.show(at);
    this.timeline.schedule();
    if (this.iterations) this.iterations.show(f.time[at]);
  }

  storedNote() {
    const f = this.frames;
    return f.of > f.seq.length ? ' ' + formatCount(f.of - f.seq.length) + ' more are left out to keep this page small.' : '';
  }

  reasonsOf(at) {
    const f = this.frames;
    const names = [];
    REASONS.forEach((name, bit) => {
      if (!(f.why[at] >> bit & 1)) return;
      if (bit >= 7 && f.why[at] & 127) return; // a better reason is listed
      if (bit === 3 || bit === 4) names.push(f.iterationsEach > 1 ? name + ' of ' + f.iterationsEach : name);
      else if (bit >= 7) names.push(f.eventsEach > 1 ? name + ' of ' + formatCount(f.eventsEach) + ' events' : 'one of the events');
      else names.push(name);
    });
    return [...new Set(names)];
  }

  iterationAt(time) {
    const data = this.device.iterations;
    const i = lastAtOrBefore(data.start, time);
    if (i < 0 || data.end[i] < time) return '';
    return data.count[i] > 1 ? data.number[i] + '–' + data.last[i] : String(data.number[i]);
  }

  phaseAt(time) {
    const bands = this.device.bands;
    const i = lastAtOrBefore(bands.start, time);
    if (i < 0 || bands.end[i] < time) return '';
    const name = bands.names[bands.name[i]];
    return name === '' ? 'several phases' : name;
  }

  // seqAt estimates which event was the last at a time, from the finest level of detail.
  seqAt(time) {
    const finest = this.device.levels[0];
    const i = lastAtOrBefore(finest.start, time);
    if (i < 0) return -1;
    if (time >= finest.end[i]) return finest.seq[i];
    const before = i > 0 ? finest.seq[i - 1] : finest.seq[i];
    const share = (time - finest.start[i]) / Math.max(1, finest.end[i] - finest.start[i]);
    return Math.round(before + share * (finest.seq[i] - before));
  }

  toIteration(i) {
    const data = this.device.iterations;
    const room = (data.end[i] - data.start[i]) * 0.25;
    this.timeline.show(data.start[i] - room, data.end[i] + room);
    this.timeline.canvas.scrollIntoView({ block: 'nearest' });
    if (!this.frames) return;
    // Pin the stored instant of the iteration with most requested, or the nearest one if it has none.
    const f = this.frames;
    let best = -1;
    for (let at = 0; at < f.seq.length; at++) {
      if (f.seq[at] >= data.startSeq[i] && f.seq[at] <= data.endSeq[i] && (best < 0 || f.t[at] > f.t[best])) best = at;
    }
    if (best >= 0) this.pin(best);
    else this.pinNear((data.start[i] + data.end[i]) / 2);
  }

  phaseColor(name) {
    // A Map: a phase may have the name of a property of every object, such as constructor or __proto__.
    const known = new Map([['data', 4], ['forward', 0], ['backward', 3], ['optimizer', 1]]);
    if (name === 'other' || name === '') return theme.colors.grid;
    const index = known.get(name) ?? 3 + Math.floor(hashOf(name) * 7);
    return mix(theme.colors.series[index % 10], 0.38, theme.colors.surface);
  }

  // unservedBy names the next request that did not fit the free memory of an arena.
  unservedBy(layout) {
    if (layout.info.native) return 'Chunks of the native allocator are not known.';
    const data = this.device.growths;
    const seq = this.frames.seq[this.frame];
    const oom = this.device.ooms.find((o) => o.seq >= seq && (o.arena === layout.info.id || o.arena < 0) && o.request > layout.largest);
    for (let i = Math.max(0, lastAtOrBefore(data.seq, seq)); i < data.seq.length; i++) {
      if (oom && data.seq[i] > oom.seq) break;
      if (data.seq[i] < seq || data.arena[i] !== layout.info.id || data.request[i] <= layout.largest) continue;
      return 'A request of ' + formatSize(data.request[i]) + ' did not fit the largest free chunk (' + formatSize(layout.largest) + '), ' + this.later(data.seq[i], data.time[i]) +
        ': the arena grew by ' + formatSize(data.grown[i]) + ' (' + data.verdicts[data.verdict[i]] + ', ' + formatKnown(data.free[i]) + ' were free).';
    }
    if (oom) {
      return 'A request of ' + formatSize(oom.request) + ' did not fit the largest free chunk (' + formatSize(layout.largest) + '), ' + this.later(oom.seq, oom.time) +
        ': the request failed (' + oom.verdict + ').';
    }
    return layout.free === 0 ? 'No memory is free here.' : 'No later request was larger than the largest free chunk (' + formatSize(layout.largest) + ').';
  }

  later(seq, time) {
    const f = this.frames;
    if (seq <= f.seq[this.frame] + 1) return 'at the next event';
    return formatDuration(Math.max(0, time - f.time[this.frame])) + ' later (event ' + formatCount(seq) + ')';
  }

  // Colours of live allocations: the largest groups have one each, the others share one.

  setColoring(coloring) {
    this.coloring = coloring;
    this.recolor();
  }

  recolor() {
    this.classes = null;
    if (this.map && this.layouts) this.map.colors();
  }

  filtered() {
    this.recolor();
  }

  // colorName is the value that allocations of one colour share.
  colorName(origin, size) {
    const k = this.frames;
    if (this.coloring === 'none') return '';
    if (this.coloring === 'size') return formatSize(size);
    return k.strings[k[this.coloring][origin]];
  }

  assign() {
    if (this.classes) return this.classes;
    const colors = theme.colors;
    const sums = new Map();
    for (const group of this.allocations ? this.allocations.groups : []) {
      const name = this.colorName(group.origin, group.size);
      sums.set(name, (sums.get(name) || 0) + group.requested);
    }
    const fixed = new Map([['weights', 0], ['gradients', 2], ['optimizer', 3], ['activations', 1], ['inputs', 4], ['kv_cache', 5], ['cuda_graphs', 6], ['workspace', 8], ['other', 9]]);
    const names = [...sums.entries()].sort((a, b) => b[1] - a[1]).map(([name]) => name);
    const of = new Map();
    const used = [];
    names.forEach((name, i) => {
      let color = i < 8 ? i : 9;
      if (this.coloring === 'category') color = fixed.get(name) ?? 9;
      if (this.coloring === 'none') color = 0;
      of.set(name, color);
      if (i < 8) used.push([this.coloring === 'none' ? 'live' : name === '' ? '(none)' : name, colors.series[color]]);
    });
    if (names.length > 8) used.push([(names.length - 8) + ' more', colors.series[9]]);
    this.classes = { of, used, palette: colors.series.concat([
      mix(colors.series[9], 0.25, colors.surface), // live, filtered out
      colors.internal, colors.pending, colors.reserve, colors.reusable, colors.external, colors.external, colors.unmapped]) };
    return this.classes;
  }

  palette() {
    return this.assign().palette;
  }

  liveLegend() {
    return this.assign().used;
  }

  classOf(span) {
    if (span.kind !== LIVE) return 10 + span.kind;
    if (!this.allocations.wanted(span.shape)) return 10;
    const k = this.frames;
    return this.assign().of.get(this.colorName(k.origin[span.shape], k.bytes[span.shape] - k.excess[span.shape])) ?? 9;
  }

  // blockLines describe the allocation of a shape.
  blockLines(shape) {
    const k = this.frames;
    const lines = [['requested', formatSize(k.bytes[shape] - k.excess[shape])], ['chunk', formatSize(k.bytes[shape])]];
    const origin = k.origin[shape];
    if (origin < 0) return lines.slice(1);
    const name = k.strings[k.name[origin]];
    lines.push(['module', name === '' ? '(no module)' : name], ['category', k.strings[k.category[origin]]], ['phase', k.strings[k.phase[origin]]]);
    const stack = this.space.stack(k.stack[origin]);
    for (const frame of stack.slice(-4).reverse()) lines.push(['↳', frame]);
    lines.push(['click', 'show its module alone']);
    return lines;
  }

  chooseBlock(shape) {
    const k = this.frames;
    if (k.origin[shape] < 0) return;
    const name = k.strings[k.name[k.origin[shape]]];
    this.allocations.filter('name', name, name === '' ? '(no module)' : name);
  }
}

function shellQuote(word) {
  return /^[A-Za-z0-9\-_./+:@%,=]+$/.test(word) ? word : "'" + word.replaceAll("'", "'\\''") + "'";
}

// DeviceView is a device of a process: its parts show the pinned instant.

// CATEGORY_COLORS are the places of the categories in the series of colours.
const CATEGORY_COLORS = new Map([
  ['weights', 0], ['gradients', 2], ['optimizer', 3], ['activations', 1],
  ['inputs', 4], ['kv_cache', 5], ['cuda_graphs', 6], ['temporaries', 8], ['other', 9],
  // These are rarely beside those whose colour they share.
  ['copies', 7], ['loss', 5], ['workspace', 9], ['communication', 6],
]);

class DeviceView {
  // entries are the devices of all processes on the page; one of them may lie over this one.
  constructor(report, process, device, entries) {
    this.report = report;
    this.entries = entries || [];
    this.process = process;
    this.device = device;
    this.frames = device.keyframes;
    this.pends = !device.native && device.levels[0].pending.some((bytes) => bytes > 0);
    this.coloring = 'category';
    this.classes = null;
    this.root = element('div', { class: 'device' });
    const [from, ...findings] = device.first;
    this.root.append(element('div', { class: 'provenance' }, ...noteLines(from.before)),
      element('div', { class: 'findings' }, ...findings.map(sectionCard)));
    if (device.empty) {
      this.root.append(card('Timeline', 'timeline', element('p', { class: 'empty', text: 'No memory was allocated on this device.' })));
      this.root.append(...sectionCards(device.sections));
      return;
    }
    const story = oomStory(this);
    if (story) this.root.append(story);
    this.timeline = new Timeline(this);
    this.over = element('div', {}, this.timelineCard()); // the charts over time, and beside them the pinned event
    this.root.append(this.over);
    this.root.addEventListener('click', ({ target }) => {
      if (target.dataset.category && this.frames) this.evidence(target.dataset.category);
    });
    this.charts = [];
    if (this.frames) this.pinParts();
    this.iterations = iterationList(this);
    this.root.append(this.iterations.root, growthList(this), ...sectionCards(device.sections));
    theme.listeners.push(() => this.recolor());
    if (this.frames) this.pin.first();
  }

  timelineCard() {
    const t = this.timeline;
    const middle = () => (t.from + t.to) / 2;
    const fit = quiet('Fit height', () => this.setFit(!t.fit), null, 'false');
    this.setFit = (on) => {
      t.fit = on;
      fit.setAttribute('aria-pressed', String(on));
      this.viewChanged();
      t.schedule();
    };
    const legend = [['requested', 'requested'], ['internal', 'in chunks beside that'], ['reserve', 'free'], ['reserved', 'reserved']];
    if (this.pends) legend.splice(2, 0, ['pending', 'pending']);
    if (this.device.native) legend.splice(1, legend.length - 2, ['reserve', 'not requested']);
    if (this.device.used) legend.push(['used', 'device used, all processes']);
    const swatches = legend.map(([color, name]) => element('span', {}, swatch('var(--' + color + ')'), name));
    this.inView = element('span', { class: 'faint in-view' });
    return card('Timeline', 'timeline', element('div', { class: 'tools' },
      element('div', { class: 'legend' }, ...swatches, element('span', {}, element('i', { class: 'mark' }), 'growth')),
      this.inView, element('div', { class: 'buttons' }, ...this.overlayChoice(), fit, quiet('−', () => t.zoom(2, middle()), 'Zoom out'), quiet('+', () => t.zoom(0.5, middle()), 'Zoom in'),
        quiet('All', () => t.show(t.start, t.end), 'Show all of the recording'))),
    t.canvas, t.overview.canvas,
    element('p', { class: 'hint', text: 'Click: pin an instant · wheel: zoom · drag: pan · shift and drag: zoom to a span of time · ← and →: previous and next event, with shift stored instant' }));
  }

  // overlayChoice selects another device or recording whose curves lie over this timeline, from the first event of each.
  overlayChoice() {
    const others = this.entries.filter((entry) => entry.device !== this.device && !entry.device.empty);
    const select = element('select', { 'aria-label': 'Overlay', change: () => this.setOverlay(Number(select.value)) },
      element('option', { value: '-1', text: 'No overlay' }), ...others.map((entry) => element('option', { value: String(entry.index), text: 'Over it: ' + entry.name })));
    this.setOverlay = (index) => {
      const entry = others.find((other) => other.index === index);
      select.value = entry ? String(index) : '-1';
      this.timeline.setOverlay(entry || null);
      this.changed();
    };
    return others.length > 0 ? [select] : [];
  }

  viewChanged() {
    const t = this.timeline;
    if (!this.inView) return;
    for (const chart of this.charts || []) chart.schedule();
    if (this.allocations) this.allocations.flame.follow();
    this.changed();
    this.inView.textContent = t.from <= t.start && t.to >= t.end ? '' : formatDuration(t.to - t.from) + ' of ' + formatDuration(t.end - t.start) + ' in view';
  }

  pinParts() {
    this.instants = new Instants(this);
    this.instant = null;
    const differ = (column) => this.frames[column].some((name, _, all) => name !== all[0]);
    this.coloring = differ('category') ? 'category' : differ('name') ? 'name' : 'size';
    this.map = new SpaceMap(this);
    this.allocations = new Allocations(this);
    // Parts that follow the pin: each has a root element, and show(instant) draws an instant.
    this.parts = [this.split = new SplitBar(this), this.map, this.allocations];
    this.pin = new Pin(this);
    if (this.device.categories) this.charts.push(new Categories(this));
    if (this.device.stripes && this.device.stripes.seq.length > 0) this.charts.push(new Stripes(this));
    for (const cache of this.device.subjects.kv || []) this.charts.push(new CacheUse(this, cache));
    this.over.before(this.pin.root);
    this.root.append(...this.parts.map((part) => part.root), this.allocations.flame.root);
    this.over.classList.add('beside');
    this.over.append(this.split.root, ...this.charts.map((chart) => chart.root));
  }

  // evidence shows the allocations of a category at the peak alone, if there are any.
  evidence(category) {
    this.allocations.filters = [];
    this.pin.peak();
    if (this.allocations.groups.some((group) => this.allocations.keyOf(group, 'category')[0] === category)) this.allocations.filter('category', category, category);
  }

  // showInstant has all parts show the pinned instant.
  showInstant(instant) {
    this.instant = instant;
    this.layouts = instant.layouts;
    for (const part of this.parts) part.show(instant);
    this.timeline.schedule();
    for (const chart of this.charts) chart.schedule();
    if (this.iterations) this.iterations.show(instant.time);
    this.changed();
  }

  // exactly takes every event of some spans: from then on they can be pinned.
  exactly(exact, complete) {
    exact.complete = complete;
    this.instants.exact = exact;
    this.split.say(this.instant);
    this.pin.explain();
    this.viewChanged();
  }

  pinNear(time) {
    if (this.frames) this.pin.near(time);
  }

  pinEvent(seq, time) {
    if (!this.frames) return;
    this.pin.event(seq, time);
    this.timeline.canvas.scrollIntoView({ block: 'nearest' });
  }

  step(by, stored) {
    if (!this.frames) return;
    if (stored) this.pin.step(by);
    else this.pin.stepEvent(by);
  }

  // changed notes that the view is another one: the address of the page says which.
  changed() {
    if (this.onChange) this.onChange();
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
    const exact = this.instants && this.instants.exact ? this.instants.exact.positionAt(time) : -1;
    if (exact >= 0) return this.instants.exact.seqOf(exact);
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
    if (best >= 0) this.pin.show(this.instants.stored(best));
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
    const seq = this.instant.seq;
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
    if (seq <= this.instant.seq + 1) return 'at the next event';
    return formatDuration(Math.max(0, time - this.instant.time)) + ' later (event ' + formatCount(seq) + ')';
  }

  // Colours of live allocations: the largest groups have one each, the others share one.

  setColoring(coloring) {
    this.coloring = coloring;
    this.map.colorings.choose(coloring);
    this.recolor();
    this.changed();
  }

  recolor() {
    this.classes = null;
    if (this.map && this.layouts) this.map.colors();
  }

  // colorName is the value that allocations of one colour share.
  colorName(origin, size) {
    const k = this.instant.space.frames;
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
    const names = [...sums.entries()].sort((a, b) => b[1] - a[1]).map(([name]) => name);
    const of = new Map();
    const used = [];
    names.forEach((name, i) => {
      let color = i < 8 ? i : 9;
      if (this.coloring === 'category') color = CATEGORY_COLORS.get(name) ?? 9;
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

  classOf(span) {
    if (span.kind !== LIVE) return 10 + span.kind;
    if (!this.allocations.wanted(span.shape)) return 10;
    const k = this.instant.space.frames;
    return this.assign().of.get(this.colorName(k.origin[span.shape], k.bytes[span.shape] - k.excess[span.shape])) ?? 9;
  }

  // blockLines describe the allocation of a shape.
  blockLines(shape, space = this.instant.space) {
    const k = space.frames;
    const lines = [['requested', formatSize(k.bytes[shape] - k.excess[shape])], ['chunk', formatSize(k.bytes[shape])]];
    const origin = k.origin[shape];
    if (origin < 0) return lines.slice(1);
    const name = k.strings[k.name[origin]];
    lines.push(['module', name === '' ? '(no module)' : name], ['category', k.strings[k.category[origin]]], ['phase', k.strings[k.phase[origin]]]);
    const stack = space.stack(k.stack[origin]);
    for (const frame of stack.slice(-4).reverse()) lines.push(['↳', frame]);
    return lines;
  }

  chooseBlock(shape) {
    const k = this.instant.space.frames;
    if (k.origin[shape] < 0) return;
    const name = k.strings[k.name[k.origin[shape]]];
    this.allocations.filter('name', name, name === '' ? '(no module)' : name);
  }
}

function shellQuote(word) {
  return /^[A-Za-z0-9\-_./+:@%,=]+$/.test(word) ? word : "'" + word.replaceAll("'", "'\\''") + "'";
}

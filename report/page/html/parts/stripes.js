// Stripes are the allocations with most bytes times time, each a stripe from its birth to its death, stacked on those that
// were there before it, and above them all others together. What is drawn are the allocations of the middle of each
// column of pixels, into a buffer of pixels: its cost does not grow with what is stacked.

class Stripes extends FollowingScene {
  constructor(view) {
    super(view, 'stripes', 260, 'The largest allocations over time. Up and down choose one that lives at the pinned instant, Enter pins its birth');
    this.data = view.device.stripes;
    this.chosen = 0; // from below, of those that live at the pinned instant
    const { birth, life } = this.data;
    this.death = birth.map((time, i) => time + life[i]);
    const k = view.frames;
    this.category = Array.from(this.data.origin, (origin) => (origin < 0 ? '' : k.strings[k.category[origin]]));
    this.root = card('Largest allocations', 'stripes',
      element('p', { class: 'note', text: 'The ' + plural(birth.length, 'allocation') + ' with most bytes times time, from birth to death, by category; grey: all others. Hover for the stack, click to pin the birth.' }),
      this.canvas);
    theme.listeners.push(() => { this.tints = null; });
  }

  // colors returns a pixel value of each stripe: its category's colour, neighbours in two shades.
  colors() {
    if (this.tints) return this.tints;
    const shades = new Map();
    const shade = (name, i) => {
      const key = name + '/' + i;
      if (!shades.has(key)) {
        const color = theme.colors.series[CATEGORY_COLORS.get(name) ?? 7];
        shades.set(key, pixelOf(mix(color, [1, 0.82, 0.66][i], theme.colors.surface)));
      }
      return shades.get(key);
    };
    this.tints = Uint32Array.from(this.category, (name, i) => shade(name, i % 3));
    this.rest = pixelOf(mix(theme.colors.faint, 0.25, theme.colors.surface));
    this.edge = pixelOf(theme.colors.surface);
    return this.tints;
  }

  // liveAt returns the stripes that live at a time, in order of birth.
  liveAt(time) {
    const { birth } = this.data;
    const live = [];
    for (let i = 0; i < birth.length && birth[i] <= time; i++) if (this.death[i] > time) live.push(i);
    return live;
  }

  keys() {
    const last = this.liveAt(this.view.instant.time).length - 1;
    const choose = (by) => { this.chosen = Math.max(0, Math.min(last, this.chosen + by)); };
    return { ...super.keys(), ArrowUp: () => choose(1), ArrowDown: () => choose(-1) };
  }

  // place is the middle of the chosen stripe at the pinned instant.
  place() {
    const { requested } = this.data;
    const live = this.liveAt(this.view.instant.time).slice(0, this.chosen + 1);
    const bytes = live.reduce((sum, i) => sum + requested[i], 0) - requested[live.at(-1)] / 2;
    const place = live.length > 0 && super.place();
    return place && { offsetX: place.offsetX + 0.001, offsetY: this.yAt(bytes) }; // not before a birth, however the place is rounded
  }

  draw() {
    const columns = Math.max(1, Math.floor(this.width - LEFT - RIGHT));
    const rows = this.height - 26;
    const course = this.timeline.fit && this.timeline.curves ? this.timeline.curves.t.most : this.view.device.levels.at(-1).maxT;
    this.top = course.reduce((most, bytes) => Math.max(most, bytes), 1) * 1.06;
    this.clear();
    this.drawSizes(5);
    const { buffer } = this.pixelBuffer(columns, rows);
    this.paint(columns, rows);
    this.showPixels(buffer, columns, rows, LEFT, 6, rows);
    this.drawPinned();
  }

  paint(columns, rows) {
    const { pixels } = this;
    const tints = this.colors();
    const { birth, requested } = this.data;
    const scale = rows / this.top;
    const wide = (this.to - this.from) / columns;
    let live = this.liveAt(this.from + wide / 2);
    let next = lastAtOrBefore(birth, this.from + wide / 2) + 1;
    const curve = this.timeline.curves && this.timeline.curves.columns === columns ? this.timeline.curves.t : null;
    let ends = this.firstEnd(live);
    let same = false;
    let drawn = -1; // height of the rest in the column before
    for (let x = 0; x < columns; x++) {
      const time = this.from + (x + 0.5) * wide;
      for (; next < birth.length && birth[next] <= time; next++) {
        live.push(next);
        ends = Math.min(ends, this.death[next]);
        same = false;
      }
      if (time >= ends) {
        live = live.filter((i) => this.death[i] > time);
        ends = this.firstEnd(live);
        same = false;
      }
      const most = curve && curve.most[x] >= 0 ? Math.round(curve.most[x] * scale) : 0;
      if (same && most === drawn) {
        for (let at = x; at < columns * rows; at += columns) pixels[at] = pixels[at - 1];
        continue;
      }
      same = true;
      drawn = most;
      let sum = 0;
      let low = 0;
      for (const i of live) {
        sum += requested[i];
        const high = Math.min(rows, Math.round(sum * scale));
        for (let y = low; y < high; y++) pixels[(rows - 1 - y) * columns + x] = tints[i];
        if (high - low > 3) pixels[(rows - high) * columns + x] = this.edge;
        low = Math.max(low, high);
      }
      for (let y = low; y < Math.min(rows, most); y++) pixels[(rows - 1 - y) * columns + x] = this.rest;
    }
  }

  firstEnd(live) {
    return live.reduce((first, i) => Math.min(first, this.death[i]), Infinity);
  }

  // stripeAt is the stripe under the pointer, -1 for none.
  stripeAt(event) {
    const bytes = (this.height - 20 - event.offsetY) / (this.height - 26) * this.top;
    if (bytes < 0) return -1;
    let sum = 0;
    for (const i of this.liveAt(this.valueAt(event.offsetX))) {
      sum += this.data.requested[i];
      if (bytes < sum) return i;
    }
    return -1;
  }

  hover(event) {
    const i = this.stripeAt(event);
    this.canvas.classList.toggle('pointing', i >= 0);
    if (i < 0) {
      tooltip.hide();
      return;
    }
    const { birth, seq, freed, requested, life, origin } = this.data;
    const k = this.view.frames;
    const name = origin[i] < 0 ? '' : k.strings[k.name[origin[i]]];
    const lines = [[formatSize(requested[i]) + ' requested'], ['module', name === '' ? '(no module)' : name], ['category', this.category[i] || '(none)'],
      ['born', formatTime(birth[i], 1e4) + ', event ' + formatCount(seq[i])],
      ['died', freed[i] < 0 ? 'lives at the end' : formatTime(this.death[i], 1e4) + ', event ' + formatCount(freed[i])], ['life', formatDuration(life[i])]];
    if (origin[i] >= 0) for (const frame of this.view.instants.space.stack(k.stack[origin[i]]).slice(-8).reverse()) lines.push(['↳', frame]);
    tooltip.show(event, lines);
  }

  click(event) {
    const i = this.stripeAt(event);
    if (i >= 0) this.view.pinEvent(this.data.seq[i], this.data.birth[i]);
    else super.click(event);
  }
}

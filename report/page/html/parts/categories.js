// Charts that follow the timeline: requested bytes by category, stacked, and the largest allocations as stripes.

// FollowingScene shows the same stretch of time as the timeline, and is panned and zoomed with it.
class FollowingScene extends Scene {
  constructor(view, name, height, label) {
    super(name, height, label + '. The keys are those of the timeline.');
    this.view = view;
    this.timeline = view.timeline;
    this.hovered = null;
    dragging(this.canvas, {
      onMove: (by) => this.timeline.pan(-by),
      onClick: (event) => this.click(event),
      onHover: (event) => this.hover(event),
      onLeave: () => {
        this.hovered = null;
        this.schedule();
      },
    });
    this.canvas.addEventListener('wheel', (event) => this.timeline.wheel(event), { passive: false });
  }

  keys() {
    return this.timeline.keys();
  }

  // place is the pinned instant, if it is in view.
  place() {
    const { instant } = this.view;
    return instant && instant.time >= this.from && instant.time <= this.to && { offsetX: this.xAt(instant.time), offsetY: this.height / 2 };
  }

  get from() { return this.timeline.from; }
  get to() { return this.timeline.to; }

  click(event) {
    this.view.pinNear(this.valueAt(event.offsetX));
  }

  // floor and ceiling of what is drawn: no bands are above it.
  yAt(bytes) {
    return this.height - 20 - bytes / this.top * (this.height - 26);
  }

  drawPinned() {
    if (!this.view.instant) return;
    const x = Math.round(this.xAt(this.view.instant.time));
    if (x < LEFT || x > this.width - RIGHT) return;
    this.context.fillStyle = theme.colors.accent;
    this.context.fillRect(x, 4, 2, this.height - 24);
  }
}

// Categories is the chart of requested bytes by category. Each column of pixels shows the moment of most requested bytes
// in it: of all events where they are known and few enough are in view, else of the moments that memprof kept.
class Categories extends FollowingScene {
  constructor(view) {
    super(view, 'categories', 200, 'Requested bytes by category over time');
    this.data = view.device.categories;
    this.whole = this.data.time.reduce((most, _, i) => Math.max(most, this.sumAt(i)), 1); // the most requested bytes of the recording
    this.legend = element('div', { class: 'legend' });
    this.grain = element('span', { class: 'faint in-view' });
    this.root = card('Requested bytes by category', 'categories', element('div', { class: 'tools' }, this.legend, this.grain), this.canvas);
    theme.listeners.push(() => this.drawLegend());
    this.drawLegend();
  }

  color(name) {
    return theme.colors.series[CATEGORY_COLORS.get(name) ?? 7];
  }

  drawLegend() {
    this.legend.replaceChildren(...this.data.names.map((name) => element('span', {}, swatch(this.color(name)), name === '' ? '(none)' : name)));
  }

  // measure fills this.sums: of each column, the bytes of each category.
  measure() {
    const columns = this.columns = Math.max(1, Math.floor(this.width - LEFT - RIGHT));
    const kinds = this.data.names.length;
    this.sums = new Float64Array(columns * kinds);
    const exact = this.view.instants && this.view.instants.exact;
    const range = exact ? exact.range(Math.max(this.from, exact.timeOf(0)), this.to) : null;
    this.exactly = range !== null && range[1] - range[0] <= 64 * columns;
    this.grain.textContent = this.exactly ? 'every event' : 'at the moment of most requested bytes in each stretch of events';
    if (this.exactly) this.walk(exact, range);
    else this.sample();
  }

  // sumAt is the requested bytes at a moment that memprof kept.
  sumAt(i) {
    return this.data.bytes.reduce((sum, of) => sum + of[i], 0);
  }

  sample() {
    const { time, bytes } = this.data;
    const kinds = bytes.length;
    const most = new Float64Array(this.columns).fill(-1);
    const scale = this.columns / (this.to - this.from);
    const put = (i, column) => {
      const sum = this.sumAt(i);
      if (sum <= most[column]) return;
      most[column] = sum;
      for (let k = 0; k < kinds; k++) this.sums[column * kinds + k] = bytes[k][i];
    };
    let i = Math.max(0, lastAtOrBefore(time, this.from));
    let held = time[i] <= this.from ? i : -1;
    for (let column = 0; column < this.columns; column++) {
      const end = this.from + (column + 1) / scale;
      let any = false;
      for (; i < time.length && time[i] < end; i++) {
        if (time[i] < this.from) continue;
        put(i, column);
        held = i;
        any = true;
      }
      if (!any && held >= 0) put(held, column);
    }
  }

  // walk goes through the events in view.
  walk(exact, [first, last]) {
    const course = exact.course || (exact.course = new CategoryCourse(exact, this.data.names));
    const kinds = this.data.names.length;
    const most = new Float64Array(this.columns).fill(-1);
    const scale = this.columns / (this.to - this.from);
    course.each(first, last, (position, sums, sum) => {
      const at = Math.max(0, Math.min(this.columns - 1, Math.floor((exact.timeOf(position) - this.from) * scale)));
      if (sum > most[at]) {
        most[at] = sum;
        this.sums.set(sums, at * kinds);
      }
    });
    // A column without events has what the last event before it left.
    this.fillGaps(course, exact, first, most, scale);
  }

  fillGaps(course, exact, first, most, scale) {
    const kinds = this.data.names.length;
    let held = null;
    for (let column = 0; column < this.columns; column++) {
      if (most[column] >= 0) {
        held = null;
        continue;
      }
      if (held === null) {
        const position = exact.positionAt(this.from + (column + 0.5) / scale);
        held = position < 0 ? new Float64Array(kinds) : course.at(position);
      }
      this.sums.set(held, column * kinds);
    }
  }

  draw() {
    this.measure();
    const { top, curves } = this.timeline;
    let most = 0;
    const kinds = this.data.names.length;
    const base = new Float64Array(this.columns);
    for (let at = 0; at < this.sums.length; at += kinds) most = Math.max(most, this.sums.subarray(at, at + kinds).reduce((sum, bytes) => sum + bytes, 0));
    this.top = Math.max(1, this.timeline.fit || !top || !curves ? most * 1.06 : Math.max(this.whole, most) * 1.06);
    this.clear();
    this.drawSizes(5);
    const c = this.context;
    for (let k = 0; k < kinds; k++) {
      c.beginPath();
      c.moveTo(LEFT, this.yAt(base[0]));
      const above = base.slice();
      for (let column = 0; column < this.columns; column++) above[column] += this.sums[column * kinds + k];
      this.outline(0, this.columns, 1, (i) => this.yAt(above[i]));
      this.outline(this.columns - 1, -1, -1, (i) => this.yAt(base[i]));
      c.fillStyle = this.color(this.data.names[k]);
      c.fill();
      base.set(above);
    }
    this.drawPinned();
  }

  hover(event) {
    const column = Math.max(0, Math.min(this.columns - 1, Math.floor(event.offsetX - LEFT)));
    const kinds = this.data.names.length;
    const lines = [[formatTime(this.valueAt(event.offsetX), (this.to - this.from) / this.width)]];
    let sum = 0;
    for (let k = kinds - 1; k >= 0; k--) {
      const bytes = this.sums[column * kinds + k];
      sum += bytes;
      if (bytes > 0) lines.push([this.data.names[k] || '(none)', formatSize(bytes), this.color(this.data.names[k])]);
    }
    lines.push(['requested', formatSize(sum)]);
    tooltip.show(event, lines);
  }
}

// CategoryCourse is the bytes of each category after every exact event.
class CategoryCourse {
  constructor(exact, names) {
    const { space } = exact;
    const k = space.frames;
    this.kinds = names.length;
    this.count = exact.time.length;
    const kindOf = k.category ? Array.from(k.category, (name) => Math.max(0, names.indexOf(k.strings[name]))) : [];
    // Rows that begin or end at a position: their categories and bytes, in one list by position.
    const first = new Uint32Array(this.count + 2);
    const live = (i) => k.kind[i] === 3;
    for (let i = 0; i < space.shape.length; i++) {
      if (!live(i)) continue;
      first[space.from[i] + 1]++;
      if (space.to[i] < this.count) first[space.to[i] + 1]++;
    }
    for (let i = 1; i < first.length; i++) first[i] += first[i - 1];
    this.first = first.slice();
    this.kind = new Uint8Array(first[this.count + 1]);
    this.bytes = new Float64Array(first[this.count + 1]);
    const put = (position, kind, bytes) => {
      const at = first[position]++;
      this.kind[at] = kind;
      this.bytes[at] = bytes;
    };
    for (let i = 0; i < space.shape.length; i++) {
      if (!live(i)) continue;
      const kind = kindOf[k.origin[i]] || 0;
      const requested = k.bytes[i] - k.excess[i];
      put(space.from[i], kind, requested);
      if (space.to[i] < this.count) put(space.to[i], kind, -requested);
    }
    this.stops = []; // sums before every so many positions
    const sums = new Float64Array(this.kinds);
    for (let position = 0; position < this.count; position++) {
      if (position % 4096 === 0) this.stops.push(sums.slice());
      this.apply(position, sums);
    }
  }

  apply(position, sums) {
    let change = 0;
    for (let i = this.first[position]; i < this.first[position + 1]; i++) {
      sums[this.kind[i]] += this.bytes[i];
      change += this.bytes[i];
    }
    return change;
  }

  // at returns the bytes of each category after the event of a position.
  at(position) {
    const stop = Math.floor(position / 4096);
    const sums = this.stops[stop].slice();
    for (let i = stop * 4096; i <= position; i++) this.apply(i, sums);
    return sums;
  }

  // each visits the positions from one to another with the sums after them.
  each(first, last, visit) {
    const sums = this.at(first);
    let sum = sums.reduce((all, bytes) => all + bytes, 0);
    visit(first, sums, sum);
    for (let position = first + 1; position <= last; position++) {
      sum += this.apply(position, sums);
      visit(position, sums, sum);
    }
  }
}

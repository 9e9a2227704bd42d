// The address space of each arena at the pinned instant, to scale. A column of pixels in which
// several kinds of memory lie is divided among them, so that what is finer than a pixel still counts.

const MAP_HEIGHT = 44;
const KIND_NAMES = ['live', 'slack', 'pending', 'reserve', 'reusable', 'external', 'not requested', 'unmapped'];

class ArenaMap extends Chart {
  constructor(view) {
    super('arena', MAP_HEIGHT + 20, 'Addresses of an arena at the pinned instant. Arrow keys go from span to span, plus and minus zoom, 0 shows all, Enter shows the module of an allocation alone.');
    this.view = view;
    this.layout = null;
    this.at = 0; // index of the span of the keyboard
    dragging(this.canvas, {
      onMove: (by) => this.pan(-by),
      onClick: (event) => this.click(event),
      onHover: (event) => this.hover(event),
      onLeave() {},
    });
    this.canvas.addEventListener('wheel', (event) => this.wheel(event), { passive: false });
  }

  keys() {
    // walk passes over spans that are too narrow to be seen.
    const walk = (by) => {
      const seen = (span) => span.bytes / (this.to - this.from) * this.width >= 2;
      let next = this.at;
      do next += by; while (this.layout.spans[next] && !seen(this.layout.spans[next]));
      if (this.layout.spans[next]) this.at = next;
      const x = this.xAt(this.middle());
      if (x < 0 || x > this.width) this.pan(x - this.width / 2);
    };
    return { ...this.scaleKeys(this.middle()), ArrowLeft: () => walk(-1), ArrowRight: () => walk(1) };
  }

  // middle is the address in the middle of the keyboard's span.
  middle() {
    const span = this.layout.spans[this.at] || this.layout.spans[this.at = 0];
    return span.at + span.bytes / 2;
  }

  place() {
    return { offsetX: this.xAt(this.middle()), offsetY: MAP_HEIGHT / 2 };
  }

  get start() { return this.layout.base; }
  get end() { return this.layout.end; }

  setLayout(layout) {
    const zoomed = this.layout && (this.from > this.layout.base || this.to < this.layout.end);
    this.layout = layout;
    this.show(zoomed ? this.from : layout.base, zoomed ? this.to : layout.end);
  }

  show(from, to) {
    const { base, end } = this.layout;
    const span = Math.max(Math.min(to - from, end - base), Math.min(4096, end - base));
    this.from = Math.max(base, Math.min(from, end - span));
    this.to = this.from + span;
    this.schedule();
  }

  // spanAt is the index of the span that has an address.
  spanAt(address) {
    return this.layout.spans.findIndex((span) => span.at <= address && address < span.at + span.bytes);
  }

  hover(event) {
    const at = this.spanAt(this.valueAt(event.offsetX));
    if (at < 0) {
      tooltip.hide();
      return;
    }
    const span = this.layout.spans[at];
    const lines = [[KIND_NAMES[span.kind] + ', ' + formatSize(span.bytes)]];
    const base = BigInt(this.layout.info.base);
    lines.push(['from', '0x' + (base + BigInt(Math.round(span.at))).toString(16)]);
    if (span.shape >= 0) lines.push(...this.view.blockLines(span.shape), ['click', 'show its module alone']);
    tooltip.show(event, lines);
  }

  click(event) {
    const span = this.layout.spans[this.spanAt(this.valueAt(event.offsetX))];
    if (span && span.shape >= 0 && span.kind <= SLACK) this.view.chooseBlock(span.shape);
  }

  draw() {
    if (!this.layout) return;
    this.clear();
    const palette = this.view.assign().palette;
    const columns = Math.max(1, Math.floor(this.width));
    const classes = palette.length;
    if (!this.covered || this.covered.length !== columns * classes) this.covered = new Float32Array(columns * classes);
    else this.covered.fill(0);
    const covered = this.covered;
    const scale = columns / (this.to - this.from);
    const spans = this.layout.spans;
    const first = Math.max(0, this.spanAt(this.from));
    for (let i = first; i < spans.length && spans[i].at < this.to; i++) {
      const cls = this.view.classOf(spans[i]);
      const x0 = Math.max(0, (spans[i].at - this.from) * scale);
      const x1 = Math.min(columns, (spans[i].at + spans[i].bytes - this.from) * scale);
      let column = Math.floor(x0);
      for (let x = x0; x < x1; column++) {
        const to = Math.min(x1, column + 1);
        if (column < columns) covered[column * classes + cls] += to - x;
        x = to;
        if (to < column + 1) break;
      }
    }
    this.paint(covered, columns, palette);
    this.separate(spans, first);
    this.ruler();
  }

  // paint draws runs of columns that are of one kind as one, others divided.
  paint(covered, columns, palette) {
    const c = this.context;
    const classes = palette.length;
    for (let i = 0; i < columns; i++) {
      let y = MAP_HEIGHT;
      for (let cls = 0; cls < classes; cls++) {
        const share = covered[i * classes + cls];
        if (share <= 0) continue;
        c.fillStyle = palette[cls];
        if (share > 0.999) {
          let end = i + 1;
          while (end < columns && covered[end * classes + cls] > 0.999) end++;
          c.fillRect(i, 0, end - i, MAP_HEIGHT);
          i = end - 1;
          break;
        }
        const height = share * MAP_HEIGHT;
        c.fillRect(i, y - height, 1, height);
        y -= height;
      }
    }
  }

  // separate draws a line between blocks that are wide enough.
  separate(spans, first) {
    const c = this.context;
    c.fillStyle = theme.colors.surface;
    for (let i = first; i < spans.length && spans[i].at < this.to; i++) {
      if (spans[i].kind !== LIVE || spans[i].bytes / (this.to - this.from) * this.width < 4) continue;
      c.fillRect(Math.round(this.xAt(spans[i].at)), 0, 1, MAP_HEIGHT);
    }
  }

  // ruler marks offsets and the largest free chunk.
  ruler() {
    const c = this.context;
    this.letters(10.5);
    c.textBaseline = 'top';
    const step = niceBytes(this.to - this.from, Math.max(2, this.width / 140));
    const origin = this.layout.base;
    c.fillStyle = theme.colors.faint;
    for (let at = Math.ceil((this.from - origin) / step) * step; origin + at <= this.to; at += step) {
      const x = this.xAt(origin + at);
      const text = formatSize(Math.round(at));
      const width = c.measureText(text).width;
      c.textAlign = 'left';
      c.fillRect(Math.min(this.width - 1, Math.round(x)), MAP_HEIGHT, 1, 4);
      if (x + width + 4 < this.width) c.fillText(text, x + 3, MAP_HEIGHT + 5);
    }
    if (this.layout.largest === 0) return;
    const x0 = this.xAt(this.layout.largestAt);
    const x1 = Math.max(x0 + 2, this.xAt(this.layout.largestAt + this.layout.largest));
    if (x1 < 0 || x0 > this.width) return;
    c.strokeStyle = theme.colors.ink;
    c.lineWidth = 1.5;
    c.strokeRect(x0 + 0.75, 0.75, Math.max(1, x1 - x0 - 1.5), MAP_HEIGHT - 1.5);
  }
}

const COLORINGS = [['category', 'Category'], ['name', 'Module'], ['phase', 'Phase'], ['size', 'Size'], ['none', 'Plain']];

// SpaceMap is the card of the address spaces of all arenas.
class SpaceMap {
  constructor(view) {
    this.view = view;
    this.maps = new Map(); // by arena
    this.list = element('div', { class: 'arenas' });
    this.legend = element('div', { class: 'legend' });
    this.root = card('Address space', 'space',
      element('div', { class: 'tools' }, element('span', { class: 'faint', text: 'Colour live allocations by' }),
        this.colorings = choice('Colour live allocations by', COLORINGS, view.coloring, (value) => view.setColoring(value)), this.legend),
      this.list);
  }

  show() {
    const layouts = this.view.layouts;
    const parts = [];
    for (const layout of layouts) {
      let map = this.maps.get(layout.info.id);
      if (!map) {
        map = new ArenaMap(this.view);
        map.head = element('div', { class: 'arena-head' });
        map.story = element('p', { class: 'note' });
        map.root = element('div', { class: 'arena-row' }, map.head, map.canvas, map.story);
        this.maps.set(layout.info.id, map);
      }
      const number = (name, bytes) => element('span', {}, name + ' ', element('b', { text: formatSize(bytes) }));
      map.head.replaceChildren(element('strong', { text: layout.info.name }), number('reserved', layout.reserved),
        number(layout.info.native ? 'requested' : 'live', layout.info.native ? layout.requested : layout.live),
        ...(layout.info.native ? [] : [number('free', layout.free), number('largest free chunk', layout.largest)]),
        element('span', { text: plural(layout.blocks, 'allocation') }));
      map.story.textContent = this.view.unservedBy(layout);
      map.setLayout(layout);
      parts.push(map.root);
    }
    if (parts.length === 0) parts.push(element('p', { class: 'empty', text: 'No memory is mapped at this instant.' }));
    this.list.replaceChildren(...parts);
    this.colors();
  }

  // colors draws the maps and the legend again, after a change of colouring or filter.
  colors() {
    const colors = theme.colors;
    const items = this.view.assign().used.concat(this.view.device.native ?
      [['not requested', colors.external]] :
      [['slack', colors.internal], ['pending', colors.pending], ['external', colors.external], ['reusable', colors.reusable], ['reserve', colors.reserve], ['unmapped', colors.unmapped]]);
    this.legend.replaceChildren(...items.map(([name, color]) => element('span', {}, swatch(color), name)), element('span', {}, element('i', { class: 'swatch outline' }), 'largest free chunk'));
    for (const map of this.maps.values()) map.schedule();
  }
}

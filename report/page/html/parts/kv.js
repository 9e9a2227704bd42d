// The use of a KV cache over the whole job, by the marks of its engine: stacked from tokens at the bottom to idle slots
// at the top, in bytes.

const CACHE_USES = [
  ['token', 'requested', 'holds a token'],
  ['reserve', 'pending', 'reserved, filled later'],
  ['internal', 'internal', 'reserved, never filled'],
  ['null', 'reserved', 'the null block'],
  ['cached', 'reusable', 'content of sequences that have gone'],
  ['idle', 'reserve', 'free'],
];

class CacheUse extends FollowingScene {
  constructor(view, cache) {
    super(view, 'kv', 200, 'Use of the KV cache over time');
    this.cache = cache;
    const legend = CACHE_USES.filter(([use]) => cache[use].some((slots) => slots > 0))
      .map(([use, color, title]) => element('span', { title }, swatch('var(--' + color + ')'), use));
    this.root = card('Use of the KV cache' + (cache.name === '' ? '' : ' of ' + cache.name), 'kv', element('div', { class: 'tools' }, element('div', { class: 'legend' }, ...legend)), this.canvas);
  }

  draw() {
    this.top = Math.max(1, this.cache.capacity * this.cache.slot) * 1.02;
    this.clear();
    this.drawSizes(5);
    const c = this.context;
    const { time } = this.cache;
    const right = this.width - RIGHT;
    for (let i = Math.max(0, lastAtOrBefore(time, this.from)); i < time.length && time[i] < this.to; i++) {
      // Whole pixels: neighbours leave no seam.
      const x0 = Math.max(LEFT, Math.round(this.xAt(time[i])));
      const x1 = Math.min(right, i + 1 < time.length ? Math.round(this.xAt(time[i + 1])) : right);
      if (x1 <= x0) continue;
      let sum = 0;
      for (const [use, color] of CACHE_USES) {
        const bytes = this.cache[use][i] * this.cache.slot;
        if (bytes === 0) continue;
        const low = this.yAt(sum);
        sum += bytes;
        c.fillStyle = theme.colors[color];
        c.fillRect(x0, this.yAt(sum), x1 - x0, low - this.yAt(sum));
      }
    }
    this.drawPinned();
  }

  hover(event) {
    const { time, running, capacity, slot } = this.cache;
    const i = lastAtOrBefore(time, this.valueAt(event.offsetX));
    if (i < 0) {
      tooltip.hide();
      return;
    }
    const lines = [[plural(running[i], 'sequence') + ', at ' + formatTime(time[i], 1e4)]];
    for (const [use] of CACHE_USES) {
      const slots = this.cache[use][i];
      if (slots > 0) lines.push([use, formatSize(slots * slot) + ', ' + formatPercent(slots / capacity)]);
    }
    tooltip.show(event, lines);
  }
}

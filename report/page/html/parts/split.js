// The pinned event, beside the timeline: what it did, and the split of reserved memory after it: R = T + internal + pending +
// stranded + reserve + reusable + external.

const PARTS = [
  ['t', 'Requested', 'bytes that live allocations asked for', 'requested'],
  ['rounding', 'Rounding', 'internal: requests rounded up to multiples of 256 B', 'internal'],
  ['slack', 'Slack', 'internal: chunks larger than the rounded request', 'internal'],
  ['pending', 'Pending', 'freed; another stream may still use it', 'pending'],
  ['external', 'External', 'free again, in chunks smaller than the largest: fragmented', 'external'],
  ['stranded', 'Stranded', 'free in arenas that the request cannot use', 'stranded'],
  ['reusable', 'Reusable', 'free again, in the largest free chunk', 'reusable'],
  ['reserve', 'Reserve', 'free, never handed out since it was mapped', 'reserve'],
  ['not_requested', 'Not requested', 'pending aside, all that is not requested: chunks of the native allocator are not known', 'external'],
];

class SplitBar {
  constructor(view) {
    this.view = view;
    this.bar = element('div', { class: 'split-bar' });
    this.list = element('dl', { class: 'split-list' });
    this.title = element('p', { class: 'tone-strong', role: 'status' });
    this.event = element('div', { class: 'event' });
    this.root = card('At this instant', 'split', this.title, this.bar, this.list, this.event);
  }

  // say says what the event did, where the page has it and the one before exactly.
  say({ seq }) {
    const { exact } = this.view.instants;
    const position = exact && (seq === 0 || exact.positionOf(seq - 1) >= 0) ? exact.positionOf(seq) : -1;
    this.event.replaceChildren();
    if (position < 0) return;
    const { space } = exact;
    const rows = [];
    for (let i = 0; i < space.shape.length; i++) {
      if (space.frames.kind[i] === 3 && (space.from[i] === position || space.to[i] === position)) rows.push(i);
    }
    const verb = rows.length === 1 ? (space.from[rows[0]] === position ? 'allocates' : 'frees') : 'changes no single allocation';
    this.event.append(...tipLines([['This event ' + verb], ...(rows.length === 1 ? this.view.blockLines(rows[0], space) : [])]));
  }

  show(instant) {
    this.title.textContent = this.view.pin.title.textContent;
    this.say(instant);
    const values = instant.values;
    const whole = values.r;
    const bars = [];
    const items = [];
    const item = (name, bytes, color, title) => {
      items.push(element('div', { title }, element('dt', {}, swatch(color && 'var(--' + color + ')'), name),
        element('dd', { text: formatSize(bytes), title: formatCount(bytes) + ' B' }), element('dd', { class: 'share', text: formatPercent(bytes / whole) })));
    };
    for (const [key, name, title, color] of PARTS) {
      const bytes = values[key];
      if (bytes === 0 && (key === 'not_requested' || key === 'pending' || key === 'stranded')) continue;
      if (bytes > 0) {
        const part = element('span', { title: name + ': ' + formatSize(bytes) + ' — ' + title });
        part.style.flexGrow = bytes / whole;
        part.style.background = 'var(--' + color + ')';
        if (key === 'rounding') part.style.opacity = '0.6';
        bars.push(part);
      }
      item(name, bytes, color, title);
    }
    item('= Reserved', whole, '', 'physical memory mapped');
    if (values.paused > 0) item('Paused', values.paused, '', 'unmapped while its tag is paused; in no other number');
    if (whole === 0) bars.push(element('span', { class: 'empty', text: 'nothing is mapped at this instant' }));
    this.bar.replaceChildren(...bars);
    this.list.replaceChildren(...items);
  }
}

// The view in the page's address: what is after its # says which device, stretch of time and event are shown, and how, so
// that a link to the page shows the same.

// viewOf describes the view of a device.
function viewOf(view) {
  const fields = new URLSearchParams();
  const t = view.timeline;
  if (!t) return fields;
  if (t.from > t.start || t.to < t.end) {
    fields.set('from', String(Math.round(t.from)));
    fields.set('to', String(Math.round(t.to)));
  }
  if (t.fit) fields.set('fit', '1');
  if (t.overlaid) fields.set('overlay', String(t.overlaid.index));
  if (!view.frames) return fields;
  if (view.instant) fields.set('event', String(view.instant.seq));
  fields.set('color', view.coloring);
  fields.set('group', view.allocations.facet);
  if (view.allocations.search !== '') fields.set('find', view.allocations.search);
  for (const filter of view.allocations.filters) fields.append('only', filter.facet + ':' + filter.value);
  if (view.allocations.flame.source !== 'pin') fields.set('flame', view.allocations.flame.source);
  return fields;
}

// toView has a device show what fields say; what they say wrong is passed over.
function toView(view, fields) {
  const t = view.timeline;
  if (!t) return;
  const number = (name) => (fields.get(name) !== null && Number.isFinite(Number(fields.get(name))) ? Number(fields.get(name)) : null);
  view.setFit(fields.get('fit') === '1');
  view.setOverlay(number('overlay') === null ? -1 : number('overlay'));
  const reveal = () => {
    if (number('from') !== null && number('to') !== null && number('from') < number('to')) t.show(number('from'), number('to'));
    else t.show(t.start, t.end);
  };
  reveal();
  if (!view.frames) return;
  const { allocations } = view;
  if (COLORINGS.some(([name]) => name === fields.get('color'))) view.setColoring(fields.get('color'));
  if (FACETS.some(([name]) => name === fields.get('group'))) allocations.group(fields.get('group'));
  allocations.input.value = fields.get('find') || '';
  allocations.search = allocations.input.value.trim().toLowerCase();
  allocations.filters = fields.getAll('only').map((text) => {
    const at = text.indexOf(':');
    return { facet: text.slice(0, at), value: text.slice(at + 1), text: text.slice(at + 1) || '(none)' };
  }).filter((filter) => FACETS.some(([name]) => name === filter.facet));
  if (['pin', 'mean', 'made'].includes(fields.get('flame') || 'pin')) allocations.flame.of(fields.get('flame') || 'pin');
  const event = number('event');
  if (event !== null && event >= 0 && !(view.instant && view.instant.seq === event)) view.pin.event(Math.floor(event));
  reveal(); // pinning moves the view to the event
  allocations.refresh();
}

// Address keeps the page's address at the view, at most a few times a second: browsers limit more.
class Address {
  constructor(current, show) {
    this.current = current;
    this.show = show;
    this.written = location.hash;
    addEventListener('hashchange', () => {
      if (location.hash !== this.written) this.read();
    });
  }

  read() {
    this.written = location.hash;
    const part = document.getElementById(location.hash.slice(1));
    if (part) part.scrollIntoView();
    else this.show(new URLSearchParams(location.hash.slice(1)));
  }

  changed() {
    if (this.waiting || this.still) return;
    this.waiting = setTimeout(() => {
      this.waiting = 0;
      if (location.hash !== this.written) return; // another was entered: hashchange is about to tell, and to read it
      const { index, view } = this.current();
      const fields = viewOf(view);
      if (index > 0) fields.set('gpu', String(index));
      const text = '#' + fields.toString();
      if (text === location.hash) return;
      this.written = text;
      history.replaceState(null, '', text);
    }, 250);
  }
}

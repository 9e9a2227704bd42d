// Live allocations at the pinned instant by category, phase, module and more, as a table, under the same filters as the flame
// graph.

const FACETS = [
  ['category', 'Category'], ['phase', 'Phase'], ['name', 'Module'], ['repeated', 'Layers as one'], ['stack', 'Stack'], ['size', 'Size'], ['tag', 'Tag'],
];

class Allocations {
  constructor(view) {
    this.view = view;
    this.space = view.instants.space; // of the pinned instant
    this.groups = [];
    this.filters = []; // {facet, value, text}
    this.search = '';
    this.facet = this.varies('name') ? 'name' : this.varies('category') ? 'category' : 'size';
    this.input = element('input', {
      type: 'search', placeholder: 'Search modules, frames, categories…', 'aria-label': 'Search live allocations', spellcheck: 'false',
      input: () => {
        this.search = this.input.value.trim().toLowerCase();
        this.refresh();
      },
    });
    this.chips = element('div', { class: 'chips' });
    this.sum = element('p', { class: 'note' });
    this.table = new LongTable([
      { name: 'allocated by', of: (r) => r.name, text: (r) => r.name, width: 'minmax(120px, 1fr)' },
      { name: 'share', number: true, of: (r) => r.requested, text: (r) => this.share(r), width: '112px' },
      { name: 'requested', number: true, of: (r) => r.requested, text: (r) => formatSize(r.requested), width: '76px' },
      { name: 'provided', number: true, of: (r) => r.provided, text: (r) => (view.device.native ? ABSENT : formatSize(r.provided)), width: '76px' },
      { name: 'allocations', number: true, of: (r) => r.blocks, text: (r) => formatCount(r.blocks), width: '86px' },
    ], { height: 330, onClick: (row) => this.filter(this.facet, row.key, row.name) });
    this.table.sorted = { column: 2, down: true };
    this.flame = new Flame(view, this);
    this.facets = choice('Group by', FACETS, this.facet, (facet) => this.group(facet));
    this.root = card('Live allocations', 'allocations',
      element('div', { class: 'tools' }, this.facets, this.input), this.chips, this.sum, this.table.root);
  }

  // varies reports whether live allocations differ in a column.
  varies(column) {
    return this.space.frames[column].some((name, _, all) => name !== all[0]);
  }

  group(facet) {
    this.facet = facet;
    this.facets.choose(facet);
    this.refresh();
  }

  share(row) {
    const bar = element('i', { class: 'bar' });
    bar.style.width = Math.max(0, 60 * row.requested / this.most) + '%';
    return element('span', { class: 'share-cell' }, bar, formatPercent(row.requested / this.whole));
  }

  // keyOf returns the value of a facet that a group of allocations has, and its display text.
  keyOf(group, facet) {
    const k = group.space.frames;
    const text = (column, none) => {
      const name = k.strings[column[group.origin]];
      return [name, name === '' ? none : name];
    };
    switch (facet) {
      case 'category': return text(k.category, '(none)');
      case 'phase': return text(k.phase, '(no name)');
      case 'name': return text(k.name, '(no module)');
      case 'repeated': return text(k.repeated, '(no module)');
      case 'size': return [String(group.size), formatSize(group.size)];
      case 'tag': {
        const arena = group.space.arenas[group.arena];
        return [arena.tag, arena.tag === '' ? '(no tag)' : arena.tag];
      }
      default: {
        const stack = group.space.stack(k.stack[group.origin]);
        return [String(k.stack[group.origin]), stack.length === 0 ? '(no stack)' : stack.slice().reverse().join(' ← ')];
      }
    }
  }

  // matches reports whether one of a group's names contains the search text.
  matches(group) {
    if (this.search === '') return true;
    const k = group.space.frames;
    const origin = group.origin;
    const names = [k.strings[k.name[origin]], k.strings[k.category[origin]], k.strings[k.phase[origin]], group.space.arenas[group.arena].tag];
    return names.concat(group.space.stack(k.stack[origin])).some((name) => name.toLowerCase().includes(this.search));
  }

  passes(group) {
    return this.filters.every((f) => this.keyOf(group, f.facet)[0] === f.value);
  }

  // wanted reports whether the allocation of a shape passes the filters and the search.
  wanted(shape) {
    if (this.filters.length === 0 && this.search === '') return true;
    const k = this.space.frames;
    const group = { space: this.space, origin: k.origin[shape], size: k.bytes[shape] - k.excess[shape], arena: k.arena[shape] };
    return this.passes(group) && this.matches(group);
  }

  chosen(groups) {
    return groups.filter((group) => this.passes(group) && this.matches(group));
  }

  filter(facet, value, text) {
    if (!this.filters.some((f) => f.facet === facet && f.value === value)) {
      this.filters = this.filters.filter((f) => f.facet !== facet).concat({ facet, value, text });
    }
    this.refresh();
  }

  show(instant) {
    this.space = instant.space;
    this.groups = this.space.groups(instant.at);
    this.refresh();
  }

  refresh() {
    const chosen = this.chosen(this.groups);
    this.whole = this.groups.reduce((sum, group) => sum + group.requested, 0);
    const rows = new Map();
    let requested = 0;
    let blocks = 0;
    for (const group of chosen) {
      const [key, name] = this.keyOf(group, this.facet);
      let row = rows.get(key);
      if (!row) rows.set(key, row = { key, name, requested: 0, provided: 0, blocks: 0 });
      row.requested += group.requested;
      row.provided += group.provided;
      row.blocks += group.blocks;
      requested += group.requested;
      blocks += group.blocks;
    }
    const list = [...rows.values()];
    this.most = list.reduce((most, row) => Math.max(most, row.requested), 1);
    this.table.setRows(list);
    this.sum.textContent = this.groups.length === 0 ? 'No allocation is live at this instant.' :
      chosen.length === 0 ? 'No live allocation matches.' :
        plural(blocks, 'allocation') + ', ' + formatSize(requested) + ' requested, ' + formatPercent(requested / this.whole) + ' of all requested · ' +
        plural(list.length, 'line') + '; click one to show it alone';
    this.chips.replaceChildren(...this.filters.map((f) => {
      const name = FACETS.find(([facet]) => facet === f.facet)[1];
      return element('button', { type: 'button', class: 'chip', title: 'Remove this filter', click: () => {
        this.filters = this.filters.filter((other) => other !== f);
        this.refresh();
      } }, name + ': ' + f.text, element('span', { 'aria-hidden': 'true', text: ' ×' }));
    }));
    this.flame.pinned(chosen);
    this.view.recolor();
    this.view.changed();
  }
}

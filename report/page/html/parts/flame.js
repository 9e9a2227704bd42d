// Flame is the flame graph of the requested bytes of allocations, live at the pinned instant or over the interval that the
// timeline shows: by call stack, outermost frame on top, or by module path; inverted, innermost on top.

const FLAME_ROW = 19;
const FLAME_DEPTH = 40;

class Flame extends Chart {
  constructor(view, allocations) {
    super('flame', 330, 'Flame graph of live allocations. Arrow keys go from frame to frame, Enter shows the frame alone, Escape shows all.');
    this.view = view;
    this.allocations = allocations;
    this.source = 'pin';
    this.note = element('p', { class: 'note' });
    const stacks = view.frames.stack.some((node) => node >= 0);
    this.by = stacks ? 'stack' : 'name';
    this.path = element('span', { class: 'faint flame-path', role: 'status' });
    this.find = ''; // in lower case, what frames are searched for
    this.sources = choice('Flame graph of', [['pin', 'Pinned instant'], ['mean', 'Interval in view'], ['made', 'Allocated in view']], 'pin', (source) => {
      this.of(source);
      view.changed();
    });
    const again = (changes) => {
      Object.assign(this, { focus: [] }, changes);
      this.show(this.groups);
    };
    this.input = element('input', { type: 'search', placeholder: 'Search the graph…', 'aria-label': 'Search the flame graph', spellcheck: 'false', input: () => {
      this.find = this.input.value.trim().toLowerCase();
      this.schedule();
    } });
    const invert = quiet('Inverted', () => {
      invert.setAttribute('aria-pressed', String(!this.inverted));
      again({ inverted: !this.inverted });
    }, null, 'false');
    this.root = card('Flame graph', 'flame', element('div', { class: 'tools' }, this.sources,
      choice('Flame graph by', [['stack', 'Stacks'], ['name', 'Modules'], ['category', 'Category, phase, module']], this.by, (by) => again({ by })),
      this.input, invert, quiet('Reset', () => this.reset()), this.path),
    stacks ? null : element('p', { class: 'note', text: 'No stacks were recorded: memprof record --stacks python does; for a snapshot, torch.cuda.memory._record_memory_history(stacks="python").' }), this.note, this.canvas);
    this.focus = []; // names from the root to the frame that is as wide as the graph
    this.groups = [];
    this.boxes = [];
    this.canvas.addEventListener('pointermove', (event) => this.hover(event));
    this.canvas.addEventListener('pointerleave', () => tooltip.hide());
    this.canvas.addEventListener('click', (event) => this.click(event));
  }

  click(event) {
    const box = this.boxAt(event);
    if (box) this.focus = box.names;
    this.schedule();
  }

  // reset shows the whole graph, with nothing searched.
  reset() {
    this.find = this.input.value = '';
    this.focus = [];
    this.schedule();
  }

  keys() {
    const now = this.current();
    // go chooses the frame a step right of the current one or below it.
    const go = (right, down) => {
      const next = now && this.boxAt({ offsetX: right > 0 ? now.x + now.width + 0.1 : now.x + 0.1 + right, offsetY: now.y + (down + 0.5) * FLAME_ROW });
      if (next) this.chosen = next.node;
      this.schedule();
    };
    return { ArrowLeft: () => go(-1, 0), ArrowRight: () => go(1, 0), ArrowUp: () => go(0, -1), ArrowDown: () => go(0, 1), Escape: () => this.reset() };
  }

  // current is the box of the frame that the keyboard chose, or of the root.
  current() {
    return this.boxes.find((box) => box.node === this.chosen) || this.boxes[0];
  }

  place() {
    const box = this.current();
    return box && { offsetX: box.x + box.width / 2, offsetY: box.y + FLAME_ROW / 2 };
  }

  // names returns the names of a group, outermost first.
  names(group) {
    const k = group.space.frames;
    const name = k.strings[k.name[group.origin]];
    switch (this.by) {
      case 'stack': {
        const stack = group.space.stack(k.stack[group.origin]);
        return stack.length > 0 ? stack : ['(no stack)'];
      }
      case 'category':
        return [k.strings[k.category[group.origin]], k.strings[k.phase[group.origin]], name === '' ? '(no module)' : name];
    }
    if (name === '') return ['(no module)'];
    return k.module[group.origin] === 1 ? name.split('.') : [name];
  }

  // of says which allocations are drawn.
  of(source) {
    this.source = source;
    this.sources.choose(source);
    this.focus = [];
    this.update();
  }

  // pinned takes the chosen allocations of the pinned instant.
  pinned(groups) {
    this.ofPin = groups;
    this.update();
  }

  // follow draws the interval that is in view, once it stays for a moment.
  follow() {
    if (this.source === 'pin') return;
    clearTimeout(this.later);
    this.later = setTimeout(() => this.update(), 150);
  }

  update() {
    if (this.source === 'pin') {
      this.note.textContent = '';
      this.show(this.ofPin || []);
      return;
    }
    const { from, to } = this.view.timeline;
    const { instants } = this.view;
    const range = instants.exact ? instants.exact.range(from, to) : null;
    let groups = [];
    if (range) {
      groups = this.source === 'made' ? madeIn(instants.exact, range) : meanOver(instants.exact, range);
      this.note.textContent = (this.source === 'made' ? 'Bytes allocated' : 'Mean of live bytes over time') + ', ' + plural(range[1] - range[0] + 1, 'event') + ' in view, exact.';
    } else if (this.source === 'mean') {
      const f = this.view.frames;
      const first = Math.max(0, lastAtOrBefore(f.time, from));
      const last = Math.max(first, lastAtOrBefore(f.time, to));
      groups = instants.space.grouped((i) => Math.max(0, Math.min(instants.space.to[i], last + 1) - Math.max(instants.space.from[i], first)) / (last + 1 - first));
      this.note.textContent = 'Mean of live bytes at the ' + plural(last + 1 - first, 'stored instant') + ' in view.' + this.ask();
    } else {
      this.note.textContent = 'What is allocated between stored instants is not on this page.' + this.ask();
    }
    this.show(this.allocations.chosen(groups));
  }

  // ask gets the events in view from the server, if there is one, and says so.
  ask() {
    const { view } = this;
    if (!view.report.server || this.asking) return '';
    const from = view.seqAt(view.timeline.from);
    const to = view.seqAt(view.timeline.to);
    if (to - from > view.report.server.most) return ' Zoom in to at most ' + plural(view.report.server.most, 'event') + ' for exact bytes.';
    this.asking = true;
    view.instants.ask('event=' + Math.max(0, to) + '&from=' + Math.max(0, from), () => {
      this.asking = false;
      this.update();
    }, () => { this.asking = false; });
    return ' Reading the recording …';
  }

  show(groups) {
    this.groups = groups;
    const node = (name) => ({ name, requested: 0, blocks: 0, inside: new Map() });
    this.tree = node(this.source === 'made' ? 'allocated in view' : 'all live allocations');
    let depth = 0;
    for (const group of groups) {
      const names = (this.inverted ? this.names(group).slice().reverse() : this.names(group)).slice(0, FLAME_DEPTH);
      depth = Math.max(depth, names.length);
      let at = this.tree;
      at.requested += group.requested;
      at.blocks += group.blocks;
      for (const name of names) {
        let next = at.inside.get(name);
        if (!next) at.inside.set(name, next = node(name));
        next.requested += group.requested;
        next.blocks += group.blocks;
        at = next;
      }
    }
    this.setHeight(Math.max(4, depth + 1) * FLAME_ROW + 2);
    this.schedule();
  }

  draw() {
    this.clear();
    this.boxes = [];
    if (!this.tree || this.tree.requested === 0) {
      this.path.textContent = '';
      this.letters(13);
      this.context.fillStyle = theme.colors.faint;
      this.context.textAlign = 'center';
      this.context.textBaseline = 'middle';
      this.context.fillText('no allocations', this.width / 2, this.height / 2);
      return;
    }
    // The focused frame and its callers are as wide as the graph.
    let node = this.tree;
    const path = [];
    this.context.textBaseline = 'middle';
    this.context.textAlign = 'left';
    this.letters(11);
    for (const name of this.focus) {
      const next = node.inside.get(name);
      if (!next) break;
      this.box(node, path.slice(), 0, this.width, path.length, true);
      path.push(name);
      node = next;
    }
    this.focus = path;
    this.lay(node, path.slice(), 0, this.width);
    const found = this.found(node);
    this.path.textContent = (path.length > 0 ? 'only ' + path[path.length - 1] + ' ' : '') +
      (this.find === '' ? '' : formatSize(found) + ' in frames that match, ' + formatPercent(found / node.requested));
    const chosen = this.current();
    this.context.strokeStyle = theme.colors.ink;
    if (this.canvas.matches(':focus-visible')) this.context.strokeRect(chosen.x + 0.5, chosen.y + 0.5, Math.max(1, chosen.width - 2), FLAME_ROW - 2);
  }

  matches(node) {
    return this.find !== '' && node !== this.tree && node.name.toLowerCase().includes(this.find);
  }

  // found is the bytes in frames that match.
  found(node) {
    return this.matches(node) ? node.requested : [...node.inside.values()].reduce((sum, child) => sum + this.found(child), 0);
  }

  // lay draws a frame and those inside it, layer2 before layer10.
  lay(node, names, x, width) {
    this.box(node, names, x, width, names.length, false);
    for (const child of [...node.inside.values()].sort((a, b) => compareNames(a.name, b.name))) {
      const part = width * child.requested / node.requested;
      if (part < 0.4) continue; // too narrow to draw: its bytes are a gap below its caller
      this.lay(child, names.concat(child.name), x, part);
      x += part;
    }
  }

  box(node, names, x, width, row, above) {
    const c = this.context;
    const y = row * FLAME_ROW;
    const found = this.matches(node);
    c.fillStyle = found ? theme.colors.match : theme.colors.flame;
    c.globalAlpha = above ? 0.35 : found ? 1 : 0.55 + 0.4 * hashOf(node.name);
    c.fillRect(x, y, Math.max(0.4, width - (width > 2 ? 1 : 0)), FLAME_ROW - 1);
    c.globalAlpha = 1;
    this.boxes.push({ x, y, width, node, names });
    if (width < 26) return;
    c.fillStyle = theme.colors.ink;
    this.label(node.name === '' ? '(no name)' : node.name, x + 4, y + FLAME_ROW / 2, width - 9);
  }

  boxAt(event) {
    return this.boxes.find((b) => event.offsetX >= b.x && event.offsetX < b.x + b.width && event.offsetY >= b.y && event.offsetY < b.y + FLAME_ROW);
  }

  hover(event) {
    const box = this.boxAt(event);
    this.canvas.classList.toggle('pointing', Boolean(box));
    if (!box) {
      tooltip.hide();
      return;
    }
    tooltip.show(event, [[box.node.name], ['requested', formatSize(box.node.requested)],
      ['share of the graph', formatPercent(box.node.requested / this.tree.requested)], ['allocations', formatCount(box.node.blocks)]]);
  }
}

// hashOf maps names to [0, 1), so that the colours of neighbours differ a little.
function hashOf(name) {
  let hash = 2166136261;
  for (let i = 0; i < name.length; i++) hash = Math.imul(hash ^ name.charCodeAt(i), 16777619);
  return ((hash >>> 8) % 1000) / 1000;
}

// meanOver returns the live allocations of a range of positions, each by its bytes times the share of time that it lived.
function meanOver(exact, [first, last]) {
  const { space } = exact;
  const clock = (position) => exact.timeOf(Math.min(position, last));
  const whole = Math.max(1, clock(last) - clock(first));
  return space.grouped((i) => (space.to[i] <= first || space.from[i] > last ? 0 :
    (clock(Math.min(space.to[i], last)) - clock(Math.max(space.from[i], first))) / whole));
}

// madeIn returns the allocations that were made in a range of positions.
function madeIn(exact, [first, last]) {
  const { space } = exact;
  return space.grouped((i) => (space.from[i] >= first && space.from[i] <= last && (space.from[i] > 0 || first > 0) ? 1 : 0));
}

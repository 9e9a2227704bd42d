// LongTable is a table of any number of rows: only visible rows have elements. Columns are
// {name, number, of, text, width, tone}: `of` returns what a row is sorted by, `text` what is shown.

const ROW_HEIGHT = 27;

class LongTable {
  constructor(columns, options) {
    this.columns = columns;
    this.options = options || {};
    this.rows = [];
    this.order = [];
    this.sorted = null; // {column, down}
    this.current = -1; // index of the chosen row
    this.at = -1; // place of the row of the keyboard
    this.head = element('div', { class: 'long-head', role: 'row' });
    this.space = element('div', { class: 'long-space' });
    this.body = element('div', { class: 'long-body', role: 'rowgroup', tabindex: '0', scroll: () => this.schedule(), keydown: (event) => this.key(event) }, this.space);
    this.root = element('div', { class: 'long', role: 'table' }, this.head, this.body);
    const widths = columns.map((c) => c.width || (c.number ? 'minmax(62px, 1fr)' : 'minmax(120px, 2fr)')).join(' ');
    this.root.style.setProperty('--columns', widths);
    this.root.style.setProperty('--least', columns.length * 72 + 'px');
    columns.forEach((column, i) => {
      this.head.append(element('span', { role: 'columnheader', class: column.number ? 'number' : '' },
        element('button', { type: 'button', title: column.title, text: column.name, click: () => this.sort(i) })));
    });
    if (typeof ResizeObserver !== 'undefined') new ResizeObserver(() => this.schedule()).observe(this.body);
  }

  // key goes from row to row with the arrow keys, and does what a click does with Enter.
  key(event) {
    const by = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (!this.options.onClick || !by && event.key !== 'Enter') return;
    event.preventDefault();
    if (!by) {
      this.body.focus(); // the row may go
      this.click(this.at);
      return;
    }
    this.at = Math.max(0, Math.min(this.rows.length - 1, this.at + by));
    const top = this.at * ROW_HEIGHT;
    this.body.scrollTop = Math.max(top + ROW_HEIGHT - this.body.clientHeight, Math.min(top, this.body.scrollTop));
    this.shown = '';
    this.draw();
    const line = this.space.querySelector('.at');
    if (line) line.focus({ preventScroll: true });
  }

  click(place) {
    const index = this.order[place];
    if (index !== undefined) this.options.onClick(this.rows[index], index);
  }

  setRows(rows) {
    this.rows = rows;
    this.at = -1;
    this.order = rows.map((_, i) => i);
    this.arrange();
  }

  sort(column) {
    const down = this.sorted && this.sorted.column === column ? !this.sorted.down : Boolean(this.columns[column].number);
    this.sorted = { column, down };
    this.arrange();
  }

  arrange() {
    if (this.sorted) {
      const of = this.columns[this.sorted.column].of;
      const sign = this.sorted.down ? -1 : 1;
      const key = this.rows.map(of);
      const compare = this.columns[this.sorted.column].number ? (a, b) => a - b : compareNames;
      this.order.sort((a, b) => compare(key[a], key[b]) * sign || a - b);
    }
    [...this.head.children].forEach((head, i) => {
      const on = this.sorted && this.sorted.column === i;
      head.setAttribute('aria-sort', on ? (this.sorted.down ? 'descending' : 'ascending') : 'none');
    });
    const height = this.rows.length * ROW_HEIGHT;
    this.space.style.height = height + 'px';
    this.body.style.height = Math.min(height, this.options.height || 380) + 'px';
    this.shown = '';
    this.schedule();
  }

  // choose marks a row.
  choose(row) {
    this.current = row;
    this.shown = '';
    this.schedule();
  }

  schedule() {
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => {
      this.waiting = 0;
      this.draw();
    });
  }

  draw() {
    const first = Math.max(0, Math.floor(this.body.scrollTop / ROW_HEIGHT) - 8);
    const last = Math.min(this.rows.length, first + Math.ceil((this.body.clientHeight || 400) / ROW_HEIGHT) + 16);
    const shown = first + ':' + last;
    if (shown === this.shown) return;
    this.shown = shown;
    const lines = [];
    for (let i = first; i < last; i++) lines.push(this.line(i));
    this.space.replaceChildren(...lines);
  }

  line(place) {
    const index = this.order[place];
    const row = this.rows[index];
    const line = element('div', { class: 'long-row', role: 'row' });
    line.style.top = place * ROW_HEIGHT + 'px';
    if (index === this.current) line.classList.add('current');
    if (place === this.at) line.classList.add('at');
    for (const column of this.columns) {
      const cell = element('span', { role: 'cell', class: column.number ? 'number' : '' });
      cell.append(column.text(row));
      if (!column.number) cell.title = cell.textContent;
      const tone = column.tone && column.tone(row);
      if (tone) cell.classList.add('tone-' + tone);
      line.append(cell);
    }
    if (this.options.onClick) {
      line.classList.add('link');
      line.tabIndex = -1;
      line.addEventListener('click', () => this.click(place));
    }
    return line;
  }
}

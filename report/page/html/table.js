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
    this.head = element('div', { class: 'long-head', role: 'row' });
    this.space = element('div', { class: 'long-space' });
    this.body = element('div', { class: 'long-body', role: 'rowgroup', tabindex: '0', scroll: () => this.schedule() }, this.space);
    this.root = element('div', { class: 'long', role: 'table' }, this.head, this.body);
    const widths = columns.map((c) => c.width || (c.number ? 'minmax(62px, 1fr)' : 'minmax(120px, 2fr)')).join(' ');
    this.root.style.setProperty('--columns', widths);
    this.root.style.setProperty('--least', columns.length * 72 + 'px');
    columns.forEach((column, i) => {
      this.head.append(element('button', {
        type: 'button', role: 'columnheader', class: column.number ? 'number' : '', title: column.title || null, text: column.name,
        click: () => this.sort(i),
      }));
    });
    if (typeof ResizeObserver !== 'undefined') new ResizeObserver(() => this.schedule()).observe(this.body);
  }

  setRows(rows) {
    this.rows = rows;
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
      this.order.sort((a, b) => {
        if (key[a] === key[b]) return a - b;
        return (key[a] < key[b] ? -1 : 1) * sign;
      });
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
    for (const column of this.columns) {
      const cell = element('span', { role: 'cell', class: column.number ? 'number' : '' });
      const content = column.text(row);
      if (content instanceof Node) cell.append(content);
      else cell.textContent = content;
      if (!column.number) cell.title = content instanceof Node ? content.textContent : content;
      const tone = column.tone && column.tone(row);
      if (tone) cell.classList.add('tone-' + tone);
      line.append(cell);
    }
    if (this.options.onClick) {
      line.classList.add('link');
      line.addEventListener('click', () => this.options.onClick(row, index));
    }
    return line;
  }
}

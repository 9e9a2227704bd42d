// Sections are the tables of memprof's other reports, ready for reading: titles, notes, a table.

// cellElement is a cell: a text, or a list of a text, its tone, and what it links to. A link is to a part of the page, of which it
// may show a category alone.
function cellElement(name, kind, cell) {
  const [text, tone, link] = [cell].flat();
  const node = element(name, { class: kind + (tone ? ' tone-' + tone : '') });
  const [id, category] = (link || '').split('/');
  node.append(link ? element('a', { href: '#' + id, 'data-category': category, text }) : text);
  return node;
}

function noteLines(cells) {
  return cells.map((cell) => cellElement('p', 'note', cell));
}

function sectionTable(section) {
  const row = (cells, name) => element('tr', {}, ...cells.map((cell, i) => cellElement(name, section.columns[i].number ? 'number' : '', cell)));
  const head = element('thead', {}, row(section.columns.map((c) => c.name), 'th'));
  const table = element('table', {}, head, element('tbody', {}, ...section.rows.map((cells) => row(cells, 'td'))));
  if (section.total.length > 0) table.append(element('tfoot', {}, row(section.total, 'td')));
  const box = element('div', { class: 'scroll' }, table);
  // Arrow keys scroll a table that is wider than the window.
  new ResizeObserver(() => { box.tabIndex = box.scrollWidth > box.clientWidth ? 0 : -1; }).observe(box);
  return box;
}

function sectionCard(section) {
  const parts = noteLines(section.before);
  if (section.columns.length > 0) parts.push(sectionTable(section));
  parts.push(...noteLines(section.after));
  return card(section.title, section.title.toLowerCase().replace(/[^a-z0-9]+/g, '-'), ...parts);
}

// sectionCards puts tables of many columns first, each as wide as the page, and the others side by side.
function sectionCards(sections) {
  const wide = (section) => section.columns.length > 6;
  return [...sections.filter(wide).map(sectionCard), element('div', { class: 'sections' }, ...sections.filter((s) => !wide(s)).map(sectionCard))];
}

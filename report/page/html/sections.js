// Sections are the tables of memprof's other reports, ready for reading: titles, notes, a table.

function cellText(cell) {
  return Array.isArray(cell) ? cell[0] : cell;
}

function noteLines(cells) {
  return cells.map((cell) => {
    const line = element('p', { class: 'note', text: cellText(cell) });
    if (Array.isArray(cell)) line.classList.add('tone-' + cell[1]);
    return line;
  });
}

function sectionTable(section) {
  const row = (cells, name) => element('tr', {}, ...cells.map((cell, i) => {
    const field = element(name, { class: section.columns[i].number ? 'number' : '', text: cellText(cell) });
    if (Array.isArray(cell)) field.classList.add('tone-' + cell[1]);
    return field;
  }));
  const head = element('thead', {}, row(section.columns.map((c) => c.name), 'th'));
  const table = element('table', {}, head, element('tbody', {}, ...section.rows.map((cells) => row(cells, 'td'))));
  if (section.total.length > 0) table.append(element('tfoot', {}, row(section.total, 'td')));
  return element('div', { class: 'scroll' }, table);
}

function sectionCard(section) {
  const parts = noteLines(section.before);
  if (section.columns.length > 0) parts.push(sectionTable(section));
  parts.push(...noteLines(section.after));
  return card(section.title, null, ...parts);
}

// sectionCards puts tables of many columns first, each as wide as the page, and the others side by side.
function sectionCards(sections) {
  const wide = (section) => section.columns.length > 6;
  return [...sections.filter(wide).map(sectionCard), element('div', { class: 'sections' }, ...sections.filter((s) => !wide(s)).map(sectionCard))];
}

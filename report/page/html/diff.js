// The page of memprof diff --html: each line that changed, with a bar that grows from the middle.

function changeBar(share, outcome) {
  const bar = element('i', { class: 'change ' + (outcome === 'within noise' ? 'noise' : outcome === 'worse' || outcome === 'grew' ? 'grew' : 'shrank') });
  const width = Math.min(1, Math.abs(share)) * 50;
  bar.hidden = width === 0;
  bar.style.width = width + '%';
  bar.style.left = (share > 0 ? 50 : 50 - width) + '%';
  return element('span', { class: 'change-cell' }, bar);
}

// overlay draws the reserved and requested memory of both runs over the same axes, each from its first event on.
function overlay(courses) {
  const width = 1100, height = 260, left = 70, bottom = 24;
  const svg = (name, attributes, ...children) => {
    const node = document.createElementNS('http://www.w3.org/2000/svg', name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.append(...children);
    return node;
  };
  const end = Math.max(1, ...courses.map((c) => c.time[c.time.length - 1]));
  const top = Math.max(1, ...courses.flatMap((c) => c.reserved));
  const x = (time) => left + (width - left) * time / end;
  const y = (bytes) => 8 + (height - bottom - 8) * (1 - bytes / top);
  const path = (course, values) => values.map((bytes, i) => (i === 0 ? 'M' + x(course.time[0]) : 'H' + x(course.time[i]).toFixed(1)) +
    (i === 0 ? ',' : 'V') + y(bytes).toFixed(1)).join('') + 'H' + x(course.time[course.time.length - 1]).toFixed(1);
  const root = svg('svg', { class: 'overlay', viewBox: '0 0 ' + width + ' ' + height, role: 'img', 'aria-label': 'Memory over time of both runs' });
  for (const share of [0, 0.5, 1]) {
    root.append(svg('line', { class: 'grid-line', x1: left, x2: width, y1: y(top * share), y2: y(top * share) }),
      svg('text', { x: left - 6, y: y(top * share) + 4, 'text-anchor': 'end' }, formatSize(top * share)));
  }
  root.append(svg('text', { x: left, y: height - 6 }, '0'), svg('text', { x: width, y: height - 6, 'text-anchor': 'end' }, formatDuration(end) + ' after the first event'));
  for (const course of courses) {
    root.append(svg('path', { class: course.name + ' requested', d: path(course, course.requested) }), svg('path', { class: course.name + ' reserved', d: path(course, course.reserved) }));
  }
  const legend = courses.map((course) => element('span', {}, element('i', { class: 'swatch course-' + course.name }), course.name + ': reserved (line), requested (thin)'));
  return card('Memory over time', 'overlay', element('div', { class: 'legend' }, ...legend), root);
}

function partCard(part) {
  const children = noteLines(part.before);
  if (part.columns.length > 0) {
    const scroll = sectionTable(part);
    const table = scroll.firstChild;
    table.tHead.rows[0].insertBefore(element('th', { text: 'bar' }), table.tHead.rows[0].cells[4] || null);
    [...table.tBodies[0].rows].forEach((row, i) => {
      row.insertBefore(element('td', {}, changeBar(part.changes[i], part.outcomes[i])), row.cells[4] || null);
      row.dataset.outcome = part.outcomes[i];
    });
    children.push(scroll);
  } else {
    children.push(element('p', { class: 'empty', text: 'No line changed.' }));
  }
  children.push(...noteLines(part.after));
  return card(part.title, null, ...children);
}

async function main() {
  const page = document.getElementById('page');
  theme.read();
  let data;
  try {
    data = await loadData('data');
  } catch (error) {
    page.replaceChildren(refused(error));
    throw error;
  }
  const parts = element('div', {}, ...data.parts.map(partCard));
  const input = element('input', { type: 'search', placeholder: 'Search lines…', 'aria-label': 'Search lines', spellcheck: 'false', input: () => filter() });
  let outcome = 'all';
  const filter = () => {
    const search = input.value.trim().toLowerCase();
    for (const row of parts.querySelectorAll('tbody tr')) {
      const kept = outcome === 'all' || row.dataset.outcome === outcome;
      row.hidden = !kept || !row.cells[0].textContent.toLowerCase().includes(search);
    }
  };
  const outcomes = choice('Show', [['all', 'All'], ['worse', 'Worse'], ['better', 'Better'], ['within noise', 'Within noise']], 'all', (value) => {
    outcome = value;
    filter();
  });
  page.replaceChildren(
    element('header', { class: 'top' }, element('h1', {}, element('b', { text: 'memprof' }), element('span', { class: 'path', text: 'diff' })), theme.button()),
    card(data.head.title, 'head', ...noteLines(data.head.before.concat(data.head.after))), ...(data.courses.length > 0 ? [overlay(data.courses)] : []), element('div', { class: 'tools loose' }, outcomes, input), parts);
  if (data.parts.length === 0) page.append(element('p', { class: 'empty', text: 'The runs have nothing in common to compare.' }));
  page.setAttribute('aria-busy', 'false');
}

main();

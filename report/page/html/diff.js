// The page of memprof diff --html: each line that changed, with a bar that grows from the middle.

function changeBar(share, outcome) {
  const bar = element('i', { class: 'change ' + (outcome === 'within noise' ? 'noise' : outcome === 'worse' || outcome === 'grew' ? 'grew' : 'shrank') });
  const width = Math.min(1, Math.abs(share)) * 50;
  bar.hidden = width === 0;
  bar.style.width = width + '%';
  bar.style.left = (share > 0 ? 50 : 50 - width) + '%';
  return element('span', { class: 'change-cell' }, bar);
}

function partCard(part) {
  const children = noteLines(part.before);
  if (part.columns.length > 0) {
    const scroll = sectionTable(part);
    const table = scroll.firstChild;
    table.tHead.rows[0].insertBefore(element('th', { text: '' }), table.tHead.rows[0].cells[4] || null);
    [...table.tBodies[0].rows].forEach((row, i) => {
      row.insertBefore(element('td', {}, changeBar(part.changes[i], part.outcomes[i])), row.cells[4] || null);
      row.dataset.outcome = part.outcomes[i];
    });
    children.push(scroll);
  } else {
    children.push(element('p', { class: 'empty', text: 'No line changed.' }));
  }
  children.push(...noteLines(part.after));
  const root = card(part.title, null, ...children);
  root.classList.add('wide');
  return root;
}

async function main() {
  const page = document.getElementById('page');
  theme.read();
  const data = await loadData();
  const parts = element('div', { class: 'grid diff' }, ...data.parts.map(partCard));
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
    card(data.head.title, 'head', ...noteLines(data.head.before.concat(data.head.after))), element('div', { class: 'tools loose' }, outcomes, input), parts);
  if (data.parts.length === 0) page.append(element('p', { class: 'empty', text: 'The runs have nothing in common to compare.' }));
  page.setAttribute('aria-busy', 'false');
}

main();

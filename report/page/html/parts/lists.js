// The iterations, the growths of arenas, and the requests that failed.

// iterationList is the table of iterations. Outliers are marked and counted.
function iterationList(view) {
  const device = view.device;
  const data = device.iterations;
  if (data.number.length === 0) {
    return { root: card('Iterations', 'iterations', element('p', { class: 'empty', text: 'No iterations were marked, and the requests do not repeat: call memprof.iteration() after each step to get peaks by iteration.' })), show() {} };
  }
  const rows = Array.from(data.number, (_, i) => i);
  const apart = (bit) => (i) => (data.marks[i] >> bit & 1 ? 'apart' : '');
  const column = (name, key, text, bit, title) => ({
    name, title, number: true, of: (i) => (key === 'duration' ? data.end[i] - data.start[i] : data[key][i]), text, tone: apart(bit),
  });
  const table = new LongTable([
    { name: 'iteration', number: true, of: (i) => data.number[i], text: (i) => (data.count[i] > 1 ? data.number[i] + '–' + data.last[i] : String(data.number[i])) },
    column('duration', 'duration', (i) => formatDuration(data.end[i] - data.start[i]), 0),
    column('peak T', 'peakT', (i) => formatSize(data.peakT[i]), 1, 'most bytes requested at once'),
    column('peak C', 'peakC', (i) => formatKnown(data.peakC[i]), 2, 'most bytes of handed-out chunks at once'),
    column('peak R', 'peakR', (i) => formatSize(data.peakR[i]), 3, 'most bytes mapped at once'),
    column('T at end', 'endT', (i) => formatSize(data.endT[i]), 4, 'bytes requested by allocations that are live at its end'),
    column('allocs', 'allocs', (i) => formatCount(data.allocs[i]), 5),
    column('allocated', 'bytes', (i) => formatSize(data.bytes[i]), 6),
  ], { onClick: (i) => view.toIteration(i) });
  table.setRows(rows);
  const marked = rows.filter((i) => data.marks[i] & ~1).length;
  const notes = [plural(data.total, 'iteration') + (device.period > 0 ? ', found in the sequence of requests, which repeats after ' + formatCount(device.period) : '')];
  if (data.total > rows.length) notes.push('similar neighbours share a line');
  notes.push(marked === 0 ? 'no outliers' : plural(marked, 'line') + ' with outliers, which are marked: more than 3.5 scaled median deviations, and more than 1 %, from the median');
  return {
    root: card('Iterations', 'iterations', element('p', { class: 'note', text: notes.join(' · ') }), table.root),
    // show marks the iteration at a time.
    show(time) {
      const i = lastAtOrBefore(data.start, time);
      table.choose(i >= 0 && data.end[i] >= time ? i : -1);
    },
  };
}

function growthList(view) {
  const data = view.device.growths;
  if (data.seq.length === 0) {
    return card('Growths', 'growths', element('p', { class: 'empty', text: 'No arena grew.' }));
  }
  const rows = Array.from(data.seq, (_, i) => i);
  const verdict = (i) => data.verdicts[data.verdict[i]];
  const size = (name, key, title) => ({ name, title, number: true, of: (i) => data[key][i], text: (i) => formatKnown(data[key][i]) });
  const columns = [
    { name: 'event', number: true, of: (i) => data.seq[i], text: (i) => formatCount(data.seq[i]), width: 'minmax(80px, 1fr)' },
    { name: 'time', number: true, of: (i) => data.time[i], text: (i) => formatDuration(data.time[i]), width: 'minmax(54px, 1fr)' },
    { name: 'iter', number: true, of: (i) => data.iteration[i], text: (i) => (data.iteration[i] < 0 ? ABSENT : String(data.iteration[i])), width: 'minmax(40px, .6fr)' },
    size('request', 'request', 'the request that the arena grew for; – if the request failed'), size('grown', 'grown', 'bytes mapped'),
    size('free', 'free', 'free on the device before'),
    size('largest', 'largest', 'the largest free chunk of the arena before'),
    size('too small', 'tooSmall', 'free in chunks of the arena too small for the request'), size('stranded', 'stranded', 'free in other arenas'),
    { name: 'verdict', of: verdict, text: verdict, tone: (i) => (verdict(i) === 'fragmentation' ? 'warned' : ''), width: 'minmax(98px, 1fr)' },
  ];
  if (view.device.arenas.length > 1) {
    columns.splice(1, 0, { name: 'arena', number: true, of: (i) => data.arena[i], text: (i) => String(data.arena[i]), width: 'minmax(50px, .6fr)' });
  }
  const table = new LongTable(columns, { onClick: (i) => view.pinEvent(data.seq[i] - 1, data.time[i]) });
  table.setRows(rows);
  const notes = ['click a line to pin the instant before its request'];
  if (data.total > rows.length) notes.push(formatCount(data.total - rows.length) + ' later growths are counted but not listed');
  if (rows.some((i) => verdict(i) === 'fragmentation')) notes.push('fragmentation: enough bytes were free, but no free chunk was large enough');
  return card('Growths', 'growths', element('p', { class: 'note', text: notes.join(' · ') }), table.root);
}

const OOMS_OPEN = 3; // failed requests that are not folded

// oomStory lists the failed requests, each with a button that pins its instant.
function oomStory(view) {
  const device = view.device;
  if (device.ooms.length === 0) return null;
  const lines = device.ooms.map((oom) => {
    const largest = oom.largest < 0 ? '' : ', the largest free chunk had ' + formatSize(oom.largest);
    const free = oom.free < 0 ? 'free bytes are not known' : formatSize(oom.free) + ' were free' + largest;
    return element('li', {},
      quiet('Pin', () => view.pinEvent(oom.seq, oom.time)),
      element('strong', { text: formatSize(oom.request) + ' failed ' }),
      element('span', { text: formatDuration(oom.time) + ' after the start, event ' + formatCount(oom.seq) + ', requested by ' + oom.origin + ': ' + free + '. ' }),
      element('em', { class: 'tone-failed', text: oom.verdict }));
  });
  const list = (items) => element('ol', { class: 'ooms' }, ...items);
  const root = card('Out of memory', 'ooms', list(lines.slice(0, OOMS_OPEN)));
  if (lines.length > OOMS_OPEN) root.append(element('details', {}, element('summary', { text: (lines.length - OOMS_OPEN) + ' more' }), list(lines.slice(OOMS_OPEN))));
  if (device.oomCount > lines.length) {
    root.append(element('p', { class: 'note', text: formatCount(device.oomCount - lines.length) + ' more requests failed later' }));
  }
  root.classList.add('trouble');
  return root;
}

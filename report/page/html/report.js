// The page of memprof report --html and of memprof report --open.

async function main() {
  const page = document.getElementById('page');
  page.setAttribute('aria-busy', 'true'); // a browser may have saved what it was
  delete page.dataset.events;
  theme.read();
  let report;
  try {
    report = await loadData('data');
  } catch (error) {
    page.replaceChildren(refused(error));
    throw error;
  }
  report.events = document.getElementById('events') !== null;
  const views = new Map();
  const holder = element('div');
  const line = element('span', { class: 'faint' });
  const warning = element('p', { class: 'banner' });
  const entries = [];
  const recordings = new Set(report.processes.map((process) => process.path)).size;
  report.processes.forEach((process, index) => {
    process.index = index;
    process.devices.forEach((device, at) => {
      entries.push({ index: entries.length, process, device, at, name: process.name + ' · GPU ' + device.device + (recordings > 1 ? ' · ' + process.path : '') });
    });
  });
  let shown = 0;
  let events = null; // the exact events, once they are unpacked
  const viewAt = (index) => {
    const entry = entries[index];
    if (!views.has(index)) {
      const view = new DeviceView(report, entry.process, entry.device, entries);
      views.set(index, view);
      giveEvents(index);
      view.onChange = () => address.changed();
    }
    return views.get(index);
  };
  const giveEvents = async (index) => {
    const entry = entries[index];
    const data = events && events.processes[entry.process.index];
    const view = views.get(index);
    if (!data || !data.devices[entry.at] || !view || !view.frames) return;
    const exact = await Exact.decode(entry.device, data, data.devices[entry.at], entry.device.keyframes);
    view.exactly(exact, data.spans.length === 1 && exact.time.length >= entry.process.events);
  };
  const select = element('select', { 'aria-label': 'Process and device', change: () => {
    show(Number(select.value));
    address.changed();
  } }, ...entries.map((entry, i) => element('option', { value: String(i), text: entry.name })));
  const show = (index) => {
    const entry = entries[index];
    shown = index;
    select.value = String(index);
    line.textContent = entry.device.line;
    warning.textContent = entry.process.warning;
    warning.hidden = entry.process.warning === '';
    holder.replaceChildren(viewAt(index).root);
  };
  const address = new Address(() => ({ index: shown, view: viewAt(shown) }), (fields) => {
    const index = Math.floor(Number(fields.get('gpu') || 0));
    show(index >= 0 && index < entries.length ? index : 0);
    toView(viewAt(shown), fields);
  });
  const header = element('header', { class: 'top' }, element('h1', {}, element('b', { text: 'memprof' }), element('span', { class: 'path', text: report.path })), line);
  if (entries.length > 1) header.append(select);
  else if (entries.length === 1) header.append(element('span', { class: 'tag', text: entries[0].name }));
  header.append(theme.button());
  page.replaceChildren(header, warning);
  warning.hidden = true;
  if (report.server && !report.server.complete) page.append(progress(report.server));
  if (report.ranks) page.append(sectionCard(report.ranks));
  if (entries.length === 0) {
    page.append(element('p', { class: 'empty', text: 'No memory of any device was used.' }));
  } else {
    page.append(holder);
    show(0);
    if (location.hash.length > 1) address.read();
  }
  page.setAttribute('aria-busy', 'false');
  if (!report.events) return;
  try {
    events = await loadData('events');
  } catch (error) {
    header.after(refused(error));
    throw error;
  }
  await Promise.all([...views.keys()].map(giveEvents));
  if (location.hash.length > 1 && entries.length > 0) address.read();
  page.dataset.events = String(events.stored); // bytes of the page that they take
}

// progress is a banner that says how far the server has read, and loads the page again when it has read all.
function progress(server) {
  const text = element('span');
  const banner = element('p', { class: 'banner', role: 'status' }, text);
  const say = (events) => {
    text.textContent = 'memprof reads the recording: ' + formatCount(events) + ' of ' + formatCount(server.of) + ' events. Until then the curve has few points; any event can be pinned.';
  };
  say(server.events);
  const ask = async () => {
    try {
      const state = await (await fetch('status')).json();
      if (state.complete) location.reload();
      else if (state.error) text.textContent = 'The recording could not be read: ' + state.error;
      else {
        say(state.events);
        setTimeout(ask, 500);
      }
    } catch (error) {
      text.textContent = 'memprof report --open has ended (' + error.message + ').';
    }
  };
  setTimeout(ask, 500);
  return banner;
}

main();

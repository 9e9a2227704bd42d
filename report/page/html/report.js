// The page of memprof report --html.

async function main() {
  const page = document.getElementById('page');
  theme.read();
  let report;
  try {
    report = await loadData();
  } catch (error) {
    page.replaceChildren(element('p', { class: 'empty', text: 'This page could not be read (' + error.message + '). It needs a browser with DecompressionStream, of 2023 or later.' }));
    throw error;
  }
  const views = new Map();
  const holder = element('div');
  const line = element('span', { class: 'faint' });
  const warning = element('p', { class: 'banner' });
  const entries = [];
  const recordings = new Set(report.processes.map((process) => process.path)).size;
  for (const process of report.processes) {
    for (const device of process.devices) {
      entries.push({ process, device, name: process.name + ' · GPU ' + device.device + (recordings > 1 ? ' · ' + process.path : '') });
    }
  }
  const show = (index) => {
    const entry = entries[index];
    line.textContent = entry.device.line;
    warning.textContent = entry.process.warning;
    warning.hidden = entry.process.warning === '';
    if (!views.has(index)) {
      const view = new DeviceView(report, entry.process, entry.device);
      views.set(index, view);
    }
    holder.replaceChildren(views.get(index).root);
  };
  const header = element('header', { class: 'top' }, element('h1', {}, element('b', { text: 'memprof' }), element('span', { class: 'path', text: report.path })), line);
  if (entries.length > 1) {
    const select = element('select', { 'aria-label': 'Process and device', change: () => show(Number(select.value)) },
      ...entries.map((entry, i) => element('option', { value: String(i), text: entry.name })));
    header.append(select);
  } else if (entries.length === 1) {
    header.append(element('span', { class: 'tag', text: entries[0].name }));
  }
  header.append(theme.button());
  page.replaceChildren(header, warning);
  warning.hidden = true;
  if (report.ranks) page.append(sectionCard(report.ranks));
  if (entries.length === 0) {
    page.append(element('p', { class: 'empty', text: 'No memory of any device was used.' }));
  } else {
    page.append(holder);
    show(0);
  }
  page.setAttribute('aria-busy', 'false');
}

main();

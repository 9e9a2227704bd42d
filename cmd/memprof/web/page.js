// The page that files are dropped on: it hands them to a worker, and shows what memprof prints.

const at = (id) => document.getElementById(id);
const packed = at('packed').textContent;
const scripts = URL.createObjectURL(new Blob([at('scripts').textContent], { type: 'text/javascript' }));
let worker = null, program = null, shown = '';

// show puts what a command printed on the page, and the page that it wrote into the frame.
function show({ out, errors, code, page }) {
  at('screen').textContent = out;
  at('screen').hidden = out === '';
  at('errors').textContent = errors;
  at('errors').hidden = errors === '';
  document.body.dataset.code = code;
  if (!page) return;
  shown = URL.createObjectURL(page);
  at('frame').src = at('save').href = shown;
  at('report').hidden = false;
}

function clear() {
  if (worker) worker.terminate();
  URL.revokeObjectURL(shown);
  at('frame').removeAttribute('src');
  at('report').hidden = true;
  show({ out: '', errors: '', code: '' });
}

// take answers what was dropped or chosen: files with their paths.
function take(dropped) {
  if (dropped.length === 0) return;
  clear();
  const begun = performance.now();
  at('page').setAttribute('aria-busy', 'true');
  worker = new Worker(scripts);
  const end = (status) => {
    at('status').textContent = status;
    at('page').setAttribute('aria-busy', 'false');
    worker.terminate(); // its memory goes with it
    worker = null;
  };
  worker.onmessage = ({ data }) => {
    if (data.program) program = data.program;
    if (data.status) at('status').textContent = data.status + ' …';
    if (data.screen) show(data.screen);
    if (!data.done) return;
    const seconds = ((performance.now() - begun) / 1000).toFixed(1);
    end(data.screen.code === 0 ? `Done in ${seconds} s.` : 'memprof refused this: its message is below.');
  };
  worker.onerror = (event) => {
    show({ out: '', errors: `memprof: ${event.message}\n`, code: 3 });
    end('memprof failed.');
  };
  worker.postMessage({ program, packed: program ? '' : packed, dropped });
}

// filesIn lists the files of a dropped folder. In a page from disk, Chromium reads folders by their handles only, which others lack.
async function filesIn(entry, handle) {
  const found = [];
  if (handle) {
    for await (const [name, inside] of handle.entries()) {
      const path = `${entry.fullPath}/${name}`;
      if (inside.kind === 'file') found.push({ path: path.slice(1), blob: await inside.getFile() });
      else found.push(...await filesIn({ fullPath: path }, inside));
    }
    return found;
  }
  const reader = entry.createReader();
  for (;;) {
    const more = await new Promise((done, failed) => reader.readEntries(done, failed)); // a hundred at a time
    if (more.length === 0) return found;
    for (const inside of more) {
      if (inside.isDirectory) found.push(...await filesIn(inside));
      else found.push({ path: inside.fullPath.slice(1), blob: await new Promise((done, failed) => inside.file(done, failed)) });
    }
  }
}

async function drop(data) {
  const items = [...data.items].filter((item) => item.kind === 'file').map((item) => {
    const entry = item.webkitGetAsEntry(); // all that asks for an item must do so before the first await
    return entry && entry.isDirectory ? { entry, handle: item.getAsFileSystemHandle && item.getAsFileSystemHandle() } : { file: item.getAsFile() };
  });
  if (items.length === 0) return takeText(data.getData('text/plain'));
  const found = [];
  for (const { file, entry, handle } of items) {
    if (file) found.push({ path: file.name, blob: file });
    else found.push(...await filesIn(entry, await handle));
  }
  take(found);
}

async function takeText(text) {
  if (text.trim() !== '') take([{ path: 'the text', blob: new Blob([text]) }]);
}

addEventListener('dragover', (event) => {
  event.preventDefault();
  document.body.classList.add('over');
});
addEventListener('dragleave', () => document.body.classList.remove('over'));
addEventListener('drop', (event) => {
  event.preventDefault();
  document.body.classList.remove('over');
  drop(event.dataTransfer).catch((error) => show({ out: '', errors: `memprof: ${error}: choose the files by the buttons above\n`, code: 3 }));
});
for (const input of [at('files'), at('folder')]) {
  input.addEventListener('change', () => take([...input.files].map((file) => ({ path: file.webkitRelativePath || file.name, blob: file }))));
}
at('explain').addEventListener('click', () => takeText(at('text').value));
at('page').setAttribute('aria-busy', 'false');

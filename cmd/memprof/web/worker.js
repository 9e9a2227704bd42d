// The worker of the page: it runs memprof's own command line over what was dropped, and posts what that printed.

// compile unpacks and compiles memprof, which the page has as base64 of gzip.
function compile(text) {
  const packed = new Blob([Uint8Array.from(atob(text), (c) => c.charCodeAt(0))]);
  const unpacked = packed.stream().pipeThrough(new DecompressionStream('gzip'));
  return WebAssembly.compileStreaming(new Response(unpacked, { headers: { 'Content-Type': 'application/wasm' } }));
}

// memprof runs one command, and resolves to its exit code and what it printed.
async function memprof(program, files, ...args) {
  files.printed = { 1: [], 2: [] };
  const go = new Go();
  let code = 0;
  Object.assign(go, { argv: ['memprof', ...args], env: { HOME: '/', TMPDIR: '/' }, exit: (c) => (code = c) });
  let trap = '';
  try {
    await go.run(await WebAssembly.instantiate(program, go.importObject));
  } catch (error) {
    [code, trap] = [3, `memprof: ${error}\n`];
  }
  for (const timer of go._scheduledTimeouts.values()) clearTimeout(timer); // it would resume what has ended
  const errors = await files.text(2);
  const crash = errors.search(/^(fatal error|panic|runtime): /m); // a stack trace helps no reader of the page
  return { code, out: await files.text(1), errors: (crash < 0 ? errors : errors.slice(0, errors.indexOf('\n', crash) + 1)) + trap };
}

// kindOf says by its first bytes, or its name, what a dropped file is.
async function kindOf({ path, blob }) {
  const [a, b, c, d] = new Uint8Array(await blob.slice(0, 4).arrayBuffer());
  if (a === 0x80 || (a === 0x1f && b === 0x8b) || /\.(pickle|pkl)$/i.test(path)) return 'snapshot';
  return String.fromCharCode(a, b, c, d) === 'PAR1' ? 'recording' : 'text';
}

// answer gives what was dropped to memprof: the first screen, then the page. A snapshot's recording is called as the snapshot is, in
// another folder, so that what is printed is what the command line prints of the file.
async function answer(program, dropped) {
  const files = new Files();
  for (const { path, blob } of dropped) files.add('dropped/' + path, blob);
  files.make(['made']);
  files.folder = '/dropped';
  mount(files);
  let stage = '';
  files.onRead = (name, at, of) => {
    if (of > 16 << 20) postMessage({ status: `${stage}: ${name}, ${Math.round(100 * at / of)} %` });
  };
  const step = (what, ...args) => {
    postMessage({ status: stage = what });
    return memprof(program, files, ...args);
  };
  let paths = [...new Set(dropped.map(({ path }) => path.split('/')[0]))];
  const kind = dropped.some(({ path }) => path.includes('/')) ? 'recording' : await kindOf(dropped[0]);
  if (kind === 'text') return step('Reading the text', 'explain', '--', paths[0]);
  if (kind === 'snapshot') {
    const name = paths.length > 1 ? 'run' : paths[0];
    const imported = await step('Reading the snapshot', 'import', '-o', '/made/' + name, '--', ...paths);
    if (imported.code !== 0) return imported;
    [files.folder, paths] = ['/made', [name]];
  }
  const screen = await step('Writing the report', 'report', '--', ...paths);
  postMessage({ screen });
  if (screen.code !== 0) return screen;
  const page = await step('Drawing the page', 'report', '--html', '-o', '/report.html', '--', ...paths);
  if (page.code !== 0) return page;
  const { data, size } = files.there('/report.html');
  return { ...screen, page: new Blob([data.subarray(0, size)], { type: 'text/html' }) };
}

onmessage = async ({ data: { program, packed, dropped } }) => {
  try {
    if (!program) {
      postMessage({ status: 'Unpacking memprof' });
      postMessage({ program: program = await compile(packed) });
    }
    postMessage({ screen: await answer(program, dropped), done: true });
  } catch (error) {
    postMessage({ screen: { code: 3, out: '', errors: `memprof: ${error}\n` }, done: true });
  }
};

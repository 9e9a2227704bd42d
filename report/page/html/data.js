// The page's data: pack in page/pack.go writes it.

// loadData reads the pack of an element, null if the page has none. The element stays: a browser saves the page as it is.
async function loadData(id) {
  const element = document.getElementById(id);
  if (!element) return null;
  const text = element.textContent;
  const packed = readDense(text, Number(element.dataset.bytes));
  let data;
  try {
    data = await unpack(packed);
  } catch (error) {
    if (typeof DecompressionStream === 'undefined') throw new Error('it needs a browser with DecompressionStream, of 2023 or later');
    throw new Error(altered);
  }
  data.stored = new TextEncoder().encode(text).length; // bytes in the page
  return data;
}

// refused is a banner that says why the page's data cannot be read, and what to do.
function refused(error) {
  document.getElementById('page').setAttribute('aria-busy', 'false');
  return element('p', { class: 'banner', role: 'alert', text: 'This page cannot be read: ' + error.message + '. Copy it as a binary file, or write it again with memprof.' });
}

async function unpack(packed) {
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('deflate'));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const length = new DataView(bytes.buffer).getUint32(0, true);
  const columns = bytes.subarray(4 + length);
  const json = new TextDecoder().decode(bytes.subarray(4, 4 + length));
  return JSON.parse(json, (key, value) => {
    if (value === null || typeof value !== 'object' || !Array.isArray(value.$)) return value;
    const [at, count, form] = value.$;
    return form > 1 ? readBits(columns, at, count, form === 3) : readVarints(columns, at, count, form === 1);
  });
}

// readVarints decodes varints, the zigzag code and, unless the column is plain, the differences. It multiplies instead
// of shifting, because shifts keep only 32 bits.
function readVarints(bytes, at, count, plain) {
  const out = new Float64Array(count);
  let last = 0;
  for (let i = 0; i < count; i++) {
    let value = 0;
    let scale = 1;
    for (;;) {
      const byte = bytes[at++];
      value += (byte & 127) * scale;
      if (byte < 128) break;
      scale *= 128;
    }
    const number = unzigzag(value);
    out[i] = last = plain ? number : last + number;
  }
  return out;
}

// readBits decodes lengths in bits and then the bits of each value but its highest.
function readBits(bytes, at, count, zigzag) {
  const out = new Float64Array(count);
  let next = at + count;
  let filled = 0; // bits of bytes[next] that were read
  for (let i = 0; i < count; i++) {
    let value = 0;
    let scale = 1;
    for (let n = bytes[at + i] - 1; n > 0;) {
      const took = Math.min(n, 8 - filled);
      value += ((bytes[next] >> filled) & ((1 << took) - 1)) * scale;
      scale *= 1 << took;
      n -= took;
      filled += took;
      if (filled === 8) {
        filled = 0;
        next++;
      }
    }
    if (bytes[at + i] > 0) value += scale;
    out[i] = zigzag ? unzigzag(value) : value;
  }
  return out;
}

const unzigzag = (value) => (value % 2 === 0 ? value / 2 : -(value + 1) / 2);

// lastAtOrBefore is the index of the last value <= what in an ascending column, -1 for none.
function lastAtOrBefore(column, what) {
  let low = 0;
  let high = column.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (column[middle] <= what) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

// nearest is the index of the value closest to what in an ascending column that is not empty.
function nearest(column, what) {
  const at = lastAtOrBefore(column, what);
  if (at < 0) return 0;
  if (at + 1 < column.length && column[at + 1] - what < what - column[at]) return at + 1;
  return at;
}

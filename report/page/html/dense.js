// The text that stands for bytes in a page: dense in page/dense.go writes it.

const altered = 'the page was altered after memprof wrote it, as by a program that takes it for text of another encoding';
const apart = [0, 13, 60]; // 7 bits that have no character of their own
const joinedFrom = 0x100;

// readDense returns the bytes that a text stands for.
function readDense(text, count) {
  const bytes = new Uint8Array(count);
  let at = 0;
  let part = 0;
  let filled = 0; // bits of part
  for (let i = 0, second = -1; i < text.length; i++) {
    let bits = text.charCodeAt(i);
    if (second >= 0) {
      bits = second;
      second = -1;
    } else if (bits > 127) {
      second = bits & 127;
      bits = apart[(bits - joinedFrom) >> 7];
      if (bits === undefined) throw new Error(altered);
      i--; // its second 7 bits are next
    }
    part |= bits << filled;
    filled += 7;
    if (filled < 8) continue;
    bytes[at++] = part;
    part >>= 8;
    filled -= 8;
  }
  if (at !== count && !(at === count + 1 && filled < 7)) throw new Error(altered);
  return bytes;
}

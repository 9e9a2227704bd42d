// Numbers as memprof's terminal reports write them.

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB'];
const ABSENT = '–';

function threeDigits(value) {
  const scale = value < 9.995 ? 100 : value < 99.95 ? 10 : 1;
  const digits = Math.log10(scale);
  const scaled = value * scale;
  const floor = Math.floor(scaled);
  // Halves are rounded to the even neighbour, as Go does.
  return scaled - floor === 0.5 ? ((floor + floor % 2) / scale).toFixed(digits) : value.toFixed(digits);
}

// formatSize: "512 B", "2 MiB", "1.27 GiB". Whole multiples of the unit have no decimals.
function formatSize(bytes) {
  if (bytes < 0) return '-' + formatSize(-bytes);
  let unit = 0;
  let scale = 1;
  while (unit < UNITS.length - 1 && bytes >= scale * 1024) {
    scale *= 1024;
    unit++;
  }
  if (bytes % scale === 0) return bytes / scale + ' ' + UNITS[unit];
  const text = threeDigits(bytes / scale);
  return text === '1024' ? '1.00 ' + UNITS[unit + 1] : text + ' ' + UNITS[unit];
}

// formatKnown is formatSize for a number that is -1 if it is not known.
function formatKnown(bytes) {
  return bytes < 0 ? ABSENT : formatSize(bytes);
}

function formatCount(n) {
  return String(n).replace(/\B(?=(\d{3})+$)/g, ',');
}

function formatPercent(share) {
  if (!Number.isFinite(share)) return ABSENT;
  if (share > 0 && share < 0.0005) return '<0.1%';
  return (share * 100).toFixed(1) + '%';
}

function formatDuration(ns) {
  if (ns < 0) return '-' + formatDuration(-ns);
  if (ns < 1e3) return ns.toFixed(0) + ' ns';
  if (ns < 999500) return threeDigits(ns / 1e3) + ' µs';
  if (ns < 999500000) return threeDigits(ns / 1e6) + ' ms';
  if (ns < 99950000000) return threeDigits(ns / 1e9) + ' s';
  const seconds = Math.ceil(ns / 1e9);
  const two = (n) => String(n).padStart(2, '0');
  if (seconds < 3600) return Math.floor(seconds / 60) + 'm' + two(seconds % 60) + 's';
  return Math.floor(seconds / 3600) + 'h' + two(Math.floor(seconds / 60) % 60) + 'm';
}

// formatTime is a time of the recording, precise enough to differ from one `apart` ns away.
function formatTime(ns, apart) {
  const small = Math.abs(ns) < 1e9 && apart < 1e6;
  const scale = small ? 1e6 : 1e9;
  let decimals = 0;
  for (let unit = scale; unit > apart && unit > 1; unit /= 10) decimals++;
  return (ns / scale).toFixed(decimals) + (small ? ' ms' : ' s');
}

function plural(n, noun) {
  return formatCount(n) + ' ' + noun + (n === 1 ? '' : 's');
}

// compareNames puts layer2 before layer10.
const compareNames = new Intl.Collator('en', { numeric: true }).compare;

// niceStep is 1, 2 or 5 times a power of ten, at least range / parts.
function niceStep(range, parts) {
  const least = range / parts;
  const power = Math.pow(10, Math.floor(Math.log10(least)));
  for (const factor of [1, 2, 5, 10]) {
    if (factor * power >= least) return factor * power;
  }
  return 10 * power;
}

// niceBytes is the least power of two that is at least range / parts.
function niceBytes(range, parts) {
  return Math.max(1, Math.pow(2, Math.ceil(Math.log2(range / parts))));
}

// The drawing of a timeline: scales, areas and edges of curves, bands, marks.

const LEFT = 66;
const RIGHT = 14;
const BAND = 16;
const TOP = 2 * BAND + 10;
const BOTTOM = 40;

// Scene draws what a timeline gives it: times from this.from to this.to in this.columns columns of
// pixels, bytes up to this.top.
class Scene extends Chart {
  constructor(name, height, label) {
    super(name, height, label);
    this.left = LEFT;
    this.right = RIGHT;
  }

  yAt(bytes) {
    return this.height - BOTTOM - bytes / this.top * (this.height - TOP - BOTTOM);
  }

  // areas draws curves one over the other, [curve, floor, colour] each: from a floor (the maxima of a curve, or 0) up to a
  // curve's minima, and in a paler colour on to its maxima. It writes pixels: paths of thousands of corners, which
  // these are, take several times as long.
  areas(layers) {
    const columns = this.columns;
    const ratio = devicePixelRatio || 1;
    const rows = Math.max(1, Math.round((this.height - TOP - BOTTOM) * ratio));
    const { buffer, pixels } = this.pixelBuffer(columns, rows);
    const scale = rows / this.top;
    const row = (curve, values, i) => (curve.most[i] < 0 ? 0 : Math.min(rows, Math.round(Math.max(0, values[i]) * scale)));
    for (const [curve, floor, color] of layers) {
      const solid = pixelOf(color);
      const pale = pixelOf(mix(color, 0.65, theme.colors.surface));
      for (let x = 0; x < columns; x++) {
        const low = floor === null ? 0 : row(floor, floor.most, x);
        const least = row(curve, curve.least, x);
        const most = row(curve, curve.most, x);
        let at = (rows - 1 - low) * columns + x;
        for (let y = low; y < most; y++, at -= columns) pixels[at] = y < least ? solid : pale;
      }
    }
    this.showPixels(buffer, columns, rows, LEFT, TOP, this.height - TOP - BOTTOM);
  }

  // pixelBuffer is an empty picture of a size, which showPixels draws.
  pixelBuffer(columns, rows) {
    if (!this.image || this.image.width !== columns || this.image.height !== rows) {
      this.image = new ImageData(columns, rows);
      this.pixels = new Uint32Array(this.image.data.buffer);
      this.buffer = document.createElement('canvas');
      this.buffer.width = columns;
      this.buffer.height = rows;
    }
    this.pixels.fill(0);
    return { buffer: this.buffer, pixels: this.pixels };
  }

  showPixels(buffer, columns, rows, x, y, height) {
    buffer.getContext('2d').putImageData(this.image, 0, 0);
    this.context.imageSmoothingEnabled = false;
    this.context.drawImage(buffer, 0, 0, columns, rows, x, y, columns, height);
  }

  // outline follows columns from left to right or back, horizontally within a column.
  outline(from, to, step, height) {
    const c = this.context;
    const enter = step > 0 ? 0 : 1; // the side that a column is entered from
    let y = height(from);
    c.lineTo(LEFT + from + enter, y);
    for (let i = from + step; i !== to; i += step) {
      const next = height(i);
      if (next === y) continue;
      c.lineTo(LEFT + i + enter, y);
      c.lineTo(LEFT + i + enter, next);
      y = next;
    }
    c.lineTo(LEFT + to + enter, y);
  }

  // edge draws the line of a curve's maxima, down to the minimum of each column; equal columns are one
  // piece. A dashed line leaves out three columns of eight.
  edge(curve, color, dashed) {
    const c = this.context;
    c.fillStyle = color;
    for (let i = 0; i < this.columns;) {
      const most = curve.most[i];
      const least = curve.least[i];
      let end = i + 1;
      while (end < this.columns && curve.most[end] === most && curve.least[end] === least && !(dashed && end % 8 === 0)) end++;
      if (most >= 0) {
        // The line also spans the step from the column before.
        const before = i > 0 && curve.most[i - 1] >= 0 ? i - 1 : i;
        const high = this.yAt(Math.max(most, curve.least[before]));
        const low = this.yAt(Math.max(0, Math.min(least, curve.most[before])));
        c.fillRect(LEFT + i, high - 0.75, 1, low - high + 1.5);
        const y = this.yAt(most);
        const until = dashed ? Math.min(end, i - i % 8 + 5) : end;
        if (until > i + 1) c.fillRect(LEFT + i, y - 0.75, until - i, this.yAt(Math.max(0, least)) - y + 1.5);
      }
      i = end;
    }
  }

  // drawSizes draws lines at round sizes, which divide the height into at most so many parts.
  drawSizes(parts) {
    const c = this.context;
    this.letters(11);
    c.textBaseline = 'middle';
    c.textAlign = 'right';
    const step = niceBytes(this.top, parts);
    for (let bytes = 0; bytes <= this.top; bytes += step) {
      const y = Math.round(this.yAt(bytes)) + 0.5;
      c.fillStyle = theme.colors.grid;
      c.fillRect(LEFT, y - 0.5, this.width - LEFT - RIGHT, 1);
      c.fillStyle = theme.colors.faint;
      c.fillText(formatSize(Math.round(bytes)), LEFT - 8, y);
    }
  }

  drawGrid() {
    const c = this.context;
    const colors = theme.colors;
    this.drawSizes(8);
    c.lineWidth = 1;
    c.textAlign = 'center';
    c.textBaseline = 'top';
    const apart = niceStep(this.to - this.from, Math.max(2, this.columns / 130));
    for (let time = Math.ceil(this.from / apart) * apart; time <= this.to; time += apart) {
      const x = Math.round(this.xAt(time)) + 0.5;
      c.strokeStyle = colors.grid;
      c.beginPath();
      c.moveTo(x, TOP);
      c.lineTo(x, this.height - BOTTOM);
      c.stroke();
      c.fillStyle = colors.faint;
      const text = formatTime(time, apart);
      const half = c.measureText(text).width / 2;
      c.fillText(text, Math.max(half, Math.min(this.width - half, x)), this.height - 15);
    }
  }

  // strip draws bands from start to end. Of bands narrower than a pixel it draws one for each pixel.
  strip(bands, y, look) {
    const c = this.context;
    const right = this.width - RIGHT;
    let at = Math.max(0, lastAtOrBefore(bands.start, this.from));
    let drawn = LEFT;
    let run = null; // pixels of one colour: {x, color}
    const end = (x) => {
      if (run !== null) {
        c.fillStyle = run.color;
        c.fillRect(run.x, y, x - run.x, BAND - 2);
      }
      run = null;
    };
    while (at < bands.start.length && bands.start[at] < this.to && drawn < right) {
      const x0 = Math.max(drawn, this.xAt(bands.start[at]));
      const x1 = Math.min(right, this.xAt(bands.end[at]));
      const [color, text] = look(at);
      if (x1 - x0 < 1.5) {
        if (run === null || run.color !== color || x0 > drawn + 1) {
          end(drawn);
          run = { x: x0, color };
        }
        drawn = Math.max(x1, x0 + 1);
        at = Math.max(at + 1, lastAtOrBefore(bands.start, this.valueAt(drawn)));
        continue;
      }
      end(drawn);
      c.fillStyle = color;
      c.fillRect(x0, y, x1 - x0 - (x1 - x0 > 3 ? 1 : 0), BAND - 2);
      if (x1 - x0 > 14) {
        c.fillStyle = theme.colors.ink;
        this.label(text, x0 + 4, y + BAND / 2 - 0.5, x1 - x0 - 8);
      }
      drawn = x1;
      at++;
    }
    end(Math.min(drawn, right));
  }

  line(time, color, text) {
    const c = this.context;
    const x = Math.round(this.xAt(time)) + 0.5;
    if (x < LEFT || x > this.width - RIGHT + 1) return;
    c.strokeStyle = c.fillStyle = color;
    c.lineWidth = 2;
    c.beginPath();
    c.moveTo(x, TOP - 6);
    c.lineTo(x, this.height - BOTTOM + 18);
    c.stroke();
    c.beginPath();
    c.arc(x, TOP - 5, 4, 0, 2 * Math.PI);
    c.fill();
    if (text === '') return;
    this.letters(11, 600);
    const room = c.measureText(text).width;
    c.textBaseline = 'top';
    c.textAlign = 'left';
    c.fillText(text, x + 6 + room > this.width ? x - 6 - room : x + 6, TOP);
  }
}

// pixelOf is the value of a pixel of a colour, #rrggbb.
function pixelOf(color) {
  const part = (at) => parseInt(color.slice(at, at + 2), 16);
  return (255 << 24 | part(5) << 16 | part(3) << 8 | part(1)) >>> 0;
}

// Timeline draws requested, provided, reserved and device-used bytes over time. memprof has computed the
// levels of detail; each column of pixels shows the minimum and maximum within it, so that no peak is
// lost at any zoom.

class Timeline extends Scene {
  constructor(view) {
    super('timeline', 330, 'Memory over time. Arrow keys pin the previous and next event, with shift stored instant, plus and minus zoom, A and D move the view, 0 shows all.');
    this.view = view;
    this.device = view.device;
    this.span();
    this.from = this.start;
    this.to = this.end;
    this.fit = false;
    this.hovered = null; // time
    this.overview = new Overview(this);
    this.listen();
  }

  // span is the time from the first to the last event.
  span() {
    const { levels, bands, iterations } = this.device;
    this.start = levels[0].start.at(0) ?? 0;
    this.end = Math.max(levels[0].end.at(-1) ?? 1, bands.end.at(-1) ?? -Infinity, iterations.end.at(-1) ?? -Infinity);
    if (this.end <= this.start) this.end = this.start + 1e6;
    this.most = 1;
    for (const most of levels.at(-1).maxR) this.most = Math.max(this.most, most);
    if (this.device.used) for (const most of this.device.used.max) this.most = Math.max(this.most, most);
  }

  listen() {
    const canvas = this.canvas;
    dragging(canvas, {
      onStart: (event) => { this.selecting = event.shiftKey ? this.valueAt(event.offsetX) : null; },
      onMove: (by, event) => {
        if (this.selecting !== null) {
          this.selected = this.valueAt(event.offsetX);
          this.schedule();
          return;
        }
        this.pan(-by);
      },
      onEnd: () => {
        if (this.selecting !== null && this.selected !== undefined) {
          this.show(Math.min(this.selecting, this.selected), Math.max(this.selecting, this.selected));
        }
        this.selecting = null;
        this.selected = undefined;
        this.schedule();
      },
      onClick: (event) => this.view.pinNear(this.valueAt(event.offsetX)),
      onHover: (event) => this.hover(event),
      onLeave: () => {
        this.hovered = null;
        this.schedule();
      },
    });
    canvas.addEventListener('wheel', (event) => this.wheel(event), { passive: false });
  }

  keys() {
    const step = (by) => (event) => this.view.step(by, event.shiftKey);
    return { ...this.scaleKeys((this.from + this.to) / 2), ArrowLeft: step(-1), ArrowRight: step(1) };
  }

  // show brings a span of time into view, limited to the recording.
  show(from, to) {
    const all = this.end - this.start;
    const span = Math.max(Math.min(to - from, all), Math.min(100, all));
    if (to - from < span) from -= (span - (to - from)) / 2;
    this.from = Math.max(this.start, Math.min(from, this.end - span));
    this.to = this.from + span;
    this.schedule();
    this.overview.schedule();
    this.view.viewChanged();
  }

  // reveal brings a time into view if it is not.
  reveal(time) {
    if (time >= this.from && time <= this.to) return;
    const half = (this.to - this.from) / 2;
    this.show(time - half, time + half);
  }

  hover(event) {
    const x = Math.max(LEFT, Math.min(this.width - RIGHT, event.offsetX));
    this.hovered = this.valueAt(x);
    this.schedule();
    const colors = theme.colors;
    const i = Math.max(0, Math.min(this.columns - 1, Math.floor(x - LEFT))); // the column of pixels
    const apart = (this.to - this.from) / this.width;
    const lines = [[formatTime(this.hovered, apart)]];
    const iteration = this.view.iterationAt(this.hovered);
    if (iteration !== '') lines.push(['iteration', iteration]);
    const phase = this.view.phaseAt(this.hovered);
    if (phase !== '') lines.push(['phase', phase]);
    const range = ({ least, most }) => {
      const [from, to] = [formatSize(Math.max(0, least[i])), formatKnown(most[i])];
      return most[i] < 0 || from === to ? to : from + ' – ' + to;
    };
    const { r, c, t, used } = this.curves;
    lines.push(['reserved', range(r), colors.reserved], ['provided', range(c), colors.internal], ['requested', range(t), colors.requested]);
    if (this.device.used) lines.push(['device used', range(used), colors.used]);
    const seq = this.view.seqAt(this.valueAt(x));
    if (seq >= 0) lines.push(['event', formatCount(seq)]);
    lines.push(['click', 'pin this instant']);
    tooltip.show(event, lines);
  }

  // setOverlay draws the curves of another device over this one's, from the first event of each; null for none.
  setOverlay(entry) {
    this.overlaid = entry;
    this.span();
    if (entry) {
      this.otherStart = entry.device.levels[0].start[0];
      for (const most of entry.device.levels.at(-1).maxR) this.most = Math.max(this.most, most);
      this.end = Math.max(this.end, this.start + entry.device.levels[0].end.at(-1) - this.otherStart);
    }
    this.show(this.from, this.to);
  }

  // measure fills the curves for what is in view.
  measure() {
    this.columns = Math.max(1, Math.floor(this.width - LEFT - RIGHT));
    if (!this.curves || this.curves.columns !== this.columns) this.curves = new Course(this.device, this.columns);
    this.curves.measure(this.from, this.to);
    if (!this.overlaid) return;
    if (!this.others || this.others.columns !== this.columns || this.others.device !== this.overlaid.device) this.others = new Course(this.overlaid.device, this.columns);
    const later = this.otherStart - this.start;
    this.others.measure(this.from + later, this.to + later);
  }

  draw() {
    this.measure();
    this.top = this.most * 1.06;
    if (this.fit) {
      const most = Math.max(0, ...this.curves.r.most, ...this.curves.used.most);
      if (most > 0) this.top = most * 1.06;
    }
    this.clear();
    this.drawGrid();
    this.drawPauses();
    const colors = theme.colors;
    const { r, busy, c, t } = this.curves;
    const layers = [[r, null, colors.reserve]];
    if (!this.device.native) {
      if (this.view.pends) layers.push([busy, null, colors.pending]);
      layers.push([c, t, colors.internal]);
    }
    layers.push([t, null, colors.requested]);
    this.areas(layers);
    this.edge(this.curves.r, colors.reserved, false);
    if (this.device.used) this.edge(this.curves.used, colors.used, true);
    if (this.overlaid) {
      this.edge(this.others.r, colors.accent, false);
      this.edge(this.others.t, colors.failed, true);
      this.letters(11, 600);
      this.context.textAlign = 'right';
      this.context.textBaseline = 'top';
      this.context.fillStyle = colors.accent;
      this.label('over it: ' + this.overlaid.name + ': reserved (line), requested (dashed)', this.width - RIGHT - 4, TOP + 2, this.width - LEFT - RIGHT);
    }
    this.drawBands();
    this.drawMarks();
  }

  // drawBands draws the iterations and below them the phases.
  drawBands() {
    const c = this.context;
    const { iterations, bands } = this.device;
    this.letters(10.5);
    c.textBaseline = 'middle';
    c.textAlign = 'left';
    c.fillStyle = theme.colors.faint;
    if (iterations.start.length > 0) this.label('iteration', 2, BAND / 2 + 1, LEFT - 8);
    if (bands.start.length > 0) this.label('phase', 2, BAND * 1.5 + 3, LEFT - 8);
    this.strip(iterations, 0, (i) => {
      const text = iterations.count[i] > 1 ? iterations.number[i] + '–' + iterations.last[i] : String(iterations.number[i]);
      return [i % 2 === 0 ? theme.colors.band : theme.colors.grid, text];
    });
    this.strip(bands, BAND + 2, (i) => {
      const name = bands.names[bands.name[i]];
      return [this.view.phaseColor(name), name === '' ? 'several' : name];
    });
  }

  // drawPauses shades the times for which the memory of a tag was paused.
  drawPauses() {
    const c = this.context;
    for (const pause of this.device.subjects.pauses) {
      const x0 = Math.max(LEFT, this.xAt(pause.start));
      const x1 = Math.min(this.width - RIGHT, pause.end < 0 ? this.width : this.xAt(pause.end));
      if (x1 < x0) continue;
      c.globalAlpha = 0.14;
      c.fillStyle = theme.colors.pending;
      c.fillRect(x0, TOP, Math.max(1, x1 - x0), this.height - TOP - BOTTOM);
      c.globalAlpha = 1;
      c.fillStyle = theme.colors.faint;
      this.letters(10.5);
      c.textAlign = 'left';
      c.textBaseline = 'top';
      this.label('paused: ' + pause.tag, x0 + 4, TOP + 3, x1 - x0 - 8);
    }
  }

  // drawMarks draws growths, failed requests, the stored instants, the pin and the pointer.
  drawMarks() {
    const c = this.context;
    const colors = theme.colors;
    const floor = this.height - BOTTOM;
    const growths = this.device.growths;
    let drawn = -10;
    for (let i = Math.max(0, lastAtOrBefore(growths.time, this.from)); i < growths.time.length && growths.time[i] <= this.to; i++) {
      const x = this.xAt(growths.time[i]);
      const fragmented = growths.verdicts[growths.verdict[i]] === 'fragmentation';
      if (x < LEFT || (x - drawn < 2 && !fragmented)) continue;
      drawn = x;
      c.fillStyle = fragmented ? colors.external : colors.faint;
      c.beginPath();
      c.moveTo(x, floor + 2);
      c.lineTo(x - 4, floor + 9);
      c.lineTo(x + 4, floor + 9);
      c.fill();
    }
    for (const oom of this.device.ooms) this.line(oom.time, colors.failed, 'out of memory');
    if (this.view.frames) {
      c.fillStyle = colors.faint;
      c.globalAlpha = 0.7;
      let last = -10;
      const times = this.view.frames.time;
      for (let i = Math.max(0, lastAtOrBefore(times, this.from)); i < times.length && times[i] <= this.to; i++) {
        const x = this.xAt(times[i]);
        if (x < LEFT || x - last < 1) continue;
        last = x;
        c.fillRect(x, floor + 12, 1, 6);
      }
      c.globalAlpha = 1;
    }
    if (this.selected !== undefined) {
      c.globalAlpha = 0.2;
      c.fillStyle = colors.accent;
      c.fillRect(this.xAt(this.selecting), TOP, this.xAt(this.selected) - this.xAt(this.selecting), floor - TOP);
      c.globalAlpha = 1;
    }
    if (this.hovered !== null) {
      c.strokeStyle = colors.faint;
      c.lineWidth = 1;
      const x = Math.round(this.xAt(this.hovered)) + 0.5;
      c.beginPath();
      c.moveTo(x, TOP - 4);
      c.lineTo(x, floor);
      c.stroke();
    }
    if (this.view.instant) this.drawPin(this.view.instant.time);
  }

  // drawPin draws the pin, or an arrow towards it if it is out of view.
  drawPin(time) {
    const c = this.context;
    const away = time < this.from ? -1 : time > this.to ? 1 : 0;
    if (away === 0) {
      this.line(time, theme.colors.accent, '');
      return;
    }
    const x = away < 0 ? LEFT : this.width - RIGHT;
    c.fillStyle = theme.colors.accent;
    c.beginPath();
    c.moveTo(x + 8 * away, TOP - 5);
    c.lineTo(x, TOP - 10);
    c.lineTo(x, TOP);
    c.fill();
  }
}

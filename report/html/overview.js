// Overview is all of the recording, and what part of it is in view.
class Overview extends Chart {
  constructor(timeline) {
    super('overview', 40, 'The whole recording; drag to move the view');
    this.timeline = timeline;
    const move = (event) => {
      const t = this.timeline;
      const half = (t.to - t.from) / 2;
      const middle = t.start + (event.offsetX - LEFT) / (this.width - LEFT - RIGHT) * (t.end - t.start);
      t.show(middle - half, middle + half);
    };
    dragging(this.canvas, { onMove: (by, event) => move(event), onClick: move, onHover() {}, onLeave() {} });
  }

  draw() {
    this.clear();
    const c = this.context;
    const t = this.timeline;
    const colors = theme.colors;
    const level = t.device.levels[t.device.levels.length - 1];
    const width = this.width - LEFT - RIGHT;
    const x = (time) => LEFT + (time - t.start) / (t.end - t.start) * width;
    const y = (bytes) => this.height - 2 - Math.max(0, bytes) / t.most * (this.height - 6);
    for (const [most, last, color] of [[level.maxR, level.r, colors.reserve], [level.maxT, level.t, colors.requested]]) {
      c.fillStyle = color;
      c.beginPath();
      c.moveTo(LEFT, y(0));
      for (let i = 0; i < level.start.length; i++) {
        c.lineTo(x(level.start[i]), y(most[i]));
        c.lineTo(x(level.end[i]), y(most[i]));
        const next = i + 1 < level.start.length ? level.start[i + 1] : t.end;
        c.lineTo(x(level.end[i]), y(last[i]));
        c.lineTo(x(next), y(last[i]));
      }
      c.lineTo(x(t.end), y(0));
      c.fill();
    }
    const x0 = x(t.from);
    const x1 = x(t.to);
    c.fillStyle = colors.surface;
    c.globalAlpha = 0.65;
    c.fillRect(LEFT, 0, x0 - LEFT, this.height);
    c.fillRect(x1, 0, this.width - RIGHT - x1, this.height);
    c.globalAlpha = 1;
    c.strokeStyle = colors.accent;
    c.lineWidth = 1;
    c.strokeRect(x0 + 0.5, 0.5, Math.max(2, x1 - x0 - 1), this.height - 1);
  }
}

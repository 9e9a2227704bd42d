// Overview draws the whole recording and marks the part that the timeline shows.
class Overview extends Chart {
  constructor(timeline) {
    super('overview', 40, 'The whole recording: drag to move the view');
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
    const width = this.width - LEFT - RIGHT;
    const x = (time) => LEFT + (time - t.start) / (t.end - t.start) * width;
    const y = (bytes) => this.height - 2 - Math.max(0, bytes) / t.most * (this.height - 6);
    const columns = Math.max(1, Math.floor(width));
    if (!this.course || this.course.columns !== columns) {
      this.course = new Course(t.device, columns);
      this.course.measure(t.start, t.end);
    }
    for (const [curve, color] of [[this.course.r, colors.reserve], [this.course.t, colors.requested]]) {
      c.fillStyle = color;
      c.beginPath();
      c.moveTo(LEFT, y(0));
      for (let i = 0; i < columns; i++) {
        if (i > 0 && curve.most[i] === curve.most[i - 1]) continue;
        if (i > 0) c.lineTo(LEFT + i, y(curve.most[i - 1]));
        c.lineTo(LEFT + i, y(curve.most[i]));
      }
      c.lineTo(LEFT + columns, y(curve.most[columns - 1]));
      c.lineTo(LEFT + columns, y(0));
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

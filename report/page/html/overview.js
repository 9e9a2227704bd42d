// Overview draws the whole recording and marks the part that the timeline shows.
class Overview extends Scene {
  constructor(timeline) {
    super('overview', 40, 'The whole recording. Arrow keys move the view, plus and minus zoom, 0 shows all.');
    this.timeline = timeline;
    const move = (event) => {
      const t = this.timeline;
      const half = (t.to - t.from) / 2;
      const middle = this.valueAt(event.offsetX);
      t.show(middle - half, middle + half);
    };
    dragging(this.canvas, { onMove: (by, event) => move(event), onClick: move, onHover() {}, onLeave() {} });
  }

  get from() { return this.timeline.start; }
  get to() { return this.timeline.end; }

  keys() {
    const keys = this.timeline.keys();
    return { ...keys, ArrowLeft: keys.a, ArrowRight: keys.d };
  }

  draw() {
    this.clear();
    const c = this.context;
    const t = this.timeline;
    const colors = theme.colors;
    const y = (bytes) => this.height - 2 - Math.max(0, bytes) / t.most * (this.height - 6);
    const columns = Math.max(1, Math.floor(this.width - LEFT - RIGHT));
    if (!this.course || this.course.columns !== columns) {
      this.course = new Course(t.device, columns);
      this.course.measure(t.start, t.end);
    }
    for (const [curve, color] of [[this.course.r, colors.reserve], [this.course.t, colors.requested]]) {
      c.fillStyle = color;
      c.beginPath();
      c.moveTo(LEFT, y(0));
      this.outline(0, columns, 1, (i) => y(curve.most[i]));
      c.lineTo(LEFT + columns, y(0));
      c.fill();
    }
    const x0 = this.xAt(t.from);
    const x1 = this.xAt(t.to);
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

// Chart is a canvas with the resolution of the screen, drawn at most once a frame.

class Chart {
  constructor(name, height, label) {
    this.height = height;
    this.canvas = element('canvas', { class: name, role: 'img', 'aria-label': label });
    this.canvas.style.height = height + 'px';
    this.context = this.canvas.getContext('2d');
    this.width = 0;
    if (typeof ResizeObserver !== 'undefined') {
      new ResizeObserver(() => this.resize()).observe(this.canvas);
    }
    theme.listeners.push(() => this.schedule());
  }

  setHeight(height) {
    if (height === this.height) return;
    this.height = height;
    this.canvas.style.height = height + 'px';
    this.resize();
  }

  resize() {
    const ratio = devicePixelRatio || 1;
    const width = this.canvas.clientWidth;
    if (width === 0) return;
    const w = Math.round(width * ratio);
    const h = Math.round(this.height * ratio);
    if (this.canvas.width !== w || this.canvas.height !== h) {
      this.canvas.width = w;
      this.canvas.height = h;
    }
    this.width = width;
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.draw();
  }

  schedule() {
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => {
      this.waiting = 0;
      if (this.width > 0) this.draw();
    });
  }

  clear() {
    this.context.clearRect(0, 0, this.width, this.height);
  }

  letters(size, weight) {
    this.context.font = (weight || 400) + ' ' + size + 'px ' + theme.font;
  }

  // label writes text shortened to a width, and nothing if not even a few letters fit.
  label(text, x, y, room) {
    const c = this.context;
    if (room < 8) return;
    if (c.measureText(text).width <= room) {
      c.fillText(text, x, y);
      return;
    }
    let low = 0;
    let high = text.length;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (c.measureText(text.slice(0, middle) + '…').width <= room) low = middle;
      else high = middle - 1;
    }
    if (low > 1) c.fillText(text.slice(0, low) + '…', x, y);
  }
}

// dragging reports drags and clicks: onMove(dx, event) while the button is down, onClick(event)
// if the pointer did not move.
function dragging(canvas, handlers) {
  let from = null;
  let moved = false;
  canvas.addEventListener('pointerdown', (event) => {
    if (event.button !== 0) return;
    from = event.clientX;
    moved = false;
    canvas.setPointerCapture(event.pointerId);
    if (handlers.onStart) handlers.onStart(event);
  });
  canvas.addEventListener('pointermove', (event) => {
    if (from === null) {
      handlers.onHover(event);
      return;
    }
    const by = event.clientX - from;
    if (!moved && Math.abs(by) < 4) return;
    if (!moved) canvas.classList.add('dragging');
    moved = true;
    from = event.clientX;
    tooltip.hide();
    handlers.onMove(by, event);
  });
  const end = (event) => {
    if (from === null) return;
    from = null;
    canvas.classList.remove('dragging');
    if (event.type === 'pointerup' && !moved) handlers.onClick(event);
    else if (handlers.onEnd) handlers.onEnd(event);
  };
  canvas.addEventListener('pointerup', end);
  canvas.addEventListener('pointercancel', end);
  canvas.addEventListener('pointerleave', () => {
    if (from === null) {
      tooltip.hide();
      handlers.onLeave();
    }
  });
}

// Chart is a canvas with the resolution of the screen, drawn at most once a frame. Each can be reached and used by keyboard. A chart with
// a scale shows what is between from and to, of all between start and end, from left to right of its margins: times or addresses.

class Chart {
  constructor(name, height, label) {
    this.height = height;
    this.canvas = element('canvas', { class: name, role: 'application', tabindex: '0', 'aria-label': label, blur: () => tooltip.hide(),
      keydown: (event) => this.key(event), focus: () => this.tell() });
    this.canvas.style.height = height + 'px';
    this.context = this.canvas.getContext('2d');
    this.width = this.left = this.right = 0;
    if (typeof ResizeObserver !== 'undefined') {
      new ResizeObserver(() => this.resize()).observe(this.canvas);
    }
    theme.listeners.push(() => this.schedule());
  }

  // key does what the chart's keys() have for a key; Enter clicks at the place() of the keyboard, if the chart has one.
  key(event) {
    const place = this.place && this.place();
    const act = event.key === 'Enter' ? place && (() => this.click(place)) : this.keys()[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act(event);
    requestAnimationFrame(() => this.tell()); // after it is drawn
  }

  // tell shows what the pointer would at the place of the keyboard.
  tell() {
    const place = this.place && this.canvas.matches(':focus-visible') && this.place();
    const { left, top } = this.canvas.getBoundingClientRect();
    if (place) this.hover({ ...place, clientX: left + place.offsetX, clientY: top + place.offsetY });
  }

  valueAt(x) {
    return this.from + (x - this.left) / (this.width - this.left - this.right) * (this.to - this.from);
  }

  xAt(value) {
    return this.left + (value - this.from) / (this.to - this.from) * (this.width - this.left - this.right);
  }

  // pan moves what is shown by so many pixels.
  pan(pixels) {
    const by = this.valueAt(pixels) - this.valueAt(0);
    this.show(this.from + by, this.to + by);
  }

  zoom(factor, around) {
    this.show(around - (around - this.from) * factor, around + (this.to - around) * factor);
  }

  wheel(event) {
    const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY);
    // At the least zoom the page scrolls instead.
    if (!sideways && event.deltaY > 0 && this.from <= this.start && this.to >= this.end) return;
    event.preventDefault();
    if (sideways) this.pan(event.deltaX);
    else this.zoom(Math.exp(Math.max(-120, Math.min(120, event.deltaY)) * 0.004), this.valueAt(event.offsetX));
  }

  // scaleKeys zoom around a value and move what is shown.
  scaleKeys(around) {
    const closer = () => this.zoom(0.5, around);
    const wider = () => this.zoom(2, around);
    const all = () => this.show(this.start, this.end);
    return { '+': closer, '=': closer, w: closer, '-': wider, s: wider, a: () => this.pan(-this.width / 4), d: () => this.pan(this.width / 4), 0: all, Home: all };
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

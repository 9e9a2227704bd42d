// Elements, the theme and the tooltip. Whatever comes from the recording becomes text, never markup.

// element makes one: attributes that are functions are listeners, children are nodes or texts.
function element(name, attributes, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === 'function') node.addEventListener(key, value);
    else if (key === 'text') node.textContent = value;
    else if (key === 'class') node.className = value;
    else node.setAttribute(key, value === true ? '' : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

// swatch is a sample of a colour, for a legend; an empty place without one.
function swatch(color) {
  const sample = element('i', { class: 'swatch' });
  if (color) sample.style.background = color;
  return sample;
}

// quiet is a small button. A title says what a sign stands for; pressed is 'false' of one that is on or off.
function quiet(text, click, title, pressed) {
  return element('button', { type: 'button', class: 'quiet', text, title, 'aria-label': title, 'aria-pressed': pressed, click });
}

// choice is a row of buttons of which one is on; its choose() has another one on.
function choice(label, options, chosen, onChange) {
  const group = element('div', { class: 'choice', role: 'radiogroup', 'aria-label': label });
  const buttons = options.map(([value, text]) => {
    const button = element('button', { type: 'button', role: 'radio', text, click: () => {
      group.choose(value);
      onChange(value);
    } });
    button.dataset.value = value;
    group.append(button);
    return button;
  });
  group.choose = (value) => buttons.forEach((button) => button.setAttribute('aria-checked', String(button.dataset.value === String(value))));
  group.choose(chosen);
  return group;
}

const theme = {
  listeners: [],
  colors: {},
  // read takes the colours from the style sheet, for canvases.
  read() {
    const style = getComputedStyle(document.documentElement);
    for (const name of [
      'ink', 'faint', 'line', 'grid', 'surface', 'raised', 'accent', 'requested', 'internal', 'pending', 'external',
      'stranded', 'reusable', 'reserve', 'unmapped', 'reserved', 'used', 'failed', 'band', 'flame', 'match',
    ]) {
      this.colors[name] = style.getPropertyValue('--' + name).trim();
    }
    this.colors.series = [];
    for (let i = 0; i < 10; i++) this.colors.series.push(style.getPropertyValue('--series-' + i).trim());
    this.font = style.getPropertyValue('--font').trim();
    for (const listener of this.listeners) listener();
  },
  button() {
    const names = { auto: 'Auto', light: 'Light', dark: 'Dark' };
    let kept = 'auto';
    try {
      kept = localStorage.getItem('memprof-theme') || 'auto';
    } catch (e) {
      // Pages from disk may have no storage.
    }
    let chosen = names[kept] ? kept : 'auto';
    // The style sheet has the dark colours once, under data-theme; auto takes the system's choice.
    const system = matchMedia('(prefers-color-scheme: dark)');
    const apply = () => {
      document.documentElement.dataset.theme = chosen === 'auto' ? (system.matches ? 'dark' : 'light') : chosen;
      this.read();
    };
    apply();
    system.addEventListener('change', apply);
    return choice('Theme', Object.entries(names), chosen, (name) => {
      chosen = name;
      try {
        localStorage.setItem('memprof-theme', name);
      } catch (e) {
        // As above.
      }
      apply();
    });
  },
};

// tipLines are elements of lines of [name, value, colour]; a line of one text is a heading.
function tipLines(lines) {
  return lines.map((line) => {
    if (line.length === 1) return element('div', { class: 'tip-head', text: line[0] });
    return element('div', { class: 'tip-line' }, swatch(line[2]), element('span', { text: line[0] }), element('b', { text: line[1] }));
  });
}

const tooltip = {
  node: null,
  // show puts lines beside the pointer.
  show(event, lines) {
    if (!this.node) {
      this.node = element('div', { class: 'tooltip', role: 'status' });
      document.body.append(this.node);
    }
    this.node.replaceChildren(...tipLines(lines));
    this.node.hidden = false;
    const box = this.node.getBoundingClientRect();
    const gap = 14;
    let left = event.clientX + gap;
    if (left + box.width > innerWidth - 4) left = Math.max(4, event.clientX - gap - box.width);
    let top = event.clientY + gap;
    if (top + box.height > innerHeight - 4) top = Math.max(4, event.clientY - gap - box.height);
    this.node.style.transform = 'translate(' + Math.round(left) + 'px,' + Math.round(top) + 'px)';
  },
  hide() {
    if (this.node) this.node.hidden = true;
  },
};

// mix is so much of a colour, #rrggbb as in the style sheet, and the rest of another.
function mix(color, share, other) {
  const part = (text, at) => parseInt(text.slice(at, at + 2), 16);
  return '#' + [1, 3, 5].map((at) => {
    const value = Math.round(part(color, at) * share + part(other, at) * (1 - share));
    return value.toString(16).padStart(2, '0');
  }).join('');
}

// card is a part of the page, with a title or ''.
function card(title, id, ...children) {
  const head = title === '' ? null : element('h2', { text: title });
  return element('section', { class: 'card', id: id || null, 'aria-label': title || null }, head, ...children);
}

function copyButton(text) {
  const button = quiet('Copy', async () => {
    try {
      await navigator.clipboard.writeText(text());
      button.textContent = 'Copied';
    } catch (e) {
      button.textContent = 'Select the text to copy it';
    }
    setTimeout(() => { button.textContent = 'Copy'; }, 1500);
  });
  return button;
}

// Pin is the bar that says which instant is pinned, and moves the pin.

const REASONS = ['first event', 'last event', 'peak of the run', 'iteration peak', 'iteration trough', 'before a growth', 'request failed', 'local maximum', 'local minimum'];

class Pin {
  constructor(view) {
    this.view = view;
    this.instants = view.instants;
    this.frames = view.frames;
    this.instant = null;
    this.title = element('strong');
    this.reasons = element('span', { class: 'chips' });
    this.snap = element('p', { class: 'note snap' });
    this.reach = element('p', { class: 'note reach' });
    this.command = element('code', {});
    this.root = element('div', { class: 'pin', id: 'pin' },
      element('div', { class: 'pin-line' }, element('i', { class: 'pin-dot' }), this.title, this.reasons,
        element('div', { class: 'buttons' }, quiet('⇤', () => this.step(-1), 'Previous stored instant'), quiet('←', () => this.stepEvent(-1), 'Previous event'),
          quiet('→', () => this.stepEvent(1), 'Next event'), quiet('⇥', () => this.step(1), 'Next stored instant'),
          view.device.ooms.length > 0 ? quiet('Failure', () => this.first(), 'Pin the failure: the first request that failed') : null,
          quiet('Peak', () => this.peak(), 'Pin the peak of the run'))),
      this.snap, this.reach,
      element('p', { class: 'note exact' }, 'The same in a terminal: ', this.command, copyButton(() => this.command.textContent)));
    this.explain();
  }

  withReason(reason) {
    return this.frames.why.findIndex((why) => why & reason);
  }

  // first pins what the page opens at: the first request that failed, else the peak.
  first() {
    const failed = this.withReason(64);
    if (failed >= 0) this.show(this.instants.stored(failed));
    else this.peak();
  }

  peak() {
    this.show(this.instants.stored(Math.max(0, this.withReason(4))));
  }

  // explain says which events can be pinned.
  explain() {
    const f = this.frames;
    const left = f.of > f.seq.length ? ' (' + formatCount(f.of - f.seq.length) + ' more are left out to keep this page small)' : '';
    const stored = plural(f.seq.length, 'stored instant') + left;
    const { exact } = this.instants;
    const open = '; memprof report --open ' + shellQuote(this.view.process.path) + ' shows any ';
    this.reach.textContent = this.view.report.server ? 'Any event can be pinned: memprof report --open answers from the recording.' :
      !exact ? (this.view.report.events ? 'The events are being unpacked …' : 'This page has ' + stored + open + 'event.') :
        exact.complete ? 'Any of the ' + plural(exact.time.length, 'event') + ' can be pinned.' :
          'Exact here: events ' + exact.spans.map(([from, to]) => formatCount(from) + '–' + formatCount(to - 1)).join(', ') +
          ' (the first, peak, last and worst iterations) and ' + stored + open + 'other event.';
  }

  // near pins the last event at a time, or what is nearest to it of what this page has.
  near(time) {
    if (this.view.report.server) {
      this.ask('time=' + Math.round(time), time);
      return;
    }
    this.show(this.instants.nearTime(time), time);
  }

  // event pins an event, or what is nearest to it.
  event(seq, time) {
    const place = (instant) => {
      this.show(instant, instant.seq === seq ? undefined : time);
      this.view.timeline.reveal(instant.time);
    };
    if (this.view.report.server && !this.instants.has(seq)) this.ask('event=' + seq, undefined, place);
    else place(this.instants.nearEvent(seq));
  }

  ask(what, clicked, done) {
    const position = this.instants.exact && clicked !== undefined ? this.instants.exact.positionAt(clicked) : -1;
    if (position >= 0) {
      this.show(this.instants.exact.instant(position), clicked);
      return;
    }
    this.snap.textContent = 'Reading the recording …';
    this.instants.ask(what, done || ((instant) => this.show(instant, clicked)), (error) => { this.snap.textContent = 'The recording could not be read: ' + error.message; });
  }

  step(by) {
    const f = this.frames;
    const now = this.instant.seq;
    let at = this.instant.stored;
    if (at < 0) at = by > 0 ? lastAtOrBefore(f.seq, now) : lastAtOrBefore(f.seq, now) + 1;
    this.show(this.instants.stored(Math.max(0, Math.min(f.seq.length - 1, at + by))));
    this.view.timeline.reveal(this.instant.time);
  }

  stepEvent(by) {
    const seq = Math.max(0, this.instant.seq + by);
    if (this.view.report.server || this.instants.has(seq)) this.event(seq);
    else this.step(by);
  }

  // show pins an instant; clicked is the time that the user asked for, if it was a time.
  show(instant, clicked) {
    this.instant = instant;
    const { seq, time } = instant;
    const parts = ['event ' + formatCount(seq), formatTime(time, 1e4)];
    const iteration = this.view.iterationAt(time);
    if (iteration !== '') parts.push('iteration ' + iteration);
    const phase = this.view.phaseAt(time);
    if (phase !== '') parts.push(phase);
    this.title.textContent = 'Pinned: ' + parts.join(' · ');
    this.reasons.replaceChildren(...this.reasonsOf(instant.why).map((text) => element('span', { class: 'tag', text })));
    const place = instant.stored < 0 ? 'exact' : 'stored instant ' + (instant.stored + 1) + ' of ' + formatCount(this.frames.seq.length);
    let wanted = seq;
    if (clicked === undefined) {
      this.snap.textContent = place[0].toUpperCase() + place.slice(1) + '.';
    } else {
      const exact = this.instants.exact && this.instants.exact.positionAt(clicked) >= 0;
      const away = time - clicked;
      const when = 'You clicked at ' + formatTime(clicked, Math.max(1, Math.abs(away) / 2)) + ': ';
      if (exact) {
        this.snap.textContent = when + 'this is the last event before, ' + formatDuration(Math.abs(away)) + ' earlier.';
      } else {
        wanted = Math.max(0, this.view.seqAt(clicked));
        const events = Math.abs(seq - wanted);
        this.snap.textContent = when + (events === 0 ? 'no event lies between it and this stored instant, ' + formatDuration(Math.abs(away)) + ' away' :
          'the nearest stored instant is ' + formatDuration(Math.abs(away)) + ' (about ' + plural(events, 'event') + ') ' + (away < 0 ? 'earlier' : 'later')) + ', ' + place + '.';
      }
    }
    this.command.textContent = 'memprof report --at ' + wanted + ' ' + shellQuote(this.view.process.path);
    this.view.showInstant(instant);
  }

  reasonsOf(why) {
    const f = this.frames;
    const names = [];
    REASONS.forEach((name, bit) => {
      if (!(why >> bit & 1)) return;
      if (bit >= 7 && why & 127) return; // a better reason is listed
      if (bit === 3 || bit === 4) names.push(f.iterationsEach > 1 ? name + ' of ' + f.iterationsEach : name);
      else if (bit >= 7) names.push(f.eventsEach > 1 ? name + ' of ' + formatCount(f.eventsEach) + ' events' : 'one of the events');
      else names.push(name);
    });
    return [...new Set(names)];
  }
}

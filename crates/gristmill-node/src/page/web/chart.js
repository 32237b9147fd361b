// Charts by hand: bars that stand on each other, areas, lines. All of one group share a cursor, so that one look at an
// epoch reads every chart; arrow keys move it.
const groups = new Map();

function niceTop(max) {
  if (!(max > 0)) return 1;
  const unit = 10 ** Math.floor(Math.log10(max));
  return [1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10].map((n) => n * unit).find((n) => n >= max * 0.999) || max;
}

class Chart {
  // { title, note, kind: 'bars' | 'area' | 'lines', format, max, wide, group, at: x -> words, switch }
  constructor(spec) {
    this.spec = spec;
    this.group = spec.group || 'epoch';
    if (!groups.has(this.group)) groups.set(this.group, { charts: new Set(), x: null });
    this.note = h('p', { class: 'note2' });
    this.legend = h('ul', { class: 'legend', 'aria-live': 'polite' });
    this.plot = h('div', {
      class: 'plot', tabindex: 0, role: 'group', 'aria-label': `${spec.title}: chart. Arrow keys read it.`,
      onpointermove: (e) => this.point(e), onpointerdown: (e) => this.point(e), onpointerleave: () => this.cursor(null),
      onkeydown: (e) => this.key(e), onblur: () => this.cursor(null),
    });
    this.root = h('figure', { class: `card chart${spec.wide ? ' wide' : ''}` },
      h('div', { class: 'top' }, h('div', {}, h('h3', {}, spec.title), this.note), spec.control), this.plot, this.legend);
    this.data = null;
    this.watch = new ResizeObserver(() => { if (this.plot.clientWidth !== this.width) this.draw(); });
    this.watch.observe(this.plot);
    groups.get(this.group).charts.add(this);
  }

  // { xs, series: [{ name, color, values }], running: whether the last x is not over, note }
  set(data) {
    this.data = data;
    this.note.textContent = data.note || this.spec.note || '';
    this.draw();
  }

  // Neighbours are joined where there are more than there is room for.
  fit(width) {
    const { xs, series } = this.data;
    const room = Math.max(20, Math.floor(width / (this.spec.kind === 'bars' ? 5 : 2)));
    const by = Math.ceil(xs.length / room);
    if (by <= 1) return { xs, series, by: 1 };
    const mean = (values, from) => {
      const some = values.slice(from, from + by).filter(known);
      return some.length ? some.reduce((a, b) => a + b, 0) / some.length : null;
    };
    const starts = [];
    for (let i = 0; i < xs.length; i += by) starts.push(i);
    return { xs: starts.map((i) => xs[i]), by, series: series.map((one) => ({ ...one, values: starts.map((i) => mean(one.values, i)) })) };
  }

  draw() {
    const width = this.plot.clientWidth;
    if (!this.data || !width) return;
    this.width = width;
    const height = this.spec.wide ? 230 : 180, left = 58, right = 6, top = 8, bottom = 22;
    const fitted = this.fit(width - left - right), { xs, series } = fitted, n = xs.length;
    this.fitted = fitted;
    const stacked = this.spec.kind !== 'lines';
    const sums = xs.map((_, i) => series.reduce((sum, one) => sum + (known(one.values[i]) ? one.values[i] : 0), 0));
    const all = stacked ? sums : series.flatMap((one) => one.values.filter(known));
    const high = known(this.spec.max) ? this.spec.max : niceTop(Math.max(0, ...all));
    const y = (v) => top + (1 - Math.min(v, high) / high) * (height - top - bottom);
    const inner = width - left - right;
    const low = xs[0], span = xs[n - 1] - low || 1;
    const band = inner / Math.max(n, 1);
    this.x = this.spec.kind === 'bars' ? (i) => left + (i + 0.5) * band
      : (i) => left + (n === 1 ? inner / 2 : ((xs[i] - low) / span) * inner);
    const root = s('svg', { viewBox: `0 0 ${width} ${height}`, height, 'aria-hidden': 'true' });
    for (let i = 0; i <= 4; i += 1) {
      const v = (high * i) / 4;
      root.append(s('line', { class: i ? 'gridline' : 'base', x1: left, x2: width - right, y1: y(v), y2: y(v) }));
      if (i % 2 === 0) root.append(s('text', { class: 'tick', x: left - 7, y: y(v) + 4, 'text-anchor': 'end' }, this.spec.format(v)));
    }
    const room = Math.max(1, Math.floor(inner / 64));
    const step = [1, 2, 5, 10, 20, 25, 50, 100, 200, 500].find((one) => n / one <= room) || Math.ceil(n / room);
    for (let i = 0; i < n; i += step) {
      const anchor = this.spec.kind !== 'bars' && n > 1 ? (i === 0 ? 'start' : i === n - 1 ? 'end' : 'middle') : 'middle';
      root.append(s('text', { class: 'tick', x: this.x(i), y: height - 6, 'text-anchor': anchor }, this.spec.tick ? this.spec.tick(xs[i]) : String(xs[i] + 1)));
    }
    if (this.spec.kind === 'bars') this.bars(root, xs, series, y, band);
    else if (this.spec.kind === 'area') this.areas(root, xs, series, y);
    else this.lines(root, series, y);
    this.line = s('line', { class: 'cross', y1: top, y2: height - bottom, visibility: 'hidden' });
    root.append(this.line);
    this.plot.replaceChildren(n ? root : h('p', { class: 'empty' }, 'Nothing yet: the first epoch is not over.'));
    this.read();
  }

  bars(root, xs, series, y, band) {
    const base = xs.map(() => 0), wide = Math.max(1, Math.min(band * 0.78, 46));
    const running = this.data.running ? xs.length - 1 : -1;
    for (const one of series) {
      let whole = '', part = '';
      xs.forEach((_, i) => {
        const v = one.values[i];
        if (!known(v) || v <= 0) return;
        const from = y(base[i]), to = y(base[i] + v), x = this.x(i) - wide / 2;
        base[i] += v;
        const box = `M${x.toFixed(1)} ${from.toFixed(1)}V${to.toFixed(1)}h${wide.toFixed(1)}V${from.toFixed(1)}z`;
        if (i === running) part += box; else whole += box;
      });
      root.append(s('path', { d: whole, style: { fill: one.color } }));
      if (part) root.append(s('path', { d: part, class: 'running', style: { fill: one.color } }));
    }
  }

  areas(root, xs, series, y) {
    const base = xs.map(() => 0);
    for (const one of series) {
      const under = base.map((v, i) => `L${this.x(i).toFixed(1)} ${y(v).toFixed(1)}`).reverse().join('');
      one.values.forEach((v, i) => { base[i] += known(v) ? v : 0; });
      const over = base.map((v, i) => `${i ? 'L' : 'M'}${this.x(i).toFixed(1)} ${y(v).toFixed(1)}`).join('');
      root.append(s('path', { d: `${over}${under}z`, style: { fill: one.color } }));
    }
  }

  lines(root, series, y) {
    for (const one of series) {
      let path = '', pen = false;
      one.values.forEach((v, i) => {
        if (!known(v)) { pen = false; return; }
        const alone = !pen && !known(one.values[i + 1]);
        path += alone ? `M${(this.x(i) - 2).toFixed(1)} ${y(v).toFixed(1)}h4` : `${pen ? 'L' : 'M'}${this.x(i).toFixed(1)} ${y(v).toFixed(1)}`;
        pen = true;
      });
      const style = { stroke: one.color };
      if (one.dashed) style['stroke-dasharray'] = '5 4';
      root.append(s('path', { class: 'seriesline', d: path, style }));
    }
  }

  point(event) {
    if (!this.fitted || !this.fitted.xs.length) return;
    const at = event.clientX - this.plot.getBoundingClientRect().left;
    let best = 0;
    this.fitted.xs.forEach((_, i) => { if (Math.abs(this.x(i) - at) < Math.abs(this.x(best) - at)) best = i; });
    this.cursor(this.fitted.xs[best]);
  }

  key(event) {
    const { xs } = this.fitted || { xs: [] };
    if (!xs.length) return;
    const now = this.index() ?? xs.length - 1;
    const to = { ArrowLeft: now - 1, ArrowRight: now + 1, Home: 0, End: xs.length - 1 }[event.key];
    if (event.key === 'Escape') this.cursor(null);
    if (to === undefined) return;
    event.preventDefault();
    this.cursor(xs[Math.max(0, Math.min(xs.length - 1, groups.get(this.group).x === null ? xs.length - 1 : to))]);
  }

  cursor(x) {
    const group = groups.get(this.group);
    if (group.x === x) return;
    group.x = x;
    for (const chart of group.charts) if (chart.root.isConnected) chart.read();
  }

  index() {
    const x = groups.get(this.group).x;
    if (x === null || !this.fitted || !this.fitted.xs.length) return null;
    let best = 0;
    this.fitted.xs.forEach((one, i) => { if (Math.abs(one - x) < Math.abs(this.fitted.xs[best] - x)) best = i; });
    return best;
  }

  // The legend is the reading at the cursor, or else at the end.
  read() {
    if (!this.fitted) return;
    const { xs, series, by } = this.fitted, picked = this.index(), i = picked ?? xs.length - 1;
    if (this.line) {
      this.line.setAttribute('visibility', picked === null ? 'hidden' : 'visible');
      if (picked !== null) { this.line.setAttribute('x1', this.x(i)); this.line.setAttribute('x2', this.x(i)); }
    }
    const rows = series.map((one) => h('li', {}, h('i', { style: { background: one.color } }), one.name,
      h('b', {}, known(one.values[i]) ? this.spec.format(one.values[i], true) : '–')));
    const at = xs.length ? (this.spec.at ? this.spec.at(xs[i]) : by > 1 ? `epochs ${xs[i] + 1} to ${xs[i] + by}, on average` : `epoch ${xs[i] + 1}`) : '';
    this.legend.replaceChildren(...rows, h('li', { class: 'at' }, at + (this.data.running && i === xs.length - 1 ? ', still running' : '')));
  }
}

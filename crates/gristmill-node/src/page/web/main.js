// State, tabs, polling.
const SAVED = JSON.parse($('data').textContent || 'null');
const S = { facts: null, epochs: [], decisions: [], points: [], live: null, node: null, ended: false, change: 0, boot: '', of: 0 };
const EPOCHS_MAX = 1000, POINTS_MAX = 1200;

// Takes what came. Epochs and decisions that are known already are replaced.
function take(news) {
  if (news.whole || news.facts.boot !== S.boot) { S.epochs = []; S.decisions = []; S.points = []; }
  S.facts = news.facts;
  S.boot = news.facts.boot;
  const fresh = new Set(news.epochs.map((row) => row.report.epoch));
  S.epochs = [...S.epochs.filter((row) => !fresh.has(row.report.epoch)), ...news.epochs].sort((a, b) => a.report.epoch - b.report.epoch).slice(-EPOCHS_MAX);
  const decided = new Set(news.decisions.map((one) => `${one.epoch} ${one.knob}`));
  S.decisions = [...S.decisions.filter((one) => !decided.has(`${one.epoch} ${one.knob}`)), ...news.decisions].slice(-EPOCHS_MAX);
  if (decided.size || news.whole) S.decided = `${S.boot} ${news.change}`;
  S.points = [...S.points, ...news.points];
  if (S.points.length > POINTS_MAX) S.points = S.points.filter((_, i) => i % 2 === 0);
  S.live = news.live;
  S.node = news.node;
  S.ended = news.ended;
  S.of = news.of;
  S.change = news.change;
}

function epochsView() {
  const body = h('tbody', {});
  const names = ['epoch', 'time', 'samples/s', 'waited', 'mostly for', 'kept', 'hits', 'read', 'loss', 'right', 'test'];
  const root = h('div', { class: 'card scroll' }, h('table', {}, h('thead', {}, h('tr', {}, names.map((name) => h('th', { scope: 'col' }, name)), h('th', { scope: 'col', class: 'l' }, 'why these samples'))), body));
  const more = h('button', { type: 'button', onclick: () => { shown = EPOCHS_MAX; seen = null; render(); } }, 'All epochs');
  let seen = null, shown = 60;
  return {
    root: h('div', {}, root, h('p', { class: 'after' }, more)),
    update() {
      more.hidden = rows().length <= shown;
      const now = `${S.change}`;
      if (seen === now) return;
      seen = now;
      const all = [...rows()].reverse().slice(0, shown);
      body.replaceChildren(...(all.length ? all.map((row) => {
        const most = WAITS.map(([key, name]) => [row.report.wait[key], name.replace('waiting for ', '')]).sort((a, b) => b[0] - a[0])[0];
        const cells = [`${row.report.epoch + 1}${row.live ? ' …' : ''}`, seconds(wall(row) / 1e3), rate(row.report.samples_per_s), share(waited(row), 1), most[0] > 0 ? most[1] : '–', share(kept(row), 1), share(hits(row), 1), bytes(row.report.bytes), known(row.outcome?.loss) ? row.outcome.loss.toFixed(4) : '–', share(row.outcome?.accuracy, 1), share(row.outcome?.test_accuracy, 1)];
        return h('tr', {}, cells.map((text) => h('td', {}, text)), h('td', { class: 'l wrap' }, row.report.selection?.reason || ''));
      }) : [h('tr', {}, h('td', { colspan: 12, class: 'l' }, 'No epoch is over yet.'))]));
    },
  };
}

function settingsView() {
  const list = h('dl', { class: 'facts' });
  return {
    root: h('div', {}, h('section', { class: 'card' }, list)),
    update() {
      const f = S.facts;
      const pairs = [['data', f.source], ['samples', grouped(f.samples)], ['bytes', bytes(f.bytes)], ['classes', grouped(f.classes)], ['history', `${plural(f.depth, 'epoch', 'epochs')} per sample`], ...f.settings];
      list.replaceChildren(...pairs.flatMap(([name, value]) => [h('dt', {}, name), h('dd', {}, value)]));
    },
  };
}

let views = null, current = null;
function tabs() {
  return S.node ? [['node', 'Node'], ['settings', 'Settings']] : [['overview', 'Overview'], ['data', 'Data'], ['epochs', 'Epochs'], ['settings', 'Settings']];
}

// Arrow keys between the links of a list of tabs.
function arrows(list) {
  list.addEventListener('keydown', (event) => {
    const all = [...list.querySelectorAll('a')], at = all.indexOf(document.activeElement);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: all.length - 1 }[event.key];
    if (at < 0 || to === undefined) return;
    event.preventDefault();
    const href = all[(to + all.length) % all.length].getAttribute('href');
    location.hash = href;
    requestAnimationFrame(() => list.querySelector(`a[href="${href}"]`)?.focus());
  });
}

function route() {
  if (!S.facts) return;
  const known = tabs(), [asked, part] = location.hash.slice(1).split('/');
  const name = known.some(([one]) => one === asked) ? asked : known[0][0];
  views ??= { overview: overview(), data: dataView(), epochs: epochsView(), settings: settingsView(), node: nodeView() };
  $('tabs').replaceChildren(...known.map(([one, title]) => h('a', { href: `#${one}`, role: 'tab', 'aria-selected': one === name, tabindex: one === name ? 0 : -1 }, title)));
  current = views[name];
  if (current.enter) current.enter(part);
  if ($('main').firstElementChild !== current.root) $('main').replaceChildren(current.root);
  render();
}

let due = false;
function render() {
  if (due || !current) return;
  due = true;
  requestAnimationFrame(() => {
    due = false;
    const began = performance.now();
    current.update();
    // For whoever measures: when it was first drawn, and how long the last drawing took.
    document.body.dataset.readyMs ??= Math.round(performance.now());
    document.body.dataset.drawMs = (performance.now() - began).toFixed(1);
  });
}

function status(kind, words) {
  $('status').className = `status ${kind}`;
  $('status').textContent = words;
}

function took(news) {
  const first = !S.facts, was = Boolean(S.node);
  take(news);
  const f = S.facts, name = f.source.split('/').filter(Boolean).pop() || f.source;
  $('source').textContent = `${f.source} · ${plural(f.samples, 'sample', 'samples')} · ${bytes(f.bytes)}`;
  $('source').title = f.source;
  document.title = `${S.live ? `${S.live.report.epoch + 1} · ` : ''}${name} · Gristmill`;
  $('foot').textContent = `Gristmill ${f.version}. ${SAVED ? 'Saved at the end of a run; everything is in this file.' : 'Shown on this machine only; nothing is loaded from elsewhere.'}`;
  if (first || was !== Boolean(S.node)) route(); else render();
}

let failures = 0;
async function poll() {
  let wait = 1000;
  try {
    if (!document.hidden || !S.facts) {
      const answer = await fetch(`api/state?after=${S.change}&boot=${encodeURIComponent(S.boot)}`);
      if (answer.status === 200) took(await answer.json());
      else if (answer.status !== 204) throw new Error(`status ${answer.status}`);
      failures = 0;
      status(S.ended ? '' : 'live', S.ended ? 'Run is over' : 'Live');
    }
  } catch {
    failures += 1;
    wait = Math.min(10000, 1000 * failures);
    if (failures > 1) status('lost', S.ended || S.facts ? 'Run has ended or cannot be reached' : 'Cannot be reached');
  }
  setTimeout(poll, wait);
}

// Only remembered for this tab where storage is forbidden (a file, a private window).
const memory = { get() { try { return localStorage.getItem('theme'); } catch { return null; } }, set(v) { try { localStorage.setItem('theme', v); } catch { /* not kept */ } } };
const chosen = new URLSearchParams(location.search).get('theme') || memory.get();
if (chosen === 'light' || chosen === 'dark') document.documentElement.dataset.theme = chosen;
$('theme').addEventListener('click', () => {
  const dark = getComputedStyle(document.documentElement).colorScheme === 'dark';
  document.documentElement.dataset.theme = dark ? 'light' : 'dark';
  memory.set(document.documentElement.dataset.theme);
});
$('jump').addEventListener('click', (event) => { event.preventDefault(); $('main').focus(); });
arrows($('tabs'));
addEventListener('hashchange', route);
document.addEventListener('visibilitychange', () => { if (!document.hidden) render(); });
if (SAVED) { took(SAVED.state); status('', 'Saved report'); } else poll();

// A run at a glance: five numbers, where the time goes, what was kept, where samples came from, and what was decided.
const TIERS = [['memory', 'var(--good)'], ['disk', 'var(--disk)'], ['peer', 'var(--peer)'], ['upstream', 'var(--up)'], ['store', 'var(--store)'], ['held', 'var(--held)']];
const WAITS = [['fetch_ms', 'waiting for fetch', 'var(--fetch)'], ['decode_ms', 'waiting for decode', 'var(--decode)'], ['ops_ms', 'waiting for other ops', 'var(--ops)'], ['hand_over_ms', 'waiting for hand-over', 'var(--hand)']];
const STAGES = ['var(--store)', 'var(--decode)', 'var(--good)', 'var(--ops)', 'var(--disk)', 'var(--hand)', 'var(--line2)'];

const lower = (word) => String(word).toLowerCase();
const wall = (row) => Math.max(row.outcome?.wall_ms || 0, row.report.wall_ms || 0);
const waited = (row) => (wall(row) > 0 ? Math.min(1, row.report.wait.total_ms / wall(row)) : null);
const kept = (row) => (row.report.selection ? row.report.selection.kept / Math.max(1, row.report.selection.samples) : row.outcome?.kept_share ?? 1);

function tier(row, name, what) {
  const found = (row.report.tiers || []).find((one) => lower(one.tier) === name);
  return found ? found[what] : 0;
}

function hits(row) {
  const all = (row.report.tiers || []).reduce((sum, one) => sum + one.samples, 0);
  const behind = tier(row, 'upstream', 'samples') + tier(row, 'store', 'samples');
  return all > 0 ? (all - behind) / all : null;
}

// Epochs that are over, and the one that runs.
function rows() {
  return S.live ? [...S.epochs, { report: S.live.report, outcome: S.live.progress, live: true }] : S.epochs;
}

// The first batches of an epoch say little about it: until a quarter is over, the one before speaks.
function steady() {
  const progress = S.live?.progress, done = S.epochs[S.epochs.length - 1];
  return progress && (!done || progress.batch > progress.batches / 4) ? rows().at(-1) : done;
}

function number(what) {
  const big = h('div', { class: 'big' }), more = h('div', { class: 'more' }), under = h('div', {});
  const root = h('section', { class: 'card number', 'aria-label': what }, h('div', { class: 'what' }, what), big, more, under);
  return {
    root,
    set(value, unit, words, tail) {
      big.replaceChildren(value, unit ? h('small', {}, ` ${unit}`) : '');
      more.textContent = words || ' ';
      more.title = words || '';
      under.replaceChildren(tail || '');
    },
  };
}

const meter = (part) => h('div', { class: 'meter' }, h('i', { style: { width: `${Math.max(0, Math.min(1, part || 0)) * 100}%` } }));

function overview() {
  const numbers = { epoch: number('Epoch'), speed: number('Samples per second'), wait: number('Waiting for data'), kept: number('Kept of the data'), hit: number('Cache hits'), right: number('Accuracy') };
  const verdict = h('p', { class: 'verdict', role: 'status' });
  let as = 'seconds', told = null;
  const buttons = ['seconds', 'share'].map((name) => h('button', { type: 'button', 'aria-pressed': name === as, onclick: () => { as = name; buttons.forEach((b) => b.setAttribute('aria-pressed', b.textContent === as)); charts.time.spec.format = as === 'share' ? (v) => share(v) : (v) => seconds(v); charts.time.spec.max = as === 'share' ? 1 : null; update(); } }, name));
  const percent = (v, fine) => share(v, fine ? 1 : 0);
  const charts = {
    time: new Chart({ title: 'Where the time goes', note: 'One bar per epoch: training, and what it waited for.', kind: 'bars', wide: true, format: (v) => seconds(v), control: h('div', { class: 'switch', role: 'group', 'aria-label': 'Unit' }, buttons) }),
    learn: new Chart({ title: 'Learning', note: 'The share that was right.', kind: 'lines', max: 1, format: percent }),
    kept: new Chart({ title: 'Kept share', note: 'The part of the data set that an epoch trains on.', kind: 'lines', max: 1, format: percent }),
    hits: new Chart({ title: 'Hit ratio by tier', note: 'Where samples came from.', kind: 'bars', max: 1, format: percent }),
    regions: new Chart({ title: 'Hit ratio by region', note: 'Samples that the hot region of the cache had (high scores), and the cold one (packs).', kind: 'bars', max: 1, format: percent }),
    bytes: new Chart({ title: 'Bytes by tier', note: 'What each tier gave.', kind: 'bars', format: (v) => bytes(v) }),
    stages: new Chart({ title: 'Split stages', note: 'In which form samples crossed the link.', kind: 'bars', format: (v) => grouped(v) }),
    link: new Chart({ title: 'Bytes over the link', note: 'As they came, and as raw samples would have been.', kind: 'lines', format: (v) => bytes(v) }),
    predicted: new Chart({ title: 'Predicted against measured', note: 'Time of an epoch as the split expected it, and as it was.', kind: 'lines', format: (v) => seconds(v) }),
    exchange: new Chart({ title: 'Exchange between ranks', note: 'What this rank sent and received.', kind: 'lines', format: (v) => bytes(v) }),
  };
  const exchange = h('dl', { class: 'facts' }), exchangeCard = h('section', { class: 'card spread' }, h('h3', {}, 'Exchange, last epoch'), exchange);
  const grid = h('div', { class: 'charts' }), decided = h('section', {});
  const root = h('div', {}, verdict, h('div', { class: 'numbers' }, Object.values(numbers).map((one) => one.root)), grid, decided);
  const shown = new Map();

  function show(chart, data) {
    if (data) { if (!shown.has(chart)) shown.set(chart, true); chart.set(data); } else shown.delete(chart);
  }

  function update() {
    const all = rows(), last = all[all.length - 1], done = S.epochs[S.epochs.length - 1];
    const xs = all.map((row) => row.report.epoch), running = Boolean(S.live);
    const column = (name, color, of, more) => ({ name, color, values: all.map(of), ...more });
    bigNumbers(numbers, all, last, done);
    verdict.replaceChildren(...sentence(steady()));
    const scale = (row) => (as === 'share' ? wall(row) || 1 : 1000);
    show(charts.time, { xs, running, series: [column('training', 'var(--good)', (row) => Math.max(0, wall(row) - row.report.wait.total_ms) / scale(row)), ...WAITS.map(([key, name, color]) => column(name, color, (row) => row.report.wait[key] / scale(row)))] });
    const learned = all.some((row) => known(row.outcome?.accuracy));
    show(charts.learn, learned && { xs, series: [column('test data', 'var(--accent)', (row) => row.outcome?.test_accuracy), column('in training', 'var(--hand)', (row) => row.outcome?.accuracy)] });
    const chosen = all.some((row) => row.report.selection);
    show(charts.kept, chosen && { xs, note: done?.report.selection ? `By ${done.report.selection.kind}: ${done.report.selection.reason}` : '', series: [column('kept', 'var(--accent)', kept), ...(all.some((row) => row.report.selection?.removed) ? [column('near-duplicates left out', 'var(--hand)', (row) => (row.report.selection ? row.report.selection.removed / row.report.selection.samples : null))] : []), ...(all.some((row) => row.report.selection?.stand_ins) ? [column('served by a stand-in', 'var(--decode)', (row) => (row.report.selection ? row.report.selection.stand_ins / row.report.selection.samples : null))] : [])] });
    const used = TIERS.filter(([name]) => all.some((row) => tier(row, name, 'samples') > 0));
    const total = (row) => (row.report.tiers || []).reduce((sum, one) => sum + one.samples, 0);
    show(charts.hits, used.length && { xs, running, series: used.map(([name, color]) => column(name, color, (row) => (total(row) ? tier(row, name, 'samples') / total(row) : null))) });
    const regions = all.some((row) => row.report.regions);
    show(charts.regions, regions && { xs, running, series: [['hot', 'var(--decode)'], ['cold', 'var(--accent)']].map(([name, color]) => column(`${name} region`, color, (row) => (row.report.regions && total(row) ? row.report.regions[name] / total(row) : null))) });
    const read = all.some((row) => row.report.bytes > 0);
    show(charts.bytes, used.length ? { xs, running, series: used.map(([name, color]) => column(name, color, (row) => tier(row, name, 'bytes'))) }
      : read && { xs, running, note: all.some((row) => row.report.from_memory) ? 'Read from memory, where the whole data set is held.' : 'Read from the store.', series: [column(all.some((row) => row.report.from_memory) ? 'memory' : 'store', 'var(--store)', (row) => row.report.bytes)] });
    splitCharts(all, xs, running, column);
    exchangeParts(all, xs, column);
    const wanted = Object.values(charts).filter((chart) => shown.has(chart)).map((chart) => chart.root);
    if (exchange.childElementCount) wanted.push(exchangeCard);
    if (wanted.length !== grid.childElementCount || wanted.some((one, i) => grid.children[i] !== one)) grid.replaceChildren(...wanted);
    const news = `${S.decided} ${S.ended} ${S.epochs.length > 1}`;
    if (told !== news) { told = news; decided.replaceChildren(...decisions()); }
  }

  function splitCharts(all, xs, running, column) {
    const names = [...new Set(all.flatMap((row) => (row.report.split?.stages || []).filter((one) => one.samples > 0).map((one) => one.stage)))];
    const stage = (row, name) => (row.report.split?.stages || []).find((one) => one.stage === name)?.samples ?? 0;
    const last = all[all.length - 1]?.report.split;
    show(charts.stages, names.length && { xs, running, note: last ? `Split ${last.mode}: ${last.reason}` : '', series: names.map((name, i) => column(lower(name), STAGES[i % STAGES.length], (row) => stage(row, name))) });
    show(charts.link, names.length && { xs, series: [column('came', 'var(--accent)', (row) => row.report.split?.bytes), column('raw', 'var(--hand)', (row) => row.report.split?.raw_bytes, { dashed: true })] });
    const some = all.some((row) => known(row.report.split?.predicted_s));
    show(charts.predicted, some && { xs, series: [column('measured', 'var(--accent)', (row) => (row.live ? null : row.report.split?.measured_s)), column('predicted', 'var(--decode)', (row) => row.report.split?.predicted_s, { dashed: true }), column('predicted unsplit', 'var(--hand)', (row) => row.report.split?.predicted_raw_s, { dashed: true })] });
  }

  // Whatever the report has about the exchange: bytes as lines, the rest in words.
  function exchangeParts(all, xs, column) {
    const last = [...all].reverse().find((row) => row.report.exchange)?.report.exchange;
    const keys = last ? Object.keys(last).filter((key) => known(last[key])) : [];
    const lines = keys.filter((key) => key.startsWith('bytes'));
    show(charts.exchange, lines.length && { xs, series: lines.map((key, i) => column(spelled(key), STAGES[(i + 1) % STAGES.length], (row) => row.report.exchange?.[key])) });
    exchange.replaceChildren(...keys.filter((key) => !key.startsWith('bytes')).flatMap((key) => [h('dt', {}, spelled(key.replace(/_ms$/, ''))), h('dd', {}, key.endsWith('_ms') ? seconds(last[key] / 1e3) : Number.isInteger(last[key]) ? grouped(last[key]) : last[key].toFixed(3))]));
  }

  return { root, update };
}

function bigNumbers(numbers, all, last, done) {
  const history = (of) => spark(S.epochs.slice(-60).map(of), 160, 26);
  const progress = S.live?.progress, of = S.of;
  const at = last ? last.report.epoch + 1 : 0;
  const within = progress ? progress.batch / Math.max(1, progress.batches) : 1;
  const left = progress && done && of ? `about ${seconds((wall(done) / 1e3) * (of - at + 1 - within))} left` : progress ? `batch ${grouped(progress.batch)} of ${grouped(progress.batches)}` : S.ended ? 'the run is over' : at ? 'between epochs' : 'not begun';
  numbers.epoch.set(at || '–', of ? `of ${of}` : '', left, progress ? meter(of ? (at - 1 + within) / of : within) : meter(S.ended || !of ? 1 : at / of));
  if (!last) {
    for (const key of ['speed', 'wait', 'kept', 'hit', 'right']) numbers[key].set('–');
    return;
  }
  last = steady();
  const first = S.epochs[0], speed = last.report.samples_per_s;
  numbers.speed.set(rate(speed), '', first && first !== last ? `epoch 1: ${rate(first.report.samples_per_s)}` : `${plural(last.report.threads || 0, 'thread', 'threads')}`, history((row) => row.report.samples_per_s));
  const most = WAITS.map(([key, name]) => [last.report.wait[key], name]).sort((a, b) => b[0] - a[0])[0];
  numbers.wait.set(share(waited(last)).replace(' %', ''), '%', waited(last) > 0.01 ? `mostly ${most[1].replace('waiting ', '')}` : 'never for long', history(waited));
  const selection = last.report.selection;
  numbers.kept.set(share(kept(last)).replace(' %', ''), '%', selection ? `${grouped(selection.kept)} of ${grouped(selection.samples)}` : 'every sample, every epoch', history(kept));
  const ratio = hits(last);
  numbers.hit.set(known(ratio) ? share(ratio).replace(' %', '') : '–', known(ratio) ? '%' : '', known(ratio) ? `${bytes(last.report.bytes)} read this epoch` : 'no cache in use', known(ratio) ? history(hits) : '');
  const tested = [...all].reverse().find((row) => known(row.outcome?.test_accuracy)), trained = last.outcome?.accuracy;
  numbers.right.root.hidden = !tested && !known(trained);
  const right = tested ? tested.outcome.test_accuracy : trained;
  numbers.right.set(share(right, 1).replace(' %', ''), '%', tested ? `test data, after epoch ${tested.report.epoch + 1}` : 'in training', history((row) => row.outcome?.test_accuracy ?? row.outcome?.accuracy));
}

// What to take from it, in one sentence.
function sentence(last) {
  if (!last) return ['The first epoch has not begun.'];
  const w = waited(last), most = WAITS.map(([key, name]) => [last.report.wait[key], name]).sort((a, b) => b[0] - a[0])[0];
  const out = w < 0.05 ? [h('b', {}, 'Training is kept fed'), `: it waited ${share(w, 1)} of the ${last.live ? 'running' : 'last'} epoch.`]
    : ['Training is ', h('b', {}, most[1]), ` ${share(most[0] / Math.max(1, wall(last)))} of the time`, w - most[0] / Math.max(1, wall(last)) > 0.02 ? ` (${share(w)} waiting in all).` : '.'];
  if (kept(last) < 0.995) out.push(` It trains on ${share(kept(last))} of the data.`);
  if (last.report.selection?.bottleneck) out.push(h('small', { class: 'soft' }, `Measured before it: ${last.report.selection.bottleneck}.`));
  const decided = [...S.decisions].sort((a, b) => b.epoch - a.epoch)[0];
  if (decided) out.push(h('small', {}, h('a', { href: '#overview', onclick: (e) => { e.preventDefault(); $('decided')?.scrollIntoView(); } }, 'Last decision'), ` before epoch ${decided.epoch + 1}: ${decided.knob} ${decided.from} → ${decided.to}${lower(decided.action) === 'undone' ? ', undone' : lower(decided.action) === 'kept' ? ', kept' : ''}${known(decided.predicted) ? `, predicted ${times(decided.predicted)}` : ''}${known(decided.measured) ? `, measured ${times(decided.measured)}` : ''}.`));
  return out;
}

// What became of a decision, as a word and the sentence behind it.
const ACTIONS = {
  moved: ['on trial', 'Moved for this epoch; how much it brings is known after it.'],
  kept: ['kept', 'It helped, so it stays.'],
  undone: ['undone', 'It did not help, so it was taken back.'],
  told: ['told', 'Not a trial: decided elsewhere, and told here.'],
};

function decisions() {
  if (!S.decisions.length) return S.epochs.length > 1 ? [h('h2', { id: 'decided' }, 'What was decided, and why'), h('p', { class: 'soft' }, 'Nothing was moved: no other setting promised to be faster, or every knob is pinned.')] : [];
  const most = Math.max(1, ...S.decisions.flatMap((one) => [one.predicted, one.measured]).filter(known));
  const bar = (name, value, got, absent) => [h('span', {}, name), h('div', { class: got ? 'got' : '' }, h('i', { style: { width: `${(known(value) ? value / most : 0) * 100}%` } })), h('b', {}, known(value) ? times(value) : absent)];
  const list = [...S.decisions].sort((a, b) => b.epoch - a.epoch).slice(0, 100).map((one) => {
    const action = lower(one.action), [word, why] = ACTIONS[action] || [one.action, ''];
    return h('li', { class: 'card decision' },
      h('div', { class: 'when' }, `epoch ${one.epoch + 1}`),
      h('div', {}, h('code', {}, one.knob), ` ${one.from} → ${one.to}`, h('span', { class: `tag ${ACTIONS[action] ? action : ''}`, title: why }, word), h('p', { class: 'soft' }, one.reason)),
      known(one.predicted) || known(one.measured) ? h('div', { class: 'pm', title: 'Times faster than the epoch before' }, bar('predicted', one.predicted, false, '–'), bar('measured', one.measured, true, action === 'moved' && !S.ended ? 'to come' : '–')) : h('div', {}));
  });
  return [h('h2', { id: 'decided' }, 'What was decided, and why'), h('p', { class: 'soft' }, 'One knob at a time, before an epoch. Predicted is what the simulator promised, measured what the epoch brought, both as times faster.'), h('ul', { class: 'decisions' }, list)];
}

// A node at a glance: how much it serves, from where, for whom, and what it runs near the data.
function nodeView() {
  const numbers = { speed: number('Samples per second'), bytes: number('Sent per second'), hit: number('Cache hits'), jobs: number('Jobs'), up: number('Up') };
  const clock = { group: 'node', kind: 'area', tick: (x) => seconds(x), at: (x) => `${seconds(x)} after the start` };
  const charts = {
    served: new Chart({ ...clock, title: 'Samples per second, by tier', note: 'Where they came from.', wide: true, format: (v, fine) => (fine ? grouped(v) : rate(v)) }),
    hits: new Chart({ ...clock, kind: 'lines', title: 'Hit ratio', note: 'Requests that needed nothing from the store.', max: 1, format: (v, fine) => share(v, fine ? 1 : 0) }),
    bytes: new Chart({ ...clock, title: 'Bytes per second, by tier', format: (v) => `${bytes(v)}/s` }),
    held: new Chart({ ...clock, kind: 'lines', title: 'Kept', note: 'Bytes of samples in memory and on disk.', format: (v) => bytes(v) }),
    ops: new Chart({ ...clock, kind: 'lines', title: 'Ops near the data', note: 'Cores that were busy.', format: (v) => v.toFixed(v < 10 ? 2 : 0) }),
  };
  const grid = h('div', { class: 'charts' }), tables = h('div', {});
  const root = h('div', {}, h('div', { class: 'numbers' }, Object.values(numbers).map((one) => one.root)), grid, tables);

  function update() {
    const points = S.points, node = S.node;
    if (!node) return;
    const gaps = points.slice(1).map((now, i) => [now, points[i], Math.max(1e-3, now.up_s - points[i].up_s)]);
    const xs = gaps.map(([now]) => now.up_s), per = (of) => gaps.map(([now, then, time]) => Math.max(0, of(now) - of(then)) / time);
    const sum = (list) => list.reduce((a, b) => a + b, 0);
    const column = (name, color, values) => ({ name, color, values });
    const used = TIERS.map(([name, color], i) => [name, color, i]).filter(([, , i]) => points.some((one) => one.served[i] > 0));
    charts.served.set({ xs, series: used.map(([name, color, i]) => column(name, color, per((one) => one.served[i]))) });
    charts.bytes.set({ xs, series: used.map(([name, color, i]) => column(name, color, per((one) => one.served_bytes[i]))) });
    const ratio = gaps.map(([now, then]) => { const all = sum(now.served) - sum(then.served), missed = now.served[3] + now.served[4] - then.served[3] - then.served[4]; return all > 0 ? 1 - missed / all : null; });
    const region = (i) => gaps.map(([now, then]) => { const all = sum(now.served) - sum(then.served); return all > 0 ? (now.region_hits[i] - then.region_hits[i]) / all : null; });
    const regions = setsOf(node).some((set) => set.node.regions);
    charts.hits.set({ xs, series: [column('hits', 'var(--accent)', ratio), ...(regions ? [column('hot region', 'var(--decode)', region(0)), column('cold region', 'var(--disk)', region(1))] : [])] });
    charts.held.set({ xs, series: [column('memory', 'var(--good)', gaps.map(([now]) => now.memory_bytes)), ...(points.some((one) => one.disk_bytes > 0) ? [column('disk', 'var(--disk)', gaps.map(([now]) => now.disk_bytes))] : [])] });
    charts.ops.set({ xs, series: [column('busy cores', 'var(--ops)', per((one) => one.op_cpu_s))] });
    const wanted = [charts.served, charts.hits, charts.bytes, charts.held, ...(node.ops?.cores > 0 ? [charts.ops] : [])].map((chart) => chart.root);
    if (grid.childElementCount !== wanted.length) grid.replaceChildren(...wanted);
    const last = per((one) => sum(one.served)), lastBytes = per((one) => sum(one.served_bytes));
    const sets = setsOf(node), jobs = sets.flatMap((set) => set.node.jobs.map((job) => [set.name, job]));
    const served = sum(sets.flatMap((set) => set.node.served)), missed = sum(sets.flatMap((set) => [set.node.served[3], set.node.served[4]]));
    numbers.speed.set(rate(last.at(-1) ?? 0), '', `${grouped(node.samples)} in all`, spark(last.slice(-60), 160, 26));
    numbers.bytes.set(...bytes(lastBytes.at(-1) ?? 0).split(' '), `${bytes(node.bytes)} in all`, spark(lastBytes.slice(-60), 160, 26));
    numbers.hit.set(served ? share(1 - missed / served).replace(' %', '') : '–', served ? '%' : '', 'since the start', spark(ratio.slice(-60), 160, 26));
    numbers.jobs.set(String(jobs.length), '', `${plural(node.connections, 'connection', 'connections')}, ${grouped(node.refused)} refused`);
    numbers.up.set(seconds(node.up_s), '', node.draining ? 'shutting down' : `version ${node.version}`);
    tables.replaceChildren(...nodeTables(node, sets, jobs));
  }

  return { root, update };
}

const setsOf = (node) => node.sets || [];

function nodeTables(node, sets, jobs) {
  const cell = (value, left) => h('td', { class: left ? 'l' : '' }, value);
  const head = (...names) => h('tr', {}, names.map((name, i) => h('th', { class: i < 2 ? 'l' : '', scope: 'col' }, name)));
  const part = (held, most) => (most > 0 ? `${bytes(held)} of ${bytes(most)}` : 'none');
  const out = [h('h2', {}, 'Data sets'), h('div', { class: 'card scroll' }, h('table', {}, h('thead', {}, head('data set', 'memory', 'disk', 'samples', 'hits', 'store reads', 'read ahead', 'stand-ins')),
    h('tbody', {}, sets.map((set) => h('tr', {}, cell(set.name, true), cell(set.node.regions ? `${part(set.node.regions.hot_bytes, set.node.regions.hot_bytes_max)} hot, ${part(set.node.regions.cold_bytes, set.node.regions.cold_bytes_max)} cold` : part(set.node.memory_bytes, set.node.memory_bytes_max), true), cell(set.node.disk_off ? `off: ${set.node.disk_off}` : part(set.node.disk_bytes, set.node.disk_bytes_max)), cell(grouped(set.node.samples)), cell(share(set.hit_ratio, 1)), cell(`${grouped(set.node.store_reads)} (${bytes(set.node.store_bytes)})`), cell(grouped(set.node.prefetched)), cell(grouped(set.node.stand_ins)))))))];
  if (jobs.length) out.push(h('h2', {}, 'Jobs'), h('div', { class: 'card scroll' }, h('table', {}, h('thead', {}, head('job', 'data set', 'epoch', 'requests', 'hits', 'caching helps')),
    h('tbody', {}, jobs.map(([set, job]) => h('tr', {}, cell(job.name || `job ${job.id}`, true), cell(set, true), cell(grouped(job.epoch)), cell(grouped(job.requests)), cell(share(job.requests ? job.hits / job.requests : null, 1)), cell(known(job.benefit) ? share(job.benefit) : '–')))))));
  const ops = node.ops;
  if (ops && ops.cores > 0) out.push(h('h2', {}, 'Ops near the data'), h('div', { class: 'card' }, h('p', {}, `${ops.cores} cores, ${seconds(ops.cpu_s)} of CPU; ${grouped(ops.queue)} of ${grouped(ops.queue_max)} samples wait; ${grouped(ops.busy)} were sent raw because the queue was full.`),
    h('div', { class: 'scroll' }, h('table', {}, h('thead', {}, head('stage', 'samples', 'bytes')), h('tbody', {}, (ops.stages || []).filter((one) => one.samples > 0).map((one) => h('tr', {}, cell(lower(one.stage), true), cell(grouped(one.samples), true), cell(bytes(one.bytes)))))))));
  return out;
}

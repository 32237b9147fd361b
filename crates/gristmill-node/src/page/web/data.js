// The data itself: hardest, most often skipped, families, stand-ins, as pictures.
const KINDS = [
  ['hardest', 'Hardest', 'The samples with the highest last loss. Wrong labels gather here.', 'Nothing was trained yet, or nobody reports losses.'],
  ['skipped', 'Most often skipped', 'The samples that were left out of most epochs: selection, or a relative, made them needless.', 'Nothing was left out: every epoch had every sample.'],
  ['families', 'Families', 'Near-duplicates, found by perceptual hash; the largest families first.', 'No families are known. `gristmill families DIR` finds them, or --families.'],
  ['stand-ins', 'Stand-ins', 'A sample that would have had to be fetched, and the relative in memory that was trained instead, with its own label.', 'No sample stood in for another.'],
];
const WINDOW = 48;

const pictureOf = (id) => (SAVED ? SAVED.pictures[id] : `thumb/${id}?of=${encodeURIComponent(S.facts.boot)}`);

function picture(one) {
  const source = pictureOf(one.id);
  if (!source) return h('div', { class: 'pic' });
  const img = h('img', { class: 'pic', alt: `sample ${one.id}, ${className(one)}`, loading: 'lazy', decoding: 'async', onload: () => { if (img.naturalWidth <= 64) img.classList.add('hard'); } });
  img.src = source;
  return img;
}

function sample(one, small) {
  const line = (left, right) => h('span', { class: 'line' }, h('span', {}, left), right);
  return h('button', { type: 'button', class: 'sample', title: one.name, onclick: () => look(one) }, picture(one), h('span', { class: 'words' },
    line(h('b', {}, className(one) || `sample ${one.id}`), ''),
    line(h('span', { class: 'soft' }, `no. ${one.id}`), known(one.score) && !small ? h('b', {}, one.score.toFixed(2)) : ''),
    small ? null : spark(one.scores || [], 120, 22, `scores: ${(one.scores || []).filter(known).join(', ')}`),
    small ? null : h('span', { class: 'soft' }, known(one.skipped) ? (one.skipped ? `skipped ${one.skipped === 1 ? 'once' : `${grouped(one.skipped)} times`}` : 'never skipped') : 'not followed')));
}

// One sample, large.
function look(one) {
  const dialog = $('look'), facts = [['Sample', `${one.id}`], ['Class', className(one) || '–'], ['Last score (loss)', known(one.score) ? one.score.toFixed(4) : '–'], ['Trained', known(one.trained) ? plural(one.trained, 'time', 'times') : 'not followed'], ['Skipped', known(one.skipped) ? plural(one.skipped, 'epoch', 'epochs') : 'not followed'], ['Size', bytes(one.bytes)], ['Lies in', one.name]];
  dialog.replaceChildren(h('div', { class: 'row' }, h('h3', {}, `Sample ${one.id}`), h('button', { type: 'button', autofocus: true, onclick: () => dialog.close() }, 'Close')), picture(one),
    h('h3', {}, 'Score history'), h('p', { class: 'soft' }, 'The loss in the last epochs; a gap is an epoch without it.'), h('div', { class: 'number' }, spark(one.scores || [], 480, 60)),
    h('dl', { class: 'facts' }, facts.flatMap(([name, value]) => [h('dt', {}, name), h('dd', {}, value)])));
  dialog.showModal();
}

function dataView() {
  const sub = h('div', { class: 'sub', role: 'tablist', 'aria-label': 'Kinds of samples' }), words = h('p', { class: 'soft' }), body = h('div', {}), foot = h('p', {});
  const note = h('p', { class: 'note' });
  const root = h('div', {}, sub, words, note, body, foot);
  let kind = 'hardest', loaded = WINDOW, seen = null, asked = 0;
  arrows(sub);

  async function fetchWindow(from) {
    if (SAVED) return from === 0 ? SAVED.samples[kind] : { items: [], total: 0 };
    const answer = await fetch(`api/samples?kind=${kind}&from=${from}&n=${WINDOW}`);
    if (!answer.ok) throw new Error(await answer.text());
    return answer.json();
  }

  async function load() {
    const mine = ++asked, items = [];
    let total = 0, families = null;
    try {
      for (let from = 0; from < loaded; from += WINDOW) {
        const part = await fetchWindow(from);
        if (mine !== asked) return;
        items.push(...part.items);
        total = part.total;
        families = part.families;
        if (items.length >= total) break;
      }
    } catch {
      if (!body.childElementCount) body.replaceChildren(h('p', { class: 'empty' }, 'The samples cannot be reached.'));
      return;
    }
    draw(items, total, families);
  }

  function draw(items, total, families) {
    const [, , about, none] = KINDS.find(([name]) => name === kind);
    words.textContent = kind === 'families' && families ? `${about} ${plural(families[0], 'family', 'families')}, ${grouped(families[1])} samples in all.` : about;
    note.hidden = S.facts.stride <= 1;
    note.textContent = S.facts.stride > 1 ? `One in ${S.facts.stride} samples is followed; page.memory_bytes_max says how many.` : '';
    if (!items.length) body.replaceChildren(h('p', { class: 'card empty' }, none));
    else if (kind === 'families') body.replaceChildren(h('div', { class: 'families' }, items.map((family) => h('section', { class: 'card family' }, h('h3', {}, plural(family.size, 'sample', 'samples')), h('div', { class: 'grid' }, family.members.map((one) => sample(one, true))), family.size > family.members.length ? h('p', { class: 'soft' }, `and ${grouped(family.size - family.members.length)} more`) : null))));
    else if (kind === 'stand-ins') body.replaceChildren(h('div', { class: 'pairs' }, items.map((one) => h('div', { class: 'card pair' }, sample(one.asked, true), h('span', { class: 'arrow' }, one.times === 1 ? 'once' : `${one.times} times`), sample(one.served, true)))));
    else body.replaceChildren(h('div', { class: 'grid' }, items.map((one) => sample(one))));
    foot.replaceChildren(...(items.length < total && !SAVED ? [h('button', { type: 'button', onclick: () => { loaded += WINDOW; load(); } }, `More (${grouped(items.length)} of ${grouped(total)})`)] : []));
  }

  return {
    root,
    enter(what) {
      const next = KINDS.some(([name]) => name === what) ? what : 'hardest';
      if (next !== kind) { loaded = WINDOW; body.replaceChildren(); }
      kind = next;
      sub.replaceChildren(...KINDS.map(([name, title]) => h('a', { href: `#data/${name}`, role: 'tab', 'aria-selected': name === kind, tabindex: name === kind ? 0 : -1 }, title)));
      seen = null;
    },
    // Once per epoch is enough: pictures that jump about cannot be looked at.
    update() {
      const now = `${kind} ${S.epochs.length} ${S.ended} ${S.facts.boot}`;
      if (seen !== now) { seen = now; load(); }
    },
  };
}

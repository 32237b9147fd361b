// Elements and words. Text from outside only ever becomes text, never markup.
const $ = (id) => document.getElementById(id);
const SVG = 'http://www.w3.org/2000/svg';

function h(tag, attrs, ...children) {
  const el = document.createElement(tag);
  for (const [key, value] of Object.entries(attrs || {})) {
    if (value === null || value === undefined || (value === false && !key.startsWith('aria-'))) continue;
    if (key.startsWith('on')) el.addEventListener(key.slice(2), value);
    else if (key === 'style') Object.entries(value).forEach(([k, v]) => el.style.setProperty(k, v));
    else el.setAttribute(key, value === true && !key.startsWith('aria-') ? '' : value);
  }
  el.append(...children.flat(9).filter((child) => child !== null && child !== undefined && child !== false));
  return el;
}

function s(tag, attrs, ...children) {
  const el = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(attrs || {})) {
    if (key === 'style') Object.entries(value).forEach(([k, v]) => el.style.setProperty(k, v));
    else el.setAttribute(key, value);
  }
  el.append(...children);
  return el;
}

const known = (x) => typeof x === 'number' && isFinite(x);
const grouped = (x) => (known(x) ? Math.round(x).toLocaleString('en-GB') : '–');
const plural = (n, one, many) => `${grouped(n)} ${n === 1 ? one : many}`;
const share = (x, digits = 0) => (known(x) ? `${(x * 100).toFixed(digits)} %` : '–');
const times = (x) => (known(x) ? `${x.toFixed(x < 10 ? 2 : 1)}×` : '–');

function rate(x) {
  if (!known(x)) return '–';
  return x >= 1e6 ? `${(x / 1e6).toFixed(2)} M` : x >= 1e5 ? `${(x / 1e3).toFixed(0)} k` : grouped(x);
}

function bytes(x) {
  if (!known(x)) return '–';
  const units = ['B', 'kB', 'MB', 'GB', 'TB', 'PB'];
  let i = 0;
  while (Math.abs(x) >= 1000 && i < units.length - 1) { x /= 1000; i += 1; }
  return `${i === 0 || x >= 100 ? x.toFixed(0) : x.toFixed(1)} ${units[i]}`;
}

function seconds(x) {
  if (!known(x)) return '–';
  if (x === 0) return '0 s';
  if (x < 1e-3) return `${(x * 1e6).toFixed(0)} µs`;
  if (x < 1) return `${(x * 1e3).toFixed(x < 0.01 ? 1 : 0)} ms`;
  if (x < 100) return `${x.toFixed(1)} s`;
  if (x < 3600) return `${Math.floor(x / 60)}:${String(Math.floor(x % 60)).padStart(2, '0')} min`;
  if (x < 86400) return `${Math.floor(x / 3600)}:${String(Math.floor((x / 60) % 60)).padStart(2, '0')} h`;
  return `${Math.floor(x / 86400)} d ${Math.floor((x / 3600) % 24)} h`;
}

// A word of the program (`hand_over`, `bytes_sent`) as people write it.
const spelled = (name) => String(name).replaceAll('_', ' ');
// A label that is only a number would be taken for another sample's.
const className = (one) => (one.class === null || one.class === undefined ? (known(one.label) ? `class ${one.label}` : '') : /^\d+$/.test(one.class) ? `class ${one.class}` : one.class);

// A line without axes: gaps where there is nothing.
function spark(values, width = 120, height = 24, label = '') {
  const some = values.filter(known);
  const root = s('svg', { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: 'none', 'aria-hidden': label ? 'false' : 'true' });
  if (label) { root.setAttribute('role', 'img'); root.setAttribute('aria-label', label); }
  if (!some.length) return root;
  const low = Math.min(...some), high = Math.max(...some), span = high - low || 1;
  const x = (i) => (values.length < 2 ? width / 2 : 3 + (i * (width - 6)) / (values.length - 1));
  const y = (v) => height - 3 - ((v - low) / span) * (height - 6);
  let path = '', pen = false;
  values.forEach((v, i) => {
    if (!known(v)) { pen = false; return; }
    const alone = !pen && !known(values[i + 1]);
    path += alone ? `M${(x(i) - 1.5).toFixed(1)} ${y(v).toFixed(1)}h3` : `${pen ? 'L' : 'M'}${x(i).toFixed(1)} ${y(v).toFixed(1)}`;
    pen = true;
  });
  root.append(s('path', { class: 'spark', d: path }));
  return root;
}

// The playground: what the six algorithms make of the same requests. All levels and decisions are the engine's; between
// two answers the page lets a bucket fall evenly, as the engine does.

import { $, ask, h, span, svg } from './common.js';

const texts = {
  fixed_window: ['Fixed window', 'Counts from one boundary to the next: twice the limit may pass around one.'],
  sliding_window: ['Sliding window', 'Counts the window that ends now, in ten parts; the oldest part in proportion.'],
  sliding_log: ['Sliding log', 'Remembers each request: exact, and the dearest in memory.'],
  token_bucket: ['Token bucket', 'A request takes a token; tokens come back evenly. Admits a burst, then the rate.'],
  leaky_bucket: ['Leaky bucket', 'A request pours in, and the bucket leaks evenly. A full bucket denies.'],
  leaky_queue: ['Leaky queue', 'Admitted requests wait for their turn, so that they go out evenly.'],
};
const names = Object.keys(texts);
const width = 240, height = 96;
const cards = new Map();
let session, latest, answeredAt, sent, busy, owed, timer, last, inView;

function startAnew() {
  session = [...crypto.getRandomValues(new Uint8Array(8))].map((b) => b.toString(16).padStart(2, '0')).join('');
  latest = undefined;
  sent = []; // {at, allowed by algorithm}, of the last two windows
  owed = 0;
  $('outcome').textContent = '';
  if (inView) send(0);
}

// send asks the engine; n = 0 only looks. One request is under way at a time.
async function send(n) {
  if (busy || !$('controls').reportValidity()) { owed = Math.min(owed + n, 20); return; }
  busy = true;
  const of = session;
  try {
    const limit = $('limit').valueAsNumber, headers = { 'Content-Type': 'application/json' };
    const body = JSON.stringify({ session, limit, window_ms: +$('window').value, requests: n });
    const answer = await ask('/api/playground', { method: 'POST', body, headers });
    const { algorithms } = await answer.json();
    if (of === session) take(n, algorithms);
  } catch (e) {
    $('rate').value = owed = 0;
    sent = [];
    latest = undefined;
    $('outcome').textContent = `The engine cannot be asked: ${e.message}`;
  }
  busy = false;
  if (of !== session) send(0);
  wake();
}

function take(n, algorithms) {
  answeredAt = performance.now();
  latest = new Map(algorithms.map((a) => [a.algorithm, a]));
  for (let i = 0; i < n; i++) {
    sent.push({ at: answeredAt, allowed: new Map(algorithms.map((a) => [a.algorithm, a.decisions[i].allowed])) });
  }
  for (const a of algorithms) {
    const card = cards.get(a.algorithm);
    card.admitted += a.decisions.filter((d) => d.allowed).length;
    card.denied += a.decisions.filter((d) => !d.allowed).length;
  }
  if (n > 1) {
    $('outcome').textContent = `${n} requests: ` + algorithms.map((a) =>
      `${texts[a.algorithm][0]} admits ${a.decisions.filter((d) => d.allowed).length}`).join(', ') + '.';
  }
  draw();
}

// wake ticks while anything moves: somebody sends, or a level is to fall.
function wake() {
  const moving = +$('rate').value > 0 || owed > 0 || sent.length > 0 ||
    latest && [...latest.values()].some((a) => a.level > 0);
  if (!moving || document.hidden) { clearInterval(timer); timer = undefined; return; }
  if (timer) return;
  last = performance.now();
  timer = setInterval(tick, matchMedia('(prefers-reduced-motion: reduce)').matches ? 500 : 100);
}

function tick() {
  const now = performance.now(), rate = +$('rate').value;
  owed = Math.min(owed + rate * (now - last) / 1000, 20);
  last = now;
  const n = Math.floor(owed);
  if (!busy && (n > 0 || now - answeredAt > 250)) { owed -= n; send(n); }
  draw();
  wake();
}

function draw() {
  if (!latest) return;
  const now = performance.now(), window = +$('window').value, limit = $('limit').valueAsNumber;
  sent = sent.filter((s) => now - s.at < 1.5 * window);
  for (const name of names) {
    const a = latest.get(name), card = cards.get(name), passed = now - answeredAt;
    const bucket = name.endsWith('bucket') || name.endsWith('queue');
    const level = bucket && a.reset_after_ms > 0 ? a.level * Math.max(0, 1 - passed / a.reset_after_ms) : a.level;
    card.picture.replaceChildren(...(bucket ? drawBucket(name, level, limit) :
      drawWindow(name, level, now, window, a.elapsed_ms + passed)));
    const retry = Math.max(0, a.next.retry_after_ms - passed), delay = a.next.delay_ms - passed;
    const next = !a.next.allowed ? `is denied; retry in ${span(retry)}` :
      delay > 0 ? `waits ${span(delay)}` : 'passes at once';
    card.state.textContent = `${a.remaining} of ${limit} left. The next request ${next}.`;
    card.picture.setAttribute('aria-label', `${texts[name][0]}: ${Math.round(level * 100)} % of the limit in use`);
    card.totals.textContent = `${card.admitted} admitted, ${card.denied} denied`;
  }
}

// drawWindow draws requests as they move into the past, the window that counts them, and how full it is.
function drawWindow(name, level, now, window, elapsed) {
  const lane = width - 34, x = (age) => lane - 8 - age / (1.5 * window) * (lane - 8);
  const begin = Math.max(x(name === 'fixed_window' ? elapsed % window : window), 0);
  const shown = [svg('rect', { class: 'window', x: begin, y: 8, width: lane - 8 - begin, height: 68 }),
    svg('line', { class: 'axis', x1: 0, x2: lane, y1: 76, y2: 76 }),
    svg('text', { x: Math.min(begin, lane - 50), y: 90 },
      name === 'fixed_window' ? 'boundary' : `−${window / 1000} s`)];
  if (begin < lane - 90) shown.push(svg('text', { x: lane - 8, y: 90, 'text-anchor': 'end' }, 'now'));
  let row = 0;
  sent.forEach((s, i) => {
    row = i > 0 && sent[i - 1].at === s.at ? row + 1 : 0;
    const cx = x(now - s.at), cy = 70 - (row % 8) * 8;
    shown.push(s.allowed.get(name) ? svg('circle', { class: 'admitted', cx, cy, r: 3 }) :
      svg('path', { class: 'denied', d: `M${cx - 3} ${cy - 3}l6 6m0 -6l-6 6` }));
  });
  return [...shown, ...gauge(level)];
}

function gauge(level) {
  return [svg('rect', { class: 'vessel', x: width - 20, y: 8, width: 14, height: 68 }),
    svg('rect', { class: 'fill', x: width - 20, y: 76 - 68 * level, width: 14, height: 68 * level })];
}

// drawBucket draws tokens that are left, water that leaks, or requests that wait, oldest at the right.
function drawBucket(name, level, limit) {
  if (name === 'leaky_queue') { // the first is going out
    const place = (width - 40) / limit, full = level * limit, waiting = Math.ceil(full), first = full - waiting + 1;
    const shown = [];
    for (let i = 0; i < waiting; i++) {
      const x = width - 36 - (first + i) * place, w = Math.max((i ? place : first * place) - 2, 1);
      shown.push(svg('rect', { class: 'fill', x, y: 28, width: w, height: 28, rx: 2 }));
    }
    return [svg('path', { class: 'vessel', d: `M4 22H${width - 34}M4 62H${width - 34}` }), ...shown,
      svg('text', { x: width - 30, y: 46 }, 'out →'), svg('text', { x: 4, y: 84 }, `${waiting} in the queue`)];
  }
  const token = name === 'token_bucket', part = token ? 1 - level : level, top = 10, tall = 64;
  const left = 70, right = width - 70;
  return [svg('rect', { class: 'fill', x: left, y: top + tall * (1 - part), width: right - left, height: tall * part }),
    svg('path', { class: 'vessel', d: `M${left} ${top}V${top + tall}H${right}V${top}` }),
    svg('text', { x: width / 2, y: 90, 'text-anchor': 'middle' },
      token ? `${(part * limit).toFixed(1)} tokens` : `${(part * limit).toFixed(1)} of ${limit} in the bucket`)];
}

for (const name of names) {
  const card = { admitted: 0, denied: 0, state: h('p'), totals: h('p', { class: 'quiet' }),
    picture: svg('svg', { viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': texts[name][0] }) };
  cards.set(name, card);
  $('algorithms').append(h('article', { id: name }, h('h3', {}, texts[name][0]), card.picture, card.state, card.totals,
    h('p', { class: 'quiet' }, texts[name][1])));
}
$('burst').addEventListener('click', () => send(8));
$('one').addEventListener('click', () => send(1));
$('rate').addEventListener('input', () => { $('rate-value').textContent = `${$('rate').value}/s`; wake(); });
for (const id of ['limit', 'window', 'reset']) {
  $(id).addEventListener(id === 'reset' ? 'click' : 'change', () => {
    for (const card of cards.values()) card.admitted = card.denied = 0;
    startAnew();
  });
}
$('controls').addEventListener('submit', (e) => e.preventDefault());
document.addEventListener('visibilitychange', wake);
document.addEventListener('token', startAnew);
startAnew();
// Nobody asks the engine before the playground is in view.
new IntersectionObserver(([entry], observer) => {
  if (!entry.isIntersecting) return;
  observer.disconnect();
  inView = true;
  send(0);
}).observe($('playground'));

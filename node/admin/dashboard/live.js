// What the node reports, live: one stream of its status, every two seconds. The page asks for events when the status
// says that there are others. All ends while the tab is hidden.

import { $, Problem, age, ask, h, span, svg } from './common.js';

const timeout = 10e3, maxWait = 15e3, maxEvents = 100, maxNodes = 16;
let session, lastSeen, regions;
const shown = {};

// time is in UTC, as in logs, with the date if that is another one.
const time = (t) => {
  const text = new Date(t).toISOString(), today = new Date().toISOString();
  return text.slice(text.startsWith(today.slice(0, 10)) ? 11 : 0, 19).replace('T', ' ');
};
const percent = (x) => x === 0 ? '0 %' : x < 0.001 ? '< 0.1 %' : `${(100 * x).toFixed(x < 1 ? 1 : 0)} %`;
const rate = (x) => x < 10 ? x.toFixed(1).replace('.0', '') : Math.round(x).toString();
const bytes = (n) => n < 1 << 20 ? `${(n / 1024).toFixed(0)} KiB` : `${(n / (1 << 20)).toFixed(1)} MiB`;

function report(state, text) {
  $('live').dataset.state = state;
  if ($('live').textContent !== text) $('live').textContent = text;
  document.body.classList.toggle('stale', state === 'lost');
}

// run keeps the page live until the signal ends it.
async function run(signal) {
  for (let failures = 0; !signal.aborted; failures++) {
    const attempt = new AbortController();
    let silent;
    try {
      const expect = () => { clearTimeout(silent); silent = setTimeout(() => attempt.abort(), timeout); };
      expect();
      await follow(AbortSignal.any([signal, attempt.signal]), () => { expect(); failures = 0; });
    } catch (e) {
      if (signal.aborted) return;
      const why = attempt.signal.aborted ? 'the node is silent' : e instanceof Problem ? e.message : 'no connection';
      report('lost', (lastSeen ? `not live since ${time(lastSeen)}: ` : 'not live: ') + why);
      if (e.status === 401 || e.status === 403) return; // until there is another token
    } finally {
      clearTimeout(silent);
      attempt.abort();
    }
    await pause(Math.min(500 * 2 ** failures, maxWait) * (0.5 + Math.random() / 2), signal);
  }
}

const pause = (ms, signal) => new Promise((resolve) => {
  setTimeout(resolve, ms);
  signal.addEventListener('abort', resolve, { once: true });
});

// follow reads the stream: blocks of lines such as "data: JSON", each ended by an empty line.
async function follow(signal, received) {
  const stream = await ask('/api/status', { signal, headers: { Accept: 'text/event-stream' } });
  const reader = stream.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ''; ;) {
    const { value, done } = await reader.read();
    if (done) throw new Problem(0, 'the node ended the stream');
    const blocks = (rest + value).split('\n\n');
    rest = blocks.pop();
    const lines = blocks.flatMap((block) => block.split('\n')).filter((line) => line.startsWith('data: '));
    if (!lines.length) continue;
    received();
    const status = JSON.parse(lines.at(-1).slice('data: '.length));
    show(status);
    const latest = `${status.node} ${status.event} ${status.repeats}`;
    if (latest !== shown.latest) {
      const since = Math.max(0, status.event - maxEvents);
      showEvents((await (await ask(`/api/events?since=${since}`, { signal })).json()).events);
      shown.latest = latest;
    }
    lastSeen = Date.now();
    report('live', 'live');
  }
}

// table replaces the rows of a table; columns are pairs of a heading and whether it is a number.
function table(id, columns, rows, empty) {
  const head = columns.map(([text, number]) => h('th', { scope: 'col', class: number && 'number' }, text));
  const body = rows.map((row) => h('tr', {}, row.map((cell, i) => i === 0 ? h('th', { scope: 'row' }, cell) :
    h('td', { class: columns[i][1] && 'number' }, cell))));
  if (!rows.length) body.push(h('tr', {}, h('td', { colspan: columns.length, class: 'quiet' }, empty)));
  $(id).replaceChildren(h('thead', {}, h('tr', {}, head)), h('tbody', {}, body));
}

// spark draws values over time, the newest at the right.
function spark(values, name, kind) {
  const max = Math.max(...values, 1e-9);
  const points = values.map((v, i) => [i * 80 / Math.max(values.length - 1, 1), 17 - 16 * v / max]
    .map((n) => n.toFixed(1)).join(','));
  return svg('svg', { width: 80, height: 18, role: 'img', 'aria-label': name },
    svg('polyline', { class: `spark ${kind}`, points: points.join(' ') }));
}

// show shows a status (node/status.Status).
function show(s) {
  document.title = `${s.health === 'ok' ? '' : `${s.health}: `}${s.node} – edgelimit`;
  $('node').textContent = `${s.node} in ${s.region}, ${s.version}, up ${age(s.uptime_ms)}; times in UTC`;
  const well = { level: 'good', text: `All is well: ${s.regions.length === 1 ? 'there is one region' :
    `counts of all ${s.regions.length} regions arrive`}.` };
  const findings = s.health === 'ok' ? [well, ...s.summary] : s.summary;
  changed('sentences', findings, () => $('sentences').replaceChildren(...findings.map((f) =>
    h('li', { class: kinds[f.level] }, h('span', {}, f.text), f.do ? h('small', {}, `What to do: ${f.do}`) : ''))));
  regions = s.regions.map((r) => regionOf(r, Math.max(2000, 8 * s.gossip.interval_ms)));
  drawMap();
  showHealth(s);
  showLimits(s.limits, s.rules.count);
  table('members', [['Node'], ['Region'], ['Counts'], ['Behind', true], ['Round trip', true], ['Rules']],
    s.regions.flatMap((r) => r.members).map((m) => [m.self ? `${m.node} (this node)` : m.node, m.region,
      m.self ? 'own' : !m.reachable ? mark('bad', `${away(m)} since ${time(m.unreachable_since)}`) :
        m.idle ? 'arrive; idle' : 'arrive',
      m.self ? '' : age(m.staleness_ms), m.rtt_ms && !m.self ? `${m.rtt_ms.toFixed(1)} ms` : '',
      [h('code', {}, (m.rules ?? 'unknown').slice(0, 8)), m.same_rules ? '' : mark('warn', ' differs'),
        m.same_identity_key ? '' : mark('bad', ' other identity key')]]), '');
  table('top', [['Identity'], ['Rule'], ['Denials', true]], s.top.map((d) => [
    d.identity ? d.identity : h('code', {}, d.key), d.rule, `${d.error ? '≤ ' : ''}${d.denials}`]),
  'nobody was denied in the last minutes');
}

const away = (what) => what.down ? 'down' : 'cut off';
const kinds = { error: 'bad', warn: 'warn', info: 'info', good: 'good' };
const mark = (kind, text) => h('span', { class: kind }, text);

// changed renders what differs from the last time, so that readers keep their place.
function changed(name, value, render) {
  const text = JSON.stringify(value);
  if (shown[name] !== text) render();
  shown[name] = text;
}

function regionOf(r, late) {
  const nodes = r.members.map((m) => {
    const state = m.self ? 'good' : !m.reachable ? 'bad' : m.staleness_ms > late ? 'warn' : 'good';
    const label = m.self ? 'this node' : m.reachable ? `${age(m.staleness_ms)} behind` : away(m);
    return { id: m.node, here: m.self, state, label };
  });
  const lost = nodes.filter((n) => n.state === 'bad').length, behind = Math.max(0, ...r.members.map(
    (m) => m.reachable && !m.self ? m.staleness_ms : 0));
  const [state, label] = !r.reachable ? ['bad', `${away(r)} since ${time(r.unreachable_since)}`] :
    lost ? ['warn', `${lost} of ${nodes.length} nodes cut off or down`] :
      behind > late ? ['warn', `late: ${age(behind)} behind`] :
        ['good', r.own ? 'own region' : `${age(behind)} behind`];
  return { name: r.name, here: r.own, state, label, nodes };
}

function showHealth(s) {
  const { memory: m, redis, gossip: g, rules } = s, rows = [
    ['Health', mark({ ok: 'good', degraded: 'warn' }[s.health] ?? 'bad', s.health)],
    ['Rules', `${rules.count}, version ${rules.fingerprint.slice(0, 8)}`],
    ['Rules since', `${time(rules.since)}${rules.loaded ? '' : '; the last load was refused'}`],
    ['Replication', `${age(g.staleness_ms)} behind, every ${span(g.interval_ms)}`],
    ['Clock', g.clocks ? `${g.clock_ahead_ms.toFixed(1)} ms ahead of ${g.clocks} others` : 'not compared'],
    ['Redis', redis ? mark(redis.state === 'answers' ? 'good' : 'bad', redis.state) : 'none'],
    ...redis ? [['Redis writes', `${redis.pending} waiting, ${redis.failed} failed, data lost ${redis.lost} times`]] :
      [],
    ...s.strict.map((t) => [`Strict, ${t.home_region}`, t.known && !t.away ? mark('good', 'answers') :
      mark('bad', t.known ? 'does not answer' : 'not known')]),
    ['Memory', `${bytes(m.bytes)} of ${bytes(m.budget)}, ${m.keys} keys`],
    ['Evicted', m.evicted ? mark(m.evicted_full ? 'warn' : '', `${m.evicted}; half full ${m.evicted_full}, denied ${
      m.evicted_denied}`) : 'nothing'],
    ['Bans', s.bans]];
  $('health').replaceChildren(...rows.flatMap(([name, value]) => [h('dt', {}, name), h('dd', {}, value)]));
}

function showLimits(limits, count) {
  const latest = (values, r) => values.length ? values.at(-1) * 1000 / r.step_ms : 0;
  table('rules', [['Rule'], ['Allowed/s', true], ['Denied/s', true], ['Guaranteed', true], ['Estimated', true]],
    limits.map((l) => [[l.rule, h('small', {}, limitText(l))],
      ...['allowed', 'denied'].map((k) => l.recent ? [spark(l.recent[k], `${l.rule}: ${k} in the last minutes`, k),
        ` ${rate(latest(l.recent[k], l.recent))}`] : '0'),
      l.bound_ratio ? `≤ ${percent(l.bound_ratio)}` : '0 %', l.over_ratio === null ? 'unknown' :
        percent(l.over_ratio)]), 'there are no rules');
  const more = count - limits.length;
  $('more-rules').textContent = more ? `${more} more rules, with fewer decisions: edgelimit status shows all` : '';
}

function limitText(l) {
  if (!l.algorithm) return ' unlimited';
  const scope = l.scope === 'global' ? '' : `, each ${l.scope}`;
  const strict = l.strict ? ', strict' : '';
  return ` ${l.limit} in ${span(l.window_ms)}, ${l.algorithm.replaceAll('_', ' ')}${scope}${strict}`;
}

// drawMap draws this node's region at the left and the others at the right, each with its nodes and the link to it.
// A region is {name, here, state, label, nodes: [{id, here, state, label}]}; a state is good, warn or bad.
function drawMap() {
  const width = Math.max($('map').clientWidth, 280), row = 20, head = 44, gap = 14;
  const left = Math.min(220, width * 0.37), right = Math.min(260, width * 0.45), x = width - right - 1;
  const tall = (r) => head + row * (Math.min(r.nodes.length, maxNodes) + (r.nodes.length > maxNodes)) + 6;
  const own = regions.find((r) => r.here), others = regions.filter((r) => !r.here);
  const height = Math.max(tall(own), others.reduce((sum, r) => sum + tall(r) + gap, -gap)) + 2;
  const top = (height - tall(own)) / 2, shapes = [regionBox(own, 1, top, left, tall(own), head, row)];
  let y = 1;
  for (const r of others) {
    const from = top + tall(own) / 2, to = y + tall(r) / 2, middle = (left + x) / 2;
    const d = `M${left + 1} ${from}C${middle} ${from} ${middle} ${to} ${x} ${to}`;
    shapes.push(svg('path', { class: `link ${r.state}`, d }), regionBox(r, x, y, right, tall(r), head, row));
    y += tall(r) + gap;
  }
  const summary = regions.map((r) => `${r.name}: ${r.label}, ${r.nodes.length} nodes`).join('; ');
  $('map').replaceChildren(svg('svg', { width, height, role: 'img', 'aria-label': summary }, shapes));
}

// regionBox draws a region and its first nodes, those that are cut off before the others.
function regionBox(r, x, y, width, height, head, row) {
  const fit = (text, pixels) => text.length * 6.4 > pixels ? `${text.slice(0, pixels / 6.4 - 1)}…` : text;
  const bad = { bad: 0, warn: 1, good: 2 }, more = r.nodes.length - maxNodes;
  const nodes = more > 0 ? [...r.nodes].sort((a, b) => bad[a.state] - bad[b.state]).slice(0, maxNodes) : r.nodes;
  return svg('g', {}, svg('rect', { class: `region ${r.here ? 'here' : ''}`, x, y, width, height, rx: 6 }),
    svg('text', { class: 'name', x: x + 10, y: y + 19 }, fit(r.name, width - 20)),
    svg('text', { class: r.state, x: x + 10, y: y + 35 }, fit(r.label, width - 14)),
    nodes.map((n, i) => svg('g', {}, svg('title', {}, `${n.id}: ${n.label}`),
      svg('circle', { class: `dot ${n.state}`, cx: x + 15, cy: y + head + row * i + 6, r: 4 }),
      svg('text', { class: n.here ? 'here' : n.state === 'good' ? '' : n.state, x: x + 26, y: y + head + row * i + 10 },
        fit(n.here || n.state !== 'good' ? `${n.id}: ${n.label}` : n.id, width - 30)))),
    more > 0 ? svg('text', { x: x + 26, y: y + head + row * maxNodes + 10 }, `and ${more} more`) : '');
}

const legend = [['good', 'counts arrive'], ['warn', 'counts arrive late'], ['bad', 'cut off, or down']];
$('legend').replaceChildren(...legend.map(([state, text]) => h('li', {},
  svg('svg', { 'aria-hidden': 'true' }, svg('path', { class: `link ${state}`, d: 'M0 4H28' })), text)));

// showEvents shows the latest events, later ones on top.
function showEvents(events) {
  if (!events.length) return;
  $('events').replaceChildren(...events.slice(-maxEvents).reverse().map((e) => {
    const attrs = Object.entries(e.attrs ?? {}).filter(([, value]) => value)
      .map(([name, value]) => ` ${name}=${value}`).join('');
    return h('li', {}, h('time', { datetime: e.time }, time(e.time)),
      e.level === 'info' ? '' : mark(kinds[e.level], `${e.level}: `), e.text, h('small', {}, attrs),
      e.repeated ? ` (${e.repeated} more)` : '');
  }));
}

function follows() {
  session?.abort();
  session = undefined;
  if (document.hidden) {
    report('paused', 'paused while hidden');
  } else {
    session = new AbortController();
    run(session.signal);
  }
}
document.addEventListener('visibilitychange', follows);
document.addEventListener('token', follows);
addEventListener('resize', () => { if (regions) drawMap(); });
follows();

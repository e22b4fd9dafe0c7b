// Helpers of both scripts: elements, requests to the node, the token, the theme. All text goes in as text nodes.

const namespace = 'http://www.w3.org/2000/svg';

function build(e, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value !== undefined && value !== false) e.setAttribute(name, value);
  }
  e.append(...children.flat().filter((c) => c !== undefined && c !== ''));
  return e;
}
export const h = (tag, attributes, ...children) => build(document.createElement(tag), attributes, children);
export const svg = (tag, attributes, ...children) =>
  build(document.createElementNS(namespace, tag), attributes, children);
export const $ = (id) => document.getElementById(id);

// span is a duration in the largest units that lose nothing, as the command line has it.
export function span(ms) {
  ms = Math.round(ms);
  if (ms < 1000) return `${ms} ms`;
  if (ms < 100e3 && ms % 60e3) return `${ms / 1e3} s`;
  let rest = Math.ceil(ms / 1e3);
  const parts = [];
  const add = (unit, one, many) => {
    const n = Math.floor(rest / unit);
    rest %= unit;
    if (n) parts.push(n === 1 ? one : `${n} ${many}`);
  };
  if (rest >= 48 * 3600 || rest % 86400 === 0) add(86400, '1 day', 'days');
  if (rest >= 6000 || rest % 3600 === 0) add(3600, '1 h', 'h');
  add(60, '1 min', 'min');
  add(1, '1 s', 's');
  return parts.join(' ');
}

// age is a duration that goes on: of the smaller units nothing.
export function age(ms) {
  const unit = ms < 1e3 ? 1 : ms < 1e5 ? 100 : ms < 48 * 3600e3 ? 60e3 : 3600e3;
  return span(Math.floor(ms / unit) * unit);
}

// Problem is an answer other than 2xx, or none.
export class Problem extends Error {
  constructor(status, detail) { super(detail); this.status = status; }
}

const tokenKey = 'edgelimit token';

// ask sends a request with the token, if there is one. The signal ends it, also while its body is read.
export async function ask(path, options = {}) {
  const headers = { ...options.headers };
  const token = sessionStorage.getItem(tokenKey);
  if (token) headers.Authorization = `Bearer ${token}`;
  const answer = await fetch(path, { ...options, headers, cache: 'no-store', credentials: 'same-origin' });
  if (answer.ok) return answer;
  let detail = `${answer.status} ${answer.statusText}`;
  try { detail = (await answer.json()).detail ?? detail; } catch { /* no problem document */ }
  if (answer.status === 401) askForToken(token ? detail : '');
  throw new Problem(answer.status, detail);
}

function askForToken(problem) {
  $('token-problem').textContent = problem;
  if ($('token').hidden) { $('token').hidden = false; $('token-field').focus(); }
}

$('token').addEventListener('submit', (e) => {
  e.preventDefault();
  sessionStorage.setItem(tokenKey, $('token-field').value.trim());
  $('token-field').value = '';
  $('token').hidden = true;
  document.dispatchEvent(new Event('token'));
});

const themes = ['system', 'dark', 'light'];
function useTheme(theme) {
  document.documentElement.dataset.theme = theme;
  $('theme').textContent = `Theme: ${theme}`;
}
useTheme(themes.includes(localStorage.getItem('theme')) ? localStorage.getItem('theme') : 'system');
$('theme').addEventListener('click', () => {
  const next = themes[(themes.indexOf(document.documentElement.dataset.theme) + 1) % themes.length];
  localStorage.setItem('theme', next);
  useTheme(next);
});

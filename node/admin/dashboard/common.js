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

export function span(ms) {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60e3) return `${(ms / 1e3).toFixed(1).replace('.0', '')} s`;
  if (ms < 3600e3) return `${Math.floor(ms / 60e3)} min`;
  if (ms < 48 * 3600e3) return `${Math.floor(ms / 3600e3)} h`;
  return `${Math.floor(ms / 86400e3)} days`;
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
